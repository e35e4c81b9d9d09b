"""Runs on a real Kafka as a person sees them: what is told, what is refused, what is measured."""

import json
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from penstock.broker import Broker
from penstock.loop.policies import PIECE_BYTES, Publisher, Subscriber
from penstock.model import topics
from penstock.model.tensors import weights_sha256
from penstock.model.version import Version
from penstock.stream.base import TopicPolicy
from penstock.stream.kafka import KafkaStream
from penstock.testing.policies import policy_of
from penstock.testing.streams import everything
from tests.integration.harness import QUICK, penstock, resume, train


@pytest.fixture
def url(broker: Broker) -> str:
    return f"kafka://{broker.bootstrap}/{uuid.uuid4().hex[:8]}"


@pytest.fixture
def stream(url: str) -> Iterator[KafkaStream]:
    opened = KafkaStream(url)
    yield opened
    opened.close()


def test_no_broker_is_one_sentence_and_leaves_nothing(tmp_path: Path):
    done = penstock(tmp_path, "train", "CartPole-v1", "--stream", "kafka://127.0.0.1:1", check=False)
    assert done.returncode == 1
    assert "cannot reach Kafka at 127.0.0.1:1" in done.stderr
    assert "penstock broker start" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list((tmp_path / "runs").glob("*"))


def test_topics_are_looked_at_made_and_removed(tmp_path: Path, url: str):
    def topics_command(*words: str, check: bool = True) -> str:
        done = penstock(tmp_path, "topics", *words, "--stream", url, check=check)
        return done.stdout + done.stderr

    create = ("create", "CartPole-v1", "--name", "made", "--set", "stream.kafka.partitions=2")
    assert "would make experiences.made" in topics_command(*create, "--dry-run")
    assert json.loads(topics_command("list", "--json")) == []
    topics_command(*create)
    found = {info["topic"]: info for info in json.loads(topics_command("list", "--json"))}
    assert found["experiences.made"]["partitions"] == 2
    assert "runs" in found
    flags = (
        *QUICK,
        "--stream",
        url,
        "--set",
        "stream.kafka.create=false",
        "--set",
        "stream.kafka.partitions=2",
    )
    with train(tmp_path, "made", *flags, "--set", "stop.updates=3") as run:
        assert run.result()["updates"] == 3
    assert "records" in topics_command("describe", "experiences.made")
    assert "did you mean 'experiences.made'" in topics_command("describe", "experience.made", check=False)
    assert "say --yes" in topics_command("delete", "made", check=False)
    assert "removed experiences.made" in topics_command("delete", "made", "--yes")
    assert "experiences.made" not in topics_command("list")


def test_a_run_that_may_not_make_topics_names_the_missing_one(tmp_path: Path, url: str):
    done = penstock(
        tmp_path, "train", "CartPole-v1", "--stream", url, "--set", "stream.kafka.create=false", check=False
    )
    assert done.returncode == 1
    assert "penstock topics create" in done.stderr


def test_lag_and_flow_are_in_the_lines_and_on_the_endpoint(tmp_path: Path, url: str):
    flags = (*QUICK, "--stream", url, "--prometheus", "0", "--set", "stop.steps=null")
    with train(tmp_path, "measured", *flags) as run:
        run.wait_for_updates(40)
        (address,) = [event["address"] for event in run.events() if event["event"] == "prometheus"]

        def scraped() -> dict[str, float]:
            text = urllib.request.urlopen(address, timeout=10).read().decode()
            pairs = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
            return {name: float(value) for name, value in pairs}

        run.wait_until(
            lambda: (
                scraped().get('penstock_stream_produced_bytes_total{process="actor-0",run="measured"}', 0) > 0
            ),
            what="an actor's bytes",
        )
        found = scraped()
        run.process.terminate()
        run.result()
    assert found['penstock_rollouts_total{outcome="used",run="measured"}'] > 0
    assert found['penstock_stream_consumed_bytes_total{process="learner",run="measured"}'] > 0
    assert found['penstock_dead_letters_total{run="measured"}'] == 0
    assert 'penstock_stream_lag_records{run="measured"}' in found
    last = json.loads((run.folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["stream/consumed_records"] > 0
    assert {"stream/lag", "stream/waits", "stream/actors/produced_bytes", "accounting/dead_letters"} <= set(
        last
    )


def test_retention_that_ate_what_a_checkpoint_needs_is_told_and_leaves_a_choice(tmp_path: Path, url: str):
    name = "eaten"
    flags = (
        *QUICK,
        "--stream",
        url,
        "--set",
        "checkpoint.every_updates=20",
        "--set",
        "checkpoint.every_seconds=1000",
    )
    run = train(tmp_path, name, *flags, "--set", "stop.updates=200")
    run.wait_for_updates(50)
    run.kill_all()
    _forget_everything(url, topics.experiences(name))
    with resume(tmp_path, name) as run:
        out, err = run.process.communicate(timeout=120)
        assert run.process.returncode == 1
        assert "stream.on_gap=go_on" in out + err
    lost = [event for event in run.events() if event["event"] == "experience_lost"]
    assert lost[0]["records"] > 0
    with resume(tmp_path, name, "--set", "stream.on_gap=go_on") as run:
        assert run.result()["updates"] == 200


def _forget_everything(url: str, topic: str) -> None:
    """What retention does in the end."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    brokers, _, prefix = url.removeprefix("kafka://").partition("/")
    stream = KafkaStream(url)
    end = stream.end(topic)
    stream.close()
    admin = AdminClient({"bootstrap.servers": brokers})
    places = [
        TopicPartition(f"{prefix}.{topic}", partition, offset) for partition, offset in end.items() if offset
    ]
    for future in admin.delete_records(places).values():
        future.result(30)


def test_a_policy_of_a_hundred_megabytes_travels_in_pieces(stream: KafkaStream):
    stream.ensure(topics.model_updates("big"), TopicPolicy(compact=True))
    made = policy_of("big", {"policy/weight": np.random.default_rng(1).random(25_000_000, np.float32)})
    assert sum(tensor.nbytes for tensor in made.tensors.values()) == 100_000_000
    subscriber = Subscriber(stream, "big")
    Publisher(stream, "big", 1).publish(made)
    while not subscriber.poll(5.0):
        assert subscriber.newest is None
    assert subscriber.newest is not None
    assert weights_sha256(subscriber.newest.tensors) == made.facts.weights_sha256
    assert stream.end(topics.model_updates("big"))[0] > 100_000_000 // PIECE_BYTES


def test_a_version_with_a_piece_missing_is_not_taken(stream: KafkaStream):
    topic = topics.model_updates("torn")
    stream.ensure(topic, TopicPolicy(compact=True))
    weights = {"policy/weight": np.ones(600_000, np.float32)}
    Publisher(stream, "torn", 1).publish(policy_of("torn", weights, Version(1, 5)))
    subscriber, writer = Subscriber(stream, "torn"), stream.writer(topic)
    pieces = everything(stream.reader(topic), 3)
    while subscriber.version != Version(1, 5):
        subscriber.poll(1.0)
    stream.remove(topic)
    stream.ensure(topic, TopicPolicy(compact=True))
    torn = Subscriber(stream, "torn")
    for piece in (pieces[0], pieces[2], pieces[2]):
        writer.write(piece.key, piece.value)
    assert not any(torn.poll(0.5) for _ in range(4))
    writer.write(pieces[1].key, pieces[1].value)
    assert any(torn.poll(1.0) for _ in range(10))
    assert torn.version == Version(1, 5)
