"""Between an environment's own observations and actions and the columns a policy knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import EnvironmentFault
from penstock.model.tensors import Array

if TYPE_CHECKING:
    from penstock.model.spaces import ActionLayout, Leaf, ObservationLayout


def columns_of(layout: ObservationLayout, observation: Any) -> dict[str, Array]:
    """One observation as columns without a leading axis; raise EnvironmentFault where it does not fit."""
    columns = {name: np.zeros(column.shape, column.dtype) for name, column in layout.columns.items()}
    for leaf in layout.leaves:
        try:
            _place(leaf, observation, columns[leaf.column])
        except (KeyError, IndexError, TypeError, ValueError) as error:
            where = "/".join(map(str, leaf.path)) or "as a whole"
            raise EnvironmentFault(
                f"an observation does not fit the observation space ({where}): {error}"
            ) from error
    return columns


def environment_actions(layout: ActionLayout, actions: Array) -> Array:
    """What the environment is given: choices counted from `start`, Box entries within their bounds."""
    if layout.kind == "box":
        low = np.array(layout.low, np.float32).reshape(layout.shape)
        high = np.array(layout.high, np.float32).reshape(layout.shape)
        return np.clip(actions, low, high)
    start = np.array(layout.start or 0)
    shifted: Array = actions + (start if layout.kind == "multi_discrete" else start.reshape(-1)[0])
    return shifted


def _place(leaf: Leaf, observation: Any, column: Array) -> None:
    value = observation
    for step in leaf.path:
        value = value[step]
    if leaf.kind in ("discrete", "multi_discrete"):
        at = leaf.offset
        starts = leaf.start or (0,) * len(leaf.sizes)
        for entry, size, start in zip(np.ravel(value), leaf.sizes, starts, strict=True):
            if not 0 <= entry - start < size:
                raise ValueError(f"{entry} is not one of {size} categories from {start}")
            column[at + int(entry - start)] = 1
            at += size
    elif column.ndim == 1:
        column[leaf.offset : leaf.offset + leaf.size] = np.ravel(value)
    else:
        column[...] = value
