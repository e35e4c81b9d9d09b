"""What clients sent and nobody has packed yet: stored once, counted, bounded in bytes.

Writes to: `trajectories.<run>` and `sources.<run>`. Many threads store, one at a time.
"""

import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from penstock.errors import Damaged, Unavailable
from penstock.loop.gateway.receiving import Expected
from penstock.loop.gateway.sources import Source, SourceRecord
from penstock.loop.gateway.trajectory import TrajectoryFacts
from penstock.model import topics
from penstock.model.codec import Frame, Schema, decode, decode_columns, encode, open_frame
from penstock.model.rollout import Packed
from penstock.model.spec import StreamSpec
from penstock.model.version import Version
from penstock.proto import SendReply
from penstock.stream.base import Position, Stream
from penstock.stream.records import RecordReader

MOST_QUEUED_BYTES = 256 << 20
MOST_SOURCES = 100_000
"""Remembered; past it the one that was silent longest is forgotten, and what it sends again is new."""
FLUSH_SECONDS = 5.0
REST_SECONDS = 1.0
"""After a write that failed nobody tries for so long: each try may hold a thread up to the write deadline."""

STORED, DUPLICATE = SendReply.STORED, SendReply.DUPLICATE
REFUSED, LATER = SendReply.REFUSED, SendReply.LATER
NAMES = {STORED: "stored", DUPLICATE: "duplicate", REFUSED: "refused", LATER: "later"}


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of one trajectory that was sent."""

    sequence: int
    outcome: int
    reason: str = ""


class Queue:
    """The trajectories of one run between their arrival and their packing."""

    def __init__(self, stream: Stream, expected: Expected, spec: StreamSpec, packed: Packed | None) -> None:
        self._stream, self._expected, self._run = stream, expected, expected.run
        self._most_bytes = min(MOST_QUEUED_BYTES, spec.retention_bytes // 4)
        self._writer = stream.writer(topics.trajectories(self._run))
        self._told = stream.writer(topics.sources(self._run))
        self._lock = threading.Lock()
        self._sources: OrderedDict[str, Source] = OrderedDict()
        """The one that was silent longest comes first."""
        self._changed: set[str] = set()
        self._due: defaultdict[str, set[int]] = defaultdict(set)
        """Source → numbers that are stored and not read by the packer yet."""
        self._rests_until = float("-inf")
        self._flushed_at = time.monotonic()
        self._covered: Position = {}
        """Everything before it is told in `sources.<run>`."""
        self.bytes = 0
        self.counts = {"stored": 0, "duplicate": 0, "refused": 0, "later": 0}
        """Since this gateway started."""
        self.stored_at = time.monotonic()
        self._recover({} if packed is None else packed.position)

    @property
    def waiting(self) -> int:
        """Trajectories that are stored and not accounted for."""
        return self._waiting

    def store_all(
        self, source: str, messages: Iterable[Any], newest: Version, until: float = float("inf")
    ) -> list[Receipt]:
        """Store in this order; after the first that has to wait, or past `until`, the others wait too."""
        receipts, waits, untried = list[Receipt](), "", 0
        for message in messages:
            if not waits and time.monotonic() > until:
                waits = "the call's deadline is over"
            if waits:
                receipts.append(Receipt(int(message.sequence), LATER, waits))
                untried += 1
                continue
            receipts.append(self.store(source, message, newest))
            if receipts[-1].outcome == LATER:
                waits = "one before it has to wait"
        with self._lock:
            self.counts["later"] += untried
        return receipts

    def store(self, source: str, message: Any, newest: Version) -> Receipt:
        """Check and store one trajectory; what is stored survives the death of this process."""
        sequence = int(message.sequence)
        with self._lock:
            receipt = self._store(source, sequence, message, newest)
            self.counts[NAMES[receipt.outcome]] += 1
        return receipt

    def arrived(self, source: str, sequence: int, size: int) -> bool:
        """Whether a trajectory that was read from the log is to be packed; False for the copy of another.

        A write that failed may have landed: then a number lies in the log that nobody counted, or lies there twice.
        """
        with self._lock:
            due = self._due.get(source, set())
            if sequence in due:
                due.discard(sequence)
                if not due:
                    del self._due[source]
                return True
            known = self._sources.get(source)
            if known is not None and known.look(sequence) != "new":
                return False
            self._take(source, sequence, size)
            return True

    def taken_off(self, trajectories: int, size: int) -> None:
        """Some are accounted for."""
        with self._lock:
            self._waiting -= trajectories
            self.bytes -= size

    def flush(self, packed: Position, *, now: bool = False) -> None:
        """Write down which numbers are used up; only what is written down may be let go of by retention."""
        if not now and time.monotonic() - self._flushed_at < FLUSH_SECONDS:
            return
        with self._lock:
            changed = {name: self._sources[name] for name in sorted(self._changed)}
            records = [SourceRecord(name, list(item.taken), item.floor) for name, item in changed.items()]
            # taken under the lock: nothing is stored between the look at the sources and at the end
            end = self._stream.end(topics.trajectories(self._run)) if records else self._covered
            self._changed.clear()
        self._flushed_at = time.monotonic()
        try:
            for record in records:
                self._told.write(record.source, encode(Schema.SOURCE, record))
            if records:
                self._told.write("", encode(Schema.SOURCE, SourceRecord("", position=end)))
                self._covered = end
        except Unavailable:
            with self._lock:  # told the next time: a position must not cover what nobody wrote down
                self._changed |= changed.keys() & self._sources.keys()
            raise
        kept = {part: min(offset, self._covered.get(part, 0)) for part, offset in packed.items()}
        self._stream.protect(topics.trajectories(self._run), kept or {0: 0})

    def _store(self, source: str, sequence: int, message: Any, newest: Version) -> Receipt:
        known = self._sources.get(source)
        answer = "new" if known is None else known.look(sequence)
        if answer == "duplicate":
            return Receipt(sequence, DUPLICATE)
        if answer == "late":
            return Receipt(
                sequence, REFUSED, f"sequence {sequence} comes too late: far higher ones were stored"
            )
        try:
            trajectory = self._expected.read(message, source, newest)
        except Damaged as error:
            return Receipt(sequence, REFUSED, str(error))
        record = trajectory.encode()
        if self.bytes and self.bytes + len(record) > self._most_bytes:
            return Receipt(sequence, LATER, "the queue of this policy is full")
        if time.monotonic() < self._rests_until:
            return Receipt(sequence, LATER, "the log did not take what came a moment ago")
        try:
            self._writer.write(source, record)
        except Unavailable as error:
            self._rests_until = time.monotonic() + REST_SECONDS
            return Receipt(sequence, LATER, str(error))
        self._take(source, sequence, len(record))
        self._due[source].add(sequence)
        self.stored_at = time.monotonic()
        return Receipt(sequence, STORED)

    def _take(self, source: str, sequence: int, size: int) -> None:
        """Use a number up, and count what waits under it."""
        self._use(source, sequence)
        self._waiting += 1
        self.bytes += size

    def _use(self, source: str, sequence: int) -> None:
        """Remember a number; the order of sources is that of their last trajectory."""
        self._sources.setdefault(source, Source()).take(sequence)
        self._sources.move_to_end(source)
        self._changed.add(source)
        # one that has something unread stays: its number would be taken for a new one
        while len(self._sources) > MOST_SOURCES and (silent := next(iter(self._sources))) not in self._due:
            del self._sources[silent]
            self._changed.discard(silent)

    def _recover(self, packed: Position) -> None:
        """What was stored before this gateway: used numbers, and how much waits."""
        for record in self._stream.newest(topics.sources(self._run)):
            told = _decode_source(record.value)
            if told is None:
                continue
            if told.source:
                self._sources[told.source] = Source(list(told.taken), told.floor)
                if len(self._sources) > MOST_SOURCES:
                    self._sources.popitem(last=False)
            else:
                self._covered = told.position
        self._waiting = 0
        start = {part: min(offset, packed.get(part, 0)) for part, offset in self._covered.items()}
        reader = RecordReader(self._stream, topics.trajectories(self._run), decode_facts, start or None)
        settled = set[tuple[str, int]]()
        for batch in reader.drain():
            for record, facts in batch:
                self._use(facts.source, facts.sequence)
                place, due = (facts.source, facts.sequence), self._due.get(facts.source, ())
                if record.offset < packed.get(record.partition, 0):
                    settled.add(place)
                elif place not in settled and facts.sequence not in due:
                    self._due[facts.source].add(facts.sequence)
                    self._waiting += 1
                    self.bytes += len(record.value)
        reader.close()


def decode_facts(frame: Frame) -> TrajectoryFacts:
    """Only who sent it: enough to know it again."""
    if frame.schema is not Schema.TRAJECTORY:
        raise Damaged(f"a {frame.schema.name.lower()} does not belong into a topic of trajectories")
    return decode_columns(frame, TrajectoryFacts)[0]


def _decode_source(value: bytes) -> SourceRecord | None:
    try:
        return decode(open_frame(value), SourceRecord)
    except Damaged:
        return None
