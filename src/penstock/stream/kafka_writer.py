"""Writing to Kafka: records of one topic go to the partition of their key, through a shared producer."""

import time
from collections.abc import Callable

from confluent_kafka import KafkaError, Producer

from penstock.errors import ConfigError, Unavailable, Unreachable
from penstock.stream.base import Buffer, Flow
from penstock.stream.kafka_clients import Clients
from penstock.stream.kafka_errors import FORBIDDEN, MISSING, TOO_LARGE, forbidden, too_large
from penstock.stream.kafka_options import OVERHEAD_BYTES
from penstock.stream.kafka_outlet import Outgoing, Outlet, Receipt
from penstock.stream.kafka_records import headers_of, partition_of

SLOW_SECONDS = 0.5
"""A write that took longer had to wait for somebody."""
OFFER_SECONDS = 0.5
"""How long the first record that is offered may look for its topic."""
_GAVE_UP = (KafkaError._FATAL, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
"""This producer will not send the record; another one can."""
_ASK_AGAIN = MISSING | {KafkaError._DESTROY_BROKER}
"""The topic is not where it was: it was removed, or the connection it was sent over was let go."""


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
        partitions: Partitions,
        flow: Flow,
    ) -> None:
        self._clients, self._outlet, self._topic, self._name = clients, outlet, topic, name
        self._partitions, self._flow = partitions, flow

    def write(self, key: str, value: Buffer) -> None:
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

    def offer(self, key: str, value: Buffer) -> None:
        content = bytes(value)
        self._check_size(key, content)
        try:
            count = self._partitions.count(self._outlet.producer, self._topic, OFFER_SECONDS)
        except Unavailable:
            self._flow.dropped += 1
            return
        self._outlet.offer(self._outgoing(key, content, count))

    def close(self) -> None:
        """The producer is the stream's."""

    def _send(self, key: str, value: bytes, deadline: float) -> Receipt:
        renewed = False
        while True:
            producer = self._outlet.producer
            try:
                count = self._partitions.count(producer, self._topic, deadline - time.monotonic())
            except Unavailable:
                if self._clients.reached and time.monotonic() > deadline:
                    return Receipt(KafkaError(KafkaError._MSG_TIMED_OUT))
                raise
            receipt = self._outlet.send(self._outgoing(key, value, count), deadline)
            error = receipt.error
            if error is None or time.monotonic() > deadline:
                return receipt
            if (error.fatal() or error.code() in _GAVE_UP) and not renewed:
                self._outlet.renew(producer, error.str())
                renewed = True
            elif error.code() in _ASK_AGAIN:
                self._partitions.forget(self._topic)
            else:
                return receipt

    def _outgoing(self, key: str, value: bytes, count: int) -> Outgoing:
        return Outgoing(self._name, partition_of(key, count), key, value, headers_of(self._topic, value))

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
            return Unreachable(
                f"{self._topic} waited {waited:.0f} s for Kafka at {self._clients.brokers} "
                f"({self._clients.ear.reason()}); stream.kafka.write_deadline is {spec.write_deadline:g} s"
            )
        text = self._clients.scrub(error.str())
        return Unavailable(
            f"Kafka at {self._clients.brokers} did not take a record for {self._topic}: {text}"
        )
