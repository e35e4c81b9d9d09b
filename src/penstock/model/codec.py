"""One frame for every record: magic, schema, version, flags, length, crc32c, payload.

A reader skips fields it does not know, refuses a newer major version, and checks every length
against a cap before it takes memory. Words travel as JSON, numbers as raw little-endian columns:

    frame   = magic(4) schema(u16) major(u8) minor(u8) flags(u32) length(u32) crc32c(u32) payload
    columns = header_length(u32) header(JSON) padding column column ...   (each column 64-byte aligned)
"""

import math
import re
import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

import google_crc32c
import msgspec
import numpy as np

from penstock.errors import ConfigError, Damaged

MAGIC = b"PNST"
MAJOR, MINOR = 1, 0
HEADER = struct.Struct("<4sHBBIII")
MAX_PAYLOAD = 1 << 30
MAX_HEADER = 16 << 20
MAX_DIMENSIONS = 32
ALIGNMENT = 64
COLUMN_TYPE = re.compile(r"[<|][biufcSU][1-9]\d{0,5}")
"""Plain numbers and text. NumPy would read much more into the text of a type: objects, structures, shapes."""

T = TypeVar("T")
Array = np.ndarray[Any, np.dtype[Any]]


_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What reading hostile JSON can raise; RecursionError for a thousand open brackets."""


class Schema(IntEnum):
    """What a frame holds."""

    ROLLOUT = 1
    HELLO = 2
    POLICY = 3
    HISTORY = 4
    COMMAND = 5
    REPORT = 6
    RUN = 7
    DEAD_LETTER = 8
    PIECE = 9
    TRAJECTORY = 10
    SOURCE = 11


class Frame(NamedTuple):
    schema: Schema
    payload: memoryview


class ColumnHeader(msgspec.Struct, frozen=True, array_like=True):
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int


class Columns(msgspec.Struct, frozen=True):
    """The header in front of raw columns: words about them, and where each one lies."""

    facts: msgspec.Raw
    columns: tuple[ColumnHeader, ...]


def encode(schema: Schema, facts: Any) -> bytes:
    """A frame whose payload is `facts` as JSON."""
    return _sealed(schema, msgspec.json.encode(facts))


def decode(frame: Frame, kind: type[T]) -> T:
    """The JSON payload as `kind`; unknown fields are skipped, missing ones are damage."""
    try:
        return msgspec.json.decode(frame.payload, type=kind)
    except _UNREADABLE as error:
        raise Damaged(f"a {frame.schema.name.lower()} record does not read as one: {error}") from error


def encode_columns(schema: Schema, facts: Any, columns: Mapping[str, Array]) -> bytearray:
    """A frame of `facts` and arrays; each array is copied once, into its place."""
    arrays = {name: np.asarray(column, order="C") for name, column in columns.items()}
    headers, offset = [], 0
    for name, array in arrays.items():
        dtype = array.dtype.newbyteorder("<").str
        if not COLUMN_TYPE.fullmatch(dtype):
            raise ConfigError(f"column {name!r} has type {array.dtype}; a record holds numbers and text only")
        headers.append(ColumnHeader(name, dtype, array.shape, offset))
        offset += _aligned(array.nbytes)
    header = msgspec.json.encode(Columns(msgspec.Raw(msgspec.json.encode(facts)), tuple(headers)))
    start = _aligned(HEADER.size + 4 + len(header))
    _check_length(schema, start + offset - HEADER.size)
    buffer = bytearray(start + offset)
    struct.pack_into("<I", buffer, HEADER.size, len(header))
    buffer[HEADER.size + 4 : HEADER.size + 4 + len(header)] = header
    for place, array in zip(headers, arrays.values(), strict=True):
        if array.size:
            target = np.frombuffer(buffer, place.dtype, array.size, start + place.offset)
            target[:] = array.reshape(-1)
    payload = memoryview(buffer)[HEADER.size :]
    HEADER.pack_into(buffer, 0, MAGIC, schema, MAJOR, MINOR, 0, len(payload), _crc32c(payload))
    return buffer


def decode_columns(frame: Frame, kind: type[T]) -> tuple[T, dict[str, Array]]:
    """The facts as `kind` and read-only views of the columns, without copying them."""
    payload = frame.payload
    try:
        (length,) = struct.unpack_from("<I", payload)
        if length > MAX_HEADER:
            raise Damaged(
                f"a {frame.schema.name.lower()} header claims {length} bytes; the cap is {MAX_HEADER}"
            )
        header = msgspec.json.decode(payload[4 : 4 + length], type=Columns)
        facts = msgspec.json.decode(header.facts, type=kind)
        start = _aligned(HEADER.size + 4 + length) - HEADER.size
        return facts, {place.name: _column(payload, start, place) for place in header.columns}
    except (*_UNREADABLE, struct.error, ValueError, TypeError) as error:
        raise Damaged(f"a {frame.schema.name.lower()} record does not read as one: {error}") from error


def open_frame(value: bytes | bytearray | memoryview) -> Frame:
    """Check a frame from its first byte to its last; raise Damaged with the reason."""
    view = memoryview(value)
    if len(view) < HEADER.size:
        raise Damaged(f"{len(view)} bytes are too short for a frame")
    magic, schema, major, minor, _flags, length, crc = HEADER.unpack_from(view)
    if magic != MAGIC:
        raise Damaged("the record does not begin with the frame's magic; something else writes this topic")
    if major > MAJOR:
        raise Damaged(f"the record has format {major}.{minor}, this is {MAJOR}.{MINOR}; upgrade penstock")
    if length > MAX_PAYLOAD or length != len(view) - HEADER.size:
        raise Damaged(f"the frame claims {length} bytes and has {len(view) - HEADER.size}")
    if schema not in Schema._value2member_map_:
        raise Damaged(f"unknown schema {schema}; a newer penstock may have written it")
    payload = view[HEADER.size :]
    if _crc32c(payload) != crc:
        raise Damaged("the checksum does not match: the record was damaged")
    return Frame(Schema(schema), payload)


def _column(payload: memoryview, start: int, place: ColumnHeader) -> Array:
    if not COLUMN_TYPE.fullmatch(place.dtype):
        raise ValueError(f"column {place.name!r} has the impossible type {place.dtype[:40]!r}")
    if place.offset < 0 or len(place.shape) > MAX_DIMENSIONS or any(size < 0 for size in place.shape):
        raise ValueError(f"column {place.name!r} has an impossible place or shape")
    dtype, begin = np.dtype(place.dtype), start + place.offset
    count = math.prod(place.shape)
    if begin + count * dtype.itemsize > len(payload):
        raise ValueError(f"column {place.name!r} claims more bytes than the record has")
    # nothing in it: frombuffer would refuse to begin at the very end
    column = np.frombuffer(payload, dtype, count, begin) if count else np.empty(0, dtype)
    column.flags.writeable = False
    return column.reshape(place.shape)


def _sealed(schema: Schema, payload: bytes) -> bytes:
    _check_length(schema, len(payload))
    head = HEADER.pack(MAGIC, schema, MAJOR, MINOR, 0, len(payload), google_crc32c.value(payload))
    return head + payload


def _check_length(schema: Schema, length: int) -> None:
    if length > MAX_PAYLOAD:
        raise ConfigError(
            f"a {schema.name.lower()} record of {length} bytes is over the cap of {MAX_PAYLOAD}"
        )


def _crc32c(payload: memoryview) -> int:
    return int(google_crc32c.value(bytes(payload)))  # it takes only `bytes`; the copy costs less than the sum


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
