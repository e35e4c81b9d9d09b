"""A run and its states: what may follow what, and what is known of it from outside."""

import re
from enum import StrEnum
from random import Random

import msgspec

from penstock.errors import Conflict

FORMAT = 1
"""Version of `state.json`."""

RUN_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
"""A run's id is also a folder's and a topic's name: nothing else is ever accepted."""

LETTERS, DIGITS = "bcdfghjkmnpqrstvwxz", "23456789"


class RunState(StrEnum):
    PENDING = "pending"
    """Described, its processes are being started."""
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    """A last checkpoint is being written."""
    STOPPED = "stopped"
    """Somebody ended it."""
    DONE = "done"
    """A stop condition held."""
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    """It has no live process."""

    @property
    def live(self) -> bool:
        """Whether processes are expected; such a run cannot be resumed."""
        return self in LIVE


LIVE = frozenset({RunState.PENDING, RunState.RUNNING, RunState.STOPPING})

_ENDS = {RunState.STOPPED, RunState.FAILED, RunState.INTERRUPTED}
_AGAIN = frozenset({RunState.PENDING, RunState.RUNNING})
NEXT: dict[RunState, frozenset[RunState]] = {
    RunState.PENDING: frozenset({RunState.RUNNING, RunState.STOPPING, *_ENDS}),
    RunState.RUNNING: frozenset({RunState.PAUSED, RunState.STOPPING, RunState.DONE, *_ENDS}),
    RunState.PAUSED: frozenset({*_AGAIN, RunState.STOPPING, *_ENDS}),
    RunState.STOPPING: frozenset({RunState.PAUSED, RunState.DONE, *_ENDS}),
    RunState.STOPPED: _AGAIN,
    RunState.DONE: _AGAIN,
    RunState.FAILED: _AGAIN,
    RunState.INTERRUPTED: _AGAIN | {RunState.STOPPED, RunState.FAILED},
}
"""Which states may follow; a run in one that is not `live` can be resumed."""


class Keeper(msgspec.Struct, frozen=True):
    """A process, named so that another one with its pid is never taken for it."""

    pid: int
    host: str
    started: float
    """When it started: seconds since the machine booted, which no clock change moves."""
    boot: str = ""
    """Which boot that was."""


class Labels(msgspec.Struct, frozen=True, kw_only=True):
    """What people call a run: `labels.json`."""

    project: str = "default"
    tags: tuple[str, ...] = ()
    group: str | None = None
    """Runs that differ in their seed only share it."""
    note: str = ""


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What `state.json` holds and `show` prints."""

    run: str
    state: RunState
    environment: str
    algorithm: str
    seed: int
    created_at: float
    """Seconds since 1970, as the two below."""
    started_at: float | None = None
    ended_at: float | None = None
    steps: int = 0
    """Environment steps learned from."""
    episodes: int = 0
    mean_return: float | None = None
    """Over the last `stop.window` training episodes."""
    updates: int = 0
    version: str | None = None
    """EPOCH.STEP of the newest policy."""
    seconds: float = 0.0
    """Seconds of training, over all resumptions."""
    steps_per_second: float = 0.0
    weights_sha256: str | None = None
    checkpoint: str | None = None
    """EPOCH.STEP of the newest checkpoint."""
    reason: str | None = None
    """Why it failed, stopped or is done."""
    keeper: Keeper | None = None
    actors: int = 0
    restarts: int = 0
    """Of actors and learner, since the run began."""
    managed: bool = False
    """Whether a server keeps it going: then one that was interrupted is resumed."""
    command: str | None = None
    """Id of the last command to start, stop, pause or resume that its keeper knew."""
    format: int = FORMAT

    def to(self, state: RunState, reason: str | None = None) -> "RunStatus":
        """The same run in another state; raise Conflict where the table does not allow it."""
        if state not in NEXT[self.state]:
            raise Conflict(f"run {self.run} is {self.state}; it cannot become {state}")
        return msgspec.structs.replace(self, state=state, reason=reason)


def run_id(environment: str, randomness: Random) -> str:
    """A short name for people and paths, such as `cartpole-k3v9`; unique only by chance."""
    name = environment.rsplit(":", 1)[-1].rsplit("/", 1)[-1]
    name = re.sub(r"-v\d+$", "", name)
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:32].strip("-") or "run"
    suffix = "".join(randomness.choice(letters) for letters in (LETTERS, DIGITS, LETTERS, DIGITS))
    return f"{slug}-{suffix}"
