"""What an environment did wrong, in one sentence that names the place."""

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.envs.encode import Misfit
from penstock.errors import EnvironmentFault
from penstock.model.codec import Array
from penstock.model.rollout import Block

NOTHING = object()
"""Stands for a call that did not come back."""

_OLD = "this is the old Gym API: derive from gymnasium.Env"


def explain(error: Exception, place: str, returned: Any) -> str:
    """The rest of a sentence that begins with the environment's name.

    `place` is as in "in step 3 of episode 4"; `returned` is what the call gave back, or NOTHING.
    """
    if isinstance(error, Misfit):
        return f"returned {error}, {place}"
    raised_inside = error.__traceback__ is not None and error.__traceback__.tb_next is not None
    if not raised_inside and (problem := wrong_step(returned)):
        return f"{problem}, {place}"
    if isinstance(error, TypeError) and "'seed'" in str(error):
        return f"has a reset() that takes no seed; {_OLD} and accept reset(*, seed=None, options=None)"
    text = " ".join(str(error).split())
    return f"raised {type(error).__name__} {place}{': ' if text else ''}{text}"


def wrong_step(returned: Any) -> str:
    """Why this is not (observation, reward, terminated, truncated, info), or nothing."""
    if returned is NOTHING:
        return ""
    if not isinstance(returned, tuple):
        return f"returned a {type(returned).__name__} from step() instead of five values"
    if len(returned) == 4:
        return f"returned four values from step(); {_OLD} and return terminated and truncated apart"
    if len(returned) != 5:
        return f"returned {len(returned)} values from step() instead of five"
    for name, value in zip(("terminated", "truncated"), returned[2:4], strict=True):
        if not isinstance(value, bool | int | np.bool_):
            return f"returned {name} as {type(value).__name__} instead of bool"
    return ""


def wrong_reset(returned: Any) -> str:
    """Why this is not (observation, info), or nothing."""
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], dict):
        return ""
    return f"did not return (observation, info) from reset(); {_OLD}"


def check_block(block: Block, name: Callable[[int], str]) -> None:
    """Raise EnvironmentFault for the first number in a filled block that is not finite.

    One vectorised pass over a whole rollout: nothing is looked at while stepping.
    """
    _check_rows("the reward", block.rewards, name, 0)
    for column, rows in block.observations.items():
        if rows.dtype.kind == "f":
            _check_rows(column, rows, name, 1)
    for t, b, final, _ in block.finals:
        for column, values in final.items():
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                where = _where(np.argwhere(~np.isfinite(values))[0])
                raise EnvironmentFault(_sentence(name(b), column, where, values, f"at the end in row {t}"))


def _check_rows(column: str, rows: Array, name: Callable[[int], str], shift: int) -> None:
    finite = np.isfinite(rows)
    if finite.all():
        return
    t, b, *index = (int(value) for value in np.argwhere(~finite)[0])
    made = f"by step {t - shift} of the rollout" if t >= shift else "before the first step of the rollout"
    raise EnvironmentFault(_sentence(name(b), column, _where(index), rows[t, b], made))


def _sentence(who: str, column: str, where: str, values: Array, made: str) -> str:
    bad = np.asarray(values)[~np.isfinite(values)].ravel()[0]
    return f"{who} gave {bad} in {column}{where}, {made}; observations and rewards must be finite"


def _where(index: Any) -> str:
    return f"[{', '.join(str(int(part)) for part in index)}]" if len(index) else ""
