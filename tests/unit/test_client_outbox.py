"""How ended trajectories become messages, and what becomes of them where disk, memory or gateway take no more."""

import errno
import os
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock import proto
from penstock.client import outbox as outboxes
from penstock.client.figures import Counters, Reporter
from penstock.client.layout import Layout, of_shape
from penstock.client.outbox import POOL_BYTES, Outbox
from penstock.client.settings import Settings, settings
from penstock.client.spool import Numbered
from penstock.client.trajectory import Trajectory, held_bytes


def configured(tmp_path: Path, size: int) -> tuple[Settings, Layout]:
    made = settings({
        "client_id": "pump", "algorithm_name": "PPO", "algorithm_parameters": {"act_dim": 4, "input_size": size},
        "spool": {"folder": str(tmp_path)}, "send_frequency": 1,
    })  # fmt: skip
    assert made.shape is not None
    return made, of_shape(made.shape, False)


def ended(layout: Layout, rows: int) -> Trajectory:
    trajectory = Trajectory(layout, rows)
    trajectory.observations[...] = np.random.default_rng(rows).random(trajectory.observations.shape)
    trajectory.length, trajectory.rewards = rows, [1.0] * rows
    trajectory.ended = trajectory.terminated = True
    return trajectory


@pytest.mark.parametrize(("size", "rows"), [(1, 1), (8, 3), (8, 4), (8, 1000), (300, 1500)])
def test_what_is_sent_is_what_protobuf_reads(size: int, rows: int, tmp_path: Path):
    """Lengths of one, two, three and four bytes; one message or several."""
    made, layout = configured(tmp_path, size)
    outbox, counters, received = Outbox(made, Counters()), Counters(), []
    trajectory = ended(layout, rows)
    wanted = trajectory.observations.copy()

    def call(request: bytes, seconds: float) -> Any:
        read = proto.SendRequest.FromString(request)
        assert read.policy == "pump"
        received.extend(read.trajectories)
        reply = proto.SendReply()
        for one in read.trajectories:
            reply.receipts.add(sequence=one.sequence, outcome=proto.SendReply.STORED)
        return reply

    outbox.put(trajectory)
    outbox.pack_all()
    assert outbox.send(call, Reporter(counters), float("inf")) == 0.0
    assert [one.sequence for one in received] == list(range(1, len(received) + 1))
    got = b"".join(one.observations["observations"] for one in received)
    assert got == wanted.astype("<f4").tobytes()
    assert sum(one.length for one in received) == rows


def test_what_waits_in_the_spool_says_for_which_run_it_was_made(tmp_path: Path):
    """It may be delivered by another process, to another run, whose versions are counted anew."""
    made, layout = configured(tmp_path, 8)
    outbox, received = Outbox(made, Counters()), list[Any]()
    for run in ("deleted-1", "begun-2"):
        outbox.run = run
        outbox.put(ended(layout, 3))
        outbox.pack_all()
    outbox.store()
    outbox.spool.close()

    def call(request: bytes, seconds: float) -> Any:
        received.extend(proto.SendRequest.FromString(request).trajectories)
        return proto.SendReply(
            receipts=[
                proto.SendReply.Receipt(sequence=one.sequence, outcome=proto.SendReply.STORED)
                for one in received
            ]
        )

    later = Outbox(made, Counters())
    later.run = "begun-2"
    later.adopt()
    later.send(call, Reporter(Counters()), float("inf"))
    assert [one.run for one in received] == ["deleted-1", "begun-2"]


def test_the_interpreter_is_handed_back_by_bytes_also_within_a_trajectory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    made, layout = configured(tmp_path, 1024)
    pauses: list[float] = []
    monkeypatch.setattr(outboxes.time, "sleep", pauses.append)
    outbox = Outbox(made, Counters())
    outbox.put(ended(layout, 1000))  # 4 MB
    outbox.pack_all()
    assert len(pauses) == len(outbox._ready) == 4
    assert min(pauses) > 0


def test_the_pool_of_arrays_is_bounded_by_bytes(tmp_path: Path):
    made, layout = configured(tmp_path, 1024)
    outbox = Outbox(made, Counters())
    for _ in range(12):
        outbox.put(ended(layout, 1000))
        outbox.pack_all()
    assert 0 < sum(map(held_bytes, outbox.pool)) <= POOL_BYTES


# what is not lost


def stored(folder: Path) -> int:
    return sum(int(path.stem.split("-")[1]) for path in folder.rglob("*.batch"))


def takes_all(received: list[int]) -> Any:
    def call(request: bytes, seconds: float) -> Any:
        reply = proto.SendReply()
        for one in proto.SendRequest.FromString(request).trajectories:
            received.append(one.sequence)
            reply.receipts.add(sequence=one.sequence, outcome=proto.SendReply.STORED)
        return reply

    return call


@contextmanager
def no_files_left() -> Iterator[None]:
    """As in a process that has used up its descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = os.open("/dev/null", os.O_RDONLY)
    os.close(taken)  # the lowest free one
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_batch_that_cannot_be_read_now_is_kept_and_sent_later(tmp_path: Path):
    made, layout = configured(tmp_path, 8)
    counters = Counters()
    outbox, received, reporter = Outbox(made, counters), [], Reporter(counters)
    for _ in range(3):
        outbox.put(ended(layout, 4))
        outbox.pack_all()
        outbox.store()
    reporter.report(outbox.waiting())  # reads /proc, which takes a descriptor too
    with no_files_left(), pytest.raises(OSError, match="Too many open files"):
        outbox.send(takes_all(received), reporter, float("inf"))
    assert (stored(tmp_path), received, counters.dropped) == (3, [], {})
    outbox.send(takes_all(received), reporter, float("inf"))
    assert (stored(tmp_path), received, counters.dropped) == (0, [1, 2, 3], {})


def test_a_batch_that_is_damaged_or_gone_is_dropped_and_the_rest_is_sent(tmp_path: Path):
    made, layout = configured(tmp_path, 8)
    counters = Counters()
    outbox, received = Outbox(made, counters), []
    for _ in range(3):
        outbox.put(ended(layout, 4))
        outbox.pack_all()
        outbox.store()
    first, second, _ = sorted(tmp_path.rglob("*.batch"))
    first.write_bytes(b"PSB1 and nothing else")
    second.unlink()
    outbox.send(takes_all(received), Reporter(counters), float("inf"))
    assert (received, counters.dropped) == ([3], {"damaged": 2})


def test_what_the_disk_does_not_take_waits_in_memory(tmp_path: Path):
    (tmp_path / "file").write_text("not a folder")
    made, layout = configured(tmp_path / "file", 8)
    counters = Counters()
    outbox, received = Outbox(made, counters), []
    outbox.check()
    assert counters.troubles == {"disk": 1}, "it is said before anything is lost"
    for _ in range(100):
        outbox.put(ended(layout, 4))
        outbox.pack_all()
        outbox.store()
    assert outbox.waiting()[0] == 100
    assert counters.dropped == {}
    outbox.send(takes_all(received), Reporter(counters), float("inf"))
    assert received == list(range(1, 101))
    outbox.put(ended(layout, 4))
    outbox.pack_all()
    outbox.store(last=True)
    assert (outbox.waiting()[0], counters.dropped) == (0, {"disk": 1}), "after the last time nobody keeps it"


def test_memory_without_a_disk_is_bounded_and_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("not a folder")
    made, layout = configured(tmp_path / "file", 1024)
    monkeypatch.setattr(outboxes, "MEMORY_BYTES", 1 << 20)
    monkeypatch.setattr(outboxes, "BATCH_COUNT", 1)
    counters = Counters()
    outbox, received = Outbox(made, counters), []
    for _ in range(10):
        outbox.put(ended(layout, 64))  # a quarter of a megabyte
        outbox.pack_all()
        outbox.store()
    assert outbox.waiting()[1] <= 1 << 20
    outbox.send(takes_all(received), Reporter(counters), float("inf"))
    assert received == [8, 9, 10]
    assert counters.dropped == {"disk": 7}


def test_on_a_full_disk_the_oldest_give_way_also_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made, layout = configured(tmp_path, 8)
    counters = Counters()
    outbox = Outbox(made, counters)
    really = outbox.spool.put

    def full_at_three(batch: Sequence[Numbered]) -> int:
        if stored(tmp_path) >= 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return really(batch)

    monkeypatch.setattr(outbox.spool, "put", full_at_three)
    for _ in range(5):
        outbox.put(ended(layout, 4))
        outbox.pack_all()
        outbox.store()
    assert (stored(tmp_path), outbox.waiting()[0], counters.dropped) == (3, 5, {})
    outbox.store(last=True)
    assert outbox.waiting()[0] == 4, "the last two are one batch, so one older one made room for both"
    assert counters.dropped == {"disk": 1}
    left = [sequence for batch in outbox.spool._batches for sequence, _ in outbox.spool.read(batch)]
    assert left == [2, 3, 4, 5]


def test_every_loss_and_a_full_gateway_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made, layout = configured(tmp_path, 1024)
    monkeypatch.setattr(outboxes, "MEMORY_BYTES", 1 << 20)
    counters = Counters()
    outbox = Outbox(made, counters)
    outbox.spool.max_bytes = 1 << 19

    def full(request: bytes, seconds: float) -> Any:
        reply = proto.SendReply(retry_seconds=1)
        for one in proto.SendRequest.FromString(request).trajectories:
            reply.receipts.add(
                sequence=one.sequence, outcome=proto.SendReply.LATER, reason="the queue is full"
            )
        return reply

    for _ in range(5):
        outbox.put(ended(layout, 64))
    outbox.pack_all()
    assert outbox.send(full, Reporter(counters), float("inf")) == 1.0
    outbox.store()
    assert set(counters.dropped) == {"memory_full", "spool_full"}
    assert set(counters.troubles) == {"memory_full", "full", "spool_full"}
    assert "the queue is full" in " ".join(counters._sentences)
