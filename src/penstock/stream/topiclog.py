"""What one transaction does to a topic: append, retain, compact, read.

Old records go in the transaction that adds a new one, a few at a time: pages are freed as fast as they
are used, the free list stays short, and the file stays as large as it is (measured in bench/stream.py).
"""

import time

from penstock.stream import layout
from penstock.stream.base import Buffer, Record
from penstock.stream.layout import NEVER, Head, Topic, Transaction

DROPS_PER_WRITE = 16
SWEEPS_PER_WRITE = 4
READ_BYTES = 32 << 20
"""A read transaction copies about this much at most, to end soon."""


def append(txn: Transaction, name: str, topic: Topic, key: bytes, value: Buffer, budget: int) -> bool:
    """Add a record and drop what its topic need not keep.

    False, having dropped what may be dropped and no more, when the budget leaves no room.
    """
    size = layout.cost(len(key), memoryview(value).nbytes)
    now = time.time_ns() // 1000
    used = layout.used(txn) - _retain(txn, topic, size, now)
    if used + size > budget:
        layout.store(txn, name, topic)  # for _make_room reads the topics, this one too
        used -= _make_room(txn, used + size - budget)
        topic = layout.find(txn, name) or topic
        if used + size > budget:
            layout.set_used(txn, used)
            return False
    head = Head(topic.next, layout.newest_offset(txn, topic, key), now, key)
    layout.put(txn, topic, head, value)
    topic.next += 1
    topic.bytes += size
    used += size
    if topic.compact:
        used -= _compact(txn, topic, head.previous)
    layout.store(txn, name, topic)
    layout.set_used(txn, used)
    return True


def drop_some(txn: Transaction, name: str, topic: Topic, count: int) -> bool:
    """Drop up to `count` of the oldest records, protected or not; whether any are left."""
    cursor, before = txn.cursor(), topic.bytes
    oldest = layout.seek(cursor, topic)
    while count > 0 and oldest is not None:
        layout.drop(txn, cursor, topic, oldest)
        oldest = layout.seek(cursor, topic)
        count -= 1
    layout.store(txn, name, topic)
    layout.set_used(txn, layout.used(txn) - (before - topic.bytes))
    return oldest is not None


def read(txn: Transaction, topic: Topic, offset: int, limit: int) -> list[Record]:
    """Copies of up to `limit` records from `offset` on, oldest first."""
    found: list[Record] = []
    copied = 0
    for head, value in layout.records(txn.cursor(), topic, offset):
        found.append(Record(head.key.decode(), value, 0, head.offset))
        copied += len(value)
        if len(found) >= limit or copied >= READ_BYTES:
            break
    return found


def read_one(txn: Transaction, topic: Topic, offset: int) -> tuple[Record, int] | None:
    """The record at `offset`, and the offset of the one before it with its key."""
    cursor = txn.cursor()
    head = layout.seek(cursor, topic, offset)
    if head is None or head.offset != offset:
        return None
    return Record(head.key.decode(), cursor.value(), 0, offset), head.previous


def count(txn: Transaction, topic: Topic, offset: int) -> int:
    """How many records there are from `offset` on; looked at one by one only where compaction leaves gaps."""
    cursor = txn.cursor()
    head = layout.seek(cursor, topic, offset)
    if head is None:
        return 0
    if not topic.compact:
        return topic.next - head.offset
    found = 0
    while head is not None:
        found += 1
        head = layout.seek(cursor, topic, head.offset + 1)
    return found


def _retain(txn: Transaction, topic: Topic, coming: int, now: int) -> int:
    """Drop a few records past the topic's bytes or age; returns the bytes freed."""
    if not topic.droppable:
        return 0
    too_old = now - int(topic.retention_seconds * 1e6) if topic.retention_seconds >= 0 else -1
    cursor, before = txn.cursor(), topic.bytes
    for _ in range(DROPS_PER_WRITE):
        too_many = 0 <= topic.retention_bytes < topic.bytes + coming
        if not too_many and too_old < 0:
            break
        oldest = layout.seek(cursor, topic)
        if oldest is None or oldest.offset >= topic.protected:
            break
        if not too_many and oldest.written_us >= too_old:
            break
        layout.drop(txn, cursor, topic, oldest)
    return before - topic.bytes


def _make_room(txn: Transaction, wanted: int) -> int:
    """At the budget: drop the oldest records of the largest topics that have any retention."""
    cursor, freed, drops = txn.cursor(), 0, 4 * DROPS_PER_WRITE
    for name, topic in sorted(layout.topics(txn), key=lambda named: -named[1].bytes):
        before = topic.bytes
        while topic.droppable and drops > 0 and freed + before - topic.bytes < wanted:
            oldest = layout.seek(cursor, topic)
            if oldest is None or oldest.offset >= topic.protected:
                break
            layout.drop(txn, cursor, topic, oldest)
            drops -= 1
        freed += before - topic.bytes
        if topic.bytes != before:
            layout.store(txn, name, topic)
    return freed


def _compact(txn: Transaction, topic: Topic, previous: int) -> int:
    """Drop the record just replaced, and a few that were protected when they were replaced.

    What is dropped at once needs no sweep; the sweep walks over every record once, faster than writers
    add them, and stops at what is protected.
    """
    cursor, before = txn.cursor(), topic.bytes
    if previous != NEVER and previous < topic.protected:
        head = layout.seek(cursor, topic, previous)
        if head is not None and head.offset == previous:
            layout.drop(txn, cursor, topic, head)
    for _ in range(SWEEPS_PER_WRITE):
        head = layout.seek(cursor, topic, topic.swept)
        if head is None or head.offset >= topic.protected:
            break
        topic.swept = head.offset + 1
        if layout.newest_offset(txn, topic, head.key) != head.offset:
            layout.drop(txn, cursor, topic, head)
    return before - topic.bytes
