"""The embedded log keeps the contract, and what only it promises."""

import resource
import shlex
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from lmdb import verify

from penstock.errors import ConfigError, Unavailable
from penstock.stream.base import Stream, TopicPolicy
from penstock.stream.embedded import EmbeddedStream
from penstock.testing.streams import StreamContract, everything, start
from tests.lacking import lacking

TOPIC = "experiences.run-1"
FILLER = bytes(10_000)


def opening_of(root: Path, **settings: object) -> str:
    words = "".join(f", {name}={value!r}" for name, value in settings.items())
    return (
        "from pathlib import Path\n"
        "from penstock.stream.embedded import EmbeddedStream\n"
        f"stream = EmbeddedStream(Path({str(root)!r}){words})"
    )


class TestEmbeddedStream(StreamContract):
    @pytest.fixture
    def opening(self, tmp_path: Path) -> str:
        return opening_of(tmp_path / "stream")

    @pytest.fixture
    def stream(self, tmp_path: Path) -> Stream:  # the annotation lets the type checker compare them
        return EmbeddedStream(tmp_path / "stream")

    def test_a_killed_writer_leaves_whole_files(self, stream: Stream, opening: str, tmp_path: Path) -> None:
        self.kills = 10
        self.test_a_killed_writer_loses_nothing_acknowledged(stream, opening)
        stream.close()
        assert verify.verify(str(tmp_path / "stream" / "common")) == []


@pytest.fixture
def small(tmp_path: Path) -> EmbeddedStream:
    """A log that holds about 80 records of FILLER."""
    return EmbeddedStream(tmp_path, budget_bytes=1 << 20, write_deadline_seconds=0.3, poll_seconds=5.0)


def fill(stream: EmbeddedStream) -> int:
    """Write until the log is full; returns how many records it took."""
    writer, count = stream.writer(TOPIC), 0
    try:
        while count < 1000:
            writer.write("k", FILLER)
            count += 1
    except Unavailable:
        return count
    raise AssertionError("it never was")


def test_a_full_log_waits_and_then_says_so(small: EmbeddedStream) -> None:
    assert 50 < fill(small) < 100
    started = time.monotonic()
    with pytest.raises(Unavailable, match=r"waited 0\.3 s.*stream\.budget_bytes=1048576"):
        small.writer(TOPIC).write("k", FILLER)
    assert 0.25 < time.monotonic() - started < 5
    small.writer(TOPIC).write("k", b"a small one still fits")


def test_a_waiting_writer_goes_on_when_the_protection_moves(tmp_path: Path) -> None:
    stream = EmbeddedStream(tmp_path, budget_bytes=1 << 20, write_deadline_seconds=30, poll_seconds=20)
    stream.ensure(TOPIC, TopicPolicy(retention_bytes=1 << 30))
    stream.protect(TOPIC, {0: 0})
    written: list[int] = []

    def write() -> None:
        writer = stream.writer(TOPIC)
        for number in range(200):
            writer.write("k", FILLER)
            written.append(number)

    thread = threading.Thread(target=write)
    thread.start()
    reader, started = stream.reader(TOPIC), time.monotonic()
    while thread.is_alive():
        everything(reader, 20, 0.05)
        stream.protect(TOPIC, reader.position())
    thread.join()
    assert len(written) == 200
    assert time.monotonic() - started < 15, "woken, not found by the poll"
    while reader.read(20, 0):
        pass
    assert reader.position() == stream.end(TOPIC)


def test_room_in_one_topic_is_made_for_another(tmp_path: Path) -> None:
    stream = EmbeddedStream(tmp_path, budget_bytes=1 << 20, write_deadline_seconds=0.2)
    stream.ensure("metrics.actors", TopicPolicy(retention_seconds=3600))
    for _ in range(200):
        stream.writer("metrics.actors").write("k", FILLER)
        stream.writer("kept for ever").write("k", b"x" * 100)
    assert len(everything(stream.reader("kept for ever"), 200)) == 200
    assert len(everything(stream.reader("metrics.actors"), 200, 0.2)) < 100


def test_offsets_are_never_used_again(tmp_path: Path) -> None:
    stream = EmbeddedStream(tmp_path)
    stream.ensure(TOPIC, TopicPolicy(retention_seconds=0.0))
    for _ in range(3):
        stream.writer(TOPIC).write("k", b"x")
        time.sleep(0.001)
    stream.remove(TOPIC)
    stream.close()
    stream = EmbeddedStream(tmp_path)
    assert stream.reader(TOPIC).read(1, 0) == []
    stream.writer(TOPIC).write("k", b"y")
    assert stream.reader(TOPIC).read(1, 0)[0].offset == 3


def test_a_record_that_can_never_fit_is_refused_at_once(small: EmbeddedStream) -> None:
    with pytest.raises(ConfigError, match="can never fit"):
        small.writer(TOPIC).write("k", bytes(2 << 20))
    with pytest.raises(ConfigError, match="record key"):
        small.writer(TOPIC).write("k" * 500, b"")


@pytest.mark.parametrize("run", ["control", "common", "../up", ".hidden", "x.damaged-1"])
def test_a_run_cannot_take_a_name_of_ours(small: EmbeddedStream, run: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a run's id"):
        small.writer(f"experiences.{run}")


def test_what_is_offered_to_a_full_log_is_dropped_and_counted(small: EmbeddedStream) -> None:
    count = fill(small)
    before = small.flow.produced_records
    started = time.monotonic()
    small.writer(TOPIC).offer("k", FILLER)
    assert time.monotonic() - started < 0.2, "nobody is waited for"
    assert (small.flow.dropped, small.flow.produced_records) == (1, before)
    assert small.flow.waits == 1
    assert small.flow.waited_seconds > 0.2
    assert small.reader(TOPIC).lag() == count


def test_folders_of_others_are_no_topics(tmp_path: Path) -> None:
    stream = EmbeddedStream(tmp_path)
    assert stream.topics() == []
    (tmp_path / "lost+found").mkdir()
    stream.writer(TOPIC).write("k", b"x")
    assert [(info.name, info.records) for info in stream.topics()] == [(TOPIC, 1)]
    assert list((tmp_path / "lost+found").iterdir()) == []


def test_a_new_environment_is_no_gap(tmp_path: Path) -> None:
    """Offsets jump when a damaged environment is set aside; what it held is told, but not counted."""
    stream = EmbeddedStream(tmp_path, on_event=lambda name, facts: None)
    stream.writer(TOPIC).write("k", b"old")
    position = stream.end(TOPIC)
    stream.close()
    (tmp_path / "run-1" / "data.mdb").write_bytes(b"no database" * 1000)
    stream = EmbeddedStream(tmp_path, on_event=lambda name, facts: None)
    stream.writer(TOPIC).write("k", b"new")
    reader = stream.reader(TOPIC, position)
    assert [record.value for record in reader.read(9, 0)] == [b"new"]
    assert reader.missed == 0


def test_each_run_has_its_environment_and_takes_it_along(tmp_path: Path) -> None:
    stream = EmbeddedStream(tmp_path)
    for topic in ("experiences.a-1", "history.a-1", "model_updates.b.2", "runs", "metrics.training"):
        stream.writer(topic).write("k", b"x")
    stream.ensure("audited", TopicPolicy(synced=True))
    stream.writer("audited").write("k", b"x")
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"a-1", "b.2", "control", "common"}
    stream.remove_run("a-1")
    stream.remove_run("unknown")
    assert not (tmp_path / "a-1").exists()
    assert stream.reader("experiences.a-1").read(1, 0) == []
    assert len(stream.reader("audited").read(1, 0)) == 1


def test_several_streams_and_threads_of_one_process_share_the_files(tmp_path: Path) -> None:
    streams = [EmbeddedStream(tmp_path), EmbeddedStream(tmp_path, budget_bytes=8 << 30)]

    def write(index: int) -> None:
        writer = streams[index % 2].writer(TOPIC)
        for number in range(100):
            writer.write(f"k{index}", b"%d" % number)

    threads = [threading.Thread(target=write, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    found = everything(streams[1].reader(TOPIC), 400)
    for thread in threads:
        thread.join()
    for index in range(4):
        values = [int(record.value) for record in found if record.key == f"k{index}"]
        assert values == list(range(100))
    streams[0].close()
    streams[1].writer(TOPIC).write("k", b"the other one still works")


WRITE_MUCH = """
for _ in range(count):
    stream.writer(topic).write("k", bytes(1 << 20))
print("done", flush=True)
input()
for _ in range(count):
    stream.writer(topic).write("k", bytes(1 << 20))
"""


@pytest.mark.parametrize("topic", [TOPIC, "commands.control"])
def test_processes_with_different_budgets_share_a_log(tmp_path: Path, topic: str) -> None:
    """LMDB would cut the file to the smallest map, under the feet of the process with the largest."""
    before = EmbeddedStream(tmp_path, budget_bytes=4 << 20)
    reader = before.reader(topic)
    child = start(opening_of(tmp_path, budget_bytes=1 << 30), WRITE_MUCH, topic=topic, count=100)
    assert child.stdout is not None
    assert child.stdout.readline() == b"done\n"
    assert len(everything(reader, 100)) == 100
    late = start(opening_of(tmp_path, budget_bytes=4 << 20), "print(len(stream.newest(topic)))", topic=topic)
    assert late.communicate()[0] == b"1\n"
    child.communicate(b"\n")
    assert child.returncode == 0
    assert len(everything(reader, 100)) == 100


WAIT_FOR_RECORDS = """
import json, resource, time
reader = stream.reader(topic)
reader.read(1, 0.01)
print("ready", flush=True)
used = time.process_time()
reader.read(1, 1.0)
print(time.process_time() - used, flush=True)
latencies = []
while len(latencies) < 100:
    for record in reader.read(10, 10.0):
        latencies.append(time.monotonic() - float(record.value))
print(json.dumps(latencies), flush=True)
"""


def test_a_waiting_reader_wakes_at_once_and_costs_nothing(tmp_path: Path) -> None:
    stream = EmbeddedStream(tmp_path)
    child = start(opening_of(tmp_path, poll_seconds=0.5), WAIT_FOR_RECORDS, topic=TOPIC)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    assert float(child.stdout.readline()) < 0.05, "CPU seconds in one second of waiting"
    writer = stream.writer(TOPIC)
    for _ in range(100):
        time.sleep(0.004)
        writer.write("k", repr(time.monotonic()).encode())
    latencies = [float(word) for word in child.stdout.readline().strip(b"[] \n").split(b",")]
    assert child.wait() == 0
    # a busy machine may take its time to run the other process; the poll alone would take 250 ms
    assert statistics.median(latencies) < 0.02


def test_registrations_of_dead_readers_are_removed(tmp_path: Path) -> None:
    stream = EmbeddedStream(tmp_path)
    child = start(opening_of(tmp_path), WAIT_FOR_RECORDS, topic=TOPIC)
    assert child.stdout is not None
    child.stdout.readline()
    assert len(list((tmp_path / "run-1" / "wake").iterdir())) == 1
    child.kill()
    child.wait()
    stream.writer(TOPIC).write("k", b"x")
    assert list((tmp_path / "run-1" / "wake").iterdir()) == []
    mine = stream.reader(TOPIC, stream.end(TOPIC))
    mine.read(1, 0.3)
    assert len(list((tmp_path / "run-1" / "wake").iterdir())) == 1
    mine.close()
    assert list((tmp_path / "run-1" / "wake").iterdir()) == []


HOLD_A_READ = """
home = stream._environment("run-1")
with home.read() as txn:
    txn.stat()
    print("ready", flush=True)
    input()
"""


def test_the_slot_of_a_killed_reader_is_freed(tmp_path: Path) -> None:
    """A reader killed in its transaction would keep every page written since from being used again."""
    stream = EmbeddedStream(tmp_path, budget_bytes=4 << 20, write_deadline_seconds=20, poll_seconds=0.05)
    stream.ensure(TOPIC, TopicPolicy(retention_bytes=2 << 20))
    writer = stream.writer(TOPIC)
    writer.write("k", FILLER)
    child = start(opening_of(tmp_path), HOLD_A_READ)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    child.kill()
    child.wait()
    for _ in range(200):
        writer.write("k", bytes(1 << 20))  # 200 MiB through a map of 72 MiB
    assert stream.reader(TOPIC).lag() >= 1


def test_reading_does_not_hold_pages_back(tmp_path: Path) -> None:
    """The file stays small although a reader is always somewhere in the middle of the log."""
    stream = EmbeddedStream(tmp_path, budget_bytes=64 << 20)
    stream.ensure(TOPIC, TopicPolicy(retention_bytes=4 << 20))
    writer, reader, iterator = stream.writer(TOPIC), stream.reader(TOPIC), None
    for number in range(1000):
        writer.write("k", bytes(65536))
        if number % 10 == 0:
            reader.read(5, 0)
            iterator = stream.backwards(TOPIC, "k")
            next(iterator)
    used = stream._environment("run-1").info()["last_pgno"] * 4096
    assert used < 10 << 20, f"{used} bytes of file for 4 MiB of records"


def test_pages_that_lie_are_found_after_a_reboot(tmp_path: Path) -> None:
    _write_some(tmp_path)
    data = tmp_path / "run-1" / "data.mdb"
    with data.open("r+b") as file:  # what was never flushed is gone
        file.seek(2 * 4096)
        file.write(bytes(40 * 4096))
    (tmp_path / "run-1" / "boot").write_text("another boot")
    _expect_set_aside(tmp_path)


def test_a_file_that_is_no_database_is_set_aside(tmp_path: Path) -> None:
    _write_some(tmp_path)
    with (tmp_path / "run-1" / "data.mdb").open("r+b") as file:
        file.write(b"\xff" * 8192)
    _expect_set_aside(tmp_path)


def test_a_whole_environment_survives_a_reboot(tmp_path: Path) -> None:
    _write_some(tmp_path)
    (tmp_path / "run-1" / "boot").write_text("another boot")
    assert len(everything(EmbeddedStream(tmp_path).reader(TOPIC), 50)) == 50


def _write_some(root: Path) -> None:
    stream = EmbeddedStream(root)
    for _ in range(50):
        stream.writer(TOPIC).write("k", FILLER)
    stream.close()


def _expect_set_aside(root: Path) -> None:
    events: list[tuple[str, str]] = []
    stream = EmbeddedStream(root, on_event=lambda name, facts: events.append((name, facts["kept_as"])))
    old_position = {0: 50}
    stream.writer(TOPIC).write("k", b"after")
    assert events == [("stream_set_aside", str(root / "run-1.damaged-1"))]
    assert (root / "run-1.damaged-1" / "data.mdb").exists()
    assert [record.value for record in stream.reader(TOPIC).read(9, 0)] == [b"after"]
    found = stream.reader(TOPIC, old_position).read(9, 0)
    assert [record.value for record in found] == [b"after"], "an old position does not hide new records"


def test_a_damaged_log_is_a_warning_unless_somebody_listens(tmp_path: Path) -> None:
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "data.mdb").write_bytes(b"no database" * 1000)
    with pytest.warns(RuntimeWarning, match="stream_set_aside.*common.damaged-1"):
        EmbeddedStream(tmp_path).writer("metrics.actors").write("k", b"x")


def test_epochs_go_on_when_the_claims_were_set_aside(tmp_path: Path) -> None:
    (tmp_path / "control").mkdir()
    (tmp_path / "control" / "data.mdb").write_bytes(b"no database" * 1000)
    stream = EmbeddedStream(tmp_path, on_event=lambda name, facts: None)
    assert stream.claim("learner") > 1000, "greater than any that may have been lost"


def test_a_long_home_is_no_obstacle(tmp_path: Path) -> None:
    root = tmp_path / ("long-" * 30) / ("path-" * 30)
    stream = EmbeddedStream(root, poll_seconds=20)
    reader = stream.reader(TOPIC)
    timer = threading.Timer(0.1, lambda: stream.writer(TOPIC).write("k", b"x"))
    timer.start()
    started = time.monotonic()
    assert len(reader.read(1, 10.0)) == 1
    assert time.monotonic() - started < 5


FILL_A_DISK = """
from penstock.errors import Unavailable
writer, count = stream.writer(topic), 0
try:
    while count < 2000:
        writer.write("k", bytes(65536))
        count += 1
except Unavailable as error:
    print(error)
reader, found = stream.reader(topic), 0
while batch := reader.read(100, 0):
    found += len(batch)
stream.remove(topic)
writer.write("k", bytes(65536))
print("acknowledged", count, "read", found)
"""


@pytest.mark.parametrize("topic", [TOPIC, "commands.control"])
def test_a_full_disk_is_an_error_and_not_a_crash(tmp_path: Path, topic: str) -> None:
    """On a real, small disk: a map with holes would end in SIGBUS there."""
    mount = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    small_disk = f"mount -t tmpfs -o size=24m tmpfs {shlex.quote(str(tmp_path))}"
    if subprocess.run([*mount, small_disk], check=False, capture_output=True).returncode != 0:
        lacking("this machine does not let a test mount a small disk; run the tests as root")
    code = f"{opening_of(tmp_path, budget_bytes=1 << 30)}\ntopic = {topic!r}\n{FILL_A_DISK}"
    ended = subprocess.run(
        [*mount, f"{small_disk} && exec {shlex.quote(sys.executable)} -c {shlex.quote(code)}"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert "is full; free some space" in ended.stdout
    count, found = (int(word) for word in ended.stdout.split() if word.isdigit())
    assert 100 < count == found


def test_a_stopped_process_is_no_reason_to_fail(tmp_path: Path) -> None:
    """SIGSTOP of a waiting reader: its queue of wake-ups fills, and writers do not care."""
    stream = EmbeddedStream(tmp_path)
    child = start(opening_of(tmp_path), WAIT_FOR_RECORDS, topic=TOPIC)
    assert child.stdout is not None
    child.stdout.readline()
    child.send_signal(signal.SIGSTOP)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    for _ in range(500):
        stream.writer(TOPIC).write("k", repr(time.monotonic()).encode())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_utime - used < 5
    child.send_signal(signal.SIGCONT)
    assert child.wait(20) == 0
