"""Gymnasium spaces in, layouts out: what an observation becomes, what an action is.

    Box, one axis or none (or four and more)   flat part of `observations`, float32
    Box, two axes                              a matrix of its own, float32: a set of items
    Box, three axes                            an image of its own, channels last; uint8 stays uint8
    Discrete, MultiDiscrete                    one-hot, in the flat part
    MultiBinary                                0 and 1, in the flat part
    Dict, Tuple                                their leaves, in order

A three-axis Box whose first axis is 1, 3 or 4 and whose last is not is channel-first (so is a stack of
four grey frames): its column is transposed, so that a policy only ever sees channels last. A uint8 matrix
of at least 36 × 36 is a grey picture and gets a channel axis. A set of items is anything else of two axes.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from gymnasium import Env, spaces

from penstock.errors import ConfigError
from penstock.model.spaces import OBSERVATIONS, ActionLayout, Column, Leaf, ObservationLayout, Spaces

MASK = "action_mask"
MaskSource = Literal["none", "observation", "method", "info"]
Path = tuple[str | int, ...]
Space = spaces.Space[Any]

CHANNELS = (1, 3, 4)
SMALLEST_PICTURE = 36  # what the usual three convolutions need
INFINITY = 3.4e38
WIDEST_ONE_HOT = 65_536


def describe(
    environment: Env[Any, Any], first_info: Mapping[str, Any], name: str
) -> tuple[Spaces, MaskSource]:
    """Both layouts of an environment, and where it tells which actions are allowed.

    `first_info` is what a reset returned. Raise ConfigError naming a space that is not supported.
    """
    for side in ("observation_space", "action_space"):
        space = getattr(environment, side, None)
        if not isinstance(space, spaces.Space):
            raise ConfigError(f"{name} has no {side}: set self.{side} to a gymnasium space in __init__")
    action = action_layout(environment.action_space, name)
    source = _mask_source(environment, first_info) if action.sizes else "none"
    observed = environment.observation_space
    if source == "observation":
        assert isinstance(observed, spaces.Dict)
        observed = _without_mask(observed, action, name)
    masked = action if source == "none" else _masked(action)
    return Spaces(observation_layout(observed, name), masked), source


def observation_layout(space: Space, name: str) -> ObservationLayout:
    """How observations of `space` become columns."""
    columns: dict[str, Column] = {}
    leaves: list[Leaf] = []
    width = 0
    for path, part in _walk(space, (), name):
        if isinstance(part, spaces.Box) and len(part.shape) in (2, 3):
            column = "/".join((OBSERVATIONS, *map(str, path)))
            columns[column] = _own_column(part)
            leaves.append(Leaf(path, "box", column, shape=part.shape))
        else:
            leaf = _flat_leaf(path, part, width, name)
            leaves.append(leaf)
            width += leaf.size
    if width:
        columns = {OBSERVATIONS: Column((width,), "<f4"), **columns}
    if not columns:
        raise ConfigError(f"{name} shows nothing: its observation space {space} is empty")
    return ObservationLayout(columns, tuple(leaves))


def action_layout(space: Space, name: str) -> ActionLayout:
    """What actions of `space` look like to a policy."""
    if isinstance(space, spaces.Discrete):
        return ActionLayout("discrete", sizes=(int(space.n),), start=(int(space.start),))
    if isinstance(space, spaces.MultiDiscrete):
        return ActionLayout("multi_discrete", sizes=_integers(space.nvec), start=_integers(space.start))
    if isinstance(space, spaces.Box):
        return ActionLayout("box", shape=space.shape, low=_bounds(space.low), high=_bounds(space.high))
    advice = "flatten it into one MultiDiscrete or Box with a wrapper"
    if isinstance(space, spaces.MultiBinary):
        advice = f"use MultiDiscrete([2] * {math.prod(space.shape)}) instead"
    raise ConfigError(f"{name} takes actions of {space}, which is not supported; {advice}")


def _walk(space: Space, path: Path, name: str) -> list[tuple[Path, Space]]:
    """The leaves of a space, in order."""
    if isinstance(space, spaces.Dict):
        return [leaf for key, part in space.spaces.items() for leaf in _walk(part, (*path, str(key)), name)]
    if isinstance(space, spaces.Tuple):
        return [leaf for index, part in enumerate(space.spaces) for leaf in _walk(part, (*path, index), name)]
    if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return [(path, space)]
    raise ConfigError(
        f"{name} observes {space}{_at(path)}, which is not supported; "
        "turn it into a Box with a wrapper, or leave it out with gymnasium.wrappers.FilterObservation"
    )


def _own_column(box: spaces.Box) -> Column:
    byte = box.dtype == np.uint8
    if len(box.shape) == 2:
        if byte and min(box.shape) >= SMALLEST_PICTURE:
            return Column((*box.shape, 1), "|u1")
        return Column(box.shape, "<f4")
    first, middle, last = box.shape
    channel_first = first in CHANNELS and last not in CHANNELS
    shape = (middle, last, first) if channel_first else box.shape
    return Column(shape, "|u1" if byte else "<f4")


def _flat_leaf(path: Path, space: Space, offset: int, name: str) -> Leaf:
    if isinstance(space, spaces.Box):
        return Leaf(path, "box", OBSERVATIONS, offset, math.prod(space.shape), shape=space.shape)
    if isinstance(space, spaces.MultiBinary):
        return Leaf(
            path, "multi_binary", OBSERVATIONS, offset, math.prod(space.shape), shape=tuple(space.shape)
        )
    assert isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
    sizes = _integers(space.n if isinstance(space, spaces.Discrete) else space.nvec)
    if sum(sizes) > WIDEST_ONE_HOT:
        raise ConfigError(
            f"{name} observes {space}{_at(path)}, too many categories for a one-hot vector; "
            "give it as a Box with a wrapper"
        )
    kind: Literal["discrete", "multi_discrete"] = (
        "discrete" if isinstance(space, spaces.Discrete) else "multi_discrete"
    )
    return Leaf(
        path, kind, OBSERVATIONS, offset, sum(sizes), sizes, _integers(space.start), tuple(space.shape or ())
    )


def _mask_source(environment: Env[Any, Any], first_info: Mapping[str, Any]) -> MaskSource:
    space = environment.observation_space
    if isinstance(space, spaces.Dict) and MASK in space.spaces:
        return "observation"
    if environment.has_wrapper_attr("action_masks") and callable(
        environment.get_wrapper_attr("action_masks")
    ):
        return "method"
    return "info" if first_info.get(MASK) is not None else "none"


def _without_mask(space: spaces.Dict, action: ActionLayout, name: str) -> spaces.Dict:
    mask = space.spaces[MASK]
    parts = [part for _, part in _walk(mask, (MASK,), name)]
    width = sum(math.prod(part.shape or ()) for part in parts)
    if width != action.choices:
        raise ConfigError(f"{name} has {action.choices} actions, but its observed {MASK} has {width} entries")
    return spaces.Dict([(key, part) for key, part in space.spaces.items() if key != MASK])


def _masked(action: ActionLayout) -> ActionLayout:
    return ActionLayout(action.kind, sizes=action.sizes, start=action.start, masked=True)


def _integers(values: Any) -> tuple[int, ...]:
    return tuple(int(value) for value in np.asarray(values).ravel())


def _bounds(values: Any) -> tuple[float, ...]:
    return tuple(np.clip(np.asarray(values, np.float64), -INFINITY, INFINITY).ravel().tolist())


def _at(path: Path) -> str:
    return f" at {'/'.join(map(str, path))!r}" if path else ""
