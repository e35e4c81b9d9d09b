"""The contract of a stream as tests: subclass, give the fixtures, and pass.

The subclass gives `opening`: Python text that makes a `stream` in any process. Other processes are started
from it with the interpreter that runs the tests; none is forked.
"""

import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from penstock.errors import Damaged
from penstock.model import topics
from penstock.model.codec import Frame, Schema, decode, encode, open_frame
from penstock.stream import records
from penstock.stream.base import Buffer, Reader, Record, Stream, TopicPolicy
from penstock.stream.records import DeadLetter, RecordReader

WRITE_NUMBERS = """
import os
writer, number = stream.writer(topic), start
while number < stop:
    writer.write(key, b"%d:" % number + filler)
    os.write(1, b"%d\\n" % number)
    number += 1
"""
CLAIM = """
print("ready", flush=True)
input()
print([stream.claim("learner") for _ in range(25)], flush=True)
"""


def start(opening: str, body: str, **names: object) -> "subprocess.Popen[bytes]":
    """A process that runs `opening`, sets `names`, and runs `body`."""
    values = "\n".join(f"{name} = {value!r}" for name, value in names.items())
    return subprocess.Popen(
        [sys.executable, "-c", f"{opening}\n{values}\n{body}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def everything(reader: Reader, count: int, seconds: float = 20.0) -> list[Record]:
    """Read until there are `count` records or the time is up."""
    found: list[Record] = []
    deadline = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline:
        found += reader.read(count - len(found), 0.5)
    return found


def eventually(truth: Callable[[], bool], seconds: float) -> bool:
    """Whether `truth` comes true in time."""
    deadline = time.monotonic() + seconds
    while not truth():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


class StreamContract:
    """What every stream keeps. Topics are made by the tests under names of their own."""

    patience_seconds = 10.0
    """How long retention and compaction may take."""
    kills = 100
    settle_seconds = 0.0
    """How long a record of a killed writer may still be on its way."""
    protects = True
    """Whether `protect` holds records back; otherwise what is lost must be counted."""
    exact = True
    """Whether retention drops single records, by itself; otherwise whole segments, while records come."""
    filler = b"x" * 10_000
    """Makes a hundred records a log that retention can cut."""

    @pytest.fixture
    def opening(self) -> str:
        raise NotImplementedError("give Python text that makes `stream` in another process")

    @pytest.fixture
    def stream(self, opening: str) -> Iterator[Stream]:
        names: dict[str, Stream] = {}
        exec(opening, names)  # noqa: S102 - the text is the test's own; the very one its children run
        yield names["stream"]
        names["stream"].close()

    def test_records_of_a_key_are_read_in_the_order_written(self, stream: Stream) -> None:
        stream.ensure("order", TopicPolicy())
        writer = stream.writer("order")
        for number in range(50):
            writer.write(f"key-{number % 3}", b"%d" % number)
        found = everything(stream.reader("order"), 50)
        for key in range(3):
            numbers = [int(record.value) for record in found if record.key == f"key-{key}"]
            assert numbers == list(range(key, 50, 3))

    def test_what_is_read_is_what_was_written(self, stream: Stream) -> None:
        stream.ensure("bytes", TopicPolicy())
        values: list[Buffer] = [b"", b"\0", bytes(range(256)) * 300, bytearray(b"array"), memoryview(b"view")]
        writer = stream.writer("bytes")
        for value in values:
            writer.write("ключ", value)
        found = everything(stream.reader("bytes"), len(values))
        assert [(record.key, record.value) for record in found] == [("ключ", bytes(v)) for v in values]

    def test_a_reader_starts_at_any_position(self, stream: Stream) -> None:
        stream.ensure("positions", TopicPolicy())
        _write(stream, "positions", range(20))
        reader = stream.reader("positions")
        seen: list[Record] = []
        positions = [reader.position()]
        while len(seen) < 20:
            seen += everything(reader, 1)
            positions.append(reader.position())
        for count, position in enumerate(positions):
            again = everything(stream.reader("positions", position), 20 - count)
            assert [record.value for record in again] == [record.value for record in seen[count:]]
            assert stream.reader("positions", position).lag() == 20 - count

    def test_a_second_reader_sees_everything_again(self, stream: Stream) -> None:
        stream.ensure("replay", TopicPolicy())
        _write(stream, "replay", range(10))
        first = everything(stream.reader("replay"), 10)
        assert len(first) == 10
        assert everything(stream.reader("replay"), 10) == first

    def test_the_end_is_behind_the_newest_record(self, stream: Stream) -> None:
        stream.ensure("end", TopicPolicy())
        _write(stream, "end", range(3))
        reader = stream.reader("end", stream.end("end"))
        assert reader.read(10, 0.0) == []
        _write(stream, "end", [3])
        assert [record.value for record in everything(reader, 1)] == [b"3"]
        assert reader.position() == stream.end("end")

    def test_an_empty_topic_is_waited_for_and_then_given_up(self, stream: Stream) -> None:
        stream.ensure("empty", TopicPolicy())
        started = time.monotonic()
        assert stream.reader("empty").read(1, 0.2) == []
        assert 0.15 < time.monotonic() - started < 5

    def test_a_read_gives_no_more_than_its_limit(self, stream: Stream) -> None:
        stream.ensure("limit", TopicPolicy())
        _write(stream, "limit", range(5))
        reader = stream.reader("limit")
        assert len(everything(reader, 1)) == 1
        assert 1 <= len(reader.read(2, 5.0)) <= 2

    def test_two_processes_write_at_once(self, stream: Stream, opening: str) -> None:
        stream.ensure("both", TopicPolicy())
        children = [
            start(opening, WRITE_NUMBERS, topic="both", key=key, start=0, stop=300, filler=b"x" * 500)
            for key in ("one", "two")
        ]
        found = everything(stream.reader("both"), 600)
        assert [child.wait() for child in children] == [0, 0]
        for key in ("one", "two"):
            assert [_number(record) for record in found if record.key == key] == list(range(300))
        assert len({(record.partition, record.offset) for record in found}) == 600

    def test_newest_gives_the_last_record_of_every_key(self, stream: Stream) -> None:
        stream.ensure("newest", TopicPolicy(compact=True))
        writer = stream.writer("newest")
        for number in range(30):
            writer.write(f"run-{number % 4}", b"%d" % number)
        found = {record.key: record.value for record in stream.newest("newest")}
        assert found == {"run-0": b"28", "run-1": b"29", "run-2": b"26", "run-3": b"27"}

    def test_backwards_gives_one_key_newest_first(self, stream: Stream) -> None:
        stream.ensure("backwards", TopicPolicy())
        writer = stream.writer("backwards")
        for number in range(40):
            writer.write("wanted" if number % 10 == 3 else "other", b"%d" % number)
        values = [record.value for record in stream.backwards("backwards", "wanted")]
        assert values == [b"33", b"23", b"13", b"3"]
        assert next(stream.backwards("backwards", "other")).value == b"39"
        assert list(stream.backwards("backwards", "unknown")) == []

    def test_retention_drops_the_oldest(self, stream: Stream) -> None:
        stream.ensure("retained", TopicPolicy(retention_bytes=20 * len(self.filler)))
        _write(stream, "retained", range(100), filler=self.filler)
        assert self._settled(stream, "retained") > 50
        found = [_number(record) for record in everything(stream.reader("retained"), 100, 1.0)]
        assert found == list(range(found[0], 100)), "what is kept is the newest, without a gap"
        assert next(stream.backwards("retained", "k")).value.startswith(b"99:")
        assert len(list(stream.backwards("retained", "k"))) == len(found)

    def test_a_changed_policy_holds(self, stream: Stream) -> None:
        stream.ensure("changed", TopicPolicy())
        _write(stream, "changed", range(50), filler=self.filler)
        assert _oldest(stream, "changed") == 0
        stream.ensure("changed", TopicPolicy(retention_bytes=10 * len(self.filler)))
        _write(stream, "changed", range(50, 80), filler=self.filler)
        assert eventually(lambda: _oldest(stream, "changed") > 50, self.patience_seconds)

    def test_age_drops_the_oldest(self, stream: Stream) -> None:
        stream.ensure("aged", TopicPolicy(retention_seconds=0.2))
        _write(stream, "aged", range(10))
        time.sleep(0.3)
        _write(stream, "aged", [10])
        if self.exact:
            assert eventually(lambda: _oldest(stream, "aged") == 10, self.patience_seconds)
        assert eventually(lambda: _oldest(stream, "aged") not in range(10), self.patience_seconds)
        _write(stream, "aged", [11])
        assert everything(stream.reader("aged"), 2, 0.5)[-1].value == b"11"

    def test_what_was_dropped_before_it_could_be_read_is_counted(self, stream: Stream) -> None:
        stream.ensure("missed", TopicPolicy(retention_bytes=10 * len(self.filler)))
        _write(stream, "missed", [0], filler=self.filler)
        behind = stream.reader("missed")
        found = [_number(record) for record in everything(behind, 1)]
        start = dict.fromkeys(stream.end("missed"), 0)
        _write(stream, "missed", range(1, 100), filler=self.filler)
        oldest = self._settled(stream, "missed")
        assert oldest > 50
        late = stream.reader("missed", start)
        assert [_number(record) for record in everything(late, 100 - oldest)] == list(range(oldest, 100))
        assert late.missed == oldest
        fresh = stream.reader("missed")
        assert len(everything(fresh, 100 - oldest)) == 100 - oldest
        assert fresh.missed == 0, "whoever starts at the oldest record misses nothing"
        while not found or found[-1] < 99:
            found += [_number(record) for record in behind.read(100, 5.0)]
        assert found == sorted(set(found))
        assert len(found) + behind.missed == 100, "it may have had some of them already"

    def test_a_reader_that_stood_before_the_first_record_misses_what_is_dropped(self, stream: Stream) -> None:
        stream.ensure("stood", TopicPolicy(retention_bytes=10 * len(self.filler)))
        reader = stream.reader("stood")
        assert reader.read(1, 0.2) == []
        found: list[Record] = []
        _write(stream, "stood", range(60), filler=self.filler)
        assert self._settled(stream, "stood") > 30
        while not found or _number(found[-1]) < 59:
            found += reader.read(100, 5.0)
        assert len(found) + reader.missed == 60

    def test_compaction_keeps_the_newest_of_each_key(self, stream: Stream) -> None:
        stream.ensure("compacted", TopicPolicy(compact=True))
        writer, written = stream.writer("compacted"), 100
        writer.write("rare", b"kept")
        for number in range(written):
            writer.write("often", b"%d" % number)

        def values() -> list[bytes]:
            return [record.value for record in everything(stream.reader("compacted"), written + 1, 0.5)]

        def is_compacted() -> bool:
            nonlocal written
            if not self.exact:  # only what lies in a closed segment is compacted
                writer.write("often", b"%d" % written)
                written += 1
            return len(values()) < 50

        assert eventually(is_compacted, self.patience_seconds)
        assert values()[0] == b"kept"
        assert values()[-1] == b"%d" % (written - 1)
        reader = stream.reader("compacted", dict.fromkeys(stream.end("compacted"), 0))
        everything(reader, written, 0.5)
        assert reader.position() == stream.end("compacted")
        assert reader.missed == 0, "what a newer record replaced is not missed"

    def test_what_is_protected_is_kept_or_its_loss_is_counted(self, stream: Stream) -> None:
        if not self.protects:
            self._lose_what_is_protected(stream)
            return
        stream.ensure("protected", TopicPolicy(retention_bytes=50_000))
        stream.protect("protected", stream.end("protected"))
        _write(stream, "protected", range(40), filler=b"x" * 10_000)
        assert _oldest(stream, "protected") == 0
        reader = stream.reader("protected")
        assert len(everything(reader, 20)) == 20
        stream.protect("protected", reader.position())
        _write(stream, "protected", range(40, 60), filler=b"x" * 10_000)
        assert eventually(lambda: _oldest(stream, "protected") == 20, self.patience_seconds)

    def test_compaction_respects_protection_and_catches_up(self, stream: Stream) -> None:
        if not self.protects:
            pytest.skip("this log cannot hold records back")
        stream.ensure("held", TopicPolicy(compact=True))
        stream.protect("held", stream.end("held"))
        _write(stream, "held", range(40))
        assert len(everything(stream.reader("held"), 40)) == 40
        stream.protect("held", stream.end("held"))
        _write(stream, "held", range(40, 70))
        held = everything(stream.reader("held"), 70, self.patience_seconds / 10)
        assert [_number(record) for record in held][-30:] == list(range(40, 70))
        assert len(held) < 45, "what was held back before is dropped now"

    def test_keys_are_spread_over_partitions_and_keep_their_order(self, stream: Stream) -> None:
        stream.ensure("spread", TopicPolicy(partitions=3))
        writer = stream.writer("spread")
        for number in range(60):
            writer.write(str(number % 6), b"%d" % number)
        found = everything(stream.reader("spread"), 60)
        for slot in range(6):
            wanted = [b"%d" % number for number in range(slot, 60, 6)]
            assert [record.value for record in found if record.key == str(slot)] == wanted
            assert [record.value for record in stream.backwards("spread", str(slot))] == wanted[::-1]

    def test_a_position_in_every_partition_is_gone_on_from(self, stream: Stream) -> None:
        stream.ensure("parts", TopicPolicy(partitions=3))
        writer = stream.writer("parts")
        for number in range(30):
            writer.write(str(number), b"%d" % number)
        reader = stream.reader("parts")
        first = everything(reader, 11)
        rest = everything(stream.reader("parts", reader.position()), 19)
        assert sorted(int(record.value) for record in first + rest) == list(range(30))
        everything(reader, 19)
        assert reader.position() == stream.end("parts")
        assert reader.lag() == 0

    def test_a_read_without_a_timeout_takes_what_has_arrived(self, stream: Stream) -> None:
        stream.ensure("arrived", TopicPolicy())
        reader = stream.reader("arrived")
        started = time.monotonic()
        for _ in range(10):
            assert reader.read(10, 0.0) == []
        assert time.monotonic() - started < 1.0
        _write(stream, "arrived", range(3))
        found: list[Record] = []

        def all_arrived() -> bool:
            found.extend(reader.read(10, 0.0))
            return len(found) == 3

        assert eventually(all_arrived, 10.0)

    def test_a_waiting_reader_is_woken_by_the_first_record(self, stream: Stream) -> None:
        stream.ensure("woken", TopicPolicy())
        reader = stream.reader("woken")
        reader.read(1, 0.5)
        timer = threading.Timer(0.3, lambda: _write(stream, "woken", [1]))
        timer.start()
        started = time.monotonic()
        assert len(reader.read(10, 20.0)) == 1
        assert time.monotonic() - started < 5, "it does not wait for more"
        timer.join()

    def test_what_is_offered_arrives(self, stream: Stream) -> None:
        stream.ensure("offered", TopicPolicy())
        writer = stream.writer("offered")
        for number in range(50):
            writer.offer("k", b"%d" % number)
        found = everything(stream.reader("offered"), 50)
        assert [_number(record) for record in found] == list(range(50))
        writer.write("k", b"50")
        assert stream.flow.dropped == 0
        assert stream.flow.produced_records == 51

    def test_what_passes_is_counted(self, stream: Stream) -> None:
        stream.ensure("flow", TopicPolicy())
        writer = stream.writer("flow")
        writer.write("k", b"12345")
        writer.write("k", bytearray(b"678"))
        everything(stream.reader("flow"), 2)
        flow = stream.flow
        assert (flow.produced_records, flow.produced_bytes) == (2, 8)
        assert (flow.consumed_records, flow.consumed_bytes) == (2, 8)
        assert flow.dropped == 0

    def test_topics_are_listed_with_their_policies(self, stream: Stream) -> None:
        policies = {
            "listed.aged": TopicPolicy(retention_bytes=64 << 20, retention_seconds=3600.0),
            "listed.compact": TopicPolicy(compact=True),
            "listed.synced": TopicPolicy(synced=True),
        }
        for topic, policy in policies.items():
            stream.ensure(topic, policy)
        _write(stream, "listed.aged", range(7))
        found = {info.name: info for info in stream.topics() if info.name.startswith("listed.")}
        assert {name: info.policy for name, info in found.items()} == policies
        assert list(found) == sorted(policies)
        assert [info.records for info in found.values()] == [7, 0, 0]
        assert all(info.partitions == 1 and info.replication == 1 for info in found.values())

    def test_a_topic_that_nobody_made_is_empty(self, stream: Stream) -> None:
        assert stream.newest("nobody") == []
        assert list(stream.backwards("nobody", "k")) == []
        reader = stream.reader("nobody", stream.end("nobody"))
        assert reader.read(1, 0.1) == []
        _write(stream, "nobody", [1])
        assert [record.value for record in everything(reader, 1)] == [b"1"]

    def test_draining_reads_up_to_the_end_and_stops(self, stream: Stream) -> None:
        stream.ensure("drained", TopicPolicy(partitions=2))
        reader = RecordReader(stream, "drained", _steps)
        assert list(reader.drain()) == []
        writer = stream.writer("drained")
        for number in range(40):
            writer.write(str(number), encode(Schema.REPORT, {"steps": number}))
        writer.write("0", b"foreign bytes")
        batches = list(reader.drain(limit=7))
        assert all(1 <= len(batch) <= 7 for batch in batches)
        assert sorted(steps for batch in batches for _, steps in batch) == list(range(40))
        assert reader.dead_letters == 1
        assert reader.position() == stream.end("drained")

    def _lose_what_is_protected(self, stream: Stream) -> None:
        stream.ensure("protected", TopicPolicy(retention_bytes=5 * len(self.filler)))
        start = stream.end("protected")
        stream.protect("protected", start)
        _write(stream, "protected", range(40), filler=self.filler)
        oldest = self._settled(stream, "protected")
        reader = stream.reader("protected", start)
        assert len(everything(reader, 40 - oldest)) == 40 - oldest
        assert reader.missed == oldest > 0

    def _settled(self, stream: Stream, topic: str) -> int:
        """The number of the oldest record once retention has begun and has nothing more to drop."""
        assert eventually(lambda: _oldest(stream, topic) > 0, self.patience_seconds)
        before, now = -1, _oldest(stream, topic)
        while not self.exact and before != now:
            time.sleep(1.0)
            before, now = now, _oldest(stream, topic)
        return now

    def test_no_two_processes_claim_the_same_epoch(self, stream: Stream, opening: str) -> None:
        assert stream.claimed("learner") == 0
        children = [start(opening, CLAIM) for _ in range(4)]
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
        for child in children:  # only now: so that they race
            assert child.stdin is not None
            child.stdin.write(b"\n")
            child.stdin.flush()
        claims = [_numbers(child.communicate()[0]) for child in children]
        assert all(mine == sorted(mine) for mine in claims)
        assert sorted(epoch for mine in claims for epoch in mine) == list(range(1, 101))
        assert stream.claimed("learner") == 100
        assert stream.claimed("another") == 0

    def test_a_removed_topic_is_empty_and_can_be_made_again(self, stream: Stream) -> None:
        stream.ensure("gone", TopicPolicy())
        _write(stream, "gone", range(5))
        stream.remove("gone")
        stream.remove("never was")
        assert "gone" not in [info.name for info in stream.topics()]
        stream.ensure("gone", TopicPolicy())
        assert "gone" in [info.name for info in stream.topics()]
        assert stream.newest("gone") == []
        _write(stream, "gone", [7])
        assert [record.value for record in everything(stream.reader("gone"), 1)] == [b"7"]

    def test_a_killed_writer_loses_nothing_acknowledged(self, stream: Stream, opening: str) -> None:
        """kill -9 of two writers at random moments; what they acknowledged is there, once and in order."""
        chance = random.Random(20)
        stream.ensure("killed", TopicPolicy())
        reader, following = stream.reader("killed"), {"one": 0, "two": 0}
        fillers = [b"s" * 20, b"m" * 3000, b"l" * 70_000]
        for _ in range(self.kills // 2):
            filler = chance.choice(fillers)
            children = {
                key: start(
                    opening, WRITE_NUMBERS, topic="killed", key=key, start=number, stop=1 << 60, filler=filler
                )
                for key, number in following.items()
            }
            last = {key: _kill(child, chance.uniform(0.0, 0.02)) for key, child in children.items()}
            time.sleep(self.settle_seconds)
            for record in _rest(stream, reader, "killed"):
                assert record.value == b"%d:" % following[record.key] + filler
                following[record.key] += 1
            assert all(following[key] > last[key] for key in last), "an acknowledged record is missing"
        assert sum(following.values()) > self.kills

    def test_a_record_that_cannot_be_read_becomes_a_dead_letter(self, stream: Stream) -> None:
        stream.ensure("damaged", TopicPolicy())
        good = encode(Schema.REPORT, {"steps": 1})
        corrupt = good[:-1] + bytes([good[-1] ^ 1])
        writer = stream.writer("damaged")
        for value in (good, corrupt, b"foreign bytes", b"", encode(Schema.REPORT, ["no report"]), good):
            writer.write("actor", value)
        reader = RecordReader(stream, "damaged", _steps)
        found: list[int] = []
        while reader.lag() > 0:
            found += [value for _, value in reader.read(10, 5.0)]
        assert found == [1, 1]
        assert reader.dead_letters == 4
        letters = [
            decode(open_frame(record.value), DeadLetter)
            for record in everything(stream.reader(topics.DEAD_LETTERS), 4)
        ]
        assert [letter.head for letter in letters][:3] == [corrupt, b"foreign bytes", b""]
        assert {(letter.topic, letter.key) for letter in letters} == {("damaged", "actor")}
        assert "checksum" in letters[0].reason

    def test_backwards_passes_over_what_cannot_be_read(self, stream: Stream) -> None:
        stream.ensure("passed", TopicPolicy())
        writer = stream.writer("passed")
        writer.write("k", encode(Schema.REPORT, {"steps": 1}))
        writer.write("k", b"foreign bytes")
        writer.write("k", encode(Schema.REPORT, {"steps": 2}))
        assert list(records.backwards(stream, "passed", "k", _steps)) == [2, 1]


def _write(stream: Stream, topic: str, numbers: "range | list[int]", filler: bytes | None = None) -> None:
    writer = stream.writer(topic)
    for number in numbers:
        writer.write("k", b"%d" % number if filler is None else b"%d:" % number + filler)
    writer.close()


def _oldest(stream: Stream, topic: str) -> int:
    """The number of the oldest record; -1 when there is none."""
    reader = stream.reader(topic)
    found = reader.read(1, 2.0)
    reader.close()
    return _number(found[0]) if found else -1


def _rest(stream: Stream, reader: Reader, topic: str, seconds: float = 20.0) -> list[Record]:
    """All up to the end of the topic as it is now."""
    found, end, deadline = [], stream.end(topic), time.monotonic() + seconds
    while records.behind(reader.position(), end):
        found += reader.read(1000, 0.1)
        assert time.monotonic() < deadline, f"{topic} stands at {reader.position()}, its end is {end}"
    return found


def _number(record: Record) -> int:
    return int(record.value.partition(b":")[0])


def _numbers(text: bytes) -> list[int]:
    return [int(word) for word in text.strip(b"[] \n").split(b",")]


def _steps(frame: Frame) -> int:
    facts = decode(frame, dict[str, int])
    if "steps" not in facts:
        raise Damaged("a report without steps")
    return facts["steps"]


def _kill(child: "subprocess.Popen[bytes]", after_seconds: float) -> int:
    """Kill it that long after its first acknowledgement; returns the last number it acknowledged."""
    assert child.stdout is not None
    pipe = child.stdout.fileno()
    heard = os.read(pipe, 1 << 16)
    deadline = time.monotonic() + after_seconds
    while (remaining := deadline - time.monotonic()) > 0:
        if select.select([pipe], [], [], remaining)[0]:
            heard = heard[-64:] + os.read(pipe, 1 << 16)
    child.send_signal(signal.SIGKILL)
    child.wait()
    while rest := os.read(pipe, 1 << 16):
        heard = heard[-64:] + rest
    child.stdout.close()
    if child.stdin is not None:
        child.stdin.close()
    assert heard, "the writer died before it wrote anything"
    return int(heard.rpartition(b"\n")[0].rpartition(b"\n")[2])
