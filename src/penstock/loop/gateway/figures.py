"""How clients and the gateway itself are doing, in numbers for people."""

import threading
import time
from collections import OrderedDict
from typing import Any, NamedTuple

import psutil

GONE_SECONDS = 90.0
"""A client that has not told anything for so long is gone; asking for a version may take 30 s."""
MOST_CLIENTS = 4096


class Told(NamedTuple):
    """What is kept of a client's message: numbers only, however much it sent."""

    cpu_share: float
    memory_bytes: int
    decisions: int
    fallbacks: int
    waiting_trajectories: int
    waiting_bytes: int
    dropped: int
    decision_p50_us: float
    decision_p99_us: float

    @classmethod
    def of(cls, figures: Any) -> "Told":
        return cls(
            _finite(figures.cpu_share), figures.memory_bytes, figures.decisions, sum(figures.fallbacks.values()),
            figures.waiting_trajectories, figures.waiting_bytes, sum(figures.dropped.values()),
            _finite(figures.decision_p50_us), _finite(figures.decision_p99_us),
        )  # fmt: skip


class ClientFigures:
    """The newest figures of each client of one policy."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: OrderedDict[tuple[str, int], tuple[float, Told]] = OrderedDict()

    def take(self, peer: str, figures: Any) -> None:
        """What a client tells of itself."""
        key, told = (figures.host[:64] or peer, figures.pid), Told.of(figures)
        with self._lock:
            self._told[key] = (time.monotonic(), told)
            self._told.move_to_end(key)
            while len(self._told) > MOST_CLIENTS:
                self._told.popitem(last=False)

    def sums(self) -> dict[str, float]:
        """All clients that live: sums, and the worst of what has none."""
        until = time.monotonic() - GONE_SECONDS
        with self._lock:
            while self._told and next(iter(self._told.values()))[0] < until:
                self._told.popitem(last=False)
            told = [figures for _, figures in self._told.values()]
        return {
            "gateway/clients": len(told),
            "clients/cpu_share": sum(one.cpu_share for one in told),
            "clients/memory_bytes": sum(one.memory_bytes for one in told),
            "clients/decisions": sum(one.decisions for one in told),
            "clients/fallbacks": sum(one.fallbacks for one in told),
            "clients/waiting_trajectories": sum(one.waiting_trajectories for one in told),
            "clients/waiting_bytes": sum(one.waiting_bytes for one in told),
            "clients/dropped": sum(one.dropped for one in told),
            "clients/decision_p50_us": max((one.decision_p50_us for one in told), default=0.0),
            "clients/decision_p99_us": max((one.decision_p99_us for one in told), default=0.0),
        }


class OwnFigures:
    """Of this process; asked by one thread at a time."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._process.cpu_percent(None)
        self._lock = threading.Lock()
        self._at, self._known = 0.0, dict[str, float]()

    def now(self) -> dict[str, float]:
        with self._lock:
            if time.monotonic() - self._at > 1.0:
                self._at = time.monotonic()
                self._known = {
                    "gateway/cpu_share": self._process.cpu_percent(None) / 100,
                    "gateway/memory_bytes": self._process.memory_info().rss,
                }
            return dict(self._known)


def _finite(number: float) -> float:
    return number if 0 <= number < 1e15 else 0.0
