"""Recorded rollouts come back in the order the updates used them, once, and are held no longer than needed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import config
from penstock.loop.origin import learns_alike, overrides_for
from penstock.loop.rehearsal import NotAgain, RecordedRollouts
from penstock.model import topics
from penstock.model.history import Update, Used
from penstock.model.version import Version
from penstock.stream.embedded import EmbeddedStream
from tests.unit.test_recorded import rollout

V = Version(1, 0)


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[EmbeddedStream]:
    opened = EmbeddedStream(tmp_path)
    yield opened
    opened.close()


def write(stream: EmbeddedStream, *places: tuple[int, int, Version]) -> None:
    writer = stream.writer(topics.experiences("r"))
    for slot, round, version in places:
        writer.write(str(slot), rollout(slot, round, version))


def update(step: int, *used: tuple[int, int]) -> Update:
    return Update(
        Version(1, step), tuple(Used(slot, round, V) for slot, round in used), (), {}, {}, "hash", 0, {}, 0.0
    )


def places(rollouts: list[object]) -> list[tuple[int, int]]:
    return [(item.facts.slot, item.facts.round) for item in rollouts]  # type: ignore[attr-defined]


def test_an_update_gets_its_rollouts_in_its_own_order(stream: EmbeddedStream):
    write(stream, (1, 1, V), (0, 0, V), (1, 0, V), (0, 1, V))
    updates = [update(1, (0, 0), (1, 0)), update(2, (1, 1), (0, 1))]
    recorded = RecordedRollouts(stream, "r", updates, None)
    assert places(recorded.take(updates[0])) == [(0, 0), (1, 0)]
    assert places(recorded.take(updates[1])) == [(1, 1), (0, 1)]


def test_the_first_record_of_a_place_counts_and_others_are_let_go(stream: EmbeddedStream):
    other = Version(2, 0)
    write(stream, (0, 0, other), (0, 0, V), (0, 0, V), (5, 0, V), (0, 1, V), (0, 0, V))
    updates = [update(1, (0, 0)), update(2, (0, 1))]
    recorded = RecordedRollouts(stream, "r", updates, None)
    (taken,) = recorded.take(updates[0])
    assert taken.facts.version == V
    recorded.take(updates[1])
    assert not recorded._here


def test_an_update_without_rollouts_needs_none(stream: EmbeddedStream):
    assert RecordedRollouts(stream, "r", [update(1)], None).take(update(1)) == []


def test_a_rollout_that_is_gone_is_named(stream: EmbeddedStream):
    write(stream, (0, 0, V))
    updates = [update(7, (0, 0), (3, 0))]
    with pytest.raises(NotAgain, match=r"no longer holds round 0 of slot 3 of version 1.7") as caught:
        RecordedRollouts(stream, "r", updates, None).take(updates[0])
    assert caught.value.step == 7


def test_an_offset_of_a_log_that_was_lost_is_not_trusted(stream: EmbeddedStream):
    write(stream, (0, 0, V))
    recorded = RecordedRollouts(stream, "r", [update(1, (0, 0))], {0: 900})
    assert places(recorded.take(update(1, (0, 0)))) == [(0, 0)]


def test_settings_changed_on_the_way_hold_again_unless_somebody_chose_otherwise():
    origin = config.resolve("CartPole-v1")
    recorded = Update(
        V, (), (), {}, {"learning_rate": 1.0, "entropy": 0.5, "actors.count": 4}, "", 0, {}, 0.0
    )
    same = config.resolve("CartPole-v1", {"seed": 9})
    assert overrides_for(same, origin)(recorded) == recorded.overrides
    chosen = config.resolve("CartPole-v1", {"ppo.learning_rate": 0.125})
    assert overrides_for(chosen, origin)(recorded) == {"entropy": 0.5, "actors.count": 4}
    assert overrides_for(config.resolve("CartPole-v1", {"algorithm": "dqn"}), origin)(recorded) == {}


@pytest.mark.parametrize(
    ("change", "alike"),
    [
        ({}, True),
        ({"actors.count": 0, "pace.lead": 3, "stop.steps": 5, "tensorboard": False}, True),
        ({"seed": 2}, False),
        ({"ppo.epochs": 3}, False),
        ({"network.hidden": [8]}, False),
        ({"algorithm": "impala"}, False),
    ],
)
def test_what_must_give_the_same_weights(change: dict[str, object], alike: bool):
    assert learns_alike(config.resolve("CartPole-v1", change), config.resolve("CartPole-v1")) is alike
