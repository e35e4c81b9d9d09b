"""Typed reading over the embedded log: good records get out, bad ones are counted and set aside."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import Unavailable
from penstock.model import topics
from penstock.model.codec import Frame, Schema, decode, encode, open_frame
from penstock.stream.base import Stream, TopicPolicy, Writer
from penstock.stream.embedded import EmbeddedStream
from penstock.stream.records import DeadLetter, RecordReader, backwards


def number(frame: Frame) -> int:
    return decode(frame, int)


def maybe(frame: Frame) -> int | None:
    return decode(frame, int | None)


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[Stream]:
    opened = EmbeddedStream(tmp_path)
    opened.ensure("t", TopicPolicy())
    yield opened
    opened.close()


def write(stream: Stream, *values: bytes) -> None:
    writer = stream.writer("t")
    for value in values:
        writer.write("k", value)


def good(value: int | None) -> bytes:
    return encode(Schema.REPORT, value)


def test_good_records_come_with_their_place(stream: Stream) -> None:
    write(stream, good(5), good(6))
    reader = RecordReader(stream, "t", number)
    assert [(record.offset, value) for record, value in reader.read(10, 0)] == [(0, 5), (1, 6)]
    assert reader.lag() == 0
    assert reader.position() == stream.end("t")


def test_reading_goes_on_from_a_position(stream: Stream) -> None:
    write(stream, good(5), good(6), good(7))
    first = RecordReader(stream, "t", number)
    first.read(1, 0)
    assert [value for _, value in RecordReader(stream, "t", number, first.position()).read(9, 0)] == [6, 7]


def test_a_value_that_is_none_is_a_value(stream: Stream) -> None:
    write(stream, good(None), good(1))
    reader = RecordReader(stream, "t", maybe)
    assert [value for _, value in reader.read(10, 0)] == [None, 1]
    assert reader.dead_letters == 0


def test_a_dead_letter_says_what_where_and_why(stream: Stream) -> None:
    write(stream, good(1), b"foreign " * 100, encode(Schema.REPORT, "words"))
    reader = RecordReader(stream, "t", number)
    assert [value for _, value in reader.read(10, 0)] == [1]
    assert reader.dead_letters == 2
    letters = [
        decode(open_frame(record.value), DeadLetter)
        for record in stream.reader(topics.DEAD_LETTERS).read(9, 0)
    ]
    assert [(letter.topic, letter.key, letter.partition, letter.offset) for letter in letters] == [
        ("t", "k", 0, 1),
        ("t", "k", 0, 2),
    ]
    assert letters[0].head == (b"foreign " * 100)[:256]
    assert "magic" in letters[0].reason
    assert "report record does not read as one" in letters[1].reason
    assert abs(letters[0].at - time.time()) < 60


def test_dead_letters_do_not_end_the_wait(stream: Stream) -> None:
    write(stream, b"bad", b"bad")
    reader = RecordReader(stream, "t", number)
    timer = threading.Timer(0.1, write, (stream, good(9)))
    timer.start()
    assert [value for _, value in reader.read(10, 10.0)] == [9]
    timer.join()
    assert reader.dead_letters == 2


def test_nothing_good_ends_with_the_timeout(stream: Stream) -> None:
    write(stream, b"bad")
    started = time.monotonic()
    assert RecordReader(stream, "t", number).read(10, 0.2) == []
    assert 0.15 < time.monotonic() - started < 5


def test_good_records_get_out_although_the_dead_letters_are_full(tmp_path: Path) -> None:
    stream = EmbeddedStream(tmp_path, budget_bytes=1 << 20, write_deadline_seconds=0.1)
    topic = "experiences.run-1"
    writer = stream.writer(topic)
    for value in (good(1), b"bad", good(2)):
        writer.write("k", value)
    common = stream.writer("kept for ever")
    for size in (900_000, 100_000, 10_000, 1_000, 100, 10):
        fill_with(common, size)
    reader = RecordReader(stream, topic, number)
    assert [value for _, value in reader.read(10, 0)] == [1, 2]
    assert reader.dead_letters == 1
    assert stream.newest(topics.DEAD_LETTERS) == []
    stream.close()


def fill_with(writer: Writer, size: int) -> None:
    try:
        while True:
            writer.write("k", bytes(size))
    except Unavailable:
        return


def test_backwards_passes_over_damage(stream: Stream) -> None:
    write(stream, good(1), b"bad", good(3))
    assert list(backwards(stream, "t", "k", number)) == [3, 1]


def test_what_is_not_damage_is_not_hidden(stream: Stream) -> None:
    def broken(frame: Frame) -> int:
        raise RuntimeError("a bug of the reader")

    write(stream, good(1))
    with pytest.raises(RuntimeError, match="a bug of the reader"):
        RecordReader(stream, "t", broken).read(1, 0)
