"""The checker is worth something only if it catches planted bugs."""

import pytest

from penstock.model.history import Claim, Dropped, Entry, Update, Used
from penstock.model.version import Version
from tests.faults.checker import judge


def update(epoch: int, step: int, *rounds: int, dropped: tuple[Dropped, ...] = ()) -> Update:
    used = tuple(Used(0, round, Version(epoch, step - 1)) for round in rounds)
    return Update(Version(epoch, step), used, dropped, {0: 0}, {}, "", 0, {}, 0.0)


GOOD: list[Entry] = [
    Claim(1, 0, 0.0),
    update(1, 1, 0),
    update(1, 2, 1),
    Claim(2, 1, 0.0),
    update(2, 2, 1),
    update(2, 3, 2),
]
LOG = [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_a_sound_run_passes():
    assert judge(GOOD, LOG, LOG) == {
        "updates": 3, "acknowledged": 4, "rollouts": 4, "used": 3, "duplicates": 0, "epochs": 2,
    }  # fmt: skip


def test_a_duplicate_in_the_log_is_counted():
    assert judge(GOOD, [*LOG, (0, 1)])["duplicates"] == 1


@pytest.mark.parametrize(
    ("entries", "log", "words"),
    [
        ([*GOOD, update(2, 4, 2)], LOG, "learned from twice"),
        ([*GOOD, update(2, 5, 3)], LOG, "follows step"),
        ([*GOOD[:4], update(2, 2, 1), update(2, 3, 9)], [*LOG, (0, 9)], "neither learned from nor dropped"),
        ([Claim(1, 0, 0.0), update(1, 1, 0), Claim(1, 1, 0.0)], LOG[:1], "claimed twice"),
        ([*GOOD[:2], Claim(3, 1, 0.0), Claim(2, 1, 0.0)], LOG[:1], "out of order"),
        (GOOD, [(0, 0), (0, 1), (0, 2), (0, 4)], "gap in its rounds"),
        ([Claim(1, 0, 0.0), update(1, 1, 0), update(1, 1, 1)], LOG[:2], "follows step"),
    ],
)
def test_a_planted_bug_is_caught(entries: list[Entry], log: list[tuple[int, int]], words: str):
    with pytest.raises(AssertionError, match=words):
        judge(entries, log)


@pytest.mark.parametrize(
    ("log", "acknowledged", "words"),
    [
        (LOG[:3], LOG, "acknowledged and not in the log"),
        (LOG, [*LOG, (0, 2)], "acknowledged twice"),
        (LOG[1:], [], "not in the log"),
    ],
)
def test_a_broken_acknowledgement_is_caught(log, acknowledged, words):
    with pytest.raises(AssertionError, match=words):
        judge(GOOD, log, acknowledged)
