"""One run's files in, its news out: how it stands, its numbers, its log lines, its events."""

import math
import os
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.control.tails import Lines, LogTails, Tail
from penstock.errors import Damaged
from penstock.loop.runs import RunFolder
from penstock.model.run import LIVE, RunStatus

POINTS = 4
"""The most reports in one message; of more, some evenly spread with the newest among them."""
MOST_LINES = 200
"""The most lines of one process, or events, in one message."""
MOST_LETTERS = 4_000
"""The longest log line that is told whole."""
KEEPER_SECONDS = 1.0
"""How often a live run's keeper is looked for."""
DIGITS = 7
"""Of a number in a message: finer differences are for the REST interface."""

AXES = ("steps", "seconds", "time")
STATUS = (
    "state", "reason", "environment", "algorithm", "seed", "created_at", "started_at", "ended_at", "steps",
    "episodes", "mean_return", "updates", "version", "seconds", "steps_per_second", "checkpoint", "actors",
    "restarts", "managed",
)  # fmt: skip
LABELS = ("project", "tags", "group", "note")

Signature = tuple[tuple[int, int, int], ...]


class RunWatch:
    """Looks into one run's folder. Used by one thread at a time."""

    def __init__(self, folder: RunFolder, *, new: bool) -> None:
        """A run that is `new` is told from its beginning."""
        self.folder = folder
        self.live = True
        self._new = new
        self._signature: Signature = ()
        self._standing: dict[str, Any] = {}
        self._kept_at = 0.0
        self._metrics: Tail | None = None
        self._events: Tail | None = None
        self._logs: LogTails | None = None
        if not new:
            self._look()

    def follow(self, kinds: frozenset[str]) -> None:
        """Have positions in the files of these kinds, and forget those of others."""
        self._metrics = self._tail("metrics" in kinds, self._metrics, "metrics_file")
        self._events = self._tail("events" in kinds, self._events, "events_file")
        if "logs" not in kinds:
            self._logs = None
        elif self._logs is None:
            self._logs = LogTails(self.folder.logs, from_start=self._new)

    def news(self, kinds: frozenset[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """What is new since the last call, as (kind, body): at most one of each kind."""
        self.follow(kinds)
        self._new = False
        changed = self._look()
        if changed and "states" in kinds:
            yield "states", self._standing
        if self._metrics is not None and (body := reports(self._metrics.read())):
            yield "metrics", body
        if self._events is not None and (body := events(self._events.read())):
            yield "events", body
        if self._logs is not None and (found := self._logs.read()):
            yield "logs", {"processes": {name: log_lines(lines) for name, lines in found.items()}}

    def _tail(self, wanted: bool, tail: Tail | None, file: str) -> Tail | None:
        if not wanted:
            return None
        return tail or Tail(getattr(self.folder, file), from_start=self._new)

    def _look(self) -> bool:
        """Read how the run stands if its files changed, or its keeper may have died; say whether that changed."""
        signature = tuple(_signature(path) for path in (self.folder.state_file, self.folder.labels_file))
        now = time.monotonic()
        if signature == self._signature and not (self.live and now - self._kept_at > KEEPER_SECONDS):
            return False
        try:
            standing = _standing(self.folder)
        except Damaged:  # it may be half removed; the next look tells
            return False
        self._signature, self._kept_at = signature, now
        before, self._standing = self._standing, standing
        self.live = standing["state"] in LIVE
        return standing != before


def reports(lines: Lines) -> dict[str, Any]:
    """Columns of the newest reports; empty where there is none."""
    rows = [row for line in thinned(lines.lines, POINTS) if (row := _object(line)) and "steps" in row]
    if not rows:
        return {}
    names = dict.fromkeys([*AXES, *(name for row in rows for name in row)])
    columns = {name: [_number(name, row.get(name)) for row in rows] for name in names}
    return {"columns": columns, "total": len(lines.lines)}


def events(lines: Lines) -> dict[str, Any]:
    """The newest events; empty where there is none."""
    rows = [row for line in lines.lines[-MOST_LINES:] if (row := _object(line)) and "event" in row]
    if not rows:
        return {}
    return {"events": [_event(row) for row in rows], "skipped": max(0, len(lines.lines) - MOST_LINES)}


def log_lines(lines: Lines) -> dict[str, Any]:
    """The newest lines of one process, and how many before them are left out."""
    text = [line[:MOST_LETTERS].decode(errors="replace") for line in lines.lines[-MOST_LINES:]]
    return {
        "lines": text,
        "skipped": max(0, len(lines.lines) - MOST_LINES),
        "skipped_bytes": lines.skipped,
        "end": lines.end,
    }


def thinned(lines: list[bytes], count: int) -> list[bytes]:
    """At most `count` of them, evenly spread, the last one included."""
    if len(lines) <= count:
        return lines
    step = len(lines) / count
    return [lines[math.ceil((index + 1) * step) - 1] for index in range(count)]


def _standing(folder: RunFolder) -> dict[str, Any]:
    status: RunStatus = folder.status()
    labels = folder.labels()
    return {
        **{name: getattr(status, name) for name in STATUS},
        **{name: getattr(labels, name) for name in LABELS},
    }


def _signature(path: os.PathLike[str]) -> tuple[int, int, int]:
    """Differs once a file was written or replaced."""
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_ino, found.st_size)


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        row = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _number(name: str, value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int) or name in AXES:
        return value
    return float(f"{value:.{DIGITS}g}")


def _event(row: dict[str, Any]) -> dict[str, Any]:
    known = ("time", "event", "process")
    fields = {name: value for name, value in row.items() if name not in (*known, "run")}
    return {"time": row.get("time"), "event": row["event"], "process": row.get("process"), "fields": fields}
