"""What tests of every kind may ask for."""

from collections.abc import Iterator

import pytest

from penstock.broker import Broker
from tests.brokers import shared_broker


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A real Kafka, started when the first test asks for it; without Java it fails and says what to install."""
    with shared_broker() as running:
        yield running
