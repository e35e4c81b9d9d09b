"""What the database holds, as frozen data; times are seconds since 1970."""

from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

T = TypeVar("T")

Outcome = Literal["applied", "refused"]
EvaluationState = Literal["queued", "running", "done", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One run: its status as its folder tells it, its labels, and what is wanted of it."""

    run: str
    state: str
    environment: str
    algorithm: str
    seed: int
    created_at: float
    started_at: float | None = None
    ended_at: float | None = None
    steps: int = 0
    episodes: int = 0
    mean_return: float | None = None
    updates: int = 0
    version: str | None = None
    seconds: float = 0.0
    steps_per_second: float = 0.0
    weights_sha256: str | None = None
    checkpoint: str | None = None
    reason: str | None = None
    actors: int = 0
    restarts: int = 0
    managed: bool = False
    """Whether a server keeps it going."""
    project: str = "default"
    tags: tuple[str, ...] = ()
    group: str | None = None
    """Runs of one `--seeds` share it."""
    note: str = ""
    stream: str = "embedded"
    """The address of its log."""
    spec: dict[str, Any] = field(default_factory=dict)
    """In its file form."""
    desired: dict[str, Any] = field(default_factory=dict)
    """`model.commands.Desired` as builtins."""
    position: dict[str, int] = field(default_factory=dict)
    """Where in `commands.control` its commands begin: partition (as a word) → offset."""
    disk_bytes: int = 0
    revision: int = 0
    """Grows with every change of the row; set by the database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRow:
    """One accepted command and what came of it: the audit trail."""

    id: str
    run: str
    verb: str
    arguments: dict[str, Any]
    who: str
    at: float
    outcome: Outcome
    reason: str | None = None
    old: dict[str, Any] | None = None
    """What it changed, as it was."""
    new: dict[str, Any] | None = None
    applied_at: float
    request: str = ""
    """A hash of what was asked under an Idempotency-Key."""
    sequence: int = 0
    """Its place in the trail; set by the database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRow:
    """One change of a run's state."""

    run: str
    state: str
    reason: str | None
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRow:
    run: str
    version: str
    at: float
    bytes: int
    steps: int | None = None
    best: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRow:
    """One evaluation, asked for or periodic."""

    id: str
    """The command that asked for it; of a periodic one `RUN:CHECKPOINT:TIME`."""
    run: str
    state: EvaluationState
    checkpoint: str
    episodes: int
    seed: int = 0
    at: float
    mean: float | None = None
    std: float | None = None
    returns: tuple[float, ...] = ()
    lengths: tuple[int, ...] = ()
    seconds: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """A token; only its hash is known."""

    id: str
    name: str
    role: str
    sha256: str
    created_at: float
    created_by: str
    expires_at: float | None = None
    revoked_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Which runs, in which order. Words that are None ask for all."""

    project: str | None = None
    tag: str | None = None
    group: str | None = None
    states: tuple[str, ...] = ()
    environment: str | None = None
    algorithm: str | None = None
    search: str | None = None
    """Part of an id, environment, algorithm, tag or note, whatever its case."""
    sort: str = "-created_at"
    """A column of SORTS, with - for descending."""
    limit: int = 50
    cursor: str | None = None


SORTS = ("created_at", "run", "steps", "mean_return", "steps_per_second", "environment", "state")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    items: list[T]
    next: str | None
    """Cursor of the next page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectRow:
    """A project and what its runs come to."""

    project: str
    runs: int
    live: int
    """Of them pending, running or stopping."""
    disk_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """Runs that differ in their seed only, in the order of their seeds."""

    group: str
    runs: tuple[str, ...]
    seeds: tuple[int, ...]
