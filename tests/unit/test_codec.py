"""Frames built by hand, every kind of damage, and round trips of whatever hypothesis finds."""

import struct
from typing import Any

import google_crc32c
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from penstock.errors import ConfigError, Damaged
from penstock.model import codec
from penstock.model.codec import Schema, decode, decode_columns, encode, encode_columns, open_frame

PAYLOAD = b'{"steps":3}'


def frame(
    payload: bytes = PAYLOAD,
    magic: bytes = b"PNST",
    schema: int = 6,
    version: tuple[int, int] = (1, 0),
    length: int | None = None,
    crc: int | None = None,
) -> bytes:
    """A frame from its description, independent of the encoder."""
    head = struct.pack(
        "<4sHBBIII",
        magic,
        schema,
        *version,
        0,
        len(payload) if length is None else length,
        google_crc32c.value(payload) if crc is None else crc,
    )
    return head + payload


def columns_frame(columns: list[list[Any]], data: bytes = bytes(64), facts: Any = None) -> codec.Frame:
    """A frame of columns whose header says what the test wants it to say."""
    header = msgspec.json.encode({"facts": facts if facts is not None else {}, "columns": columns})
    return raw_columns_frame(header, data)


def raw_columns_frame(header: bytes, data: bytes = bytes(64)) -> codec.Frame:
    start = 20 + 4 + len(header)
    payload = struct.pack("<I", len(header)) + header + bytes(-start % 64) + data
    return open_frame(frame(payload, schema=1))


def test_a_frame_is_laid_out_as_documented() -> None:
    assert encode(Schema.REPORT, {"steps": 3}) == frame()


def test_a_hand_built_frame_is_read() -> None:
    opened = open_frame(frame())
    assert opened.schema is Schema.REPORT
    assert decode(opened, dict[str, int]) == {"steps": 3}


@pytest.mark.parametrize("wrapped", [bytes, bytearray, memoryview])
def test_any_buffer_is_read(wrapped: Any) -> None:
    assert bytes(open_frame(wrapped(frame())).payload) == PAYLOAD


def test_a_newer_minor_version_is_read() -> None:
    assert open_frame(frame(version=(1, 9))).schema is Schema.REPORT


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "too short"),
        (frame()[:19], "too short"),
        (frame(magic=b"PNSX"), "magic"),
        (b"\0" * 40, "magic"),
        (b"something else that is long enough", "magic"),
        (frame(version=(2, 0)), "upgrade penstock"),
        (frame(length=len(PAYLOAD) + 1), "claims 12 bytes and has 11"),
        (frame(length=len(PAYLOAD) - 1), "claims 10 bytes"),
        (frame(length=0xFFFFFFFF), "claims 4294967295 bytes"),
        (frame()[:-1], "claims 11 bytes and has 10"),
        (frame() + b"x", "claims 11 bytes and has 12"),
        (frame(crc=1), "checksum"),
        (frame(schema=0), "unknown schema 0"),
        (frame(schema=999), "unknown schema 999"),
    ],
)
def test_damage_is_named(value: bytes, reason: str) -> None:
    with pytest.raises(Damaged, match=reason):
        open_frame(value)


def test_one_flipped_bit_of_the_payload_is_found() -> None:
    whole = frame()
    for place in range(20, len(whole)):
        for bit in range(8):
            broken = bytearray(whole)
            broken[place] ^= 1 << bit
            with pytest.raises(Damaged, match="checksum"):
                open_frame(broken)


class Report(msgspec.Struct):
    steps: int


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"steps":"three"}',
        b'{"steps":1e999}',
        b"\xff\xfe",
        b'{"ste\xffps":1}',
        b'{"steps":1,"x":' + b"[" * 100_000,
    ],
)
def test_words_that_do_not_fit_are_damage(payload: bytes) -> None:
    with pytest.raises(Damaged, match="report record does not read as one"):
        decode(open_frame(frame(payload)), Report)


def test_unknown_fields_are_skipped() -> None:
    assert decode(open_frame(frame(b'{"new":[1,{}],"steps":3}')), Report).steps == 3


def test_a_hand_built_column_is_read() -> None:
    opened = columns_frame([["x", "<f4", [2, 2], 0]], np.arange(4, dtype="<f4").tobytes(), {"steps": 1})
    facts, columns = decode_columns(opened, Report)
    assert facts.steps == 1
    assert columns["x"].tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert not columns["x"].flags.writeable


@pytest.mark.parametrize(
    "column",
    [
        ["x", "<f4", [17], 0],
        ["x", "<f4", [1], 61],
        ["x", "<f4", [1], 1 << 40],
        ["x", "<f4", [1], 1 << 70],
        ["x", "<f4", [1], -4],
        ["x", "<f4", [-1], 0],
        ["x", "<f4", [-4, -4], 0],
        ["x", "<f4", [1 << 32, 1 << 32], 0],
        ["x", "<f4", [(1 << 32) - 1, (1 << 32) + 1], 0],
        ["x", "<f4", [1 << 70], 0],
        ["x", "<f4", [1] * 33, 0],
        ["x", "<f4", [0], 1 << 40],
        ["x", "<f4", "16", 0],
        ["x", "<f4", [1.5], 0],
        ["x", "|O", [1], 0],
        ["x", "O8", [1], 0],
        ["x", "object", [1], 0],
        ["x", "i4,O", [1], 0],
        ["x", "(2,2)f4", [1], 0],
        ["x", "((((f4", [1], 0],
        ["x", "|V0", [1], 0],
        ["x", "<U0", [1], 0],
        ["x", "<M8[s]", [1], 0],
        ["x", ">f4", [1], 0],
        ["x", "<f3", [1], 0],
        ["x", "<i99999", [1], 0],
        ["x", "nonsense", [1], 0],
        ["x", "", [1], 0],
        ["x", 4, [1], 0],
        ["x", "<f4", [1]],
        [],
        "x",
    ],
)
def test_a_column_that_lies_is_damage(column: Any) -> None:
    with pytest.raises(Damaged, match="rollout record does not read as one"):
        decode_columns(columns_frame([column]), dict[str, int])


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{}",
        b"nothing",
        b'{"facts":{}}',
        b'{"facts":{},"columns":7}',
        b'{"facts":' + b"[" * 50_000,
        b'{"facts":"\xff","columns":[]}',
    ],
)
def test_a_header_that_does_not_read_is_damage(header: bytes) -> None:
    with pytest.raises(Damaged):
        decode_columns(raw_columns_frame(header), dict[str, int])


@pytest.mark.parametrize(
    "payload", [b"", b"\1\0", struct.pack("<I", 1 << 31), struct.pack("<I", 500) + b"{}"]
)
def test_a_header_length_that_lies_is_damage(payload: bytes) -> None:
    with pytest.raises(Damaged):
        decode_columns(open_frame(frame(payload, schema=1)), dict[str, int])


def test_columns_lie_at_multiples_of_64_bytes_from_the_frame() -> None:
    columns = {"a": np.full(3, 7, np.uint8), "b": np.full(3, 9, np.float64)}
    whole = encode_columns(Schema.ROLLOUT, {}, columns)
    assert whole.find(b"\7\7\7") % 64 == 0
    assert whole.find(np.full(3, 9, "<f8").tobytes()) % 64 == 0


@pytest.mark.parametrize(
    "column",
    [
        np.array(3.5),
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.arange(24).reshape(4, 6)[::2, ::3],
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.zeros((0, 4), np.float32),
        np.zeros((3, 0, 2), np.int8),
        np.array(["left", "рight"]),
        np.array([True, False]),
        np.array([1 + 2j]),
    ],
)
def test_odd_arrays_come_back_equal(column: Any) -> None:
    _, columns = decode_columns(open_frame(encode_columns(Schema.ROLLOUT, {}, {"x": column})), dict[str, int])
    assert columns["x"].shape == column.shape
    assert np.array_equal(columns["x"], column)


@pytest.mark.parametrize(
    "column", [np.array([object()]), np.zeros(2, "i4,f4"), np.array(["2026-01-01"], "datetime64[s]")]
)
def test_what_is_no_number_is_refused_when_written(column: Any) -> None:
    with pytest.raises(ConfigError, match="column 'x' has type"):
        encode_columns(Schema.ROLLOUT, {}, {"x": column})


def test_a_record_over_the_cap_is_refused_when_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_PAYLOAD", 1000)
    with pytest.raises(ConfigError, match="over the cap of 1000"):
        encode(Schema.REPORT, "x" * 1000)
    with pytest.raises(ConfigError, match="over the cap of 1000"):
        encode_columns(Schema.ROLLOUT, {}, {"x": np.zeros(1000)})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
NUMBERS = arrays.scalar_dtypes().filter(lambda dtype: dtype.kind in "biufc")


@given(facts=JSON.filter(lambda value: value not in (float("inf"), float("-inf"))))
@settings(max_examples=100, deadline=None)
def test_words_come_back(facts: Any) -> None:
    expected = msgspec.json.decode(msgspec.json.encode(facts))
    assert decode(open_frame(encode(Schema.RUN, facts)), Any) == expected


@given(
    columns=st.dictionaries(
        st.text(max_size=10), arrays.arrays(NUMBERS, arrays.array_shapes(min_dims=0, min_side=0)), max_size=4
    )
)
@settings(max_examples=100, deadline=None)
def test_columns_come_back_to_the_bit(columns: dict[str, Any]) -> None:
    opened = open_frame(bytes(encode_columns(Schema.ROLLOUT, {"steps": 1}, columns)))
    facts, found = decode_columns(opened, Report)
    assert facts.steps == 1
    assert list(found) == list(columns)
    for name, column in columns.items():
        assert found[name].shape == column.shape
        assert found[name].tobytes() == column.astype(column.dtype.newbyteorder("<")).tobytes()


@given(value=st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_arbitrary_bytes_are_damage_and_nothing_worse(value: bytes) -> None:
    with pytest.raises(Damaged):
        open_frame(value)
    for schema in (1, 6):
        opened = open_frame(frame(value, schema=schema))
        with pytest.raises(Damaged):
            decode_columns(opened, Report)
        with pytest.raises(Damaged):
            decode(opened, Report)


@given(header=st.binary(max_size=300), data=st.binary(max_size=100))
@settings(max_examples=200, deadline=None)
def test_arbitrary_headers_are_damage_and_nothing_worse(header: bytes, data: bytes) -> None:
    with pytest.raises(Damaged):
        decode_columns(raw_columns_frame(header, data), Report)
