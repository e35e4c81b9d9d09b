"""One measured process: started, timed from its start, sampled, and ended together with all it started."""

import contextlib
import ctypes
import json
import os
import queue
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
SAMPLE_SECONDS = 1.0
GRACE_SECONDS = 10.0
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class Finished:
    """What became of one process."""

    line: dict[str, Any] | None
    """The last line of standard output that was a JSON object; None if there was none."""
    seconds: float
    """From the start of the process to that line, or to its end."""
    cpu_seconds: float
    peak_mb: float
    """Greatest sum of proportional memory (PSS) of the process and its descendants."""
    timed_out: bool
    code: int | None
    others: float
    """Share of all processors that other processes used meanwhile: near 0 on a quiet machine."""


def run(
    argv: Sequence[str], log: Path, limit_seconds: float, environ: Mapping[str, str] | None = None
) -> Finished:
    """Run until one line of JSON, the end or the limit; then end the whole tree. Errors go to `log`."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # orphans of a peer become ours, so none is missed
    log.parent.mkdir(parents=True, exist_ok=True)
    known = set(psutil.Process().children(recursive=True))
    cpu_before, busy_before = _cpu_of_children(), busy_seconds()
    with log.open("ab") as errors:
        started = time.monotonic()
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, **(environ or {})},
            cwd=ROOT,
            start_new_session=True,
        )
        try:
            line, seconds, peak, timed_out = _follow(child, started, limit_seconds)
            if not timed_out:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(GRACE_SECONDS)
        finally:
            end_tree(known)
    cpu, elapsed = _cpu_of_children() - cpu_before, time.monotonic() - started
    others = max(0.0, busy_seconds() - busy_before - cpu) / (elapsed * (os.cpu_count() or 1))
    return Finished(line, seconds, cpu, peak / 1e6, timed_out, child.poll(), others)


def _follow(
    child: "subprocess.Popen[bytes]", started: float, limit_seconds: float
) -> tuple[dict[str, Any] | None, float, float, bool]:
    arrivals: queue.Queue[tuple[float, dict[str, Any] | None]] = queue.Queue()
    threading.Thread(target=_read_lines, args=(child, arrivals), daemon=True).start()
    peak = 0.0
    while True:
        left = started + limit_seconds - time.monotonic()
        if left <= 0:
            return None, limit_seconds, peak, True
        try:
            arrived, line = arrivals.get(timeout=min(SAMPLE_SECONDS, left))
        except queue.Empty:
            peak = max(peak, _memory())
            continue
        return line, arrived - started, peak, False


def _read_lines(
    child: "subprocess.Popen[bytes]", arrivals: "queue.Queue[tuple[float, dict[str, Any] | None]]"
) -> None:
    assert child.stdout is not None
    for raw in child.stdout:
        with contextlib.suppress(ValueError):
            line = json.loads(raw)
            if isinstance(line, dict):
                arrivals.put((time.monotonic(), line))
    arrivals.put((time.monotonic(), None))


def _memory() -> float:
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            total += process.memory_full_info().pss
    return total


def busy_seconds() -> float:
    """Seconds all processors together have worked since the machine started."""
    times = psutil.cpu_times()
    return float(sum(times[:7]) - times.idle - times.iowait)


def end_tree(known: Collection[psutil.Process] = ()) -> None:
    """End every descendant of this process but the `known` ones: politely, then surely."""
    found = [process for process in psutil.Process().children(recursive=True) if process not in known]
    for how, patience in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, 5.0)):
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.send_signal(how)
        psutil.wait_procs(found, timeout=patience)
        found = [process for process in psutil.Process().children(recursive=True) if process not in known]


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def penstock(*arguments: str) -> list[str]:
    """The command line of ours, as a user types it."""
    return [str(BIN / "penstock"), *arguments]
