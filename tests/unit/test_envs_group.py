"""Rows by hand, rows against Gymnasium's own vector environment, and every fault."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from penstock.envs.base import episode_seed
from penstock.envs.group import EnvironmentGroup
from penstock.envs.layout import describe
from penstock.envs.make import make
from penstock.errors import ConfigError, EnvironmentFault
from penstock.model.rollout import Block, Episode, Start
from penstock.model.spec import EnvironmentSpec

HERE = "penstock.testing.environments"


def group_of(id: str, count: int = 2, beat=None, slot: int = 0, **fields) -> EnvironmentGroup:
    full = id if "-v" in id else f"{HERE}:{id}"
    return EnvironmentGroup(EnvironmentSpec(id=full, **fields), count, seed=1, slot=slot, beat=beat)


def filled(group: EnvironmentGroup, steps: int, actions=None) -> Block:
    count = len(group.starts())
    block = Block.allocate(group.spaces, steps, count)
    group.start(block)
    for t in range(steps):
        row = block.actions[t] if actions is None else actions[t]
        block.actions[t] = row
        group.step(t, row, block)
    return block


def some_actions(group: EnvironmentGroup, steps: int, count: int) -> np.ndarray:
    generator = np.random.default_rng(0)
    column = group.spaces.action.column
    if column.dtype == "<f4":
        return generator.uniform(-1.5, 1.5, (steps, count, *column.shape)).astype(np.float32)
    sizes = np.array(group.spaces.action.sizes).reshape(column.shape or ())
    return generator.integers(0, sizes, (steps, count, *column.shape)).astype(np.int32)


def test_a_terminated_episode_is_followed_by_the_next_in_the_same_step():
    block = filled(group_of("Counter", kwargs={"length": 3}), 7)
    assert block.observations["observations"][:, 0, 0].tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    assert block.rewards[:, 0].tolist() == [1, 2, 3, 1, 2, 3, 1]
    assert block.terminated[:, 0].tolist() == [False, False, True, False, False, True, False]
    assert not block.truncated.any()
    assert block.finals == []
    assert [e for e in block.episodes if e.environment == 1] == [
        Episode(1, 0, 6.0, 3, 2),
        Episode(1, 1, 6.0, 3, 5),
    ]


def test_a_truncated_episode_keeps_its_final_observation():
    block = filled(group_of("Counter", kwargs={"length": 2, "end": "truncated"}), 3)
    assert block.observations["observations"][:, 0, 0].tolist() == [0, 1, 0, 1]
    assert block.truncated[:, 0].tolist() == [False, True, False]
    assert not block.terminated.any()
    assert [(t, b, final["observations"].tolist()) for t, b, final, _ in block.finals] == [
        (1, 0, [2, 0]),
        (1, 1, [2, 0]),
    ]
    assert block.columns()["final/observations"].tolist() == [[2, 0], [2, 0]]


def test_an_end_that_is_both_is_terminated():
    block = filled(group_of("Counter", kwargs={"length": 2, "end": "both"}), 2)
    assert block.terminated[1].all()
    assert not block.truncated.any()
    assert block.finals == []


def test_ends_of_the_last_round_do_not_stay_in_the_next():
    group = group_of("Counter", kwargs={"length": 3})
    block = filled(group, 3)
    block.next_round()
    for t in range(3):
        group.step(t, block.actions[t], block)
    assert block.terminated[:, 0].tolist() == [False, False, True]
    assert block.episodes[0] == Episode(0, 1, 6.0, 3, 2)


@pytest.mark.parametrize("wrappers", [(), ("gymnasium.wrappers:RecordEpisodeStatistics",)])
def test_a_time_limit_truncates_with_and_without_wrappers(wrappers):
    fields = {"kwargs": {"length": 5}, "max_episode_steps": 2, "wrappers": wrappers}
    block = filled(group_of("Counter", **fields), 4)
    assert block.truncated[:, 0].tolist() == [False, True, False, True]
    assert len(block.finals) == 4


def test_a_task_that_ends_on_its_time_limit_is_terminated():
    block = filled(group_of("Counter", kwargs={"length": 2}, max_episode_steps=2), 2)
    assert block.terminated[1].all()
    assert not block.truncated.any()


def test_environments_below_gymnasiums_own_wrappers_are_stepped():
    bare = group_of("CartPole-v1")
    assert bare._environments[0] is bare._whole[0].unwrapped
    assert bare._limit == 500
    wrapped = group_of("CartPole-v1", wrappers=("gymnasium.wrappers:RecordEpisodeStatistics",))
    assert wrapped._environments[0] is wrapped._whole[0]
    assert wrapped._limit is None


CASES = [
    ("CartPole-v1", {"max_episode_steps": 15}),
    ("LunarLander-v3", {"kwargs": {"continuous": True, "enable_wind": True}, "max_episode_steps": 60}),
    ("Pendulum-v1", {"max_episode_steps": 30}),
    ("CartPole-v1", {"wrappers": ("gymnasium.wrappers:RecordEpisodeStatistics",), "max_episode_steps": 15}),
    ("Walk", {}),
    ("Pair", {}),
]


@pytest.mark.parametrize(("id", "fields"), CASES)
def test_rows_are_those_of_gymnasiums_own_vector_environment(id, fields):
    """SyncVectorEnv in SAME_STEP mode is an independent witness, but it seeds only the first episode."""
    count, steps = 3, 200
    group = group_of(id, count, **fields)
    actions = some_actions(group, steps, count)
    block = filled(group, steps, actions)
    full = id if "-v" in id else f"{HERE}:{id}"
    vector = SyncVectorEnv(
        [lambda b=b: Seeded(make(EnvironmentSpec(id=full, **fields)), b) for b in range(count)],
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    start = np.array(group.spaces.action.start or [0]) if group.spaces.action.sizes else 0
    low, high = (
        getattr(vector.single_action_space, "low", None),
        getattr(vector.single_action_space, "high", None),
    )
    seen, finals = [vector.reset()[0]], {}
    for t in range(steps):
        given = actions[t] + start if low is None else np.clip(actions[t], low, high)
        if group.spaces.action.kind == "discrete":
            given = given.reshape(count)
        observation, rewards, terminated, truncated, info = vector.step(given)
        seen.append(observation)
        assert block.rewards[t].tolist() == rewards.astype(np.float32).tolist()
        assert block.terminated[t].tolist() == terminated.tolist()
        assert block.truncated[t].tolist() == (truncated & ~terminated).tolist()
        for b in np.flatnonzero(truncated & ~terminated):
            finals[t, int(b)] = info["final_obs"][b]
    assert {(t, b) for t, b, *_ in block.finals} == set(finals)
    assert len(block.episodes) > 3
    if id == "Pair":
        numbers = np.array([observation[2] for observation in seen])
        assert block.observations["observations"][:, :, -1].tolist() == numbers.tolist()
        return
    expected = np.array(seen).astype(np.float32)
    assert block.observations["observations"].tolist() == expected.tolist()
    for t, b, final, _ in block.finals:
        assert final["observations"].tolist() == finals[t, b].astype(np.float32).tolist()


class Seeded(gymnasium.Wrapper):
    """Resets episode n of environment b with our seed for it."""

    def __init__(self, environment, b):
        super().__init__(environment)
        self.b, self.episode = b, -1

    def reset(self, *, seed=None, options=None):
        self.episode += 1
        return self.env.reset(seed=episode_seed(1, 0, self.b, self.episode))


def test_seeds_are_fixed_for_ever_and_differ_in_every_part():
    assert [episode_seed(1, 0, 0, 0), episode_seed(1, 0, 0, 1), episode_seed(2**40, 3, 7, 10**6)] == [
        867617186,
        416069152,
        1150945781,
    ]
    seeds = {
        episode_seed(r, s, b, e) for r in range(4) for s in range(4) for b in range(4) for e in range(40)
    }
    assert len(seeds) == 4 * 4 * 4 * 40
    assert max(seeds) < 2**31


def test_the_same_seed_gives_the_same_rows_and_another_slot_gives_others():
    first, second, other = (filled(group_of("Walk", slot=slot), 50) for slot in (0, 0, 1))
    name = "observations"
    assert (first.observations[name] == second.observations[name]).all()
    assert (first.observations[name] != other.observations[name]).all()


def test_starts_tell_where_each_environment_stands():
    group = group_of("Counter", kwargs={"length": 3})
    filled(group, 5)
    assert group.starts() == (Start(1, 2, 3.0), Start(1, 2, 3.0))


def test_discrete_actions_are_python_ints_with_their_start():
    actions = np.array([[0, 1], [2, 0]], np.int32)
    assert filled(group_of("Category"), 2, actions).rewards.tolist() == [[10, 11], [12, 10]]


def test_multi_discrete_actions_get_their_starts():
    actions = np.array([[[0, 0], [2, 1]]], np.int32)
    assert filled(group_of("Pair"), 1, actions).rewards.tolist() == [[2, 5]]


def test_box_actions_are_clipped_and_recorded_as_chosen():
    actions = np.array([[[-5.0, -5.0], [0.5, 7.0]]], np.float32)
    block = filled(group_of("Force"), 1, actions)
    assert block.observations["observations"][1].tolist() == [[-1.0, 0.0], [0.5, 7.0]]
    assert block.actions[0].tolist() == actions[0].tolist()


def test_trees_and_pictures_are_stepped():
    block = filled(group_of("Named"), 2)
    assert block.observations["observations"][1, 0].tolist() == [1, 0.5, 0, 1, 0, 1, 1]
    assert (block.observations["observations/view"][2] == 2).all()
    picture = filled(group_of("Picture", kwargs={"layout": "first"}), 2)
    assert picture.observations["observations"].shape == (3, 2, 6, 5, 3)


def test_items_come_with_masks():
    group = group_of("Jobs")
    block = Block.allocate(group.spaces, 30, 2)
    group.start(block)
    assert block.masks is not None
    for t in range(30):
        assert (block.masks[t] == (block.observations["observations"][t, :, :, 2] > 0)).all()
        group.step(t, block.masks[t].argmax(1).astype(np.int32), block)
    assert len(block.finals) == 2


FAULTS = [
    ("raises", "raised ValueError in step 2 of episode 0: the lander is gone"),
    ("four", "four values from step.*old Gym API.*in step 2 of episode 0"),
    ("shape", r"returned an observation of shape \(1,\), but its space says \(2,\), in step 2 of episode 0"),
    ("words", "no array of numbers"),
    ("array_reward", r"a reward that is no number \(ndarray of shape \(2,\)\)"),
    ("no_reward", r"a reward that is no number \(NoneType\)"),
]


@pytest.mark.parametrize(("fault", "sentence"), FAULTS)
def test_a_broken_step_is_a_fault_that_names_the_place(fault, sentence):
    with pytest.raises(EnvironmentFault, match=sentence) as caught:
        filled(group_of("Faulty", slot=3, kwargs={"fault": fault}), 4)
    assert str(caught.value).startswith(f"environment 0 of slot 3 ({HERE}:Faulty) ")
    assert "\n" not in str(caught.value)


def test_a_fault_names_the_step_of_its_own_episode():
    with pytest.raises(EnvironmentFault, match="in step 2 of episode 2"):
        filled(group_of("Faulty", kwargs={"fault": "raises", "at": 8, "length": 3}), 10)


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("nan", r"environment 0 .* gave nan in observations\[0\], by step 1 of the rollout"),
        ("infinite_reward", "gave inf in the reward, by step 1 of the rollout"),
    ],
)
def test_numbers_that_are_not_finite_are_found_once_a_rollout(fault, sentence):
    group = group_of("Faulty", kwargs={"fault": fault})
    block = filled(group, 4)
    with pytest.raises(EnvironmentFault, match=sentence):
        group.check(block)
    healthy = group_of("Walk")
    healthy.check(filled(healthy, 50))


def test_a_final_observation_that_is_not_finite_is_found():
    group = group_of("Counter", kwargs={"end": "truncated", "length": 2})
    block = filled(group, 3)
    block.finals[1][2]["observations"][1] = np.nan
    with pytest.raises(
        EnvironmentFault, match=r"environment 1 .* nan in observations\[1\], at the end in row 1"
    ):
        group.check(block)


@pytest.mark.parametrize(
    ("id", "sentence"),
    [
        ("OldApi", "takes no seed; this is the old Gym API"),
        ("OldReset", r"did not return \(observation, info\) from reset\(\); this is the old Gym API"),
    ],
)
def test_old_environments_are_told_what_to_change(id, sentence):
    with pytest.raises(EnvironmentFault, match=sentence):
        group_of(id)


def test_an_environment_without_spaces_is_told_so():
    with pytest.raises(ConfigError, match=r"has no observation_space: set self\.observation_space"):
        describe(gymnasium.Env(), {}, "Empty")


def test_the_heart_beats_once_a_row_and_for_every_step_while_rows_are_slow():
    beats = []
    group = group_of("Counter", beat=lambda: beats.append(1), kwargs={"length": 1000})
    block = Block.allocate(group.spaces, 10, 2)
    group.start(block)
    beats.clear()
    group.step(0, block.actions[0], block)
    assert len(beats) == 3  # nothing is known yet: one for each environment, one for the row
    for t in range(1, 10):
        group.step(t, block.actions[t], block)
    assert len(beats) == 3 + 9


def test_closing_goes_on_after_one_that_cannot_be_closed():
    group = group_of("Counter", count=3)
    closed = []

    def close(b):
        closed.append(b)
        raise OSError

    for b, environment in enumerate(group._whole):
        environment.close = lambda b=b: close(b)
    group.close()
    assert closed == [0, 1, 2]
