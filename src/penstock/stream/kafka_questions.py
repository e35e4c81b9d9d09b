"""Looking into a topic without following it: the newest of each key, one key backwards, the last few."""

import time
from collections.abc import Iterator
from itertools import chain, repeat

from confluent_kafka import Message

from penstock.stream.base import Position, Record
from penstock.stream.kafka_clients import Clients
from penstock.stream.kafka_reader import Cursor
from penstock.stream.kafka_records import key_of, record_of
from penstock.stream.records import behind

BLOCKS = (8, 32, 128)
"""Records looked at in each step backwards; the caller often wants only the last one of its key."""
LOOKED_AT = 8


def newest(clients: Clients, cursor: Cursor, end: Position) -> list[Record]:
    """The newest record of every key up to `end`, in the order written; keys that were deleted are left out."""
    found: dict[str, Message] = {}
    for message in _until(clients, cursor, end):
        found.pop(key_of(message), None)
        found[key_of(message)] = message
    return [record_of(message) for message in found.values() if message.value() is not None]


def backwards(
    clients: Clients, topic: str, name: str, partition: int, edges: tuple[int, int], key: str
) -> Iterator[Record]:
    """The records of one key, newest first, read in growing blocks from the end of its partition."""
    low, high = edges
    cursor: Cursor | None = None
    try:
        for size in chain(BLOCKS, repeat(BLOCKS[-1])):
            bottom = max(low, high - size)
            if bottom >= high:
                return
            if cursor is None:
                cursor = Cursor(clients, topic, name, {partition: bottom}, only=partition)
            else:
                cursor.go(partition, bottom)
            block = [record_of(message) for message in _until(clients, cursor, {partition: high})]
            yield from (record for record in reversed(block) if record.key == key)
            if cursor.missed:  # retention has passed by: there is nothing older any more
                return
            high = bottom
    finally:
        if cursor is not None:
            cursor.close()


def last_values(clients: Clients, topic: str, name: str, end: Position) -> list[bytes]:
    """The last few values of each partition."""
    start = {partition: max(0, offset - LOOKED_AT) for partition, offset in end.items()}
    cursor = Cursor(clients, topic, name, start)
    try:
        return [message.value() or b"" for message in _until(clients, cursor, end)]
    finally:
        cursor.close()


def _until(clients: Clients, cursor: Cursor, end: Position) -> Iterator[Message]:
    """Every message before `end`; raise Unavailable when nothing moves any more."""
    deadline = time.monotonic() + clients.question_seconds
    while behind(cursor.next, end) or not cursor.placed:
        before = dict(cursor.next)
        for message in cursor.take(1000, 0.25):
            partition, offset = message.partition(), message.offset()
            if partition is not None and offset is not None and offset < end.get(partition, 0):
                yield message
        if cursor.next != before:
            deadline = time.monotonic() + clients.question_seconds
        elif time.monotonic() > deadline:
            raise clients.unavailable(clients.question_seconds)
