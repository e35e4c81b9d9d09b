"""The log on Kafka: the same promise as the embedded one, on brokers that many machines share.

What is different by nature: records cannot be held back from retention (`protect` does nothing; readers
count what they `missed`), and a topic has partitions, so only records that share a key keep their order.
All topics of a stream may carry a prefix on the brokers; nobody above this file sees it.
"""

import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer

from penstock.errors import ConfigError
from penstock.model import topics
from penstock.model.codec import MAGIC
from penstock.model.spec import KAFKA_URL, KafkaSpec, shown_url
from penstock.stream import kafka_options, kafka_questions, recovery
from penstock.stream.base import Flow, Position, Record, TopicInfo, TopicPolicy
from penstock.stream.kafka_claims import Claims
from penstock.stream.kafka_clients import Clients, Handle
from penstock.stream.kafka_outlet import Outlet
from penstock.stream.kafka_reader import Cursor, KafkaReader
from penstock.stream.kafka_records import partition_of
from penstock.stream.kafka_topics import Topics, foreign
from penstock.stream.kafka_writer import KafkaWriter, Partitions
from penstock.stream.recovery import OnEvent
from penstock.stream.shared import SHARED, policy_of

QUESTION_SECONDS = 60.0
"""How long a question about the log waits for brokers that are away."""


class KafkaStream:
    """A Stream; see stream.base for the promises. Any thread may use it; its handles are for one each.

    The first use finds the brokers within ten seconds or says what to change. Later outages are waited
    out: readers find nothing, writers wait up to `stream.kafka.write_deadline`, questions for a minute.
    """

    shared = True

    def __init__(
        self,
        url: str,
        spec: KafkaSpec = KafkaSpec(),  # noqa: B008 - frozen
        *,
        on_event: OnEvent = recovery.warn,
        question_seconds: float = QUESTION_SECONDS,
    ) -> None:
        parts = KAFKA_URL.fullmatch(url)
        if parts is None:
            raise ConfigError(
                f"{shown_url(url)!r} is not a stream; write kafka://HOST:PORT[,HOST:PORT][/PREFIX]"
            )
        self.url, self.flow = url, Flow()
        self._prefix = f"{parts['prefix']}." if parts["prefix"] else ""
        options = kafka_options.load(spec, os.environ, on_event)
        self._clients = Clients(parts["brokers"], spec, options, on_event, question_seconds)
        self._topics = Topics(self._clients)
        self._partitions = Partitions(self._clients, self._name, self._make)
        self._lock = threading.Lock()
        self._outlets: dict[str, Outlet] = {}
        self._cursors: weakref.WeakSet[Cursor] = weakref.WeakSet()
        self._asker: Handle[Consumer] | None = None
        self._claims = Claims(
            self._clients,
            lambda: self.end(topics.CLAIMS),
            lambda: self._cursor(topics.CLAIMS),
            lambda: self.writer(topics.CLAIMS),
        )

    def ensure(self, topic: str, policy: TopicPolicy) -> None:
        """Also checks what is there: enough partitions and copies, and that it is ours."""
        self._topics.ensure(self._name(topic), policy, lambda: self._check_content(topic))

    def writer(self, topic: str) -> KafkaWriter:
        outlet = self._outlet(topic)
        if not self._clients.reached:
            self._partitions.count(outlet.producer, topic, QUESTION_SECONDS)
        return KafkaWriter(self._clients, outlet, topic, self._name(topic), self._partitions, self.flow)

    def reader(self, topic: str, start: Position | None = None) -> KafkaReader:
        return KafkaReader(self._cursor(topic, start), self.flow)

    def end(self, topic: str) -> Position:
        """Empty while there is no such topic: then all of it is still to come."""
        return self._clients.end(self._ask(), self._name(topic))

    def backwards(self, topic: str, key: str) -> Iterator[Record]:
        name = self._name(topic)
        edges = self._clients.edges(self._ask(), name)
        if edges:
            partition = partition_of(key, len(edges))
            yield from kafka_questions.backwards(self._clients, topic, name, partition, edges[partition], key)

    def newest(self, topic: str) -> list[Record]:
        end = self.end(topic)
        if not end:
            return []
        cursor = self._cursor(topic)
        try:
            return kafka_questions.newest(self._clients, cursor, end)
        finally:
            cursor.close()

    def protect(self, topic: str, position: Position) -> None:
        """Nothing: Kafka drops what retention says. Readers count what they missed."""
        self._clients.check_process()

    def claim(self, name: str) -> int:
        return self._claims.claim(name)

    def claimed(self, name: str) -> int:
        return self._claims.claimed(name)

    def topics(self) -> list[TopicInfo]:
        """Without a prefix, all that the brokers have: whose they are cannot be known."""
        return self._topics.describe_all(self._ask(), self._ours)

    def remove(self, topic: str) -> None:
        self._topics.remove(self._name(topic))
        self._partitions.forget(topic)

    def remove_run(self, run: str) -> None:
        for kind in topics.OF_A_RUN:
            self.remove(f"{kind}.{run}")

    def close(self) -> None:
        """End every client; what was only offered gets two seconds to leave. In a forked child: nothing."""
        if self._clients.is_elsewhere:
            return
        with self._lock:
            handles: list[Any] = [*self._outlets.values(), *self._cursors, self._claims, self._clients]
            handles += [self._asker] if self._asker is not None else []
            self._outlets.clear()
        for handle in handles:
            handle.close()

    def _name(self, topic: str) -> str:
        return self._prefix + topic

    def _ours(self, name: str) -> str | None:
        """The topic of ours that has this name on the brokers."""
        internal = name.startswith("__")
        return name.removeprefix(self._prefix) if name.startswith(self._prefix) and not internal else None

    def _make(self, topic: str) -> None:
        """A topic that is written before anybody made it."""
        self.ensure(topic, policy_of(topic))

    def _outlet(self, topic: str) -> Outlet:
        """librdkafka compresses by producer, so each compression in use has one."""
        self._clients.check_process()
        kind = topic.partition(".")[0]
        compression = self._clients.spec.compression.get(kind, "none")
        with self._lock:
            if compression not in self._outlets:
                self._outlets[compression] = Outlet(self._clients, compression, self.flow)
            return self._outlets[compression]

    def _cursor(self, topic: str, start: Position | None = None) -> Cursor:
        cursor = Cursor(self._clients, topic, self._name(topic), start)
        self._cursors.add(cursor)
        return cursor

    def _ask(self) -> Consumer:
        """A consumer with nothing assigned, for questions."""
        self._clients.check_process()
        with self._lock:
            if self._asker is None or self._asker.client is None:
                self._asker = self._clients.consumer()
            client = self._asker.client
        assert client is not None
        return client

    def _check_content(self, topic: str) -> None:
        if topic in SHARED or topics.run_of(topic) is not None:
            newest = kafka_questions.last_values(self._clients, topic, self._name(topic), self.end(topic))
            if newest and not any(value.startswith(MAGIC) for value in newest):
                raise foreign(self._name(topic), "its newest records are no frames of penstock")
