"""Real Kafkas for tests: one that the whole session shares, and ones that ask for a password or TLS."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from penstock.broker import Broker

QUICK = {
    "log.retention.check.interval.ms": "300",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.initial.task.delay.ms": "500",
    "log.segment.delete.delay.ms": "1000",
    "log.flush.scheduler.interval.ms": "9223372036854775807",
}
"""Retention and compaction within a second or two instead of minutes."""


@contextlib.contextmanager
def shared_broker() -> Iterator[Broker]:
    """A single node with quick retention; stopped and removed at the end, also when tests fail."""
    with tempfile.TemporaryDirectory(prefix="penstock-broker-", ignore_cleanup_errors=True) as folder:
        broker = Broker(Path(folder) / "broker", settings=QUICK)
        try:
            broker.start()
            yield broker
        finally:
            broker.delete()
