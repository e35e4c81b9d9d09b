"""The promise of a log, kept by the embedded one and by Kafka alike.

A topic is an append-only sequence of records. Records that share a key keep their order. A record
is *acknowledged* once `write` has returned: it then survives the death of any process. A position
says where to go on: for each partition the offset of the next record (the embedded log has one
partition, 0). Reading never removes; retention and compaction do, eventually:

- retention drops the oldest records past a topic's bytes or age. The embedded log never drops one at or
  behind the position given to `protect`; Kafka cannot promise that, so a reader counts what it `missed`;
- compaction keeps at least the newest record of each key.

Readers do not share state: every reader sees every record from its position on. A log that cannot be
reached makes readers find nothing and writers wait, up to the write deadline; questions about the log
as a whole (`end`, `newest`, `claim` …) raise Unavailable. Handles are for one process and one thread;
none may live across a fork.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

Position = dict[int, int]
"""Partition → offset of the next record to read; a partition that is missing starts at its oldest."""

Buffer = bytes | bytearray | memoryview


class Record(NamedTuple):
    key: str
    value: bytes
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """How a topic is kept. Given when it is made; the topic's own metadata remembers it."""

    retention_bytes: int | None = None
    retention_seconds: float | None = None
    compact: bool = False
    synced: bool = False
    """Whether an acknowledged record also survives power loss (commands, claims, runs)."""
    partitions: int = 1
    """How many keys may be written side by side; the embedded log always has one partition."""


class TopicInfo(NamedTuple):
    """A topic as it is now."""

    name: str
    partitions: int
    replication: int
    records: int
    bytes: int | None
    """None where the log cannot tell."""
    policy: TopicPolicy


@dataclass(slots=True)
class Flow:
    """What passed through the handles of one process since it opened the stream."""

    produced_records: int = 0
    produced_bytes: int = 0
    consumed_records: int = 0
    consumed_bytes: int = 0
    waits: int = 0
    """Writes that had to wait for room, or for a broker that was away."""
    waited_seconds: float = 0.0
    dropped: int = 0
    """Records offered while there was no room."""


class Writer(Protocol):
    def write(self, key: str, value: Buffer) -> None:
        """Append one record and return once it is acknowledged.

        Waits while the log is at its budget or away; raises Unavailable past the stream's write deadline.
        """

    def offer(self, key: str, value: Buffer) -> None:
        """Append one record when there is room, without waiting for anybody; else drop and count it."""

    def close(self) -> None: ...


class Reader(Protocol):
    def read(self, limit: int, timeout: float) -> list[Record]:
        """Return 1..limit records, or none once `timeout` seconds have passed.

        0 takes only what has arrived here already; `records.drain` reads all there is.
        """

    def position(self) -> Position:
        """Where the next read goes on; behind the newest record once there is nothing more."""

    def lag(self) -> int:
        """Records written but not yet read, as far as is known here."""

    @property
    def missed(self) -> int:
        """Records at or behind the start that retention had dropped before they could be read."""

    def close(self) -> None: ...


class Stream(Protocol):
    @property
    def url(self) -> str:
        """The address this process knows it by; a host may know the same brokers by another."""

    @property
    def flow(self) -> Flow: ...

    @property
    def shared(self) -> bool:
        """Whether other machines use it too: then what is in it may be somebody else's."""

    def ensure(self, topic: str, policy: TopicPolicy) -> None:
        """Make the topic unless it is there; a repeated call changes its policy."""

    def writer(self, topic: str) -> Writer: ...

    def reader(self, topic: str, start: Position | None = None) -> Reader:
        """Read from `start`; None is the oldest record kept."""

    def end(self, topic: str) -> Position:
        """The position behind the newest record."""

    def backwards(self, topic: str, key: str) -> Iterator[Record]:
        """The records of one key, newest first."""

    def newest(self, topic: str) -> list[Record]:
        """The newest record of every key: what a compacted topic is for."""

    def protect(self, topic: str, position: Position) -> None:
        """Keep everything from `position` on, whatever retention says; replaces the last call."""

    def claim(self, name: str) -> int:
        """Take the next epoch of `name` (1, 2, …); no two calls anywhere get the same one. Synced."""

    def claimed(self, name: str) -> int:
        """The newest epoch of `name`; 0 when nobody claimed any."""

    def topics(self) -> list[TopicInfo]:
        """What there is, by name."""

    def remove(self, topic: str) -> None:
        """Delete the topic and its records; unknown ones are no error."""

    def remove_run(self, run: str) -> None:
        """Delete all topics that belong to a run."""

    def close(self) -> None: ...
