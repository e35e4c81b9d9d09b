"""Starting, watching and ending processes. The keeper decides; an executor only does.

`launch` returns at once. `poll` tells, without blocking, whether a worker still runs. `stop` asks it
to end, `kill` does not ask; both may be called for one that has ended already.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Protocol


class Exit(IntEnum):
    """How a worker says why it ended; anything else is a crash."""

    FINISHED = 0
    """The run is done: a stop condition holds."""
    DRAINED = 10
    """It was asked to end, saved its work and ended."""
    REPLACED = 11
    """Another learner has taken the run over."""
    HOPELESS = 12
    """A setting is wrong; starting again cannot help."""
    ENVIRONMENT = 13
    """The environment broke its promise."""
    UNREACHABLE = 14
    """The log's brokers are away; starting again helps once they are back."""


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """One process: what it runs and with what."""

    name: str
    arguments: tuple[str, ...]
    log: Path
    threads: int = 1
    nice: int = 0
    cpus: tuple[int, ...] = ()
    """Processors it may run on; none named: all."""
    memory_bytes: int | None = None
    """Most memory of its data."""
    environment: dict[str, str] = field(default_factory=dict)
    descriptors: tuple[int, ...] = ()
    """Open files that the worker inherits under the same numbers."""


class Worker(Protocol):
    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""

    def stop(self) -> None:
        """Ask it to end; return at once."""

    def kill(self) -> None:
        """End it now."""


class Executor(Protocol):
    @property
    def place(self) -> str:
        """Where its workers run, in words for people."""

    def launch(self, spec: WorkerSpec) -> Worker: ...
