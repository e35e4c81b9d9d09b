"""Which numbers each source has used up, so that a trajectory that is sent again is stored once.

Numbers may come in any order and with gaps: a client drops what its spool cannot hold. So a source is a few
intervals. Past their limit the lowest gap closes for good: a number that comes that late is refused, never
acknowledged without being stored.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Literal

import msgspec

MOST_INTERVALS = 64
MOST = 1 << 64

Answer = Literal["new", "duplicate", "late"]


class Source(msgspec.Struct):
    """One source of trajectories. `taken` are closed intervals, in order, never touching."""

    taken: list[tuple[int, int]] = []
    floor: int = 0
    """What is not taken and not above it comes too late."""

    def look(self, number: int) -> Answer:
        """Whether a trajectory of this number is to be stored."""
        at = bisect_right(self.taken, (number, MOST)) - 1
        if at >= 0 and number <= self.taken[at][1]:
            return "duplicate"
        return "late" if number <= self.floor else "new"

    def take(self, number: int) -> None:
        """Remember a number; one that is taken changes nothing."""
        at = bisect_right(self.taken, (number, MOST))
        below = self.taken[at - 1] if at else None
        if below is not None and number <= below[1]:
            return
        first = last = number
        start, stop = at, at
        if below is not None and below[1] == number - 1:
            first, start = below[0], at - 1
        if at < len(self.taken) and self.taken[at][0] == number + 1:
            last, stop = self.taken[at][1], at + 1
        self.taken[start:stop] = [(first, last)]
        if len(self.taken) > MOST_INTERVALS:
            self.floor = max(self.floor, self.taken[1][0] - 1)
            # what was taken below the floor is a duplicate or late: either way it is not stored again
            del self.taken[0]

    def without(self, numbers: Iterable[int]) -> list[tuple[int, int]]:
        """The intervals but for these numbers."""
        holes, left = sorted(numbers), list[tuple[int, int]]()
        for first, last in self.taken:
            start = first
            for hole in holes[bisect_left(holes, first) : bisect_right(holes, last)]:
                if hole > start:
                    left.append((start, hole - 1))
                start = hole + 1
            if start <= last:
                left.append((start, last))
        return left


class SourceRecord(msgspec.Struct, frozen=True):
    """A source in the compacted topic `sources.<run>`; the record of the empty name holds the position."""

    source: str
    taken: list[tuple[int, int]] = []
    floor: int = 0
    position: dict[int, int] = {}
    """All trajectories before it are told by these records, and are packed: none of a later one is."""
