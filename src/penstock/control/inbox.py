"""`commands.control` of one stream as the controller sees it: where it writes, and how far it has read."""

from collections.abc import Callable

from penstock.loop.commands import give
from penstock.model import topics
from penstock.model.commands import Command, decode_command
from penstock.stream.base import Position, Record, Stream
from penstock.stream.records import RecordReader
from penstock.stream.shared import SHARED


class Inbox:
    """Used by the controller's thread alone."""

    def __init__(self, stream: Stream, known: Callable[[], Position | None]) -> None:
        """`known` tells how far the database has got."""
        self.stream, self.url = stream, stream.url
        self._known, self._lost = known, False
        stream.ensure(topics.COMMANDS, SHARED[topics.COMMANDS])
        stream.ensure(topics.RUNS, SHARED[topics.RUNS])
        self._reader = RecordReader(stream, topics.COMMANDS, decode_command, known())

    def give(self, command: Command) -> None:
        """Write a command; it is accepted once this returns."""
        give(self.stream, command)

    def read(self, timeout: float) -> list[tuple[Record, Command]]:
        """What came since, at most a batch of it."""
        if self._lost:
            self.rewind(self._known())
        return self._reader.read(256, timeout)

    def history(self) -> list[list[tuple[Record, Command]]]:
        """Everything up to now, in batches; raise Unavailable where it cannot be had."""
        return list(self._reader.drain())

    def position(self) -> Position:
        return dict(self._reader.position())

    def forget(self) -> None:
        """What was read could not be written down: the next reading begins where the database stands."""
        self._lost = True

    def rewind(self, position: Position | None) -> None:
        """Read again from there."""
        self._lost = False
        self._reader.close()
        self._reader = RecordReader(self.stream, topics.COMMANDS, decode_command, position)

    def behind(self) -> int:
        """Commands that wait to be applied."""
        return self._reader.lag()

    def close(self) -> None:
        self._reader.close()
        self.stream.close()
