"""What an environment shows and accepts, as plain data: no Gymnasium here.

An observation becomes one or more *columns* of fixed shape and type. All vector-like leaves (Box
vectors, one-hot Discrete and MultiDiscrete, MultiBinary) are laid side by side in the column
`observations` (float32); each image leaf keeps a column of its own, `observations/<path>` (or is
`observations` itself when it is the whole observation). A set of items stays a matrix.
"""

from typing import Literal

import msgspec

OBSERVATIONS = "observations"


class Column(msgspec.Struct, frozen=True):
    """The shape and NumPy type of one row."""

    shape: tuple[int, ...]
    dtype: str


class Leaf(msgspec.Struct, frozen=True):
    """One leaf of the observation tree: where it is, what it is, and where it goes."""

    path: tuple[str | int, ...]
    kind: Literal["box", "discrete", "multi_discrete", "multi_binary"]
    column: str
    offset: int = 0
    """First entry within the flat column; 0 for an image."""
    size: int = 0
    """How many entries it fills in a flat column."""
    sizes: tuple[int, ...] = ()
    """Categories of each part: `(n,)` for Discrete."""
    start: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    """Of a box as the environment gives it; a channel-first image differs from its column (see `envs.layout`)."""


class ObservationLayout(msgspec.Struct, frozen=True):
    """How an observation becomes columns; `leaves` in order."""

    columns: dict[str, Column]
    leaves: tuple[Leaf, ...]

    @property
    def images(self) -> tuple[str, ...]:
        """Names of the image columns (three axes), in order."""
        return tuple(name for name, column in self.columns.items() if len(column.shape) == 3)


class ActionLayout(msgspec.Struct, frozen=True):
    """Discrete(n) is `sizes=(n,)`; MultiDiscrete has several; Box has `shape`, `low`, `high`.

    `start` is what Gymnasium adds to index 0. Policies count from 0; environments add `start`.
    """

    kind: Literal["discrete", "multi_discrete", "box"]
    sizes: tuple[int, ...] = ()
    start: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    low: tuple[float, ...] = ()
    """Flattened; ±inf is written as ±3.4e38, because JSON has no infinity."""
    high: tuple[float, ...] = ()
    masked: bool = False
    """Whether the environment says which actions are allowed (one entry a category)."""

    @property
    def column(self) -> Column:
        """What one action looks like in a rollout."""
        if self.kind == "discrete":
            return Column((), "<i4")
        if self.kind == "multi_discrete":
            return Column((len(self.sizes),), "<i4")
        return Column(self.shape, "<f4")

    @property
    def choices(self) -> int:
        """Width of a mask or of the logits: the sum of all categories."""
        return sum(self.sizes)


class Spaces(msgspec.Struct, frozen=True):
    """Both sides of an environment."""

    observation: ObservationLayout
    action: ActionLayout
    exact: bool = True
    """False where the environment cannot be rebuilt from seed and actions (envpool, clients)."""
