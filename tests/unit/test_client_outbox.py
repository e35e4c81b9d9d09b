"""How ended trajectories become messages: the bytes are protobuf's, and the interpreter is not held for long."""

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
