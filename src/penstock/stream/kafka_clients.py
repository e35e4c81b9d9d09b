"""librdkafka's clients in one process: made when needed, never used across a fork, asked with patience."""

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.errors import Conflict, Unreachable
from penstock.model.spec import KafkaSpec
from penstock.stream import kafka_options
from penstock.stream.kafka_errors import FORBIDDEN, MISSING, Ear, forbidden
from penstock.stream.kafka_names import refused
from penstock.stream.kafka_options import HIDDEN, Options
from penstock.stream.recovery import OnEvent

T = TypeVar("T")
CONNECT_SECONDS = 10.0
"""How long a process that starts looks for the brokers; later outages are waited out."""
CERTAIN_SECONDS = 2.0
"""A password or certificate that was refused this long does not get better."""
CLOSE_SECONDS = 2.0
"""How long records that were only offered may still take at the end."""
BEGINNING, END = -2, -1
"""Offsets that librdkafka and the brokers read as words."""

_LASTING = frozenset(
    {
        KafkaError._INVALID_ARG,
        KafkaError._FATAL,
        KafkaError._STATE,
        KafkaError._NOT_IMPLEMENTED,
        KafkaError._UNSUPPORTED_FEATURE,
    }
)
"""Errors of the library that waiting does not mend; all others come from outages."""
_PASSING = MISSING | {
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.NOT_CONTROLLER,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError.INCONSISTENT_TOPIC_ID,
    KafkaError.THROTTLING_QUOTA_EXCEEDED,
}
"""Errors of the brokers that go away by themselves; a topic may be known to some of them before the others."""


class Handle(Generic[T]):
    """Owns one client. A forked child leaves it alone: the threads that could end it did not come along."""

    def __init__(self, client: T, end: Callable[[T], object]) -> None:
        self.client: T | None = client
        self._end, self._pid = end, os.getpid()
        _handles.add(self)

    def close(self) -> None:
        client, self.client = self.client, None
        if client is not None and self._pid == os.getpid():
            self._end(client)

    def __del__(self) -> None:
        self.close()


_handles: "weakref.WeakSet[Handle[Any]]" = weakref.WeakSet()


def _leave_to_the_parent() -> None:
    """In a forked child: one reference that is never given back, so that no client is ever destroyed."""
    import ctypes

    for handle in list(_handles):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle.client))


os.register_at_fork(after_in_child=_leave_to_the_parent)


class TopicFacts(NamedTuple):
    partitions: int
    replicas: int


class Clients:
    """Makes the clients of one stream, and knows whether the brokers were ever reached. Any thread."""

    def __init__(
        self, brokers: str, spec: KafkaSpec, options: Options, on_event: OnEvent, question_seconds: float
    ) -> None:
        self.brokers, self.spec, self.on_event = brokers, spec, on_event
        self._options, self.question_seconds = options, question_seconds
        self._secrets = kafka_options.scrubber(options)
        self.ear = Ear(brokers, self.scrub, on_event)
        self.reached = False
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._admin: Handle[AdminClient] | None = None

    def check_process(self) -> None:
        """Raise Conflict in a forked child."""
        if self.is_elsewhere:
            raise Conflict(
                f"this Kafka stream belongs to process {self._pid}; open one of its own after a fork"
            )

    @property
    def is_elsewhere(self) -> bool:
        """Whether this is a forked child of the process that made them."""
        return os.getpid() != self._pid

    def scrub(self, text: str) -> str:
        return self._secrets.sub(HIDDEN, text) if self._secrets else text

    def producer(self, compression: str) -> Handle[Producer]:
        options = kafka_options.producer(self.brokers, self.spec, self._options, compression)
        return Handle(self._make(Producer, options), _end_producer)

    def consumer(self, **extra: str) -> Handle[Consumer]:
        options = kafka_options.consumer(self.brokers, self.spec, self._options)
        return Handle(self._make(Consumer, {**options, **extra}), Consumer.close)

    def admin(self) -> AdminClient:
        """The one of this process; made only where topics are made, changed or listed."""
        self.check_process()
        with self._lock:
            if self._admin is None or self._admin.client is None:
                options = kafka_options.admin(self.brokers, self._options)
                self._admin = Handle(self._make(AdminClient, options), lambda client: None)
            client = self._admin.client
        assert client is not None
        return client

    def close(self) -> None:
        with self._lock:
            if self._admin is not None:
                self._admin.close()

    def ask(self, client: Any, question: Callable[[float], T], seconds: float | None = None) -> T:
        """The answer to `question(timeout)`, however often it takes; `client` must have nothing assigned.

        Raises Unavailable past the deadline, and what a person must mend as ConfigError.
        """
        began = time.monotonic()
        patience = (
            (self.question_seconds if self.reached else CONNECT_SECONDS) if seconds is None else seconds
        )
        while True:
            self.check_process()
            waited = time.monotonic() - began
            try:
                answer = question(min(2.0 if self.reached else 1.0, max(0.2, patience - waited)))
            except KafkaException as error:
                self._check_passing(error.args[0])
            else:
                self.reached = True
                self.ear.forget()
                return answer
            client.poll(0.05)  # librdkafka says why only while somebody listens
            self._check_patience(time.monotonic() - began, patience)

    def describe(self, client: Any, name: str, seconds: float | None = None) -> TopicFacts | None:
        """The topic as the brokers know it; None when they do not."""
        return self.ask(client, lambda timeout: _describe(client, name, timeout), seconds)

    def end(self, client: Consumer, name: str) -> dict[int, int]:
        """Partition → offset behind the newest record; empty while there is no such topic."""

        def question(timeout: float) -> dict[int, int]:
            facts = _describe(client, name, timeout)
            return {} if facts is None else edge(client, name, range(facts.partitions), END, timeout)

        return self.ask(client, question)

    def edges(self, client: Consumer, name: str, seconds: float | None = None) -> dict[int, tuple[int, int]]:
        """Partition → (offset of the oldest record, offset behind the newest); empty likewise."""

        def question(timeout: float) -> dict[int, tuple[int, int]]:
            facts = _describe(client, name, timeout)
            return {} if facts is None else watermarks(client, name, range(facts.partitions), timeout)

        return self.ask(client, question, seconds)

    def unavailable(self, seconds: float) -> Unreachable:
        return Unreachable(
            f"Kafka at {self.brokers} has not answered for {seconds:g} s ({self.ear.reason()})"
        )

    def _check_passing(self, error: KafkaError) -> None:
        if error.code() in FORBIDDEN:
            raise forbidden("the topics of this stream", error)
        local = error.code() < 0 and error.code() not in _LASTING
        if not (local or error.retriable() or error.code() in _PASSING):
            raise KafkaException(error)

    def _check_patience(self, waited: float, patience: float) -> None:
        if self.reached:
            self.ear.tell()
            if waited > patience:
                raise self.unavailable(patience)
            return
        if waited > patience or (self.ear.is_certain and waited > CERTAIN_SECONDS):
            raise self.ear.verdict()

    def _make(self, kind: Callable[[Any], T], options: Options) -> T:
        self.check_process()
        try:
            return kind({**options, "error_cb": self.ear.heard})
        except (KafkaException, ValueError, TypeError) as error:
            text = error.args[0].str() if isinstance(error.args[0], KafkaError) else str(error)
            raise refused(self.scrub(text)) from None  # the cause may hold what was scrubbed


def edge(
    consumer: Consumer, name: str, partitions: Iterable[int], which: int, timeout: float
) -> dict[int, int]:
    """Partition → offset of the oldest record (BEGINNING), or behind the newest (END); one question for all."""
    asked = [TopicPartition(name, partition, which) for partition in partitions]
    answered = consumer.offsets_for_times(asked, timeout=timeout)
    for place in answered:
        if place.error is not None:
            raise KafkaException(place.error)
    return {place.partition: place.offset for place in answered}


def watermarks(
    consumer: Consumer, name: str, partitions: Iterable[int], timeout: float
) -> dict[int, tuple[int, int]]:
    """Partition → (offset of the oldest record, offset behind the newest)."""
    partitions = list(partitions)
    low = edge(consumer, name, partitions, BEGINNING, timeout)
    high = edge(consumer, name, partitions, END, timeout)
    return {partition: (low[partition], high[partition]) for partition in partitions}


def _describe(client: Any, name: str, timeout: float) -> TopicFacts | None:
    found = client.list_topics(name, timeout=timeout).topics[name]
    if found.error is not None:
        if found.error.code() in MISSING or found.error.code() == KafkaError.TOPIC_EXCEPTION:
            return None
        if found.error.code() in FORBIDDEN:
            raise forbidden(f"the topic {name}", found.error)
        raise KafkaException(found.error)
    return TopicFacts(
        len(found.partitions), min((len(part.replicas) for part in found.partitions.values()), default=0)
    )


def _end_producer(producer: Producer) -> None:
    """What is still under way gets a moment; the rest is reported as purged to whoever waits for it."""
    with contextlib.suppress(KafkaException):  # one that has given up for good refuses even this
        producer.flush(CLOSE_SECONDS)
    producer.purge()
    with contextlib.suppress(KafkaException):
        producer.flush(CLOSE_SECONDS)
    producer.close()
