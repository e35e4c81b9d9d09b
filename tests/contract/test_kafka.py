"""Kafka keeps the contract, on a real broker; and what only it must cope with."""

import uuid

import pytest

from penstock.broker import Broker
from penstock.model.spec import KafkaSpec
from penstock.testing.streams import StreamContract

QUICK = KafkaSpec(
    max_record_bytes=1 << 20,
    topic_config={"min.compaction.lag.ms": 0, "segment.ms": 200, "min.cleanable.dirty.ratio": 0.01},
)


def opening_of(broker: Broker, prefix: str) -> str:
    return (
        "from penstock.model.spec import KafkaSpec\n"
        "from penstock.stream.kafka import KafkaStream\n"
        f"stream = KafkaStream('kafka://{broker.bootstrap}/{prefix}', {QUICK!r})"
    )


@pytest.fixture
def prefix() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


class TestKafkaStream(StreamContract):
    patience_seconds = 30.0
    kills = 20
    settle_seconds = 0.3
    protects = False
    exact = False
    filler = b"x" * 300_000

    @pytest.fixture
    def opening(self, broker: Broker, prefix: str) -> str:
        return opening_of(broker, prefix)
