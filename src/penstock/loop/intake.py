"""Rollouts in, one of each rostered slot out; every rollout is accounted for exactly once.

Reads from: `experiences.<run>`, from the position in the checkpoint. A rollout ends in one of the
counted ways: used, duplicate, stale, not_rostered, misfit; or it is pending here; or it is a dead letter.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

import msgspec

from penstock.errors import Damaged
from penstock.model import topics
from penstock.model.clients import MOST_ROWS
from penstock.model.codec import Array, Frame
from penstock.model.history import Dropped
from penstock.model.rollout import Block, Hello, Rollout, decode_experience, fits
from penstock.model.spaces import Spaces
from penstock.stream.base import Position, Record, Stream
from penstock.stream.records import RecordReader

Place = tuple[int, int]
"""Partition and offset of a record."""


class Ledger(msgspec.Struct):
    """What has been accounted for; lives inside the checkpoint."""

    position: Position = {}
    """Everything before it is accounted for."""
    beyond: list[Place] = []
    """Accounted records behind the position."""
    marks: dict[int, int] = {}
    """Slot → the last round accounted for."""
    counts: dict[str, int] = {}
    dropped: list[Dropped] = []
    """Dropped since the last update: still to be written into its history entry."""
    dead_letters: int = 0


@dataclass(slots=True)
class Intake:
    """Pending rollouts by slot and round, and the ledger."""

    reader: RecordReader[Rollout | Hello]
    marks: dict[int, int]
    counts: Counter[str]
    accounted: set[Place]
    pending: dict[int, dict[int, tuple[Place, Rollout]]] = field(default_factory=dict)
    hellos: dict[int, Hello] = field(default_factory=dict)
    """Slots that asked to join since the last look."""
    dropped: list[Dropped] = field(default_factory=list)
    """Since the last update, for its history entry."""

    bytes_read: int = 0
    """Since the ledger was last asked for."""
    letters_before: int = 0
    """Dead letters counted by earlier learners."""
    _like: dict[str, Array] | None = None
    _steps: range = range(0)
    _environments: int = 0
    _missed_told: int = 0

    def expect(self, spaces: Spaces, steps: int | None, environments: int) -> None:
        """From now on set aside rollouts that do not look like this run's; None: their length varies."""
        self._like, self._environments = Block.allocate(spaces, 1, 1).columns(), environments
        self._steps = range(1, MOST_ROWS + 1) if steps is None else range(steps, steps + 1)

    def read(self, timeout: float) -> bool:
        """Take in what is there, waiting up to `timeout` for something; whether anything came."""
        found = self.reader.read(256, timeout)
        self._take_in(found)
        return bool(found)

    def read_until(self, wanted: Iterable[tuple[int, int]]) -> bool:
        """Read on, to the end of the log if need be; whether every (slot, round) wanted is pending now."""
        missing = [place for place in wanted if not self.has(*place)]
        if missing:
            for batch in self.reader.drain():
                self._take_in(batch)
                missing = [place for place in missing if not self.has(*place)]
                if not missing:
                    break
        return not missing

    def has(self, slot: int, round: int) -> bool:
        return round in self.pending.get(slot, {})

    def take(self, slot: int, round: int) -> Rollout:
        """Use a pending rollout."""
        place, rollout = self.pending[slot].pop(round)
        self._close(place, slot, round, "used")
        return rollout

    def peek(self, slot: int, round: int) -> Rollout:
        return self.pending[slot][round][1]

    def drop(self, slot: int, round: int, reason: str) -> None:
        """Set a pending rollout aside for a stated reason."""
        place, _ = self.pending[slot].pop(round)
        self._close(place, slot, round, reason)

    def forget(self, slots: Iterable[int]) -> None:
        """Drop what is pending of slots that left the roster."""
        for slot in slots:
            for round in sorted(self.pending.get(slot, {})):
                self.drop(slot, round, "not_rostered")

    def ledger(self) -> Ledger:
        """What to store: a reader that starts at `position` and skips `beyond` misses nothing."""
        position = dict(self.reader.position())
        for rounds in self.pending.values():
            for (partition, offset), _ in rounds.values():
                position[partition] = min(position.get(partition, offset), offset)
        self.accounted = {place for place in self.accounted if place[1] >= position.get(place[0], 0)}
        counts = dict(self.counts)
        counts["received"] = counts.get("received", 0) - pending_count(self)  # these will be read again
        self.bytes_read = 0
        return Ledger(
            position, sorted(self.accounted), dict(self.marks), counts, list(self.dropped), self.dead_letters
        )

    @property
    def dead_letters(self) -> int:
        return self.letters_before + self.reader.dead_letters

    @property
    def missed(self) -> int:
        """Records that were gone before this learner could read them."""
        return self.reader.missed

    def newly_missed(self) -> int:
        """How many of them since the last call."""
        before, self._missed_told = self._missed_told, self.reader.missed
        return self.reader.missed - before

    def close(self) -> None:
        self.reader.close()

    def _take_in(self, found: Iterable[tuple[Record, Rollout | Hello]]) -> None:
        for record, value in found:
            self.bytes_read += len(record.value)
            place = (record.partition, record.offset)
            if place in self.accounted:
                continue
            if isinstance(value, Hello):
                self.hellos[value.slot] = value
                self.accounted.add(place)
            else:
                self._admit(place, value)

    def _admit(self, place: Place, rollout: Rollout) -> None:
        slot, round = rollout.facts.slot, rollout.facts.round
        self.counts["received"] += 1
        if round <= self.marks.get(slot, -1) or self.has(slot, round):
            self._count(place, slot, round, "duplicate")
            return
        if self._like is not None and not self._fits(rollout):
            # nothing vouches for its round: the slot's mark stays
            self._count(place, slot, round, "misfit")
            return
        self.pending.setdefault(slot, {})[round] = (place, rollout)

    def _fits(self, rollout: Rollout) -> bool:
        assert self._like is not None
        facts = rollout.facts
        right_size = facts.steps in self._steps and facts.environments == self._environments
        return right_size and fits(rollout, self._like)

    def _close(self, place: Place, slot: int, round: int, outcome: str) -> None:
        self.marks[slot] = max(self.marks.get(slot, -1), round)
        self._count(place, slot, round, outcome)

    def _count(self, place: Place, slot: int, round: int, outcome: str) -> None:
        self.counts[outcome] += 1
        self.accounted.add(place)
        if outcome != "used":
            self.dropped.append(Dropped(slot, round, outcome))


def open_intake(stream: Stream, run: str, ledger: Ledger) -> Intake:
    """Go on reading where the ledger ends."""
    decode_ours = partial(_decode, run)
    reader = RecordReader(stream, topics.experiences(run), decode_ours, ledger.position or None)
    accounted = {(partition, offset) for partition, offset in ledger.beyond}
    return Intake(
        reader, dict(ledger.marks), Counter(ledger.counts), accounted, dropped=list(ledger.dropped),
        letters_before=ledger.dead_letters,
    )  # fmt: skip


def pending_count(intake: Intake) -> int:
    return sum(len(rounds) for rounds in intake.pending.values())


def _decode(run: str, frame: Frame) -> Rollout | Hello:
    found = decode_experience(frame)
    made_for = found.run if isinstance(found, Hello) else found.facts.run
    if made_for != run:
        raise Damaged(f"the record belongs to run {made_for[:64]!r}, not to {run!r}")
    return found
