"""Reports in; a line of JSON and TensorBoard scalars out, both against environment steps.

A report is numbers by name, with `steps`, `seconds` and `time` among them. Writing one costs the
caller some ten microseconds: TensorBoard is fed by a thread, at most ten times a second.
"""

import contextlib
import math
import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from penstock.loop.files import read_lines

TENSORBOARD_SECONDS = 0.1
AXES = ("steps", "seconds", "time")
ALIASES = {
    "charts/episodic_return": "rollout/ep_rew_mean",
    "charts/episodic_length": "rollout/ep_len_mean",
    "charts/SPS": "time/fps",
}
"""CleanRL's name → Stable-Baselines3's, for the dashboards people already have."""


class MetricsWriter:
    """Writes `metrics.jsonl` and `tensorboard/` in `folder`. Used by one thread.

    A full disk stops no training: what could not be written is counted in `dropped`.
    """

    def __init__(self, folder: Path, tensorboard: bool) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._lines = os.open(folder / "metrics.jsonl", flags, 0o600)
        self._scalars = _Scalars(folder / "tensorboard") if tensorboard else None
        self.dropped = 0
        """Reports that could not be written."""

    def write(self, report: Mapping[str, Any]) -> None:
        """Store one report; numbers may also stand in a nested `values`, what is no number is left out."""
        numbers = _numbers(report)
        try:
            os.write(self._lines, msgspec.json.encode(numbers) + b"\n")
        except OSError:
            self.dropped += 1
        if self._scalars is not None:
            self._scalars.put(numbers)

    def close(self) -> None:
        """Write what is waiting; return within seconds, also when the disk hangs."""
        if self._scalars is not None:
            self._scalars.close()
        os.close(self._lines)

    def __enter__(self) -> "MetricsWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_metrics(folder: Path, names: Iterable[str] | None = None) -> dict[str, list[float | None]]:
    """Columns of equal length by name, with None where a report lacks a number.

    Where a run was resumed from an earlier step, what was reported beyond that step is left out.
    """
    rows: list[dict[str, Any]] = []
    for row in read_lines(folder / "metrics.jsonl"):
        steps = row.get("steps")
        if not isinstance(steps, int | float):
            continue
        while rows and rows[-1]["steps"] > steps:
            rows.pop()
        rows.append(row)
    wanted = list(dict.fromkeys(name for row in rows for name in row)) if names is None else [*AXES, *names]
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(wanted)}


def _numbers(report: Mapping[str, Any]) -> dict[str, float]:
    flat = {**report, **report.get("values", {})}
    return {
        name: value
        for name, value in flat.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


class _Scalars:
    """Hands the newest numbers to TensorBoard from a thread of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: dict[str, float] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tensorboard", daemon=True)
        self._thread.start()

    def put(self, numbers: dict[str, float]) -> None:
        with self._lock:
            self._waiting.update(numbers)

    def close(self) -> None:
        self._closing.set()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        writer: Any = None
        ended = False
        while not ended:
            ended = self._closing.wait(TENSORBOARD_SECONDS)
            with self._lock:
                numbers, self._waiting = self._waiting, {}
            if not numbers:
                continue
            with contextlib.suppress(OSError):  # the JSON lines are the record, this is a view of them
                writer = writer or self._open(int(numbers.get("steps", 0)))
                _add(writer, numbers)
        if writer is not None:
            with contextlib.suppress(OSError):
                writer.close()

    def _open(self, steps: int) -> Any:
        """A writer that hides what an interrupted life of this run wrote beyond `steps`."""
        from tensorboardX.writer import SummaryWriter

        resumed = self._folder.is_dir() and any(self._folder.iterdir())
        return SummaryWriter(str(self._folder), purge_step=steps if resumed else None, flush_secs=5)


def _add(writer: Any, numbers: Mapping[str, float]) -> None:
    steps, at = int(numbers.get("steps", 0)), numbers.get("time")
    for name, value in numbers.items():
        if name in AXES:
            continue
        tag = name if "/" in name else f"run/{name}"
        writer.add_scalar(tag, value, steps, at)
        if tag in ALIASES:
            writer.add_scalar(ALIASES[tag], value, steps, at)
