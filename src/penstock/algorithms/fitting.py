"""Which actions an algorithm can choose: known from its settings alone, before anything runs."""

from penstock.algorithms.settings import Settings
from penstock.errors import ConfigError
from penstock.model.spaces import ActionLayout

GYMNASIUM = {"discrete": "Discrete", "multi_discrete": "MultiDiscrete", "box": "Box"}
"""Kind of an action → what Gymnasium calls it."""
ADVICE = {"discrete": "ppo or dqn", "multi_discrete": "ppo", "box": "ppo or sac"}


def check_actions(algorithm: str, settings: type[Settings], action: ActionLayout) -> None:
    """Raise ConfigError, with what to use instead, where the algorithm cannot choose such actions."""
    if action.kind not in settings.actions:
        wanted = " or ".join(GYMNASIUM[kind] for kind in settings.actions)
        raise ConfigError(
            f"{algorithm} needs {wanted} actions; this environment has {GYMNASIUM[action.kind]}: "
            f"use {ADVICE[action.kind]}"
        )
