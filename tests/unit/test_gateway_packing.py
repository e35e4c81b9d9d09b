"""Packing: every row once, in order; ends, bootstraps and counts right; a restart anywhere changes nothing."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.loop.gateway.packing import OUTCOMES, Pack, Packer, accounted
from penstock.loop.gateway.sizes import most_rows, rollout_size
from penstock.loop.gateway.trajectory import Trajectory, TrajectoryFacts
from penstock.model.clients import shape_of
from penstock.model.rollout import Block, Rollout, RolloutFacts, fits
from penstock.model.spec import ActorsSpec
from penstock.model.version import Version

SPACES = shape_of({"observation": [2], "actions": 3, "masked": True}).spaces()
MAX_LAG = 4


def trajectory(
    number: int, length: int, *, terminated: bool = True, foreign: tuple[int, ...] = (), step: int = 0,
    continues: bool = False,
) -> Trajectory:  # fmt: skip
    """Row t of trajectory n shows (n, t) and earns t; what comes after the last row is (n, length)."""
    rows = np.stack((np.full(length + 1, number), np.arange(length + 1)), 1).astype(np.float32)
    masks = np.ones((length, 3), np.bool_)
    columns = {
        "observations": rows[:-1], "actions": np.arange(length, dtype=np.int32) % 3,
        "log_probs": np.full(length, -1.0, np.float32), "rewards": np.arange(length, dtype=np.float32),
        "masks": masks,
    }  # fmt: skip
    if foreign:
        columns["foreign"] = np.isin(np.arange(length), foreign)
    if not terminated:
        columns |= {"final/observations": rows[-1], "final/masks": np.array([True, False, True])}
    facts = TrajectoryFacts(
        "run-b2c3", "0" * 32, number + 1, Version(1, step), length, terminated, 0, 0.0, continues, 0.0
    )
    return Trajectory(facts, columns)


lengths = st.integers(1, 40)


@st.composite
def logs(draw: st.DrawFn) -> list[Trajectory]:
    found = []
    for number in range(draw(st.integers(1, 25))):
        length = draw(lengths)
        foreign = tuple(draw(st.sets(st.integers(0, length - 1), max_size=3))) if draw(st.booleans()) else ()
        terminated = draw(st.booleans())
        continues = not terminated and draw(st.booleans())
        step = draw(st.integers(0, 6))
        found.append(
            trajectory(number, length, terminated=terminated, foreign=foreign, step=step, continues=continues)
        )
    return found


def packed_all(
    log: list[Trajectory], actors: ActorsSpec, on_policy: bool, restart: Callable[[int], bool], batch: int
) -> list[Pack]:
    """Feed the log in batches and make rollouts; where `restart` says so, go on as another process would."""
    packer, packs, at = Packer.go_on(SPACES, actors, on_policy, None), list[Pack](), 0
    while True:
        packer.drop_stale(len(packs), MAX_LAG)
        if (due := packer.due()) is not None:
            packs.append(packer.pack(due))
        elif at < len(log):
            for _ in range(min(batch, len(log) - at)):
                packer.add((0, at), log[at])
                at += 1
        else:
            waiting = sum(item.dropped is None for item in packer.waiting)
            assert accounted(packer.outcomes()) + waiting == len(log)
            return packs
        if restart(len(packs)):
            last = packs[-1].packed if packs else None
            packer = Packer.go_on(SPACES, actors, on_policy, last)
            at = packer.position.get(0, 0)


@settings(deadline=None, max_examples=50)
@given(
    logs(), st.sampled_from([ActorsSpec(rollout=16), ActorsSpec(trajectories=3), ActorsSpec(trajectories=1)]),
    st.booleans(), st.integers(1, 9),
)  # fmt: skip
def test_every_row_is_packed_once_in_order(
    log: list[Trajectory], actors: ActorsSpec, on_policy: bool, batch: int
) -> None:
    packs = packed_all(log, actors, on_policy, lambda _: False, batch)
    rows = [tuple(row) for pack in packs for row in pack.columns["observations"][:, 0].astype(int).tolist()]
    assert len(rows) == len(set(rows))
    assert rows == sorted(rows)
    for pack in packs:
        check_shape(pack)
        check_ends(pack, log, on_policy)
    seen = set(rows)
    for number, item in enumerate(log):
        if packs and not any(pack.packed.position.get(0, 0) > number for pack in packs):
            continue
        foreign = item.columns.get("foreign", np.zeros(item.facts.length, np.bool_)) & on_policy
        used = [t for t in range(item.facts.length) if (number, t) in seen]
        usable = [t for t in range(item.facts.length) if not foreign[t]]
        assert used == usable[: len(used)]
        assert not any((number, int(t)) in seen for t in np.flatnonzero(foreign))


def check_shape(pack: Pack) -> None:
    facts = RolloutFacts(
        "r", 1000, 0, "i", pack.version, pack.steps, 1, (pack.start,), pack.episodes, {}, 0.0
    )
    assert fits(Rollout(facts, pack.columns), Block.allocate(SPACES, 1, 1).columns())
    assert rollout_size(pack.steps) == pack.steps


def check_ends(pack: Pack, log: list[Trajectory], on_policy: bool) -> None:
    """Each row is followed by what came next in its trajectory, or is an end that says so."""
    observations, columns = pack.columns["observations"][:, 0].astype(int), pack.columns
    after = np.concatenate((observations[1:], columns["last/observations"].astype(int)))
    finals = {
        int(t): tuple(row)
        for (t, _), row in zip(
            columns["final/index"], columns["final/observations"].astype(int).tolist(), strict=True
        )
    }
    assert sorted(finals) == np.flatnonzero(columns["truncated"][:, 0]).tolist()
    for t, (number, row) in enumerate(observations.tolist()):
        facts = log[number].facts
        terminated, truncated = bool(columns["terminated"][t, 0]), bool(columns["truncated"][t, 0])
        assert columns["rewards"][t, 0] == row
        assert terminated == (facts.terminated and row == facts.length - 1)
        if truncated:
            assert finals[t] == (number, row + 1)
        elif not terminated:
            assert after[t].tolist() == [number, row + 1]
        assert facts.version >= pack.version


@settings(deadline=None, max_examples=50)
@given(
    logs(), st.sampled_from([ActorsSpec(rollout=16), ActorsSpec(trajectories=3)]), st.booleans(),
    st.sets(st.integers(0, 12)), st.integers(1, 9),
)  # fmt: skip
def test_a_restart_anywhere_goes_on_exactly(
    log: list[Trajectory], actors: ActorsSpec, on_policy: bool, deaths: set[int], batch: int
) -> None:
    alone = packed_all(log, actors, on_policy, lambda _: False, 5)
    left = set(deaths)

    def dies(count: int) -> bool:
        if count in left:
            left.discard(count)
            return True
        return False

    again = packed_all(log, actors, on_policy, dies, batch)
    assert len(alone) == len(again)
    for one, other in zip(alone, again, strict=True):
        assert (one.version, one.start, one.episodes) == (other.version, other.start, other.episodes)
        assert all((one.columns[name] == other.columns[name]).all() for name in one.columns)


def test_a_terminated_trajectory_counts_as_an_episode_and_one_that_continues_does_not() -> None:
    packer = Packer.go_on(SPACES, ActorsSpec(trajectories=2), True, None)
    packer.add((0, 0), trajectory(0, 3, terminated=False, continues=True))
    packer.add((0, 1), trajectory(1, 5))
    due = packer.due()
    assert due is not None
    pack = packer.pack(due)
    assert [(episode.total_reward, episode.length, episode.step) for episode in pack.episodes] == [
        (10.0, 5, 7)
    ]
    assert pack.packed.counts == {"packed": 2, "episodes": 1, "rows": 8}


def test_old_trajectories_are_dropped_for_that_reason() -> None:
    packer = Packer.go_on(SPACES, ActorsSpec(rollout=4), True, None)
    packer.add((0, 0), trajectory(0, 4, step=1))
    packer.add((0, 1), trajectory(1, 4, step=5))
    packer.drop_stale(round=6, max_lag=4)
    due = packer.due()
    assert due is not None
    pack = packer.pack(due)
    assert pack.version == Version(1, 5)
    assert packer.outcomes() == {"packed": 1, "stale": 1, "foreign": 0, "duplicate": 0}
    assert set(OUTCOMES) == packer.outcomes().keys()


def test_an_update_is_no_longer_than_the_limit_however_many_trajectories_it_waits_for() -> None:
    packer = Packer.go_on(SPACES, ActorsSpec(trajectories=1000), True, None)
    for number in range(80):
        packer.add((0, number), trajectory(number, 1000))
    due = packer.due()
    assert due is not None
    assert due.steps == most_rows(SPACES) == 65_536
    packer.pack(due)
    assert packer.carried <= len(packer.waiting)
    assert packer.due() is None


@pytest.mark.parametrize("rows", [4, 5, 6, 7, 8, 9, 11, 13, 15, 100, 1000, 65_535])
def test_sizes_are_few_and_near(rows: int) -> None:
    size = rollout_size(rows)
    assert size <= rows < size * 1.26 + 1
    while size % 2 == 0 and size > 7:
        size //= 2
    assert size in (4, 5, 6, 7)
