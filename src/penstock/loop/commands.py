"""Commands for one run, from `commands.control`."""

from penstock.model import topics
from penstock.model.commands import Command, decode_command
from penstock.stream.base import Position, Stream
from penstock.stream.records import RecordReader

MOST_ACTORS = 64


class CommandReader:
    """Reads the commands of one run from a position on."""

    def __init__(self, stream: Stream, run: str, start: Position) -> None:
        self._stream, self._run = stream, run
        self._reader = RecordReader(stream, topics.COMMANDS, decode_command, start)

    def read(self) -> list[Command]:
        """What has come since; never waits."""
        found: list[Command] = []
        while records := self._reader.read(256, 0):
            found.extend(command for record, command in records if record.key == self._run)
        return found

    def read_all(self) -> list[Command]:
        """Everything given so far."""
        batches = self._reader.drain()
        return [command for batch in batches for record, command in batch if record.key == self._run]

    def position(self) -> Position:
        return dict(self._reader.position())

    def seek(self, position: Position) -> None:
        if position != self._reader.position():
            self._reader.close()
            self._reader = RecordReader(self._stream, topics.COMMANDS, decode_command, position)


def actors_of(command: Command) -> int | None:
    """How many actors a `scale` wants; None where it makes no sense, whoever wrote it."""
    count = command.arguments.get("actors")
    return count if isinstance(count, int) and 0 <= count <= MOST_ACTORS else None


def give(stream: Stream, command: Command) -> None:
    """Write a command; it is accepted once this returns."""
    writer = stream.writer(topics.COMMANDS)
    writer.write(command.run, command.encode())
    writer.close()
