"""How often somebody may ask: token buckets in memory, one for each token or address.

Written here and not with `limits`, whose memory storage starts a thread for every hit.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

MOST_KEYS = 4096


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may ask of the server."""

    reads_per_second: float = 200.0
    """GET requests of one token."""
    writes_per_second: float = 50.0
    """All other requests of one token."""
    burst_seconds: float = 2.0
    """How much of its rate a token may use at once."""
    failures_per_minute: float = 30.0
    """Wrong tokens from one address."""
    body_bytes: int = 1 << 20
    followers: int = 32
    """Log streams open at once."""
    threads: int = 16
    """Reads and verbs at work at once."""


class Buckets:
    """Each key has a bucket that fills at `rate` a second up to `size`; the least used ones are forgotten."""

    def __init__(self, rate: float, size: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._size, self._clock = rate, max(1.0, size), clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str) -> float:
        """Take one; return 0, or the seconds until there is one."""
        level = self._level(key)
        taken = level >= 1
        self._levels[key] = (level - 1 if taken else level, self._clock())
        self._levels.move_to_end(key)
        while len(self._levels) > MOST_KEYS:
            self._levels.popitem(last=False)
        return 0.0 if taken else (1 - level) / self._rate

    def wait(self, key: str) -> float:
        """The seconds until there is one; take none."""
        return max(0.0, (1 - self._level(key)) / self._rate)

    def _level(self, key: str) -> float:
        level, at = self._levels.get(key, (self._size, 0.0))
        return min(self._size, level + (self._clock() - at) * self._rate)
