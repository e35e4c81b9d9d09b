"""Readers that know nothing of us: the example reads a real run's topics, and the schemas hold for all in them."""

import json
import subprocess
import sys
import uuid
from pathlib import Path

import msgspec
import pytest

from penstock.broker import Broker
from penstock.model.topics import CLAIMS
from penstock.schemas import schemas
from penstock.stream.kafka import KafkaStream
from penstock.testing.streams import everything
from tests.integration.harness import QUICK, penstock, train
from tests.unit.test_schemas import check, violations

EXAMPLE = Path(__file__).parents[2] / "examples" / "read_topics.py"
RUN = "read"


@pytest.fixture(scope="module")
def url(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A stream with one small run in it, and one command for it."""
    home, url = tmp_path_factory.mktemp("home"), f"kafka://{broker.bootstrap}/{uuid.uuid4().hex[:8]}"
    with train(home, RUN, *QUICK, "--stream", url, "--set", "stop.updates=3") as run:
        assert run.result()["updates"] == 3
    penstock(home / "elsewhere", "checkpoint", RUN, "--stream", url)
    return url


def read(url: str, topic: str) -> str:
    """What the example prints about a topic, under its name on the brokers."""
    brokers, prefix = url.removeprefix("kafka://").split("/")
    done = subprocess.run(
        [sys.executable, EXAMPLE, brokers, f"{prefix}.{topic}"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_reads_rollouts_column_by_column(url: str):
    lines = read(url, f"experiences.{RUN}").splitlines()
    rollouts = [line for line in lines if "schema 1 " in line]
    assert len(rollouts) >= 6, "three updates of two slots"
    assert sum("schema 2 " in line for line in lines) >= 2, "each actor said hello"
    first = lines[lines.index(rollouts[0]) + 1 :][:9]
    assert [line.split()[0] for line in first] == [
        "observations", "actions", "log_probs", "rewards", "terminated", "truncated", "last/observations",
        "final/index", "final/observations",
    ]  # fmt: skip
    assert first[0].split()[1:5] == ["<f4", "(32,", "2,", "4)"]
    assert first[3].endswith("[1. 1. 1.]"), "CartPole gives 1 a step"


def test_the_example_reads_words(url: str):
    history = read(url, f"history.{RUN}")
    assert (history.count("'type': 'claim'"), history.count("'type': 'update'")) == (1, 3)
    assert "'verb': 'checkpoint'" in read(url, "commands.control")
    assert "safetensors" in read(url, f"model_updates.{RUN}")


def test_the_example_says_when_there_is_no_such_topic(url: str):
    brokers = url.removeprefix("kafka://").split("/")[0]
    done = subprocess.run(
        [sys.executable, EXAMPLE, brokers, "nosuch"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr == f"there is no topic nosuch at {brokers}\n"


def test_every_record_of_a_real_run_fits_its_schema(url: str):
    stream = KafkaStream(url)
    try:
        values = {
            info.name: [record.value for record in everything(stream.reader(info.name), info.records)]
            for info in stream.topics()
        }
    finally:
        stream.close()
    claims = [json.loads(value) for value in values.pop(CLAIMS)]
    found = {check(value) for topic in values.values() for value in topic}
    assert found == {"rollout", "hello", "policy", "history", "command", "report", "run"}
    schema = schemas()["claims.json"]
    assert claims
    assert [list(violations(claim, schema, schema)) for claim in claims] == [[]] * len(claims)


def test_headers_tell_the_kind_to_those_who_do_not_open_the_frame(url: str):
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    brokers, prefix = url.removeprefix("kafka://").split("/")
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "test"})
    consumer.assign([TopicPartition(f"{prefix}.history.{RUN}", 0, OFFSET_BEGINNING)])
    messages = [consumer.poll(10) for _ in range(4)]
    consumer.close()
    headers = [{name: value.decode() for name, value in message.headers()} for message in messages if message]
    assert headers[0] == {"run": RUN, "schema": "history"}, "a claim has no version"
    assert [item.get("version") for item in headers] == [None, "1.1", "1.2", "1.3"]
    assert msgspec.json.decode(messages[0].value()[20:])["type"] == "claim"
