"""What RL4Sys calls the hyperparameters, and what they are called here."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Meaning(NamedTuple):
    """A setting of ours that a parameter sets."""

    setting: str
    turned: Callable[[float], float] | None = None
    """How its number becomes ours, where it is not the same."""


def _one_minus(value: float) -> float:
    return 1.0 - value


_ON_POLICY = {"pi_lr": Meaning("learning_rate"), "ent_coef": Meaning("entropy")}
_REPLAY = {
    "batch_size": Meaning("batch"),
    "q_lr": Meaning("learning_rate"),
    "train_q_iters": Meaning("gradient_steps"),
    "buf_size": Meaning("buffer"),
    "polyak": Meaning("target_rate", _one_minus),
}
MEANINGS: Mapping[str, dict[str, Meaning]] = {
    "ppo": {
        **_ON_POLICY,
        "batch_size": Meaning("minibatch"),
        "clip_ratio": Meaning("clip_range"),
        "lam": Meaning("gae_lambda"),
        "vf_lr": Meaning("value_learning_rate"),
        "train_pi_iters": Meaning("gradient_steps"),
        "train_v_iters": Meaning("value_gradient_steps"),
    },
    "impala": {**_ON_POLICY, "lam": Meaning("vtrace_lambda")},
    "reinforce": _ON_POLICY,
    "dqn": {
        **_REPLAY,
        "epsilon": Meaning("epsilon_start"),
        "epsilon_min": Meaning("epsilon_end"),
        "epsilon_decay_steps": Meaning("epsilon_steps"),
    },
    "sac": {**_REPLAY, "pi_lr": Meaning("learning_rate")},
}
"""Algorithm → parameter → setting. A setting's own name is understood too."""

OF_THE_RUN = ("seed", "traj_per_epoch", "act_dim", "input_size", "hidden_sizes", "activation")
"""Parameters that say something else than a hyperparameter; every algorithm has them."""


def implied(algorithm: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that follow from others: a value network with a rate of its own is trained on its own."""
    own = {"vf_lr", "train_v_iters", "value_learning_rate", "value_gradient_steps", "value_epochs"}
    return {"separate": True} if algorithm == "ppo" and own & parameters.keys() else {}
