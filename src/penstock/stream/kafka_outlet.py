"""One idempotent producer, shared by the writers of a process: records in, what became of them out."""

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from penstock.errors import Unavailable
from penstock.stream.base import Flow
from penstock.stream.kafka_clients import Clients, Handle
from penstock.stream.kafka_records import Headers

GRACE_SECONDS = 5.0
"""librdkafka looks for messages past their deadline about once a second; then we give up on it."""
OFFERED_BYTES, OFFERED_RECORDS = 8 << 20, 2000
"""What may be under way of records that nobody waits for: they must not fill the queue of those that matter."""


class Receipt:
    """What became of one record."""

    __slots__ = ("done", "error")

    def __init__(self, error: KafkaError | None = None) -> None:
        self.done, self.error = False, error

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        self.error, self.done = error, True


class Outgoing(NamedTuple):
    """A record on its way."""

    name: str
    """Of the topic, on the brokers."""
    partition: int
    key: str
    value: bytes
    headers: Headers


Report = Callable[[KafkaError | None, Message], None]


class Outlet:
    """One producer. Any thread may send; one of those that wait polls for all.

    librdkafka keeps order and sends nothing twice, through outages and restarts of brokers. Only when it
    gives a producer up for good (a fatal error: a broker lost what it had acknowledged) is a new one made
    and the record sent again, perhaps twice; readers drop a rollout they have seen by (slot, round).
    """

    def __init__(self, clients: Clients, compression: str, flow: Flow) -> None:
        self._clients, self._compression, self._flow = clients, compression, flow
        self._handle: Handle[Producer] = clients.producer(compression)
        self._retired: list[Handle[Producer]] = []
        self._turn, self._renewing = threading.Lock(), threading.Lock()
        self._offered_bytes = self._offered_records = 0

    @property
    def producer(self) -> Producer:
        self._clients.check_process()
        client = self._handle.client
        if client is None:
            raise Unavailable("this Kafka stream is closed")
        return client

    def send(self, record: Outgoing, deadline: float) -> Receipt:
        """Return when the record is acknowledged or refused; its error says which."""
        producer, receipt = self.producer, Receipt()
        while not self._enqueue(producer, record, receipt):
            self._poll(producer, 0.05)
            if time.monotonic() > deadline:
                receipt.error = KafkaError(KafkaError._QUEUE_FULL)
                return receipt
        while not receipt.done:
            self._poll(producer, 0.1, receipt)
            self._clients.ear.tell()
            if time.monotonic() > deadline + GRACE_SECONDS:
                receipt.error = KafkaError(KafkaError._MSG_TIMED_OUT)
                break
        return receipt

    def offer(self, record: Outgoing) -> None:
        """Send when there is room; what is dropped now or later is counted."""
        producer, size = self.producer, len(record.value)
        self._poll(producer, 0)
        if self._offered_records >= OFFERED_RECORDS or self._offered_bytes + size > OFFERED_BYTES:
            self._flow.dropped += 1
            return

        def report(error: KafkaError | None, message: Message) -> None:
            self._offered_records -= 1
            self._offered_bytes -= size
            self._count(error, size)

        self._offered_records += 1  # before the report can come, from whichever thread polls
        self._offered_bytes += size
        if not self._enqueue(producer, record, report):
            report(KafkaError(KafkaError._QUEUE_FULL), Message())

    def renew(self, broken: Producer, why: str) -> None:
        """Put a new producer in the place of one that gave up.

        The old one is not ended before the stream is: another thread may be inside it. What it still
        holds is reported as purged, so that those who wait for it try again with the new one.
        """
        with self._renewing:
            if self._handle.client is not broken:
                return
            self._retired.append(self._handle)
            self._handle = self._clients.producer(self._compression)
        broken.purge()
        self._clients.on_event("kafka_producer_renewed", {"reason": self._clients.scrub(why)})

    def close(self) -> None:
        with self._turn:
            for handle in (*self._retired, self._handle):
                handle.close()

    def _count(self, error: KafkaError | None, size: int) -> None:
        if error is not None:
            self._flow.dropped += 1
        else:
            self._flow.produced_records += 1
            self._flow.produced_bytes += size

    def _poll(self, producer: Producer, seconds: float, receipt: Receipt | None = None) -> None:
        """Let reports come in; not when somebody else does, or when the one in question came meanwhile."""
        if self._turn.acquire(timeout=seconds):
            try:
                if receipt is None or not receipt.done:
                    producer.poll(seconds)
            except KafkaException:
                pass  # it has given up: the reports say so
            except RuntimeError as error:
                raise Unavailable("this Kafka stream is closed") from error
            finally:
                self._turn.release()

    def _enqueue(self, producer: Producer, record: Outgoing, report: Report) -> bool:
        """Whether there was room."""
        try:
            producer.produce(
                record.name,
                record.value,
                record.key,
                record.partition,
                on_delivery=report,
                headers=record.headers,
            )
        except BufferError:
            return False
        except KafkaException as error:
            report(error.args[0], Message())
        return True
