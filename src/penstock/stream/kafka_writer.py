"""Writing to Kafka: an idempotent producer for each compression, shared by the writers of a process."""

import struct
import threading
import time
import zlib
from collections.abc import Callable

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from penstock.errors import ConfigError, Unavailable
from penstock.model.codec import HEADER, MAGIC, Schema
from penstock.stream.base import Buffer, Flow
from penstock.stream.kafka_clients import Clients, Handle
from penstock.stream.kafka_errors import FORBIDDEN, MISSING, TOO_LARGE, forbidden, too_large
from penstock.stream.kafka_options import OVERHEAD_BYTES

SLOW_SECONDS = 0.5
"""A write that took longer had to wait for somebody."""
GRACE_SECONDS = 5.0
"""librdkafka looks for messages past their deadline about once a second; then we give up on it."""
OFFER_SECONDS = 0.5
"""How long the first record that is offered may look for its topic."""
OFFERED_BYTES, OFFERED_RECORDS = 8 << 20, 2000
"""What may be under way of records that nobody waits for: they must not fill the queue of those that matter."""
_FACTS_BYTES = 64 << 10
"""Larger heads of records are not looked into for the sake of a header."""
_OF_A_RUN = ("experiences", "model_updates", "history")

Headers = list[tuple[str, str | bytes | None]]


def partition_of(key: str, count: int) -> int:
    """Where the records of a key are, in a topic of `count` partitions.

    Keys that are whole numbers (actor slots) take turns: int(key) % count. Others go by crc32(key) % count.
    `backwards` looks only there, so a topic in use must not get more partitions.
    """
    if key.isascii() and key.isdigit():
        return int(key) % count
    return zlib.crc32(key.encode()) % count


class _Facts(msgspec.Struct):
    run: str | None = None
    version: tuple[int, int] | None = None


class _Columns(msgspec.Struct):
    facts: _Facts


_facts, _columns = msgspec.json.Decoder(_Facts), msgspec.json.Decoder(_Columns)


def headers_of(topic: str, value: bytes) -> Headers:
    """`schema`, `run` and `version` of a record of ours, for people and tools that do not know the frame."""
    kind, _, run = topic.partition(".")
    headers = {"run": run} if kind in _OF_A_RUN and run else {}
    if value.startswith(MAGIC) and len(value) >= HEADER.size:
        schema = HEADER.unpack_from(value)[1]
        if schema in Schema._value2member_map_:
            headers["schema"] = Schema(schema).name.lower()
        facts = _facts_of(schema, memoryview(value)[HEADER.size :])
        if facts.run is not None:
            headers.setdefault("run", facts.run)
        if facts.version is not None:
            headers["version"] = f"{facts.version[0]}.{facts.version[1]}"
    return list(headers.items())


def _facts_of(schema: int, payload: memoryview) -> _Facts:
    try:
        if schema not in (Schema.ROLLOUT, Schema.POLICY):
            return _facts.decode(payload) if len(payload) <= _FACTS_BYTES else _Facts()
        (length,) = struct.unpack_from("<I", payload)
        return _columns.decode(payload[4 : 4 + length]).facts if length <= _FACTS_BYTES else _Facts()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, struct.error):
        return _Facts()


class Receipt:
    """What became of one record."""

    __slots__ = ("done", "error", "offset")

    def __init__(self) -> None:
        self.done, self.offset = False, -1
        self.error: KafkaError | None = None

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        self.error, self.offset = error, message.offset() or 0
        self.done = True


class Outlet:
    """One producer. Any thread may send; one of those that wait polls for all.

    librdkafka keeps order and sends nothing twice, through outages and restarts of brokers. Only when it
    gives a producer up for good (a fatal error: a broker lost what it had acknowledged) is a new one made
    and the record sent again, perhaps twice; readers drop a rollout they have seen by (slot, round).
    """

    def __init__(self, clients: Clients, compression: str, flow: Flow) -> None:
        self._clients, self._compression, self._flow = clients, compression, flow
        self._handle: Handle[Producer] = clients.producer(compression)
        self._turn, self._renewing = threading.Lock(), threading.Lock()
        self._offered_bytes = self._offered_records = 0

    @property
    def producer(self) -> Producer:
        self._clients.check_process()
        client = self._handle.client
        if client is None:
            raise Unavailable("this Kafka stream is closed")
        return client

    def send(
        self, name: str, partition: int, key: str, value: bytes, headers: Headers, deadline: float
    ) -> Receipt:
        """Return when the record is acknowledged or refused; its error says which."""
        producer, receipt = self.producer, Receipt()
        while not self._enqueue(producer, name, partition, key, value, headers, receipt):
            producer.poll(0.05)
            if time.monotonic() > deadline:
                receipt.error = KafkaError(KafkaError._QUEUE_FULL)
                return receipt
        while not receipt.done and time.monotonic() < deadline + GRACE_SECONDS:
            if self._turn.acquire(timeout=0.1):
                try:
                    if not receipt.done:
                        producer.poll(0.1)
                finally:
                    self._turn.release()
            self._clients.ear.tell()
        if not receipt.done:
            receipt.error = KafkaError(KafkaError._MSG_TIMED_OUT)
        return receipt

    def offer(self, name: str, partition: int, key: str, value: bytes, headers: Headers) -> None:
        """Send when there is room; what is dropped now or later is counted."""
        producer, size = self.producer, len(value)
        producer.poll(0)
        full = self._offered_records >= OFFERED_RECORDS or self._offered_bytes + size > OFFERED_BYTES

        def report(error: KafkaError | None, message: Message) -> None:
            self._offered_records -= 1
            self._offered_bytes -= size
            self._count(error, size)

        if full or not self._enqueue(producer, name, partition, key, value, headers, report):
            self._flow.dropped += 1
            return
        self._offered_records += 1
        self._offered_bytes += size

    def renew(self, broken: Producer) -> None:
        """Put a new producer in the place of one that gave up."""
        with self._renewing:
            if self._handle.client is broken:
                old, self._handle = self._handle, self._clients.producer(self._compression)
                old.close()

    def close(self) -> None:
        self._handle.close()

    def _count(self, error: KafkaError | None, size: int) -> None:
        if error is not None:
            self._flow.dropped += 1
        else:
            self._flow.produced_records += 1
            self._flow.produced_bytes += size

    def _enqueue(
        self,
        producer: Producer,
        name: str,
        partition: int,
        key: str,
        value: bytes,
        headers: Headers,
        report: "Receipt | Callable[[KafkaError | None, Message], None]",
    ) -> bool:
        """Whether there was room."""
        try:
            producer.produce(name, value, key, partition, on_delivery=report, headers=headers)
        except BufferError:
            return False
        except KafkaException as error:
            report(error.args[0], Message())
        return True


class Partitions:
    """How many partitions each topic has. One that is not there is made first, where that is allowed."""

    def __init__(self, clients: Clients, name: Callable[[str], str], make: Callable[[str], None]) -> None:
        self._clients, self._name, self._make = clients, name, make
        self._known: dict[str, int] = {}
        self._ask_after = 0.0

    def count(self, client: Producer, topic: str, seconds: float) -> int:
        """Raises Unavailable past `seconds`; a first contact has its own patience."""
        if topic not in self._known:
            if seconds <= OFFER_SECONDS and time.monotonic() < self._ask_after:
                raise self._clients.unavailable(seconds)
            self._known[topic] = self._ask(client, topic, seconds)
        return self._known[topic]

    def forget(self, topic: str) -> None:
        self._known.pop(topic, None)

    def _ask(self, client: Producer, topic: str, seconds: float) -> int:
        patience = seconds if self._clients.reached else None
        try:
            facts = self._clients.describe(client, self._name(topic), patience)
            while facts is None:
                self._make(topic)
                facts = self._clients.describe(client, self._name(topic), patience)
        except Unavailable:
            self._ask_after = time.monotonic() + 10 * OFFER_SECONDS
            raise
        return facts.partitions


class KafkaWriter:
    """A Writer of one topic; see stream.base."""

    def __init__(
        self,
        clients: Clients,
        outlet: Outlet,
        topic: str,
        name: str,
        partitions: "Partitions",
        flow: Flow,
    ) -> None:
        self._clients, self._outlet, self._topic, self._name = clients, outlet, topic, name
        self._partitions, self._flow = partitions, flow

    def write(self, key: str, value: Buffer) -> None:
        self.append(key, value)

    def append(self, key: str, value: Buffer) -> int:
        """Write one record and return its offset."""
        content, began = bytes(value), time.monotonic()
        self._check_size(key, content)
        try:
            receipt = self._send(key, content, began + self._clients.spec.write_deadline)
        finally:
            waited = time.monotonic() - began
            if waited > SLOW_SECONDS:
                self._flow.waits += 1
                self._flow.waited_seconds += waited
        if receipt.error is not None:
            raise self._refusal(receipt.error, len(content), time.monotonic() - began)
        self._flow.produced_records += 1
        self._flow.produced_bytes += len(content)
        return receipt.offset

    def offer(self, key: str, value: Buffer) -> None:
        content = bytes(value)
        self._check_size(key, content)
        try:
            count = self._partitions.count(self._outlet.producer, self._topic, OFFER_SECONDS)
        except Unavailable:
            self._flow.dropped += 1
            return
        partition = partition_of(key, count)
        self._outlet.offer(self._name, partition, key, content, headers_of(self._topic, content))

    def close(self) -> None:
        """The producer is the stream's."""

    def _send(self, key: str, value: bytes, deadline: float) -> Receipt:
        headers, renewed = headers_of(self._topic, value), False
        while True:
            producer = self._outlet.producer
            count = self._partitions.count(producer, self._topic, deadline - time.monotonic())
            partition = partition_of(key, count)
            receipt = self._outlet.send(self._name, partition, key, value, headers, deadline)
            error = receipt.error
            if error is None or time.monotonic() > deadline:
                return receipt
            if (error.fatal() or error.code() == KafkaError._FATAL) and not renewed:
                self._outlet.renew(producer)
                renewed = True
            elif error.code() in MISSING:
                self._partitions.forget(self._topic)
            else:
                return receipt

    def _check_size(self, key: str, value: bytes) -> None:
        limit = self._clients.spec.max_record_bytes
        if len(value) > limit:
            raise too_large(self._topic, len(value), limit)
        if len(key) > OVERHEAD_BYTES // 8:
            raise ConfigError(f"a record key of {len(key)} letters is too long; {OVERHEAD_BYTES // 8} fit")

    def _refusal(self, error: KafkaError, size: int, waited: float) -> ConfigError | Unavailable:
        spec = self._clients.spec
        if error.code() in TOO_LARGE:
            return too_large(self._topic, size, spec.max_record_bytes)
        if error.code() in FORBIDDEN:
            return forbidden(f"the topic {self._name}", error)
        if error.code() in (KafkaError._MSG_TIMED_OUT, KafkaError._QUEUE_FULL):
            return Unavailable(
                f"{self._topic} waited {waited:.0f} s for Kafka at {self._clients.brokers} "
                f"({self._clients.ear.reason()}); stream.kafka.write_deadline is {spec.write_deadline:g} s"
            )
        text = self._clients.scrub(error.str())
        return Unavailable(
            f"Kafka at {self._clients.brokers} did not take a record for {self._topic}: {text}"
        )
