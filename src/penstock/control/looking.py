"""One close look at a run's folder: reads only what changed since the last one."""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from penstock.control.folder_rows import (
    MOST_EVALUATIONS,
    disk_bytes,
    evaluation_row,
    read_new_lines,
    read_spec,
    state_row,
)
from penstock.lineage.rows import EvaluationRow, StateRow
from penstock.loop.runs import RunFolder
from penstock.model.run import Labels, RunStatus

DISK_SECONDS = 60.0
"""Between two looks at the disk a live run takes."""
LINES_BYTES = 8 << 20

FILES = (
    "state.json", "labels.json", "spec.json", "evaluations.jsonl", "events.jsonl", "checkpoints", "checkpoints/best",
)  # fmt: skip
_SPEC, _CHECKPOINTS = FILES.index("spec.json"), slice(FILES.index("checkpoints"), len(FILES))

Signature = tuple[tuple[int, int, int] | None, ...]
T = TypeVar("T")


@dataclass(slots=True)
class Seen:
    """What is known of a folder, and how it looked when that was read."""

    modified: int
    signature: Signature
    status: RunStatus
    states: list[StateRow] = field(default_factory=list)
    events_end: int = 0
    evaluations_end: int = 0
    disk_bytes: int = 0
    disk_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Look:
    """What one look found."""

    folder: RunFolder
    seen: Seen
    labels: Labels
    spec: dict[str, Any] | None
    """None where it is as it was."""
    new_checkpoints: bool
    evaluations: list[EvaluationRow]
    """New ones only."""


def look_at(folder: RunFolder, modified: int, before: Seen | None) -> Look:
    """Raise Damaged. The signature is taken first: what changes while it reads is seen the next time."""
    signature = signature_of(str(folder.path))
    status, labels = folder.status(), folder.labels()
    if before is not None and before.status.created_at != status.created_at:
        before = None  # another run of that name
    seen = Seen(modified, signature, status)
    _read_states(folder, seen, before)
    evaluations = _read_evaluations(folder, seen, before)
    _measure(folder, seen, before)
    new_spec = before is None or before.signature[_SPEC] != signature[_SPEC]
    return Look(
        folder,
        seen,
        labels,
        read_spec(folder) if new_spec else None,
        before is None or before.signature[_CHECKPOINTS] != signature[_CHECKPOINTS],
        evaluations,
    )


def has_news(folder: RunFolder, seen: Seen) -> bool:
    """Whether a live run whose files are as they were should be looked at: its keeper is gone, or it has grown."""
    return folder.status() != seen.status or time.monotonic() - seen.disk_at > DISK_SECONDS


def signature_of(path: str) -> Signature:
    """How the files look; one that is replaced or appended to looks different afterwards."""
    return tuple(_look_of(f"{path}/{name}") for name in FILES)


def _look_of(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _read_states(folder: RunFolder, seen: Seen, before: Seen | None) -> None:
    start = 0 if before is None else before.events_end
    events, seen.events_end = read_new_lines(folder.events_file, start, LINES_BYTES)
    new = _some(state_row(folder.run, line) for line in events)
    seen.states = [*(() if before is None else before.states), *new]


def _read_evaluations(folder: RunFolder, seen: Seen, before: Seen | None) -> list[EvaluationRow]:
    start = 0 if before is None else before.evaluations_end
    lines, seen.evaluations_end = read_new_lines(folder.evaluations_file, start, LINES_BYTES)
    return _some(evaluation_row(folder.run, line) for line in lines[-MOST_EVALUATIONS:])


def _measure(folder: RunFolder, seen: Seen, before: Seen | None) -> None:
    """The disk it takes: anew when its state changes, and of a live run now and then."""
    now, live = time.monotonic(), seen.status.state.live
    if (
        before is None
        or before.status.state is not seen.status.state
        or (live and now - before.disk_at > DISK_SECONDS)
    ):
        seen.disk_bytes, seen.disk_at = disk_bytes(folder.path, stream_folder(folder)), now
    else:
        seen.disk_bytes, seen.disk_at = before.disk_bytes, before.disk_at


def stream_folder(folder: RunFolder) -> Path:
    """Where the embedded log keeps a run's experience."""
    return folder.home / "stream" / folder.run


def _some(values: Iterable[T | None]) -> list[T]:
    return [value for value in values if value is not None]
