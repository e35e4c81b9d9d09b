"""envpool behind the same methods: no transition that never happened. Runs where envpool is installed."""

import numpy as np
import pytest

from penstock.envs.make import make_group
from penstock.errors import ConfigError
from penstock.model.rollout import Block, Rollout, RolloutFacts, Start
from penstock.model.spec import EnvironmentSpec
from penstock.model.version import Version

pytest.importorskip("envpool")
COUNT = 4


def native(id: str = "CartPole-v1", **fields):
    return make_group(EnvironmentSpec(id=id, native=True, **fields), COUNT, seed=1, slot=0)


def filled(group, steps: int) -> Block:
    block = Block.allocate(group.spaces, steps, COUNT)
    group.start(block)
    for t in range(steps):
        block.actions[t] = t % 2
        group.step(t, block.actions[t], block)
    return block


def test_every_row_is_a_transition_that_happened():
    group = native(max_episode_steps=20)
    block = filled(group, 200)
    assert (block.rewards == 1).all()  # a reset in a step of its own would have reward 0
    assert block.truncated.sum() == len(block.finals) > 0
    ends = block.terminated | block.truncated
    assert ends.sum() == len(block.episodes)
    starts = block.observations["observations"][1:][ends]
    assert (np.abs(starts) <= 0.05).all()  # CartPole begins within ±0.05
    for episode in block.episodes:
        assert episode.total_reward == episode.length <= 20
    for t, b, final, _ in block.finals:
        before = block.observations["observations"][t, b]
        place = before[0] + 0.02 * before[1]  # one Euler step of CartPole
        assert final["observations"][0] == pytest.approx(place, abs=1e-5)


def test_it_says_that_it_cannot_be_rebuilt_and_begins_new_episodes():
    group = native()
    assert group.spaces.exact is False
    starts = group.starts()
    block = filled(group, 64)
    facts = RolloutFacts("r", 0, 0, "i", Version(1, 0), 64, COUNT, starts, tuple(block.episodes), {}, 0.0)
    again = native()
    other = Block.allocate(again.spaces, 64, COUNT)
    rebuilt = again.rebuild(iter([Rollout(facts, block.columns())]), other)
    assert rebuilt.mismatches == tuple(range(COUNT))
    newest = max(start.episode for start in group.starts())
    assert again.starts() == (Start(newest + 1, 0, 0.0),) * COUNT
    assert (other.observations["observations"][0] != block.observations["observations"][0]).any()


def test_boxes_and_pictures_work():
    pendulum = native("Pendulum-v1")
    filled(pendulum, 10)
    pendulum.check(filled(pendulum, 10))
    pong = native("ALE/Pong-v5")
    assert pong.spaces.observation.columns["observations"].shape == (84, 84, 4)
    assert filled(pong, 3).observations["observations"].any()


def test_mistakes_are_one_sentence():
    with pytest.raises(ConfigError, match=r"did you mean 'CartPole-v1'\?; or leave out `native`"):
        native("CartPol-v1")
    with pytest.raises(ConfigError, match="no wrappers"):
        native(wrappers=("gymnasium.wrappers:RecordEpisodeStatistics",))
    with pytest.raises(ConfigError, match="cannot make"):
        native(kwargs={"foo": 1})
