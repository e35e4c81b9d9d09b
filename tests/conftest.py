"""What tests of every kind may ask for."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker import Broker
from penstock.model.spec import StreamSpec
from penstock.stream.base import Stream
from penstock.wiring import open_stream
from tests.brokers import shared_broker

# every test has a home of its own; compiling the same update for each would be half of the suite's time
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / "build" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A real Kafka, started when the first test asks for it; without Java it fails and says what to install."""
    with shared_broker() as running:
        yield running


@pytest.fixture(scope="module", params=["embedded", "kafka"])
def url(request: pytest.FixtureRequest) -> str:
    """Both streams, one after the other: what holds on one must hold on the other."""
    if request.param == "embedded":
        return "embedded"
    broker: Broker = request.getfixturevalue("broker")
    return f"kafka://{broker.bootstrap}/{request.module.__name__.rpartition('.')[2]}-{uuid.uuid4().hex[:6]}"


@pytest.fixture
def stream(url: str, tmp_path: Path) -> Iterator[Stream]:
    """Either of them, opened."""
    opened = open_stream(tmp_path, StreamSpec(url=url))
    yield opened
    opened.close()
