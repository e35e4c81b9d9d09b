"""What a policy sees and does, read from JSON with the standard library alone.

The same fields as `penstock.model.policy.PolicyDescription`, which needs packages that a client does not have;
a test fails where the two differ.
"""

import json
import types
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from penstock.errors import Damaged

MAX_TEXT = 1 << 20


@dataclass(frozen=True, slots=True)
class Column:
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Leaf:
    path: tuple[str | int, ...]
    kind: Literal["box", "discrete", "multi_discrete", "multi_binary"]
    column: str
    offset: int = 0
    size: int = 0
    sizes: tuple[int, ...] = ()
    start: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ObservationLayout:
    columns: dict[str, Column]
    leaves: tuple[Leaf, ...]

    @property
    def images(self) -> tuple[str, ...]:
        return tuple(name for name, column in self.columns.items() if len(column.shape) == 3)


@dataclass(frozen=True, slots=True)
class ActionLayout:
    kind: Literal["discrete", "multi_discrete", "box"]
    sizes: tuple[int, ...] = ()
    start: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    masked: bool = False

    @property
    def choices(self) -> int:
        return sum(self.sizes)


@dataclass(frozen=True, slots=True)
class Spaces:
    observation: ObservationLayout
    action: ActionLayout
    exact: bool = True


@dataclass(frozen=True, slots=True)
class NetworkSpec:
    body: Literal["auto", "mlp", "cnn", "items"] = "auto"
    hidden: tuple[int, ...] = (64, 64)
    activation: Literal["tanh", "relu"] = "tanh"
    convolutions: tuple[tuple[int, int, int], ...] = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
    shared: bool = False
    normalize_observations: bool = False


@dataclass(frozen=True, slots=True)
class Description:
    algorithm: str
    head: Literal["categorical", "multi_categorical", "gaussian", "squashed_gaussian", "q"]
    spaces: Spaces
    network: NetworkSpec
    duelling: bool = False


@lru_cache(maxsize=4)
def read(text: str) -> Description:
    """A description from JSON; raise Damaged where a field is missing or of the wrong kind.

    It comes with every version, so the last few are remembered.
    """
    if len(text) > MAX_TEXT:
        raise Damaged(f"a policy's description has {len(text)} letters; at most {MAX_TEXT} are read")
    try:
        return cast(Description, _build(json.loads(text), Description, "description"))
    except (ValueError, RecursionError) as error:
        raise Damaged(f"a policy's description is not JSON: {error}") from error


def _build(value: Any, kind: Any, place: str) -> Any:
    """`value` as `kind`: one of the classes above, or what they are made of."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is tuple:
        _expect(isinstance(value, list), place, "a list")
        if parts[-1] is not Ellipsis:
            _expect(len(value) == len(parts), place, f"a list of {len(parts)}")
            return tuple(_build(entry, part, place) for entry, part in zip(value, parts, strict=True))
        return tuple(_build(entry, parts[0], place) for entry in value)
    if origin is dict:
        _expect(isinstance(value, dict), place, "an object")
        return {name: _build(entry, parts[1], f"{place}.{name}") for name, entry in value.items()}
    if origin is Literal:
        _expect(value in parts, place, f"one of {', '.join(parts)}")
        return value
    if origin in (Union, types.UnionType):
        _expect(type(value) in parts, place, "a name or a number")
        return value
    if kind in (bool, int, str, float):
        fits = type(value) is kind or (kind is float and type(value) is int)
        _expect(fits, place, f"of type {kind.__name__}")
        return kind(value)
    return _build_class(value, kind, place)


def _build_class(value: Any, kind: Any, place: str) -> Any:
    _expect(isinstance(value, dict), place, "an object")
    hints, made = get_type_hints(kind), {}
    for entry in fields(kind):
        if entry.name in value:
            made[entry.name] = _build(value[entry.name], hints[entry.name], f"{place}.{entry.name}")
        elif entry.default is MISSING:
            raise Damaged(f"a policy's {place} has no {entry.name}; is the gateway older than this client?")
    return kind(**made)


def _expect(holds: bool, place: str, what: str) -> None:
    if not holds:
        raise Damaged(f"a policy's {place} is not {what}; is the gateway newer than this client?")
