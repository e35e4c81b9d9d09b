"""Poison: corrupt and foreign records among good ones. A real learner reads them all, and none ends it."""

import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import gymnasium
from confluent_kafka import Producer

from penstock import config
from penstock.broker import Broker
from penstock.envs.layout import describe
from penstock.loop.registry import register
from penstock.model import topics
from penstock.model.codec import Schema, decode, encode, open_frame
from penstock.model.rollout import Block, Hello, Rollout, RolloutFacts, Start
from penstock.model.version import Version
from penstock.stream.kafka import KafkaStream
from penstock.stream.records import DeadLetter
from tests.faults.checker import check_run
from tests.integration.harness import role

RUN = "poisoned"
STEPS, ENVIRONMENTS = 4, 1
OVERRIDES = {
    "actors.count": 0, "actors.rollout": STEPS, "actors.environments": ENVIRONMENTS, "network.hidden": [8],
    "ppo.epochs": 1, "ppo.minibatch": 4, "pace.max_lag": 1_000_000, "stop.target": None, "stop.steps": None,
    "checkpoint.every_seconds": 5, "stream.kafka.partitions": 1,
}  # fmt: skip
"""One partition: what is bad must stand among the good, not beside it."""


def poisoned(home: Path, broker: Broker, good: int, bad: int, updates: int, seed: int = 1) -> dict[str, int]:
    """Write `good` records (rounds, each doubled many times) with `bad` ones among them, then learn them all."""
    url = f"kafka://{broker.bootstrap}/poison-{time.time_ns()}"
    place = {"stream.url": url, "checkpoint.store": str(home / "store")}
    spec = config.resolve("CartPole-v1", {**OVERRIDES, **place, "stop.updates": updates})
    stream = KafkaStream(url, spec.stream.kafka)
    register(stream, RUN, spec)
    topic = f"{url.rpartition('/')[2]}.{topics.experiences(RUN)}"
    sent = _produce(broker, topic, list(_records(good, bad, updates, random.Random(seed))))
    with role(home, "learner", RUN, "--takeover", "--stream", url) as learner:
        said = learner.communicate(timeout=900)[0]
    assert learner.returncode == 0, said
    assert "refused" not in said, said
    reasons = Counter(letter.reason for letter in _letters(stream))
    stream.close()
    assert sum(reasons.values()) == bad, f"{bad} bad records became {sum(reasons.values())} dead letters"
    assert all(reasons), "a dead letter has no reason"
    facts = check_run(home, RUN, url, dead_letters=bad)
    assert facts["updates"] == updates
    return {"records": sent, "dead letters": bad, "reasons": len(reasons), **facts}


def _records(good: int, bad: int, updates: int, chance: random.Random) -> Iterator[tuple[str, bytes]]:
    """The first copy of each round in order, other copies and bad ones anywhere behind the first."""
    environment = gymnasium.make("CartPole-v1")
    _, info = environment.reset(seed=1)
    spaces, _ = describe(environment, info, "CartPole-v1")
    yield "1000", encode(Schema.HELLO, Hello(RUN, 1000, "i", spaces, 1, "here"))
    columns = Block.allocate(spaces, STEPS, ENVIRONMENTS).columns()
    starts = (Start(0, 0, 0.0),) * ENVIRONMENTS
    copies = -(-(good - 1) // updates)
    kinds = [True] * (good - 1) + [False] * bad
    chance.shuffle(kinds)
    made = 0
    for is_good in kinds:
        if is_good:
            # the guest joins with step 1: the update before it is made of nothing
            facts = RolloutFacts(RUN, 1000, 1 + made // copies, "i", Version(1, 0), STEPS, ENVIRONMENTS,
                                 starts, (), {}, 0.0)  # fmt: skip
            whole = bytes(Rollout(facts, columns).encode())
            made += 1
            yield "1000", whole
        else:
            yield "1000", _spoiled(whole if made else b"nothing of ours", chance)


def _spoiled(whole: bytes, chance: random.Random) -> bytes:
    """A record that cannot be read, in one of the ways that happen."""
    middle = chance.randrange(24, len(whole)) if len(whole) > 24 else 0
    return chance.choice(
        (
            whole[:middle] + bytes([whole[middle] ^ 0xFF]) + whole[middle + 1 :],
            whole[: len(whole) // 2],
            b"",
            b'{"something": "else writes this topic"}',
            chance.randbytes(200),
            encode(Schema.REPORT, {"steps": 1}),
            encode(Schema.HELLO, {"slot": "no number"}),
        )
    )


def _produce(broker: Broker, topic: str, records: list[tuple[str, bytes]]) -> int:
    """As any Kafka client would, in batches."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "linger.ms": 20})
    for key, value in records:
        while True:
            try:
                producer.produce(topic, value, key, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(120) == 0
    return len(records)


def _letters(stream: KafkaStream) -> list[DeadLetter]:
    reader = stream.reader(topics.DEAD_LETTERS)
    found: list[DeadLetter] = []
    while records := reader.read(1000, 3.0):
        found += [decode(open_frame(record.value), DeadLetter) for record in records]
    reader.close()
    return found
