"""Counts finished training episodes, the same way for every peer. Standard library and Gymnasium only.

Each environment, in whatever process it lives, appends (return, length) of every finished episode to one
file; a thread of the main process reads it and ends the process with one line of JSON as soon as the mean of
the last 100 returns has reached the target. So a peer is timed to the very episode, not to its next report.
"""

import argparse
import contextlib
import json
import os
import resource
import shutil
import signal
import struct
import tempfile
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable

warnings.filterwarnings("ignore")

import gymnasium  # noqa: E402

WINDOW = 100
FOLDER = "BENCH_PEER_FOLDER"
PAIR = struct.Struct("<dq")
RESULT = os.dup(1)  # the line goes where stdout led at the start, whatever a library does to it later
os.dup2(2, 1)


class Counted(gymnasium.Wrapper):
    """Appends (return, length) of each finished episode to `path`; short appends of one write are atomic."""

    def __init__(self, environment: gymnasium.Env, path: str) -> None:
        super().__init__(environment)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._return, self._length = 0.0, 0

    def reset(self, *, seed=None, options=None):
        self._return, self._length = 0.0, 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action):
        answer = self.env.step(action)
        self._return += float(answer[1])
        self._length += 1
        if answer[2] or answer[3]:
            os.write(self._file, PAIR.pack(self._return, self._length))
            self._return, self._length = 0.0, 0
        return answer


class Race:
    """What a peer's script needs: the arguments, a maker of counted environments, and an end."""

    def __init__(self) -> None:
        parser = argparse.ArgumentParser()
        parser.add_argument("environment")
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--target", type=float, default=475.0)
        parser.add_argument("--seconds", type=float, default=120.0)
        arguments = parser.parse_args()
        self.environment, self.seed = arguments.environment, arguments.seed
        self.target, self.limit_seconds = arguments.target, arguments.seconds
        # a process that a peer spawns imports its script again: it must find the same file
        self.folder = os.environ.get(FOLDER) or tempfile.mkdtemp(prefix="bench-peer-")
        os.environ[FOLDER] = self.folder
        self.path = os.path.join(self.folder, "episodes")
        open(self.path, "ab").close()
        self._returns: deque[float] = deque(maxlen=WINDOW)
        self._steps = self._episodes = self._offset = 0

    def make(self, *_: object, **options: object) -> Counted:
        """One environment as `gymnasium.make` gives it, counted."""
        return Counted(gymnasium.make(self.environment, **options), self.path)

    def watch(self, clean_up: Callable[[], object] = lambda: None) -> None:
        """End this process at the target or at the limit; call once, before training."""
        threading.Thread(target=self._watch, args=(clean_up,), daemon=True).start()

    def end(self, clean_up: Callable[[], object] = lambda: None) -> None:
        """Report and leave: for a training that has used up its published number of steps."""
        self._read()
        self._report(self._reached(), clean_up)

    def _watch(self, clean_up: Callable[[], object]) -> None:
        while True:
            if self._read() or process_seconds() > self.limit_seconds:
                self._report(self._reached(), clean_up)
            time.sleep(0.05)

    def _read(self) -> bool:
        with open(self.path, "rb") as file:
            file.seek(self._offset)
            data = file.read()
        for value, length in PAIR.iter_unpack(data[: len(data) // PAIR.size * PAIR.size]):
            self._offset += PAIR.size
            self._returns.append(value)
            self._steps += length
            self._episodes += 1
            if self._reached():
                return True
        return False

    def _reached(self) -> bool:
        return len(self._returns) == WINDOW and sum(self._returns) / WINDOW >= self.target

    def _report(self, reached: bool, clean_up: Callable[[], object]) -> None:
        seconds = process_seconds()
        line = {
            "reached": reached,
            "seconds": round(seconds, 3),
            "steps": self._steps,
            "steps_per_second": round(self._steps / seconds, 1),
            "episodes": self._episodes,
            "mean_return": round(sum(self._returns) / len(self._returns), 2) if self._returns else None,
            "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        }
        os.write(RESULT, json.dumps(line).encode() + b"\n")
        try:
            clean_up()
        finally:
            end_descendants()
            shutil.rmtree(self.folder, ignore_errors=True)
            os._exit(0)


def process_seconds() -> float:
    """Seconds since the kernel started this process."""
    with open("/proc/self/stat") as stat, open("/proc/uptime") as uptime:
        started = int(stat.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return float(uptime.read().split()[0]) - started


def end_descendants() -> None:
    """Kill what this process started: some peers leave their workers behind."""
    parents = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{entry}/stat") as stat:
            parents[int(entry)] = int(stat.read().rpartition(")")[2].split()[1])
    found = [os.getpid()]
    for pid in found:
        found.extend(child for child, parent in parents.items() if parent == pid)
    for pid in found[1:]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def linear(start: float) -> Callable[[float], float]:
    """A schedule of what remains (1 → 0), as the Zoo writes `lin_<start>`."""
    return lambda remaining: remaining * start
