"""How topics lie in the one ordered tree of an LMDB environment.

    t <topic>                                    → its state: next offset, bytes, policy, protection
    k <id> <record key>                          → the newest offset of that key
    r <id> <offset> <previous> <µs> <record key> → the value, and nothing but the value
    c <name>                                     → the newest claim
    n, u                                         → the last topic id; the bytes of all topics

What is known about a record stands in the tree's key, so that looking for one never touches a value and
a value is copied once each way. `previous` is the offset of the record before it with the same key: a
chain that leads backwards past all other keys.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.errors import ConfigError
from penstock.stream.base import TopicPolicy

NEVER = (1 << 64) - 1
"""No previous record; nothing protected."""
MAX_KEY_BYTES = 400

Transaction = Any
"""lmdb.Transaction: of bytes where it reads, of memoryviews where it writes."""

_PAGE = 4096
_INLINE = 1900
"""Larger values lie on pages of their own."""
_ID = struct.Struct(">cI")
_FROM = struct.Struct(">cIQ")
_RECORD = struct.Struct(">cIQQQ")
_NUMBER = struct.Struct(">Q")
_STATE = struct.Struct(">IQQQQqd??")
_LAST_ID, _USED = b"n", b"u"


@dataclass(slots=True)
class Topic:
    """What the log remembers of a topic."""

    id: int
    next: int
    bytes: int = 0
    swept: int = 0
    """Compaction has looked at every record before this offset."""
    protected: int = NEVER
    retention_bytes: int = -1
    retention_seconds: float = -1.0
    compact: bool = False
    synced: bool = False

    def adopt(self, policy: TopicPolicy) -> None:
        self.retention_bytes = -1 if policy.retention_bytes is None else policy.retention_bytes
        self.retention_seconds = -1.0 if policy.retention_seconds is None else policy.retention_seconds
        self.compact, self.synced = policy.compact, policy.synced

    @property
    def policy(self) -> TopicPolicy:
        return TopicPolicy(
            None if self.retention_bytes < 0 else self.retention_bytes,
            None if self.retention_seconds < 0 else self.retention_seconds,
            self.compact,
            self.synced,
        )

    @property
    def droppable(self) -> bool:
        return self.retention_bytes >= 0 or self.retention_seconds >= 0


class Head(NamedTuple):
    """A record without its value."""

    offset: int
    previous: int
    written_us: int
    key: bytes


def find(txn: Transaction, name: str) -> Topic | None:
    packed = txn.get(b"t" + name.encode())
    return None if packed is None else Topic(*_STATE.unpack(packed))


def make(txn: Transaction, name: str, policy: TopicPolicy, first_offset: int) -> Topic:
    """A topic that is not there yet."""
    topic_id = _number(txn, _LAST_ID) + 1
    txn.put(_LAST_ID, _NUMBER.pack(topic_id))
    topic = Topic(topic_id, first_offset)
    topic.adopt(policy)
    store(txn, name, topic)
    return topic


def store(txn: Transaction, name: str, topic: Topic) -> None:
    packed = _STATE.pack(
        topic.id,
        topic.next,
        topic.bytes,
        topic.swept,
        topic.protected,
        topic.retention_bytes,
        topic.retention_seconds,
        topic.compact,
        topic.synced,
    )
    txn.put(b"t" + name.encode(), packed)


def topics(txn: Transaction) -> list[tuple[str, Topic]]:
    return [
        (bytes(tail).decode(), Topic(*_STATE.unpack(packed))) for tail, packed in _under(txn.cursor(), b"t")
    ]


def claimed(txn: Transaction, name: str) -> int:
    return _number(txn, b"c" + name.encode())


def claim(txn: Transaction, name: str, epoch: int) -> None:
    txn.put(b"c" + name.encode(), _NUMBER.pack(epoch))


def used(txn: Transaction) -> int:
    """The bytes of all topics, as `cost` counts them."""
    return _number(txn, _USED)


def set_used(txn: Transaction, size: int) -> None:
    txn.put(_USED, _NUMBER.pack(size))


def encoded(key: str) -> bytes:
    """The record key as bytes; it must fit into the tree's keys."""
    result = key.encode()
    if len(result) > MAX_KEY_BYTES:
        raise ConfigError(
            f"the record key {key[:40]!r}… has {len(result)} bytes; the embedded log takes {MAX_KEY_BYTES}"
        )
    return result


def cost(key_bytes: int, value_bytes: int) -> int:
    """About the disk space of a record: whole pages, or twice its size where pages are half full."""
    node = _RECORD.size + key_bytes + 8
    if node + value_bytes <= _INLINE:
        return 2 * (node + value_bytes)
    return 2 * node + -(-(value_bytes + 16) // _PAGE) * _PAGE


def put(txn: Transaction, topic: Topic, head: Head, value: Any) -> None:
    """Write a record and make it the newest of its key."""
    txn.put(_RECORD.pack(b"r", topic.id, head.offset, head.previous, head.written_us) + head.key, value)
    txn.put(_ID.pack(b"k", topic.id) + head.key, _NUMBER.pack(head.offset))


def seek(cursor: Any, topic: Topic, offset: int = 0) -> Head | None:
    """Move to the first record at or behind `offset`."""
    if not cursor.set_range(_FROM.pack(b"r", topic.id, offset)):
        return None
    found = bytes(cursor.key())
    return _head(found) if found[:5] == _ID.pack(b"r", topic.id) else None


def drop(txn: Transaction, cursor: Any, topic: Topic, head: Head) -> None:
    """Delete the record under the cursor, and its key when it was the newest of it."""
    topic.bytes -= cost(len(head.key), len(cursor.value()))
    cursor.delete()
    if newest_offset(txn, topic, head.key) == head.offset:
        txn.delete(_ID.pack(b"k", topic.id) + head.key)


def records(cursor: Any, topic: Topic, offset: int) -> Iterator[tuple[Head, Any]]:
    """The records from `offset` on, with their values."""
    prefix = _ID.pack(b"r", topic.id)
    if cursor.set_range(_FROM.pack(b"r", topic.id, offset)):
        for found, value in cursor.iternext():
            if found[:5] != prefix:
                return
            yield _head(found), value


def newest_offset(txn: Transaction, topic: Topic, key: bytes) -> int:
    """Of one key; NEVER when there is none."""
    found = txn.get(_ID.pack(b"k", topic.id) + key)
    return NEVER if found is None else int(_NUMBER.unpack(found)[0])


def newest_offsets(txn: Transaction, topic: Topic) -> list[int]:
    """Of every key, ascending."""
    found = _under(txn.cursor(), _ID.pack(b"k", topic.id))
    return sorted(int(_NUMBER.unpack(value)[0]) for _, value in found)


def _under(cursor: Any, prefix: bytes) -> Iterator[tuple[Any, Any]]:
    if cursor.set_range(prefix):
        for found, value in cursor.iternext():
            if bytes(found[: len(prefix)]) != prefix:
                return
            yield found[len(prefix) :], value


def _head(found: bytes) -> Head:
    _, _, offset, previous, written_us = _RECORD.unpack_from(found)
    return Head(offset, previous, written_us, found[_RECORD.size :])


def _number(txn: Transaction, key: bytes) -> int:
    found = txn.get(key)
    return 0 if found is None else int(_NUMBER.unpack(found)[0])
