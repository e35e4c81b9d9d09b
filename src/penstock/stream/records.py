"""Typed reading: every record is checked; what cannot be read becomes a counted dead letter."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import msgspec

from penstock.errors import Damaged, Unavailable
from penstock.model import topics
from penstock.model.codec import Frame, Schema, encode, open_frame
from penstock.stream.base import Position, Record, Stream

T = TypeVar("T")
DRAIN_SECONDS = 60.0
"""Without any progress, reading to the end is given up."""


class DeadLetter(msgspec.Struct, frozen=True):
    """A record that could not be read, and why."""

    topic: str
    partition: int
    offset: int
    key: str
    reason: str
    at: float
    head: bytes
    """The first bytes of it, for a person to look at."""


class RecordReader(Generic[T]):
    """Reads a topic through `decode`; a Damaged record is set aside and reading goes on."""

    def __init__(
        self, stream: Stream, topic: str, decode: Callable[[Frame], T], start: Position | None = None
    ) -> None:
        self._stream, self._topic, self._decode = stream, topic, decode
        self._reader = stream.reader(topic, start)
        self.dead_letters = 0

    @property
    def missed(self) -> int:
        """Records that retention had dropped before they could be read."""
        return self._reader.missed

    def read(self, limit: int, timeout: float) -> list[tuple[Record, T]]:
        """1..limit good records, or none once `timeout` seconds have passed without any."""
        deadline = time.monotonic() + timeout
        while True:
            found = self._reader.read(limit, max(0.0, deadline - time.monotonic()))
            good = [opened for record in found for opened in self._open(record)]
            # a batch of nothing but dead letters is not yet the end of the wait
            if good or not found:
                return good

    def drain(self, limit: int = 256) -> Iterator[list[tuple[Record, T]]]:
        """All good records up to the end of the topic as it is now, in batches of up to `limit`.

        Raises Unavailable where the rest cannot be had. Whoever stops early has seen all up to `position`.
        """
        end, until = self._stream.end(self._topic), time.monotonic() + DRAIN_SECONDS
        while behind(before := self._reader.position(), end):
            if found := self.read(limit, 0.25):
                yield found
            if self._reader.position() != before:
                until = time.monotonic() + DRAIN_SECONDS
            elif time.monotonic() > until:
                raise Unavailable(f"the rest of {self._topic} could not be read in {DRAIN_SECONDS:g} s")

    def position(self) -> Position:
        return self._reader.position()

    def lag(self) -> int:
        return self._reader.lag()

    def close(self) -> None:
        self._reader.close()

    def _open(self, record: Record) -> list[tuple[Record, T]]:
        """The record with its value, or nothing."""
        try:
            return [(record, self._decode(open_frame(record.value)))]
        except Damaged as error:
            self.dead_letters += 1
            # the good records of this batch are past the reader's position already: they must get out
            with contextlib.suppress(Unavailable):
                set_aside(self._stream, self._topic, record, str(error))
            return []


def behind(position: Position, end: Position) -> bool:
    """Whether there is something between the two."""
    return any(position.get(partition, 0) < offset for partition, offset in end.items())


def set_aside(stream: Stream, topic: str, record: Record, reason: str) -> None:
    """Write a dead letter."""
    letter = DeadLetter(
        topic, record.partition, record.offset, record.key, reason, time.time(), bytes(record.value[:256])
    )
    writer = stream.writer(topics.DEAD_LETTERS)
    writer.write(topic, encode(Schema.DEAD_LETTER, letter))
    writer.close()


def backwards(stream: Stream, topic: str, key: str, decode: Callable[[Frame], T]) -> Iterator[T]:
    """The readable records of one key, newest first; damaged ones are passed over."""
    for record in stream.backwards(topic, key):
        try:
            yield decode(open_frame(record.value))
        except Damaged:
            continue
