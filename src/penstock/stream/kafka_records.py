"""A record as a Kafka message and back: which partition, which headers, and keys that are not ours."""

import struct
import zlib

import msgspec
from confluent_kafka import Message

from penstock.model import topics
from penstock.model.codec import HEADER, MAGIC, Schema
from penstock.stream.base import Record

_OF_COLUMNS = (Schema.ROLLOUT, Schema.POLICY, Schema.PIECE)
_FACTS_BYTES = 64 << 10
"""Larger heads of records are not looked into for the sake of a header."""

Headers = list[tuple[str, str | bytes | None]]


def partition_of(key: str, count: int) -> int:
    """Where the records of a key are, in a topic of `count` partitions.

    Keys that are whole numbers (actor slots) take turns: int(key) % count. Others go by crc32(key) % count.
    `backwards` looks only there, so a topic in use must not get more partitions.
    """
    if key.isascii() and key.isdigit():
        return int(key) % count
    return zlib.crc32(key.encode()) % count


class _Facts(msgspec.Struct):
    run: str | None = None
    version: tuple[int, int] | str | None = None
    """Reports write it as people do."""


class _Columns(msgspec.Struct):
    facts: _Facts


_facts, _columns = msgspec.json.Decoder(_Facts), msgspec.json.Decoder(_Columns)


def headers_of(topic: str, value: bytes) -> Headers:
    """`schema`, `run` and `version` of a record of ours, for people and tools that do not know the frame."""
    run = topics.run_of(topic)
    headers = {} if run is None else {"run": run}
    if value.startswith(MAGIC) and len(value) >= HEADER.size:
        schema = HEADER.unpack_from(value)[1]
        if schema in Schema._value2member_map_:
            headers["schema"] = Schema(schema).name.lower()
        facts = _facts_of(schema, memoryview(value)[HEADER.size :])
        if facts.run is not None:
            headers.setdefault("run", facts.run)
        if facts.version is not None:
            told = facts.version
            headers["version"] = told if isinstance(told, str) else f"{told[0]}.{told[1]}"
    return list(headers.items())


def _facts_of(schema: int, payload: memoryview) -> _Facts:
    try:
        if schema not in _OF_COLUMNS:
            return _facts.decode(payload) if len(payload) <= _FACTS_BYTES else _Facts()
        (length,) = struct.unpack_from("<I", payload)
        return _columns.decode(payload[4 : 4 + length]).facts if length <= _FACTS_BYTES else _Facts()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, struct.error):
        return _Facts()


def record_of(message: Message) -> Record:
    """A message as a record; foreign keys and empty values must not stop anybody."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return Record(key_of(message), message.value() or b"", partition, offset)


def key_of(message: Message) -> str:
    return (message.key() or b"").decode(errors="replace")
