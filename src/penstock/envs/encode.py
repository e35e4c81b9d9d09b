"""Raw observations in, rows of columns out, as the layout says.

Nothing is broadcast and nothing is cut: what does not fit its space exactly is a Misfit.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from penstock.model.codec import Array
from penstock.model.spaces import OBSERVATIONS, Column, Leaf, ObservationLayout

Rows = Mapping[str, Array]
Writer = Callable[[Any, Rows, int], None]


class Misfit(Exception):
    """What an environment returned does not fit its space; the text is the end of a sentence."""


class Encoder:
    """Writes one observation into row `b` of every column."""

    def __init__(self, layout: ObservationLayout) -> None:
        self._writers = [(leaf.path, _writer(leaf, layout.columns[leaf.column])) for leaf in layout.leaves]
        self.plain_shape = _plain_shape(layout)
        """Shape of the raw observation where it is its only column as it stands, else None."""

    def write(self, observation: Any, rows: Rows, b: int) -> None:
        """Write `observation`; `rows[name]` is [environments, …]."""
        for path, write in self._writers:
            value = observation
            for key in path:
                try:
                    value = value[key]
                except (KeyError, IndexError, TypeError):
                    raise Misfit(f"an observation without {key!r}, which its space has") from None
            write(value, rows, b)


def fit(observation: Any, shape: tuple[int, ...]) -> Array:
    """`observation` as an array of exactly this shape."""
    try:
        array = np.asarray(observation)
    except ValueError:
        raise Misfit(f"an observation that is no array ({type(observation).__name__})") from None
    if array.dtype.kind not in "fiub":
        raise Misfit(f"an observation that is no array of numbers ({type(observation).__name__})")
    if array.shape != shape:
        raise Misfit(f"an observation of shape {array.shape}, but its space says {shape}")
    return array


def scalar(reward: Any) -> float:
    """A reward as a Python float."""
    if isinstance(reward, float | int | np.floating | np.integer | np.bool_):
        return float(reward)
    if isinstance(reward, np.ndarray) and reward.shape == () and reward.dtype.kind in "fiub":
        return float(reward)
    shape = f" of shape {reward.shape}" if isinstance(reward, np.ndarray) else ""
    raise Misfit(f"a reward that is no number ({type(reward).__name__}{shape})")


def write_mask(mask: Any, rows: Array, b: int, parts: Array, may_be_empty: bool = False) -> None:
    """Write an action mask, given whole or as a tuple of parts; `parts` are the offsets of its parts."""
    if isinstance(mask, tuple):
        mask = np.concatenate(mask)
    array = np.asarray(mask)
    if array.dtype.kind not in "biuf" or array.size != rows.shape[1]:
        raise Misfit(f"an action mask of shape {array.shape}, but there are {rows.shape[1]} actions")
    row = rows[b]
    row[:] = array.reshape(-1)
    if not may_be_empty and not np.logical_or.reduceat(row, parts).all():
        raise Misfit("an action mask that allows no action")


def _plain_shape(layout: ObservationLayout) -> tuple[int, ...] | None:
    """Only where plain assignment is right: one vector, or one matrix or image kept as it is."""
    if len(layout.leaves) != 1:
        return None
    leaf = layout.leaves[0]
    column = layout.columns[leaf.column]
    plain = leaf.path == () and leaf.kind == "box" and leaf.shape == column.shape and column.dtype == "<f4"
    return leaf.shape if plain else None


def _writer(leaf: Leaf, column: Column) -> Writer:
    if leaf.kind == "discrete":
        return _discrete(leaf)
    if leaf.kind == "multi_discrete":
        return _multi_discrete(leaf)
    if leaf.column == OBSERVATIONS and len(column.shape) == 1:
        return _flat(leaf)
    return _whole(leaf, column)


def _flat(leaf: Leaf) -> Writer:
    shape, name, part = leaf.shape, leaf.column, slice(leaf.offset, leaf.offset + leaf.size)

    def write(value: Any, rows: Rows, b: int) -> None:
        rows[name][b, part] = fit(value, shape).reshape(-1)

    return write


def _whole(leaf: Leaf, column: Column) -> Writer:
    shape, name, byte = leaf.shape, leaf.column, column.dtype == "|u1"
    grey = len(shape) == 2 and len(column.shape) == 3
    channel_first = len(shape) == 3 and shape != column.shape

    def write(value: Any, rows: Rows, b: int) -> None:
        array = fit(value, shape)
        if byte and array.dtype != np.uint8:
            raise Misfit(f"an image of {array.dtype}, but its space says uint8")
        if grey:
            array = array[:, :, None]
        elif channel_first:
            array = array.transpose(1, 2, 0)
        rows[name][b] = array

    return write


def _discrete(leaf: Leaf) -> Writer:
    name, first, size, start = leaf.column, leaf.offset, leaf.size, leaf.start[0]

    def write(value: Any, rows: Rows, b: int) -> None:
        try:
            index = value.__index__() - start
        except (AttributeError, TypeError):
            raise Misfit(f"an observation that is no whole number ({type(value).__name__})") from None
        if not 0 <= index < size:
            raise Misfit(f"the observation {value}, but its space is {start} … {start + size - 1}")
        row = rows[name][b]
        row[first : first + size] = 0
        row[first + index] = 1

    return write


def _multi_discrete(leaf: Leaf) -> Writer:
    name, shape, part = leaf.column, leaf.shape, slice(leaf.offset, leaf.offset + leaf.size)
    sizes, start = np.array(leaf.sizes), np.array(leaf.start)
    firsts = leaf.offset + np.concatenate(([0], np.cumsum(sizes)[:-1]))

    def write(value: Any, rows: Rows, b: int) -> None:
        array = fit(value, shape)
        indices = array.reshape(-1).astype(np.int64) - start
        if array.dtype.kind not in "iu" or ((indices < 0) | (indices >= sizes)).any():
            raise Misfit(f"the observation {value}, which is outside its space")
        row = rows[name][b]
        row[part] = 0
        row[firsts + indices] = 1

    return write
