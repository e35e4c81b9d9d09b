"""An interrupted group, rebuilt from the log, goes on as if it had never been interrupted."""

import numpy as np
import pytest

from penstock.envs.group import EnvironmentGroup
from penstock.model.codec import open_frame
from penstock.model.rollout import Block, Rollout, RolloutFacts, Start
from penstock.model.spec import EnvironmentSpec
from penstock.model.version import Version

HERE = "penstock.testing.environments"
COUNT, STEPS = 3, 16

EXACT = {
    "CartPole": EnvironmentSpec(id="CartPole-v1"),
    "CartPole, limit": EnvironmentSpec(id="CartPole-v1", max_episode_steps=21),
    "LunarLander": EnvironmentSpec(id="LunarLander-v3"),
    "LunarLander, continuous, wind": EnvironmentSpec(
        id="LunarLander-v3", kwargs={"continuous": True, "enable_wind": True}
    ),
    "BipedalWalker": EnvironmentSpec(id="BipedalWalker-v3"),
    "noise in steps": EnvironmentSpec(id=f"{HERE}:Walk"),
    "wrapped": EnvironmentSpec(
        id=f"{HERE}:Walk", wrappers=("gymnasium.wrappers:RecordEpisodeStatistics",), max_episode_steps=35
    ),
    "tree": EnvironmentSpec(id=f"{HERE}:Named", kwargs={"length": 37}),
    "tuple": EnvironmentSpec(id=f"{HERE}:Pair", kwargs={"length": 37}),
    "masks in info": EnvironmentSpec(id=f"{HERE}:Masked", kwargs={"length": 37}),
    "masks in observation": EnvironmentSpec(
        id=f"{HERE}:Masked", kwargs={"length": 37, "place": "observation"}
    ),
    "items": EnvironmentSpec(id=f"{HERE}:Jobs", kwargs={"length": 37}),
    "picture": EnvironmentSpec(id=f"{HERE}:Picture", kwargs={"layout": "first", "length": 37}),
}


class Recorder:
    """An actor without a policy: rollouts go through the codec into a list, as they would into the log."""

    def __init__(self, spec: EnvironmentSpec) -> None:
        self.group = EnvironmentGroup(spec, COUNT, seed=5, slot=2)
        self.block = Block.allocate(self.group.spaces, STEPS, COUNT)
        self.written: list[Rollout] = []

    def play(self, round: int) -> Rollout:
        group, block = self.group, self.block
        starts = group.starts()
        for t in range(STEPS):
            block.actions[t] = self.choose(round, t)
            group.step(t, block.actions[t], block)
        facts = RolloutFacts(
            "r", 2, round, "i", Version(1, round), STEPS, COUNT, starts, tuple(block.episodes), {}, 0.0
        )
        rollout = Rollout.decode(open_frame(bytes(Rollout(facts, block.columns()).encode())))
        block.next_round()
        self.written.append(rollout)
        return rollout

    def choose(self, round: int, t: int) -> np.ndarray:
        generator = np.random.default_rng((round, t))
        layout, masks = self.group.spaces.action, self.block.masks
        if masks is not None:
            return masks[t].argmax(1)
        if layout.kind == "box":
            return generator.normal(size=(COUNT, *layout.shape))
        sizes = np.array(layout.sizes).reshape(layout.column.shape or ())
        return generator.integers(0, sizes, (COUNT, *layout.column.shape))


def same(one: Rollout, other: Rollout) -> bool:
    return (
        one.facts.starts == other.facts.starts
        and one.facts.episodes == other.facts.episodes
        and all(one.columns[name].tobytes() == other.columns[name].tobytes() for name in one.columns)
    )


@pytest.mark.parametrize("rounds", [1, 4, 9])
@pytest.mark.parametrize("name", EXACT)
def test_a_rebuilt_group_goes_on_to_the_bit(name, rounds):
    whole = Recorder(EXACT[name])
    whole.group.start(whole.block)
    for round in range(rounds):
        whole.play(round)
    broken = Recorder(EXACT[name])
    rebuilt = broken.group.rebuild(iter(whole.written[::-1]), broken.block)
    assert rebuilt.mismatches == ()
    assert broken.group.starts() == whole.group.starts()
    assert rebuilt.replayed == sum(start.elapsed for start in whole.group.starts())
    for round in range(rounds, rounds + 4):
        assert same(whole.play(round), broken.play(round))


def test_a_group_that_is_interrupted_again_and_again_stays_exact():
    whole, log = Recorder(EXACT["CartPole, limit"]), []
    whole.group.start(whole.block)
    for round in range(8):
        again = Recorder(EXACT["CartPole, limit"])
        again.group.rebuild(iter(log[::-1]), again.block)
        log.append(again.play(round))
        assert same(whole.play(round), log[-1])


def test_without_a_log_every_environment_begins():
    fresh, other = Recorder(EXACT["CartPole"]), Recorder(EXACT["CartPole"])
    fresh.group.start(fresh.block)
    assert other.group.rebuild(iter(()), other.block).mismatches == ()
    assert same(fresh.play(0), other.play(0))


def test_no_more_of_the_log_is_read_than_needed():
    recorder = Recorder(EnvironmentSpec(id=f"{HERE}:Counter", kwargs={"length": STEPS * 2}))
    recorder.group.start(recorder.block)
    for round in range(7):
        recorder.play(round)
    read = []
    log = (read.append(rollout.facts.round) or rollout for rollout in recorder.written[::-1])
    again = Recorder(EnvironmentSpec(id=f"{HERE}:Counter", kwargs={"length": STEPS * 2}))
    assert again.group.rebuild(log, again.block).replayed == STEPS * COUNT
    assert read == [6, 5]  # one ahead, to see whether a round was written twice


def test_a_log_that_begins_within_an_episode_begins_new_ones():
    spec = EnvironmentSpec(id=f"{HERE}:Counter", kwargs={"length": 100})
    recorder = Recorder(spec)
    recorder.group.start(recorder.block)
    for round in range(3):
        recorder.play(round)
    again = Recorder(spec)
    rebuilt = again.group.rebuild(iter(recorder.written[:0:-1]), again.block)
    assert rebuilt.mismatches == (0, 1, 2)
    assert "the log begins within episode 0" in rebuilt.reasons[0]
    assert again.group.starts() == (Start(1, 0, 0.0),) * COUNT
    assert again.block.observations["observations"][0].tolist() == [[0, -1]] * COUNT


def test_a_missing_round_is_a_gap():
    spec = EnvironmentSpec(id=f"{HERE}:Counter", kwargs={"length": 100})
    recorder = Recorder(spec)
    recorder.group.start(recorder.block)
    for round in range(3):
        recorder.play(round)
    again = Recorder(spec)
    log = [recorder.written[2], recorder.written[0]]
    assert "gap within episode 0" in again.group.rebuild(iter(log), again.block).reasons[0]


def test_of_a_round_written_twice_the_first_counts():
    recorder = Recorder(EXACT["noise in steps"])
    recorder.group.start(recorder.block)
    first, second = recorder.play(0), recorder.play(1)
    stray = Rollout(second.facts, {**second.columns, "actions": second.columns["actions"] + 1})
    again = Recorder(EXACT["noise in steps"])
    assert again.group.rebuild(iter([stray, second, first]), again.block).mismatches == ()


def test_an_environment_that_is_not_determined_by_its_seed_is_found_out():
    spec = EnvironmentSpec(id=f"{HERE}:Drifting", kwargs={"length": 100})
    recorder = Recorder(spec)
    recorder.group.start(recorder.block)
    recorder.play(0)
    again = Recorder(spec)
    rebuilt = again.group.rebuild(iter(recorder.written), again.block)
    assert rebuilt.mismatches == (0, 1, 2)
    assert "observation 0 of episode 0 differs from the log" in rebuilt.reasons[0]


def test_only_the_environment_that_differs_begins_anew():
    recorder = Recorder(EXACT["noise in steps"])
    recorder.group.start(recorder.block)
    rollout = recorder.play(0)
    actions = rollout.columns["actions"].copy()
    actions[-2, 1] += 0.25
    again = Recorder(EXACT["noise in steps"])
    changed = Rollout(rollout.facts, {**rollout.columns, "actions": actions})
    rebuilt = again.group.rebuild(iter([changed]), again.block)
    assert rebuilt.mismatches == (1,)
    expected = recorder.group.starts()
    assert again.group.starts()[0] == expected[0]
    assert again.group.starts()[1] == Start(expected[1].episode + 1, 0, 0.0)
    assert again.group.starts()[2] == expected[2]


def test_an_environment_that_raises_while_it_is_replayed_begins_anew():
    steady = Recorder(EnvironmentSpec(id=f"{HERE}:Counter", kwargs={"length": 100}))
    steady.group.start(steady.block)
    steady.play(0)
    again = Recorder(EnvironmentSpec(id=f"{HERE}:Faulty", kwargs={"fault": "raises", "at": 5}))
    rebuilt = again.group.rebuild(iter(steady.written), again.block)
    assert rebuilt.mismatches == (0, 1, 2)
    assert "raised ValueError while it was replayed" in rebuilt.reasons[0]


def test_a_log_with_fewer_environments_or_other_columns_is_not_exact():
    recorder = Recorder(EXACT["noise in steps"])
    recorder.group.start(recorder.block)
    recorder.play(0)
    wider = EnvironmentGroup(EXACT["noise in steps"], COUNT + 1, seed=5, slot=2)
    block = Block.allocate(wider.spaces, STEPS, COUNT + 1)
    assert wider.rebuild(iter(recorder.written), block).mismatches == (COUNT,)
    assert wider.starts()[COUNT] == Start(0, 0, 0.0)
    other = Recorder(EXACT["tree"])
    assert other.group.rebuild(iter(recorder.written), other.block).mismatches == (0, 1, 2)
