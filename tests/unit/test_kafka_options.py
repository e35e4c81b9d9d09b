"""Options for librdkafka, what they hide, and the pure parts of the Kafka stream; no broker is asked."""

import struct
import time
import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from penstock.errors import ConfigError
from penstock.model.codec import Schema, encode, encode_columns
from penstock.model.spec import KafkaSpec
from penstock.stream import kafka_options
from penstock.stream.base import TopicPolicy
from penstock.stream.kafka import KafkaStream
from penstock.stream.kafka_claims import Proposal, fold
from penstock.stream.kafka_names import CONFIG_VARIABLE
from penstock.stream.kafka_records import headers_of, partition_of
from penstock.stream.kafka_topics import changes, policy_of, segment_bytes, topic_config

Events = list[tuple[str, dict[str, Any]]]


def load(
    options: dict[str, Any] | None = None, events: Events | None = None, **environ: str
) -> dict[str, str]:
    heard = [] if events is None else events
    return kafka_options.load(
        KafkaSpec(options=options or {}), environ, lambda name, facts: heard.append((name, facts))
    )


def config_file(path: Path, text: str, mode: int = 0o600) -> dict[str, str]:
    path.write_text(text)
    path.chmod(mode)
    return {CONFIG_VARIABLE: str(path)}


def test_values_become_words_librdkafka_reads() -> None:
    options = load({"socket.keepalive.enable": True, "socket.timeout.ms": 5000, "client.id": "me"})
    assert options == {"socket.keepalive.enable": "true", "socket.timeout.ms": "5000", "client.id": "me"}


def test_a_secret_comes_from_the_environment_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from a file\n")
    options = load(
        {"sasl.password": "env:PASSWORD", "ssl.key.password": f"file:{tmp_path / 'key'}"}, PASSWORD="hidden"
    )
    assert options == {"sasl.password": "hidden", "ssl.key.password": "from a file"}


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "ssl.key.password",
        "ssl.keystore.password",
        "ssl.key.pem",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.assertion.private.key.passphrase",
    ],
)
def test_a_secret_in_a_spec_is_refused_without_showing_it(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is a secret.*env:NAME or file:PATH") as caught:
        load({name: "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_a_secret_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"sasl\.password reads the environment variable NOWHERE"):
        load({"sasl.password": "env:NOWHERE"})
    with pytest.raises(ConfigError, match=r"sasl.password reads /no/file, which cannot be read"):
        load({"sasl.password": "file:/no/file"})


def test_the_hosts_file_wins_and_may_hold_secrets(tmp_path: Path) -> None:
    text = "# this host\n\nsasl.password = p=w \nclient.id=host\nbootstrap.servers=elsewhere:1\n"
    events: Events = []
    options = load({"client.id": "spec"}, events, **config_file(tmp_path / "kafka.properties", text))
    assert options == {"sasl.password": "p=w", "client.id": "host"}
    assert events == []


def test_the_hosts_file_may_be_json(tmp_path: Path) -> None:
    text = '{"sasl.password": "env:PW", "socket.keepalive.enable": false, "socket.timeout.ms": 7000}'
    options = load(PW="x", **config_file(tmp_path / "kafka.json", text))
    assert options == {
        "sasl.password": "x",
        "socket.keepalive.enable": "false",
        "socket.timeout.ms": "7000",
    }


def test_a_file_with_a_secret_that_others_can_read_is_told(tmp_path: Path) -> None:
    events: Events = []
    load(None, events, **config_file(tmp_path / "open", "sasl.password=hunter2\n", 0o644))
    assert [name for name, _ in events] == ["kafka_config_readable_by_others"]
    assert "hunter2" not in str(events)
    load(None, events, **config_file(tmp_path / "elsewhere", "sasl.password=env:HOME2\n", 0o644), HOME2="x")
    load(None, events, **config_file(tmp_path / "harmless", "client.id=x\n", 0o644))
    assert len(events) == 1, "these hold no secret"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("client.id\n", "line 1: write key=value"),
        ("{nonsense", "does not read as JSON"),
        ('{"client.id": []}', "does not read as JSON"),
        (
            "sasl.jaas.config=org.apache…\n",
            "is for Java's clients; here it is sasl.username and sasl.password",
        ),
        ("ssl.truststore.location=/x.jks\n", "here it is ssl.ca.location"),
        ("acks=1\n", "acks is not yours to set"),
        ("error_cb=print\n", "error_cb is not yours to set"),
        ("ssl.ca.location=/no/ca.pem\n", "ssl.ca.location names /no/ca.pem, which is not there"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(**config_file(tmp_path / "kafka.properties", text))
    assert sentence in str(caught.value)
    assert "kafka.properties" in str(caught.value)


def test_an_option_that_runs_code_is_the_hosts_alone(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"kinit\.cmd runs code.*PENSTOCK_KAFKA_CONFIG"):
        load({"sasl.kerberos.kinit.cmd": "touch /tmp/x"})
    assert load(**config_file(tmp_path / "host", "sasl.kerberos.kinit.cmd=kinit me\n"))


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="PENSTOCK_KAFKA_CONFIG names /no/file"):
        load(**{CONFIG_VARIABLE: "/no/file"})


def test_options_of_the_user_win_over_our_defaults_but_not_over_the_brokers() -> None:
    spec = KafkaSpec(write_deadline=7, max_record_bytes=1 << 20)
    for made in (
        kafka_options.producer("h:1", spec, {"socket.timeout.ms": "1"}, "lz4"),
        kafka_options.consumer("h:1", spec, {"socket.timeout.ms": "1"}),
        kafka_options.admin("h:1", {"socket.timeout.ms": "1"}),
    ):
        assert (made["bootstrap.servers"], made["socket.timeout.ms"]) == ("h:1", "1")
    producer = kafka_options.producer("h:1", spec, {}, "lz4")
    assert (producer["compression.type"], producer["message.timeout.ms"]) == ("lz4", "7000")
    assert int(producer["message.max.bytes"]) > 1 << 20


def test_a_misspelt_option_is_refused_with_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    stream = KafkaStream("kafka://127.0.0.1:1", KafkaSpec(options={"socket.timout.ms": 1}))
    with pytest.raises(ConfigError, match=r"no option 'socket.timout.ms'; did you mean 'socket.timeout.ms'"):
        stream.reader("t")


def test_an_option_with_an_impossible_value_is_refused_without_its_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    monkeypatch.setenv("PW", "hunter2")
    options = {"security.protocol": "hunter2", "sasl.password": "env:PW"}
    stream = KafkaStream("kafka://127.0.0.1:1", KafkaSpec(options=options))
    with pytest.raises(ConfigError, match=r"security\.protocol") as caught:
        stream.writer("t")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "url", ["kafka://", "kafka://host", "kafka://user:pw@host:1", "http://h:1", "kafka://h:1/a b"]
)
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="write kafka://HOST:PORT"):
        KafkaStream(url)


def test_whole_numbers_take_turns_and_words_go_by_their_sum() -> None:
    assert [partition_of(str(slot), 4) for slot in range(6)] == [0, 1, 2, 3, 0, 1]
    assert partition_of("run-1", 4) == zlib.crc32(b"run-1") % 4
    assert partition_of("", 4) == zlib.crc32(b"") % 4
    assert partition_of("٣", 4) == zlib.crc32("٣".encode()) % 4, "a digit, but not one of ours"
    assert partition_of("9" * 40, 1) == 0


def test_records_of_ours_say_what_they_are() -> None:
    facts = {"run": "r-1", "slot": 3, "version": (2, 17)}
    rollout = bytes(encode_columns(Schema.ROLLOUT, facts, {"rewards": np.zeros(10_000)}))
    assert dict(headers_of("experiences.r-1", rollout)) == {
        "run": "r-1",
        "schema": "rollout",
        "version": "2.17",
    }
    piece = bytes(encode_columns(Schema.PIECE, facts, {"content": np.zeros(10_000)}))
    assert dict(headers_of("model_updates.r-1", piece))["version"] == "2.17"
    report = encode(Schema.REPORT, {"run": "r-2", "steps": 1})
    assert dict(headers_of("metrics.actors", report)) == {"run": "r-2", "schema": "report"}
    assert dict(headers_of("runs", encode(Schema.RUN, {"run": 5, "version": "no pair"}))) == {"schema": "run"}


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"PNST",
        b"foreign bytes",
        encode(Schema.REPORT, 1)[:-1] + b"\xff",
        struct.pack("<4sHBBIIII", b"PNST", 1, 1, 0, 0, 4, 0, 1 << 31),
        b"PNST" + struct.pack("<H", 999) + bytes(14) + b"[" * 5000,
    ],
)
def test_headers_of_anything_are_harmless(value: bytes) -> None:
    assert dict(headers_of("history.r-1", value))["run"] == "r-1"


def test_headers_cost_little() -> None:
    facts = {
        "run": "r-1",
        "version": (2, 17),
        "starts": [[1, 2, 3.0]] * 16,
        "episodes": [[1, 2, 3.0, 4, 5]] * 16,
    }
    rollout = bytes(encode_columns(Schema.ROLLOUT, facts, {f"column {i}": np.zeros(1000) for i in range(12)}))
    best = min(_seconds(rollout) for _ in range(50))
    assert best < 50e-6


def _seconds(rollout: bytes) -> float:
    started = time.perf_counter()
    headers_of("experiences.r-1", rollout)
    return time.perf_counter() - started


def proposals(*facts: tuple[str, int, str]) -> list[bytes]:
    return [msgspec.json.encode(Proposal(*each)) for each in facts]


def test_the_first_valid_proposal_of_an_epoch_wins() -> None:
    epochs: dict[str, list[str]] = {}
    fold(
        epochs,
        proposals(("run", 1, "a"), ("run", 1, "b"), ("run", 3, "c"), ("other", 1, "d"), ("run", 2, "e")),
    )
    assert epochs == {"run": ["a", "e"], "other": ["d"]}
    fold(epochs, [b"", b"no json", b"[]", b'{"name": 1}', *proposals(("run", 2, "late"), ("run", 3, "f"))])
    assert epochs["run"] == ["a", "e", "f"]


def test_a_policy_in_kafkas_words() -> None:
    spec = KafkaSpec(max_record_bytes=1 << 20)
    config = topic_config(TopicPolicy(retention_bytes=1 << 30, retention_seconds=60, partitions=4), spec)
    assert config["cleanup.policy"] == "delete"
    assert (config["retention.bytes"], config["retention.ms"]) == (str(1 << 28), "60000")
    assert int(config["segment.bytes"]) == (1 << 28) // 8
    assert int(config["max.message.bytes"]) > 1 << 20
    compact = topic_config(TopicPolicy(compact=True, synced=True), spec)
    assert (compact["cleanup.policy"], compact["retention.bytes"], compact["retention.ms"]) == (
        "compact",
        "-1",
        "-1",
    )
    assert (compact["flush.messages"], compact["min.compaction.lag.ms"]) == ("1", "60000")
    both = topic_config(TopicPolicy(compact=True, retention_seconds=1), spec)
    assert both["cleanup.policy"] == "compact,delete"


def test_what_the_user_says_about_topics_wins() -> None:
    spec = KafkaSpec(
        min_insync_replicas=2, topic_config={"segment.ms": 5, "unclean.leader.election.enable": False}
    )
    config = topic_config(TopicPolicy(), spec)
    assert config["min.insync.replicas"] == "2"
    assert (config["segment.ms"], config["unclean.leader.election.enable"]) == ("5", "false")


def test_a_policy_is_found_again_in_a_topics_settings() -> None:
    for policy in (
        TopicPolicy(retention_bytes=1 << 30, partitions=4),
        TopicPolicy(retention_seconds=0.5),
        TopicPolicy(compact=True, synced=True),
    ):
        assert policy_of(topic_config(policy, KafkaSpec()), policy.partitions) == policy


def test_retention_acts_in_steps_that_a_record_fits() -> None:
    assert segment_bytes(-1, 1 << 20) == 64 << 20
    assert segment_bytes(10 << 30, 1 << 20) == 64 << 20
    assert segment_bytes(80 << 20, 1 << 20) == 10 << 20
    assert segment_bytes(1, 1 << 10) == 1 << 20, "Kafka 4 takes no smaller one"
    assert segment_bytes(1 << 20, 32 << 20) == 32 << 20, "a message must fit a segment"


def test_only_what_differs_is_changed_and_limits_are_never_lowered() -> None:
    found = {
        "retention.ms": "5",
        "max.message.bytes": "2000",
        "min.insync.replicas": "2",
        "segment.bytes": "7",
    }
    wanted = {
        "retention.ms": "4",
        "max.message.bytes": "1000",
        "min.insync.replicas": "3",
        "segment.bytes": "7",
    }
    assert changes(wanted, found) == {"retention.ms": "4", "min.insync.replicas": "3"}
