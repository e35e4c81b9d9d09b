"""Commands for one run, from `commands.control`; a command that was written twice is read once."""

from penstock.model import topics
from penstock.model.commands import Command, Desired, decode_command
from penstock.stream.base import Position, Record, Stream
from penstock.stream.records import RecordReader


class CommandReader:
    """Reads the commands of one run from a position on, and adds up what they want."""

    def __init__(self, stream: Stream, run: str, start: Position, actors: int, learner: int = 1) -> None:
        self._stream, self._run = stream, run
        self.desired = Desired(actors, learner=learner)
        """What is wanted after all commands read so far."""
        self._reader = RecordReader(stream, topics.COMMANDS, decode_command, start)
        self._first: dict[str, tuple[int, int]] = {}
        """Command id → where it stands for the first time."""

    def read(self) -> list[Command]:
        """What has come since; never waits."""
        found: list[Command] = []
        while records := self._reader.read(256, 0):
            found.extend(self._ours(records))
        return found

    def catch_up(self) -> None:
        """Read everything given so far; raise Unavailable where it cannot be had."""
        for batch in self._reader.drain():
            self._ours(batch)

    def position(self) -> Position:
        return dict(self._reader.position())

    def seek(self, position: Position) -> None:
        """Go on from there; what was read before is still known, and added up once."""
        if position != self._reader.position():
            self._reader.close()
            self._reader = RecordReader(self._stream, topics.COMMANDS, decode_command, position)

    def _ours(self, records: list[tuple[Record, Command]]) -> list[Command]:
        return [
            command
            for record, command in records
            if record.key == self._run and self._is_first(record, command)
        ]

    def _is_first(self, record: Record, command: Command) -> bool:
        place = (record.partition, record.offset)
        if command.id not in self._first:
            self._first[command.id] = place
            self.desired = self.desired.after(command)
        return self._first[command.id] == place


def give(stream: Stream, command: Command) -> None:
    """Write a command; it is accepted once this returns."""
    writer = stream.writer(topics.COMMANDS)
    writer.write(command.run, command.encode())
    writer.close()
