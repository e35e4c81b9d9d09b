"""Topics on the brokers: made, checked, changed, listed and removed.

What a policy means in Kafka's words is a pure function; the rest asks.
"""

import re
import time
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it means to export them
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from penstock.errors import ConfigError
from penstock.model.spec import KafkaSpec
from penstock.stream.base import TopicInfo, TopicPolicy
from penstock.stream.kafka_clients import BEGINNING, END, Clients, TopicFacts
from penstock.stream.kafka_errors import FORBIDDEN, MISSING, forbidden, missing
from penstock.stream.kafka_options import largest_message

MIB = 1 << 20
COMPACTION_LAG_MS = 60_000
REQUEST_SECONDS = 10.0
_LEGAL = re.compile(r"[A-Za-z0-9._-]{1,249}")
_AT_LEAST = ("max.message.bytes", "min.insync.replicas")
"""Never lowered: somebody may rely on it."""

Config = dict[str, str]
T = TypeVar("T")


def topic_config(policy: TopicPolicy, spec: KafkaSpec) -> Config:
    """The policy in Kafka's words; `stream.kafka.topic_config` wins, but never drops what must be kept whole."""
    message = largest_message(spec)
    kept = policy.retention_bytes
    share = -1 if kept is None else max(1, kept // policy.partitions)
    config = {
        "cleanup.policy": "compact" if policy.compact else "delete",
        "retention.bytes": str(share),
        "retention.ms": str(
            -1 if policy.retention_seconds is None else max(1, int(policy.retention_seconds * 1000))
        ),
        "segment.bytes": str(segment_bytes(share, message)),
        "max.message.bytes": str(message),
        # age counts by the brokers' clock: a host with a wrong one cannot make its records vanish
        "message.timestamp.type": "LogAppendTime",
    }
    if policy.compact:
        config |= {
            "cleanup.policy": "compact"
            if kept is None and policy.retention_seconds is None
            else "compact,delete",
            "min.compaction.lag.ms": str(COMPACTION_LAG_MS),
            "min.cleanable.dirty.ratio": "0.2",
            "segment.ms": "600000",  # only what lies in a closed segment is ever compacted
        }
    if policy.synced:
        config["flush.messages"] = "1"
    if spec.min_insync_replicas is not None:
        config["min.insync.replicas"] = str(spec.min_insync_replicas)
    whole = policy == TopicPolicy(synced=True)
    return config | {
        name: _text(value)
        for name, value in spec.topic_config.items()
        if not (whole and name.startswith(("retention.", "cleanup.", "local.retention.")))
    }


def segment_bytes(retention: int, message: int) -> int:
    """Retention drops whole segments: an eighth of it, within 1 and 64 MiB, but a message must fit."""
    wanted = 64 * MIB if retention < 0 else min(64 * MIB, max(MIB, retention // 8))
    return max(wanted, message)


def policy_of(config: Config, partitions: int) -> TopicPolicy:
    """The policy that a topic's settings amount to."""
    share, age = int(config.get("retention.bytes", -1)), int(config.get("retention.ms", -1))
    return TopicPolicy(
        retention_bytes=None if share < 0 else share * partitions,
        retention_seconds=None if age < 0 else age / 1000,
        compact="compact" in config.get("cleanup.policy", ""),
        synced=config.get("flush.messages") == "1",
        partitions=partitions,
    )


def changes(wanted: Config, found: Config) -> Config:
    """What must be set so that `wanted` holds; some settings are only ever raised."""
    return {
        name: value
        for name, value in wanted.items()
        if found.get(name) != value and not (name in _AT_LEAST and int(found.get(name, 0)) >= int(value))
    }


def is_legal(name: str) -> bool:
    return _LEGAL.fullmatch(name) is not None and name not in (".", "..")


class Topics:
    """What one stream does with topics, by their names on the brokers."""

    def __init__(self, clients: Clients) -> None:
        self._clients, self._spec = clients, clients.spec

    def ensure(self, name: str, policy: TopicPolicy, check_content: Callable[[], None]) -> None:
        """Make the topic, or check that it will do and bring its settings to the policy's."""
        if not is_legal(name):
            raise ConfigError(f"{name!r} cannot be a topic; Kafka takes up to 249 of A-Z a-z 0-9 . _ -")
        admin = self._clients.admin()
        facts = self._clients.describe(admin, name)
        if facts is None:
            if not self._spec.create:
                raise missing(name)
            self._create(admin, name, policy)
            return
        self._check_shape(name, facts, policy)
        found = self._config(admin, name)
        if not policy.compact and "compact" in found.get("cleanup.policy", ""):
            raise foreign(name, "Kafka keeps only the newest record of each key in it")
        check_content()
        wanted = changes(topic_config(policy, self._spec), found)
        if self._spec.create and wanted:
            self._change(admin, name, wanted)

    def remove(self, name: str) -> None:
        """Return when it is gone, so that it can be made again."""
        if not is_legal(name):
            return
        admin = self._clients.admin()

        def ask(timeout: float) -> bool:
            try:
                admin.delete_topics([name], request_timeout=timeout + REQUEST_SECONDS)[name].result()
            except KafkaException as error:
                if error.args[0].code() not in MISSING:
                    raise
            return True

        self._answer(name, lambda: self._clients.ask(admin, ask))
        while self._clients.describe(admin, name) is not None:
            time.sleep(0.05)

    def describe_all(self, consumer: Consumer, ours: Callable[[str], str | None]) -> list[TopicInfo]:
        """All whose name on the brokers is one of ours."""
        admin = self._clients.admin()

        def ask(timeout: float) -> tuple[dict[str, Any], dict[str, int]]:
            found = admin.list_topics(timeout=timeout).topics
            topics = {name: found[name] for name in found if ours(name) and not found[name].error}
            return topics, _counts(consumer, topics, timeout)

        topics, counts = self._clients.ask(consumer, ask)
        configs = self._configs(admin, list(topics)) if topics else {}
        return sorted(
            TopicInfo(
                ours(name) or name,
                len(topic.partitions),
                min((len(part.replicas) for part in topic.partitions.values()), default=0),
                counts[name],
                None,
                policy_of(configs.get(name, {}), len(topic.partitions)),
            )
            for name, topic in topics.items()
        )

    def _create(self, admin: AdminClient, name: str, policy: TopicPolicy) -> None:
        config = topic_config(policy, self._spec)
        topic = NewTopic(name, policy.partitions, self._spec.replication or -1, config=config)

        def ask(timeout: float) -> bool:
            try:
                admin.create_topics([topic], request_timeout=timeout + REQUEST_SECONDS)[name].result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
            return True

        self._answer(name, lambda: self._clients.ask(admin, ask))
        while not self._is_led(admin, name):
            time.sleep(0.02)

    def _is_led(self, admin: AdminClient, name: str) -> bool:
        def ask(timeout: float) -> bool:
            topic = admin.list_topics(name, timeout=timeout).topics[name]
            return topic.error is None and all(part.leader >= 0 for part in topic.partitions.values())

        return self._clients.ask(admin, ask)

    def _check_shape(self, name: str, facts: TopicFacts, policy: TopicPolicy) -> None:
        if facts.partitions < policy.partitions:
            raise ConfigError(
                f"the topic {name} has {facts.partitions} partition(s), {policy.partitions} are asked for; lower "
                "stream.kafka.partitions, or remove the topic so that it is made anew"
            )
        if self._spec.replication is not None and facts.replicas < self._spec.replication:
            raise ConfigError(
                f"the topic {name} has {facts.replicas} copies, {self._spec.replication} are asked for; lower "
                "stream.kafka.replication, or remove the topic so that it is made anew"
            )

    def _change(self, admin: AdminClient, name: str, wanted: Config) -> None:
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in wanted.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)

        def ask(timeout: float) -> bool:
            futures = admin.incremental_alter_configs([resource], request_timeout=timeout + REQUEST_SECONDS)
            for future in futures.values():
                future.result()
            return True

        self._answer(name, lambda: self._clients.ask(admin, ask))

    def _config(self, admin: AdminClient, name: str) -> Config:
        try:
            return self._configs(admin, [name])[name]
        except ConfigError:
            if self._spec.create:
                raise
            return {}  # who may not make topics often may not look at their settings either

    def _configs(self, admin: AdminClient, names: list[str]) -> dict[str, Config]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]

        def ask(timeout: float) -> dict[str, Config]:
            futures = admin.describe_configs(resources, request_timeout=timeout + REQUEST_SECONDS)
            return {resource.name: _values(future.result()) for resource, future in futures.items()}

        return self._answer(names[0], lambda: self._clients.ask(admin, ask))

    def _answer(self, name: str, question: Callable[[], T]) -> T:
        """The answer, with what the brokers refuse for good as a sentence."""
        try:
            return question()
        except KafkaException as error:
            refusal = error.args[0]
            if refusal.code() in FORBIDDEN:
                raise forbidden(f"the topic {name}", refusal) from error
            text = self._clients.scrub(refusal.str())
            if refusal.code() == KafkaError.INVALID_REPLICATION_FACTOR:
                raise ConfigError(
                    f"the topic {name} cannot have {self._spec.replication} copies: {text}; "
                    "lower stream.kafka.replication"
                ) from error
            raise ConfigError(
                f"Kafka refuses the topic {name}: {text}; see stream.kafka.topic_config"
            ) from error


def _counts(consumer: Consumer, topics: dict[str, Any], timeout: float) -> dict[str, int]:
    """Records kept in each topic; compaction may have left fewer."""
    counts = dict.fromkeys(topics, 0)
    for which, sign in (BEGINNING, -1), (END, 1):
        asked = [
            TopicPartition(name, number, which)
            for name, topic in topics.items()
            for number in topic.partitions
        ]
        for place in consumer.offsets_for_times(asked, timeout=timeout) if asked else ():
            counts[place.topic] += sign * max(0, place.offset)
    return {name: max(0, count) for name, count in counts.items()}


def foreign(name: str, why: str) -> ConfigError:
    return ConfigError(
        f"the topic {name} holds something else ({why}); give penstock's topics a prefix of their own: "
        "--stream kafka://HOST:PORT/PREFIX"
    )


def _values(entries: dict[str, ConfigEntry]) -> Config:
    return {name: str(entry.value) for name, entry in entries.items() if entry.value is not None}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
