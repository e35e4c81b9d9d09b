"""Metrics as columns in memory: `metrics.jsonl` is read once and then followed as it grows.

A long run has hundreds of thousands of reports. Of those the newest stay as they are and the older ones are
thinned evenly, so that one run takes a bounded amount of memory however long it goes on.
"""

import math
import os
import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeGuard

import msgspec

from penstock.loop.metrics import AXES

MOST_REPORTS = 20_000
"""Kept of one run."""
DENSE_REPORTS = 5_000
"""The newest, of which none is left out."""
MOST_NAMES = 300
MOST_RUNS = 32
MOST_BYTES = 128 << 20
"""Of all runs together; those that nobody asked about for longest are let go."""
READ_BYTES = 1 << 20
LONGEST_LINE = 4 << 20

NOTHING = float("nan")


class _Steps(msgspec.Struct):
    """All that is read of a report that is left out anyway."""

    steps: float | None = None


_all = msgspec.json.Decoder(dict[str, Any])
_steps = msgspec.json.Decoder(_Steps)


class Series:
    """The reports of one run; `lock` is to be held while anything is asked or read."""

    def __init__(self, path: Path) -> None:
        self.lock = threading.Lock()
        self._path = path
        self._forget()

    def _forget(self) -> None:
        self._offset, self._inode = 0, 0
        self._places = array("q")
        """Of each kept report its place among all, those left out counted."""
        self._count, self._stride = 0, 1
        self._dense_from = 0
        """From this byte of the file on no report is left out."""
        self._columns: dict[str, array[float]] = {name: array("d") for name in AXES}

    def __len__(self) -> int:
        return len(self._places)

    @property
    def names(self) -> list[str]:
        return [name for name in self._columns if name not in AXES]

    @property
    def size_bytes(self) -> int:
        return 8 * len(self._places) * (len(self._columns) + 1)

    def column(self, name: str, start: int = 0) -> "array[float]":
        """A copy, with NaN where a report lacks the number; all NaN for a name that is unknown."""
        found = self._columns.get(name)
        return array("d", [NOTHING]) * (len(self) - start) if found is None else found[start:]

    def after(self, steps: float | None) -> int:
        """Which kept report is the first beyond `steps`."""
        return 0 if steps is None else bisect_right(self._columns["steps"], steps)

    def total(self, start: int) -> int:
        """How many reports there were from that one on, those left out counted."""
        return 0 if start >= len(self) else self._places[-1] + 1 - self._places[start]

    # -- following -------------------------------------------------------------------------------

    def follow(self) -> None:
        """Read what was added; a file that was replaced or cut is read anew, one that is gone is empty."""
        try:
            file = self._path.open("rb")
        except OSError:
            self._forget()
            return
        with file:
            now = os.fstat(file.fileno())
            if now.st_ino != self._inode or now.st_size < self._offset:
                self._forget()
                self._inode = now.st_ino
            if now.st_size > self._offset:
                self._plan(now.st_size - self._offset, file.readline(LONGEST_LINE))
                for line in self._lines(file):
                    self._take(line)
        self._thin()

    def _plan(self, size: int, first: bytes) -> None:
        """From a long file take only what will be kept: guess how many reports it has from the first."""
        reports = size // max(1, len(first))
        if self._count == 0 and reports > MOST_REPORTS:
            self._stride = 2 ** math.ceil(math.log2(reports / (MOST_REPORTS - 2 * DENSE_REPORTS)))
            self._dense_from = size - 2 * DENSE_REPORTS * len(first)  # twice: lines grow a little over time

    def _lines(self, file: Any) -> Iterator[bytes]:
        """Whole lines from where the last look ended."""
        file.seek(self._offset)
        rest = b""
        while content := file.read(READ_BYTES):
            *lines, rest = (rest + content).split(b"\n")
            for line in lines:
                self._offset += len(line) + 1
                yield line
            if len(rest) > LONGEST_LINE:  # no report is that long
                self._offset += len(rest)
                rest = b""

    def _take(self, line: bytes) -> None:
        keep = self._offset >= self._dense_from or self._count % self._stride == 0
        try:
            report: dict[str, Any] = _all.decode(line) if keep else {"steps": _steps.decode(line).steps}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        steps = report.get("steps")
        if not _is_number(steps):
            return
        self._go_back(steps)
        if keep:
            self._add(report)
        self._count += 1
        if len(self) >= MOST_REPORTS + DENSE_REPORTS:
            self._thin()

    def _go_back(self, steps: float) -> None:
        """Where a run was resumed from an earlier step, what was reported beyond it is left out."""
        known = self._columns["steps"]
        if known and known[-1] > steps:
            kept = bisect_right(known, steps)
            del self._places[kept:]
            for name, column in list(self._columns.items()):
                del column[kept:]
                if name not in AXES and all(value != value for value in column):
                    del self._columns[name]  # only what is left out ever had it
            self._count = self._places[-1] + 1 if self._places else 0

    def _add(self, report: dict[str, Any]) -> None:
        for name, value in report.items():
            if name not in self._columns and _is_number(value) and len(self._columns) < MOST_NAMES:
                self._columns[name] = array("d", [NOTHING]) * len(self)
        for name, column in self._columns.items():
            value = report.get(name)
            column.append(float(value) if _is_number(value) else NOTHING)
        self._places.append(self._count)

    def _thin(self) -> None:
        """Of the older reports keep every so many, so that what is kept stays within its bound."""
        if len(self) <= MOST_REPORTS:
            return
        dense = len(self) - DENSE_REPORTS
        kept: list[int] = []
        while not kept or len(kept) > MOST_REPORTS - 2 * DENSE_REPORTS:
            self._stride = self._stride * 2 if kept else self._stride
            kept = [index for index in range(dense) if self._places[index] % self._stride == 0] or [0]
        kept += range(dense, len(self))
        self._places = array("q", [self._places[index] for index in kept])
        for name, column in self._columns.items():
            self._columns[name] = array("d", [column[index] for index in kept])


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


class SeriesStore:
    """The series of runs that were asked about lately. Used by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[Path, Series] = OrderedDict()

    def of(self, path: Path) -> Series:
        """The series of a `metrics.jsonl`; hold its lock and `follow` it before asking."""
        with self._lock:
            series = self._known.setdefault(path, Series(path))
            self._known.move_to_end(path)
            while len(self._known) > 1 and self._too_much():
                self._known.popitem(last=False)
        return series

    def _too_much(self) -> bool:
        return (
            len(self._known) > MOST_RUNS or sum(one.size_bytes for one in self._known.values()) > MOST_BYTES
        )
