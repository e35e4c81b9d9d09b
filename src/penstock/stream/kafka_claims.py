"""Epochs on Kafka: proposals in a topic of one partition; the first valid one of an epoch wins.

A proposal is valid iff its epoch follows the newest valid one of its name at its place in the log. All who
read the log agree on that, so whoever finds its own token at an epoch has it, and nobody else does.
"""

import threading
import time
import uuid
from collections.abc import Callable, Iterable

import msgspec

from penstock.errors import ConfigError
from penstock.stream.base import Position
from penstock.stream.kafka_clients import Clients
from penstock.stream.kafka_reader import Cursor
from penstock.stream.kafka_writer import KafkaWriter
from penstock.stream.records import behind


class Proposal(msgspec.Struct, frozen=True):
    name: str
    epoch: int
    token: str


def fold(epochs: dict[str, list[str]], values: Iterable[bytes]) -> None:
    """Add what is valid to `epochs`: name → the token of each epoch, from 1 on. The rest is passed over."""
    for value in values:
        try:
            proposal = msgspec.json.decode(value, type=Proposal)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        taken = epochs.setdefault(proposal.name, [])
        if proposal.epoch == len(taken) + 1:
            taken.append(proposal.token)


class Claims:
    """Follows the topic of claims; any thread."""

    def __init__(
        self,
        clients: Clients,
        end: Callable[[], Position],
        open_cursor: Callable[[], Cursor],
        open_writer: Callable[[], KafkaWriter],
    ) -> None:
        """`end` is empty while there is no such topic; the first write makes it."""
        self._clients, self._end = clients, end
        self._open_cursor, self._open_writer = open_cursor, open_writer
        self._lock = threading.Lock()
        self._cursor: Cursor | None = None
        self._epochs: dict[str, list[str]] = {}

    def claim(self, name: str) -> int:
        self._clients.check_process()
        writer = self._open_writer()
        while True:
            mine = Proposal(name, self.claimed(name) + 1, uuid.uuid4().hex)
            writer.write(name, msgspec.json.encode(mine))
            with self._lock:
                self._catch_up()
                if self._epochs[name][mine.epoch - 1] == mine.token:
                    return mine.epoch

    def claimed(self, name: str) -> int:
        """Strict: what anybody claimed before this call is known when it returns."""
        self._clients.check_process()
        with self._lock:
            self._catch_up()
            return len(self._epochs.get(name, ()))

    def close(self) -> None:
        if self._cursor is not None:
            self._cursor.close()

    def _catch_up(self) -> None:
        """Read up to the end of the topic as it is now; raise Unavailable if that cannot be known."""
        end, deadline = self._end(), time.monotonic() + self._clients.question_seconds
        if end and self._cursor is None:
            self._cursor = self._open_cursor()
            if any(offset > 0 for offset in self._cursor.next.values()):
                raise ConfigError(
                    "retention has dropped records of the topic claims, and with them who took which epoch; that "
                    "topic must keep everything: cleanup.policy=delete, retention.ms=-1, retention.bytes=-1"
                )
        while self._cursor is not None and behind(self._cursor.next, end):
            messages = self._cursor.take(1000, 0.25)
            fold(self._epochs, [message.value() or b"" for message in messages])
            if time.monotonic() > deadline:
                raise self._clients.unavailable(self._clients.question_seconds)
