"""A row of a policy's actions, as the environments want them: one vectorised conversion a row."""

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from penstock.model.codec import Array
from penstock.model.spaces import ActionLayout

Prepare = Callable[[Array], list[Any]]


def preparer(space: spaces.Space[Any], layout: ActionLayout) -> Prepare:
    """A function from actions [n, …] that count from 0 to n actions of `space`.

    Discrete: Python ints plus `start`. MultiDiscrete: plus `start`, in the space's type and shape.
    Box: clipped to its bounds (whole numbers are rounded first), in the space's type and shape.
    Every call makes fresh arrays: an environment may keep what it is given.
    """
    if isinstance(space, spaces.Discrete):
        return _discrete(layout.start[0])
    if isinstance(space, spaces.MultiDiscrete):
        return _multi_discrete(space)
    assert isinstance(space, spaces.Box)
    return _box(space)


def _discrete(start: int) -> Prepare:
    if start == 0:
        return lambda actions: actions.tolist()
    return lambda actions: (actions + start).tolist()


def _multi_discrete(space: spaces.MultiDiscrete) -> Prepare:
    start, shape, dtype = space.start.reshape(-1), space.shape, space.dtype
    return lambda actions: list((actions + start).astype(dtype).reshape(-1, *shape))


def _box(space: spaces.Box) -> Prepare:
    low, high, shape, dtype = space.low, space.high, space.shape, space.dtype
    whole = np.issubdtype(dtype, np.integer)

    def prepare(actions: Array) -> list[Any]:
        wanted = np.rint(actions) if whole else actions
        clipped = np.minimum(np.maximum(wanted, low), high).astype(dtype, copy=False)
        if not shape:  # a scalar Box wants arrays without axes, not NumPy scalars
            return [np.asarray(value, dtype) for value in clipped]
        return list(clipped)

    return prepare
