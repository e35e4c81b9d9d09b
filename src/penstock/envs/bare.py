"""What lies below Gymnasium's own wrappers, and what a reset does not renew."""

from typing import Any

from gymnasium import Env, wrappers

_PEELED = (wrappers.TimeLimit, wrappers.OrderEnforcing, wrappers.PassiveEnvChecker)


def peel(environment: Env[Any, Any]) -> tuple[Env[Any, Any], int | None]:
    """The environment below Gymnasium's own outer wrappers, and the time limit they kept."""
    limit: int | None = None
    while type(environment) in _PEELED:
        if isinstance(environment, wrappers.TimeLimit):
            steps = environment._max_episode_steps
            limit = steps if limit is None else min(limit, steps)
        assert isinstance(
            environment, wrappers.TimeLimit | wrappers.OrderEnforcing | wrappers.PassiveEnvChecker
        )
        environment = environment.env
    return environment, limit


def world_of(environment: Env[Any, Any]) -> object | None:
    """The Box2D world of an environment, if it has one."""
    found = getattr(environment.unwrapped, "world", None)
    return found if type(found).__module__.startswith("Box2D") else None
