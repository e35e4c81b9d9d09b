"""How a client is doing: counters that cost the application nearly nothing, and a report of them."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections import deque
from typing import Any

import numpy as np

from penstock import proto

log = logging.getLogger("penstock.client")
KEPT = 2048
"""Decisions whose times are kept; a power of two."""

SENTENCES = 64
"""That wait for the log; more drops the oldest."""


class Counters:
    """Times and `decisions` belong to the application's thread; the rest may be counted by any."""

    def __init__(self) -> None:
        self.decisions = 0
        self.times = [0.0] * KEPT
        self.fallbacks: dict[str, int] = {}
        self.dropped: dict[str, int] = {}
        self.troubles: dict[str, int] = {}
        self.shadow = {"agreed": 0, "differed": 0}
        """In shadow mode: whether the application did what was proposed."""
        self.late = 0
        self.sent = 0
        self.swaps = 0
        self.noticed = threading.Event()
        """Set while there is something to write down."""
        self._sentences: deque[str] = deque(maxlen=SENTENCES)
        self._said: dict[str, float] = {}
        self._lock = threading.Lock()

    def fell_back(self, how: str) -> None:
        """Only the application's thread falls back, so no lock."""
        self.fallbacks[how] = self.fallbacks.get(how, 0) + 1

    def drop(self, reason: str, count: int = 1) -> None:
        """Trajectories that were let go."""
        if count:
            with self._lock:
                self.dropped[reason] = self.dropped.get(reason, 0) + count

    def trouble(self, kind: str, sentence: str) -> None:
        """Count what went wrong and have it said, each kind at most once in ten seconds.

        Writes nothing itself: the application calls this in the middle of a decision, and a log may block.
        """
        now = time.monotonic()
        with self._lock:
            self.troubles[kind] = self.troubles.get(kind, 0) + 1
            if now - self._said.get(kind, -1e9) < 10:
                return
            self._said[kind] = now
        self._sentences.append(sentence)
        self.noticed.set()

    def write_down(self) -> None:
        """Into the log, in order."""
        while self._sentences:
            log.warning("%s", self._sentences.popleft())

    def percentiles_us(self) -> tuple[float, float]:
        """Median and 99th percentile of the kept decisions."""
        taken = self.times[: min(self.decisions, KEPT)]
        if not taken:
            return 0.0, 0.0
        p50, p99 = np.percentile(taken, (50, 99)) * 1e6
        return float(p50), float(p99)


class Reporter:
    """Turns counters into the message that gateways read."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._host = socket.gethostname()[:255]
        self._before = (time.monotonic(), time.process_time())
        self._newest: Any = None

    def report(self, waiting: tuple[int, int]) -> Any:
        """`waiting`: trajectories and bytes in memory and spool. Made anew once a second at most."""
        now = time.monotonic()
        before, used_before = self._before
        if self._newest is not None and now - before < 1.0:
            return self._newest
        used, counters = time.process_time(), self._counters
        self._before = (now, used)
        p50, p99 = counters.percentiles_us()
        self._newest = proto.Figures(
            host=self._host,
            pid=os.getpid(),
            cpu_share=(used - used_before) / max(now - before, 1e-3),
            memory_bytes=resident_bytes(),
            decisions=counters.decisions,
            fallbacks=dict(counters.fallbacks),
            waiting_trajectories=waiting[0],
            waiting_bytes=waiting[1],
            dropped=dict(counters.dropped),
            decision_p50_us=p50,
            decision_p99_us=p99,
        )
        return self._newest


def resident_bytes() -> int:
    """Memory of this process, where the system says it in /proc."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read(256).split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
