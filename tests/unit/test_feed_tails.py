"""Tails: whole lines once, whatever happens to the file."""

import os

import pytest

from penstock.control import tails
from penstock.control.tails import LogTails, Tail


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


def add(path, content):
    with path.open("ab") as file:
        file.write(content)


def test_lines_come_once_and_an_unfinished_one_waits(path):
    tail = Tail(path, from_start=True)
    assert tail.read().lines == []
    add(path, b"one\ntw")
    assert tail.read().lines == [b"one"]
    assert tail.read().lines == []
    add(path, b"o\nthree\n")
    assert tail.read().lines == [b"two", b"three"]


def test_from_the_end_an_unfinished_line_is_passed_over(path):
    add(path, b"old\nhalf")
    tail = Tail(path, from_start=False)
    assert tail.read().lines == []
    add(path, b" a line")
    assert tail.read().lines == []
    add(path, b"\nnew\n")
    assert tail.read().lines == [b"new"]


def test_from_the_end_of_a_whole_file_the_next_line_is_whole(path):
    add(path, b"old\n")
    tail = Tail(path, from_start=False)
    add(path, b"new\n")
    assert tail.read().lines == [b"new"]


def test_a_file_that_shrank_or_was_replaced_begins_anew(path):
    tail = Tail(path, from_start=True)
    add(path, b"one\ntwo\n")
    tail.read()
    path.write_bytes(b"new\n")
    assert tail.read().lines == [b"new"]
    other = path.with_name("other")
    other.write_bytes(b"longer than before\n")
    other.replace(path)
    assert tail.read().lines == [b"longer than before"]


def test_of_too_much_the_newest_is_read_and_the_rest_counted(path, monkeypatch):
    monkeypatch.setattr(tails, "READ_BYTES", 100)
    tail = Tail(path, from_start=True)
    add(path, b"".join(b"%08d\n" % index for index in range(50)))
    read = tail.read()
    assert read.lines == [b"%08d" % index for index in range(39, 50)]
    assert read.skipped + 9 * len(read.lines) == 450
    add(path, b"x" * 250)
    assert tail.read().lines == []
    add(path, b"\nnext\n")
    assert [line for _ in range(3) for line in tail.read().lines] == [b"next"]


@pytest.mark.timeout(10)
def test_what_is_no_file_is_read_as_empty(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", tmp_path, tmp_path / "missing" / "file"):
        assert Tail(place, from_start=True).read().lines == []
        assert Tail(place, from_start=False).read().lines == []


def test_logs_that_appear_later_are_read_from_their_start(tmp_path):
    add(tmp_path / "learner.log", b"old\n")
    logs = LogTails(tmp_path, from_start=False)
    add(tmp_path / "actor-0.log", b"first\n")
    add(tmp_path / "learner.log", b"new\n")
    add(tmp_path / "notes.txt", b"no log\n")
    found = logs.read()
    assert {name: lines.lines for name, lines in found.items()} == {
        "actor-0": [b"first"],
        "learner": [b"new"],
    }
    assert logs.read() == {}
