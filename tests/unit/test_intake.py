"""Every rollout is accounted for exactly once, also across a restart of the learner."""

from pathlib import Path

import numpy as np
import pytest

from penstock.loop.intake import Intake, Ledger, open_intake, pending_count
from penstock.model import topics
from penstock.model.codec import Schema, encode
from penstock.model.rollout import Block, Hello, Rollout, RolloutFacts, Start
from penstock.model.spaces import ActionLayout, Column, Leaf, ObservationLayout, Spaces
from penstock.model.version import Version
from penstock.stream.embedded import EmbeddedStream

RUN = "r-b2c3"
SPACES = Spaces(
    ObservationLayout({"observations": Column((4,), "<f4")}, (Leaf((), "box", "observations", size=4),)),
    ActionLayout("discrete", (2,), (0,)),
)


@pytest.fixture
def stream(tmp_path: Path) -> EmbeddedStream:
    return EmbeddedStream(tmp_path)


def rollout(slot: int, round: int, step: int | None = None) -> bytearray:
    version = Version(1, round if step is None else step)
    facts = RolloutFacts(RUN, slot, round, "i", version, 3, 2, (Start(0, 0, 0.0),) * 2, (), {}, 0.0)
    return Rollout(facts, Block.allocate(SPACES, 3, 2).columns()).encode()


def write(stream: EmbeddedStream, *places: tuple[int, int]) -> None:
    writer = stream.writer(topics.experiences(RUN))
    for slot, round in places:
        writer.write(str(slot), rollout(slot, round))
    writer.close()


def balanced(intake: Intake) -> bool:
    outcomes = ("used", "duplicate", "stale", "not_rostered", "misfit")
    return intake.counts["received"] == sum(intake.counts[name] for name in outcomes) + pending_count(intake)


def test_the_first_record_of_a_round_is_used_and_others_are_duplicates(stream: EmbeddedStream):
    write(stream, (0, 0), (0, 0), (0, 1))
    intake = open_intake(stream, RUN, Ledger())
    intake.read(0)
    intake.take(0, 0)
    write(stream, (0, 0))
    intake.read(0)
    assert intake.counts == {"received": 4, "duplicate": 2, "used": 1}
    assert balanced(intake)
    assert [(item.slot, item.round, item.reason) for item in intake.dropped] == [(0, 0, "duplicate")] * 2


def test_what_was_read_but_not_used_is_read_again_after_a_restart(stream: EmbeddedStream):
    write(stream, (0, 0), (1, 0), (0, 1), (1, 1))
    intake = open_intake(stream, RUN, Ledger())
    intake.read(0)
    intake.take(0, 0)
    intake.take(1, 0)
    intake.take(1, 1)
    ledger = intake.ledger()
    again = open_intake(stream, RUN, ledger)
    again.read(0)
    assert again.has(0, 1)
    assert not again.has(1, 1)
    assert again.counts["used"] == 3
    assert balanced(again)


def test_the_sums_agree_after_any_number_of_restarts(stream: EmbeddedStream):
    rng = np.random.default_rng(0)
    ledger, used = Ledger(), set()
    for _ in range(30):
        write(stream, *[(int(rng.integers(3)), int(rng.integers(40))) for _ in range(5)])
        intake = open_intake(stream, RUN, ledger)
        while intake.read(0):
            pass
        for slot, rounds in list(intake.pending.items()):
            for round in sorted(rounds)[: int(rng.integers(3))]:
                if rng.random() < 0.2:
                    intake.drop(slot, round, "stale")
                else:
                    intake.take(slot, round)
                    assert (slot, round) not in used, "a rollout was used twice"
                    used.add((slot, round))
        assert balanced(intake)
        ledger = intake.ledger()


def test_a_hello_is_no_rollout_and_a_foreign_record_is_a_dead_letter(stream: EmbeddedStream):
    writer = stream.writer(topics.experiences(RUN))
    writer.write("0", encode(Schema.HELLO, Hello(RUN, 0, "i", SPACES, 1, "h")))
    writer.write("0", b"garbage")
    writer.write("0", encode(Schema.COMMAND, {}))
    writer.write("0", rollout(0, 0))
    intake = open_intake(stream, RUN, Ledger())
    intake.read(0)
    assert list(intake.hellos) == [0]
    assert intake.dead_letters == 2
    assert intake.has(0, 0)
    assert len(stream.reader(topics.DEAD_LETTERS).read(10, 0)) == 2


def test_slots_that_left_take_their_rollouts_with_them(stream: EmbeddedStream):
    write(stream, (0, 0), (1, 0), (1, 1))
    intake = open_intake(stream, RUN, Ledger())
    intake.read(0)
    intake.forget([1])
    assert intake.counts["not_rostered"] == 2
    assert balanced(intake)


def test_a_rollout_that_does_not_look_like_the_run_is_set_aside(stream: EmbeddedStream):
    columns = Block.allocate(SPACES, 3, 2).columns()
    harm: list[dict[str, np.ndarray]] = [
        columns | {"observations": np.zeros((3, 2, 5), np.float32)},
        columns | {"observations": np.zeros((3, 2, 4), np.float64)},
        columns | {"last/observations": np.zeros((1, 4), np.float32)},
        columns
        | {"final/index": np.array([[3, 0]], np.int32), "final/observations": np.zeros((1, 4), np.float32)},
        columns
        | {"final/index": np.array([[-1, 0]], np.int32), "final/observations": np.zeros((1, 4), np.float32)},
        {name: column for name, column in columns.items() if name != "last/observations"},
        columns | {"more": np.zeros(1, np.float32)},
    ]
    writer = stream.writer(topics.experiences(RUN))
    for round, bad in enumerate(harm):
        facts = RolloutFacts(RUN, 0, round, "i", Version(1, 0), 3, 2, (Start(0, 0, 0.0),) * 2, (), {}, 0.0)
        writer.write("0", Rollout(facts, bad).encode())
    writer.write("0", rollout(0, len(harm)))
    intake = open_intake(stream, RUN, Ledger())
    intake.expect(SPACES, 3, 2)
    intake.read(0)
    assert intake.counts["misfit"] == len(harm)
    assert intake.has(0, len(harm))
    assert balanced(intake)


def test_rollouts_of_clients_may_have_any_length_up_to_the_limit(stream: EmbeddedStream):
    writer = stream.writer(topics.experiences(RUN))
    for round, (steps, environments) in enumerate([(4, 1), (7, 1), (65_536, 1), (65_537, 1), (4, 2)]):
        starts = (Start(0, 0, 0.0),) * environments
        facts = RolloutFacts(
            RUN, 1000, round, "i", Version(1, round), steps, environments, starts, (), {}, 0.0
        )
        writer.write("1000", Rollout(facts, Block.allocate(SPACES, steps, environments).columns()).encode())
    intake = open_intake(stream, RUN, Ledger())
    intake.expect(SPACES, None, 1)
    intake.read(0)
    assert sorted(intake.pending[1000]) == [0, 1, 2]
    assert intake.counts["misfit"] == 2
    assert balanced(intake)
