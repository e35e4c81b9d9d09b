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
        self._unpacked: defaultdict[str, dict[int, bool]] = defaultdict(dict)
        """Source → its numbers that are in no rollout yet → whether the packer has read them."""
        self._changed: set[str] = set()
        """Sources of which something was packed that is not told yet."""
        self._rests_until = float("-inf")
        self._flushed_at = time.monotonic()
        self._covered: Position = {}
        """Everything before it is told in `sources.<run>`; never past what is packed."""
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
        self,
        source: str,
        messages: Iterable[Any],
        newest: Version,
        until: float = float("inf"),
        run: str = "",
    ) -> list[Receipt]:
        """Store in this order; after the first that has to wait, or past `until`, the others wait too.

        `run` is the one they were made for where they name none themselves.
        """
        receipts, waits, untried = list[Receipt](), "", 0
        for message in messages:
            if not waits and time.monotonic() > until:
                waits = "the call's deadline is over"
            if waits:
                receipts.append(Receipt(int(message.sequence), LATER, waits))
                untried += 1
                continue
            receipts.append(self.store(source, message, newest, run))
            if receipts[-1].outcome == LATER:
                waits = "one before it has to wait"
        with self._lock:
            self.counts["later"] += untried
        return receipts

    def store(self, source: str, message: Any, newest: Version, run: str = "") -> Receipt:
        """Check and store one trajectory; what is stored survives the death of this process."""
        sequence = int(message.sequence)
        with self._lock:
            receipt = self._store(source, sequence, message, newest, run)
            self.counts[NAMES[receipt.outcome]] += 1
        return receipt

    def arrived(self, source: str, sequence: int, size: int) -> bool:
        """Whether a trajectory that was read from the log is to be packed; False for the copy of another.

        A write that failed may have landed: then a number lies in the log that nobody counted, or lies there twice.
        """
        with self._lock:
            if self._unpacked.get(source, {}).get(sequence) is not False:
                known = self._sources.get(source)
                if known is not None and known.look(sequence) != "new":
                    return False
                self._take(source, sequence, size)
            self._unpacked[source][sequence] = True
            return True

    def taken_off(self, trajectories: int, size: int) -> None:
        """Some are accounted for."""
        with self._lock:
            self._waiting -= trajectories
            self.bytes -= size

    def settle(self, numbers: Iterable[tuple[str, int]]) -> None:
        """These (source, sequence) are in a rollout that is in the log, or were passed over on the way to it."""
        with self._lock:
            for source, sequence in numbers:
                waiting = self._unpacked.get(source, {})
                waiting.pop(sequence, None)
                if not waiting:
                    self._unpacked.pop(source, None)
                if source in self._sources:
                    self._changed.add(source)

    def flush(self, packed: Position, *, now: bool = False) -> None:
        """Write down which numbers were used up before `packed`; what lies there may then be let go of by retention.

        Only those: whoever starts next finds the others in the log, and knows a number that is told and comes
        again for a copy.
        """
        if not now and time.monotonic() - self._flushed_at < FLUSH_SECONDS:
            return
        with self._lock:
            changed = sorted(self._changed)
            records = [self._told_of(name) for name in changed]
            self._changed.clear()
        self._flushed_at = time.monotonic()
        try:
            for record in records:
                self._told.write(record.source, encode(Schema.SOURCE, record))
            if records:
                self._told.write("", encode(Schema.SOURCE, SourceRecord("", position=packed)))
                self._covered = dict(packed)
        except Unavailable:
            with self._lock:  # told the next time: a position must not cover what nobody wrote down
                self._changed |= self._sources.keys() & changed
            raise
        self._stream.protect(topics.trajectories(self._run), self._covered or {0: 0})

    def _store(self, source: str, sequence: int, message: Any, newest: Version, run: str = "") -> Receipt:
        known = self._sources.get(source)
        answer = "new" if known is None else known.look(sequence)
        if answer == "duplicate":
            return Receipt(sequence, DUPLICATE)
        if answer == "late":
            return Receipt(
                sequence, REFUSED, f"sequence {sequence} comes too late: far higher ones were stored"
            )
        try:
            self._expected.check_run(message.run or run)
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
        self._unpacked[source][sequence] = False
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
        # one that has something unpacked stays: its number would be taken for a new one
        while (
            len(self._sources) > MOST_SOURCES and (silent := next(iter(self._sources))) not in self._unpacked
        ):
            del self._sources[silent]
            self._changed.discard(silent)

    def _told_of(self, name: str) -> SourceRecord:
        source = self._sources[name]
        return SourceRecord(name, source.without(self._unpacked.get(name, ())), source.floor)

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
        reader = RecordReader(
            self._stream, topics.trajectories(self._run), decode_facts, self._covered or None
        )
        for batch in reader.drain():
            for record, facts in batch:
                known = self._sources.get(facts.source)
                is_copy = known is not None and known.look(facts.sequence) == "duplicate"
                if record.offset < packed.get(record.partition, 0):
                    self._use(facts.source, facts.sequence)
                    self._changed.add(facts.source)
                elif not is_copy:
                    self._take(facts.source, facts.sequence, len(record.value))
                    self._unpacked[facts.source][facts.sequence] = False
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
