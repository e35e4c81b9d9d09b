"""Reading a Kafka topic: a consumer with its partitions assigned by hand; no group, no commits."""

import time
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from penstock.errors import Unavailable
from penstock.stream.base import Flow, Position, Record
from penstock.stream.kafka_clients import Clients, Handle, watermarks
from penstock.stream.kafka_errors import FORBIDDEN, forbidden, missing
from penstock.stream.kafka_records import record_of

RETRY_SECONDS = 0.25
"""How often a topic that is not there yet, or a place that was lost, is looked for."""
OPEN_SECONDS = 2.0
"""How long opening a reader may take while the brokers are away; later reads try again."""
NOT_FAR = {"max.partition.fetch.bytes": str(256 << 10), "queued.max.messages.kbytes": "1024"}

_LOST_PLACE = frozenset(
    {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION}
)


class Cursor:
    """Stands in every partition of one topic and moves on; keeps its own place, whatever the client does.

    A topic that is not there yet is looked for now and then. Where retention was faster, the records are
    counted in `missed` and reading goes on at the oldest. A place beyond the end means that the topic was
    made anew or cut: that is told as the event `kafka_place_beyond_end`, and reading goes on at the oldest,
    because which records are new cannot be known.
    """

    def __init__(
        self,
        clients: Clients,
        topic: str,
        name: str,
        start: Position | None = None,
        only: int | None = None,
    ) -> None:
        """`only` reads one partition, and not far ahead."""
        self._clients, self._topic, self._name, self._only = clients, topic, name, only
        self._handle: Handle[Consumer] = clients.consumer(**({} if only is None else NOT_FAR))
        self.next: Position = dict(start or {})
        self.missed = 0
        self._ends: dict[int, int] = {}
        self.placed = False
        """Whether the topic was found and its partitions are being read."""
        self._lost: set[int] = set()
        self._try_at = 0.0
        self._find(OPEN_SECONDS if clients.reached else None)

    @property
    def consumer(self) -> Consumer:
        self._clients.check_process()
        if self._handle.client is None:
            raise Unavailable(f"the reader of {self._topic} is closed")
        return self._handle.client

    def take(self, limit: int, timeout: float) -> list[Message]:
        """1..limit messages in the order of each partition, or none once `timeout` seconds have passed."""
        deadline = time.monotonic() + timeout
        while limit > 0:
            consumer, remaining = self.consumer, max(0.0, deadline - time.monotonic())
            if not self.placed or self._lost:
                self._mend(remaining)
            if self.placed:
                first = consumer.poll(min(remaining, RETRY_SECONDS if self._lost else 1.0))
                found = self._accept([] if first is None else [first])
                if found and limit > 1:
                    found += self._accept(consumer.consume(limit - 1, 0))
                if found:
                    return found
                if first is not None:
                    continue  # an event: what stands behind it may have arrived already
            if time.monotonic() >= deadline:
                self._clients.ear.tell()
                break
        return []

    def go(self, partition: int, offset: int) -> None:
        """Read on from there; the topic must have been found."""
        self.next[partition] = offset
        self._lost.discard(partition)
        self._assign()

    def ends(self) -> dict[int, int]:
        """The newest known position behind each partition."""
        for partition, known in self._ends.items():
            _, high = self.consumer.get_watermark_offsets(TopicPartition(self._name, partition), cached=True)
            self._ends[partition] = max(known, high)
        return self._ends

    def close(self) -> None:
        self._handle.close()

    def _find(self, seconds: float | None) -> None:
        """Go to the start, if the brokers answer and the topic is there; only a first contact may fail."""
        clients = self._clients
        try:
            edges = clients.edges(self.consumer, self._name, seconds)
        except Unavailable:
            if not clients.reached:
                raise
            return
        if not edges:
            if not clients.spec.create:
                raise missing(self._name)
            return
        self.next = {partition: offset for partition, offset in self.next.items() if partition in edges}
        for partition in edges if self._only is None else [self._only]:
            self._settle(partition, *edges[partition])
        self._assign()
        self.placed = True

    def _assign(self) -> None:
        self.consumer.assign([TopicPartition(self._name, *place) for place in self.next.items()])

    def _settle(self, partition: int, low: int, high: int) -> None:
        """Bring a place that does not exist any more to one that does."""
        here = self.next.get(partition)
        if here is not None and here > high:
            facts = {"topic": self._topic, "partition": partition, "position": here, "end": high}
            self._clients.on_event("kafka_place_beyond_end", facts)
            here = None
        if here is not None and here < low:
            self.missed += low - here
        self.next[partition] = low if here is None else max(here, low)
        self._ends[partition] = high

    def _mend(self, seconds: float) -> None:
        """Look again for a topic or a place; returns at once when it was looked for a moment ago."""
        pause = self._try_at - time.monotonic()
        if pause > 0:
            if not self.placed:
                time.sleep(min(pause, seconds))
            return
        self._try_at = time.monotonic() + RETRY_SECONDS
        if not self.placed:
            self._find(max(0.2, min(seconds, OPEN_SECONDS)))
            return
        consumer = self.consumer
        try:
            marks = watermarks(consumer, self._name, sorted(self._lost), max(0.2, min(seconds, 2.0)))
        except KafkaException:
            return
        for partition, (low, high) in marks.items():
            self._settle(partition, low, high)
            place = TopicPartition(self._name, partition, self.next[partition])
            consumer.incremental_unassign([place])
            consumer.incremental_assign([place])
        self._lost.clear()

    def _accept(self, messages: Iterable[Message]) -> list[Message]:
        """Those that are records and new; the others say where a partition ends, or what is wrong."""
        found = []
        for message in messages:
            partition, offset, error = message.partition(), message.offset(), message.error()
            if error is not None:
                self._note(error, partition, offset)
            elif partition is not None and offset is not None and offset >= self.next[partition]:
                self.next[partition] = offset + 1
                found.append(message)
        return found

    def _note(self, error: KafkaError, partition: int | None, offset: int | None) -> None:
        code = error.code()
        if code in FORBIDDEN:
            raise forbidden(f"the topic {self._name}", error)
        if partition is None or partition not in self.next:
            return
        if code == KafkaError._PARTITION_EOF and offset is not None:
            self.next[partition] = max(self.next[partition], offset)
            self._ends[partition] = max(self._ends[partition], offset)
        elif code in _LOST_PLACE:
            self._lost.add(partition)


class KafkaReader:
    """A Reader; see stream.base. What the brokers are away for is waited out, without an error."""

    def __init__(self, cursor: Cursor, flow: Flow) -> None:
        self._cursor, self._flow = cursor, flow

    @property
    def missed(self) -> int:
        return self._cursor.missed

    def read(self, limit: int, timeout: float) -> list[Record]:
        records = [record_of(message) for message in self._cursor.take(limit, timeout)]
        self._flow.consumed_records += len(records)
        self._flow.consumed_bytes += sum(len(record.value) for record in records)
        return records

    def position(self) -> Position:
        return dict(self._cursor.next)

    def lag(self) -> int:
        """As far as the last fetch told; an upper bound where compaction left gaps."""
        ends = self._cursor.ends()
        return sum(max(0, end - self._cursor.next[partition]) for partition, end in ends.items())

    def close(self) -> None:
        self._cursor.close()
