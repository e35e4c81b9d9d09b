"""The learner with actors played by hand: stale, doubled, lost, foreign and late rollouts."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import config
from penstock.loop.learner import LearnerLoop
from penstock.loop.policies import Subscriber
from penstock.loop.registry import register
from penstock.model import topics
from penstock.model.codec import Schema, encode
from penstock.model.history import Update, decode_entry, lineage
from penstock.model.policy import Policy
from penstock.model.rollout import Block, Hello, Rollout, RolloutFacts, Start
from penstock.model.spaces import ActionLayout, Column, Leaf, ObservationLayout, Spaces
from penstock.model.version import Version
from penstock.stream.embedded import EmbeddedStream
from penstock.stream.records import RecordReader

RUN, STEPS, ENVIRONMENTS = "hand-b2c3", 4, 2
SPACES = Spaces(
    ObservationLayout({"observations": Column((4,), "<f4")}, (Leaf((), "box", "observations", size=4),)),
    ActionLayout("discrete", (2,), (0,)),
)
OTHER = Spaces(SPACES.observation, ActionLayout("discrete", (3,), (0,)))


class World:
    """A learner in a thread; the test is its actors."""

    def __init__(self, home: Path, **overrides: object) -> None:
        settings = {
            "actors.count": 1, "actors.rollout": STEPS, "actors.environments": ENVIRONMENTS, "pace.lead": 0,
            "pace.max_lag": 2, "network.hidden": [4], "ppo.epochs": 1, "ppo.minibatch": 8, "stop.target": None,
            "stop.steps": None, "pace.actor_deadline": 60.0,
        }  # fmt: skip
        spec = config.resolve("CartPole-v1", {**settings, **overrides})
        self.stream = EmbeddedStream(home / "stream")
        self.record = register(self.stream, RUN, spec)
        (home / "runs" / RUN).mkdir(parents=True)
        self._stop, self._home = False, home
        self.policies = Subscriber(self.stream, RUN)
        self.writer = self.stream.writer(topics.experiences(RUN))
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._learn, daemon=True)
        self._thread.start()

    def _learn(self) -> None:
        stream = EmbeddedStream(self._home / "stream")
        try:
            LearnerLoop(self.record, self._home / "runs" / RUN, stream, lambda: self._stop).run()
        except BaseException as error:
            self.error = error

    def hello(self, slot: int = 0, last_round: int = -1, spaces: Spaces = SPACES) -> None:
        hello = Hello(RUN, slot, "i", spaces, 1, "here", last_round)
        self.writer.write(str(slot), encode(Schema.HELLO, hello))

    def rollout(self, round: int, slot: int = 0, made_by: Version | None = None) -> None:
        version = self.policies.version if made_by is None else made_by
        starts = (Start(0, 0, 0.0),) * ENVIRONMENTS
        facts = RolloutFacts(RUN, slot, round, "i", version, STEPS, ENVIRONMENTS, starts, (), {}, time.time())
        columns = Block.allocate(SPACES, STEPS, ENVIRONMENTS).columns()
        self.writer.write(str(slot), Rollout(facts, columns).encode())

    def until(self, condition: Callable[[Policy], bool], seconds: float = 30.0) -> Policy:
        """The first version for which the condition holds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert self.error is None, self.error
            self.policies.poll(0.1)
            if self.policies.newest is not None and condition(self.policies.newest):
                return self.policies.newest
        raise AssertionError(f"not within {seconds} s; the newest version is {self.policies.version}")

    def step(self, step: int) -> Policy:
        return self.until(lambda policy: policy.facts.version.step >= step)

    def history(self) -> list[Update]:
        reader = RecordReader(self.stream, topics.history(RUN), decode_entry)
        return list(lineage([entry for _, entry in reader.read(1000, 0)]).updates)

    def close(self) -> None:
        self._stop = True
        self._thread.join(30)
        assert not self._thread.is_alive()
        assert self.error is None, self.error
        self.stream.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    worlds: list[World] = []

    def make(**overrides: object) -> World:
        worlds.append(World(tmp_path, **overrides))
        return worlds[-1]

    yield make
    for item in worlds:
        item.close()


def test_one_rollout_makes_one_version(world: Callable[..., World]):
    here = world()
    here.hello()
    here.step(0)
    for round in range(3):
        here.rollout(round)
        here.step(round + 1)
    assert [[(used.slot, used.round) for used in update.used] for update in here.history()] == [
        [(0, 0)],
        [(0, 1)],
        [(0, 2)],
    ]


def test_doubled_and_foreign_records_change_nothing_and_are_told(world: Callable[..., World]):
    here = world()
    here.hello()
    here.step(0)
    here.rollout(0)
    here.rollout(0)
    here.writer.write("0", b"something else writes this topic")
    here.step(1)
    here.rollout(1)
    here.step(2)
    dropped = [(item.round, item.reason) for update in here.history() for item in update.dropped]
    assert dropped == [(0, "duplicate")]
    assert len(here.stream.reader(topics.DEAD_LETTERS).read(10, 0)) == 1


def test_what_is_too_old_is_dropped_and_the_run_goes_on(world: Callable[..., World]):
    here = world()
    here.hello()
    here.step(0)
    old = here.policies.version
    for round in range(4):
        here.rollout(round)
        here.step(round + 1)
    here.rollout(4, made_by=old)
    here.step(5)
    last = here.history()[-1]
    assert last.used == ()
    assert [(item.round, item.reason) for item in last.dropped] == [(4, "stale")]
    here.rollout(5)
    assert here.step(6).facts.version.step == 6


def test_a_round_that_the_log_lost_does_not_stall_the_run(world: Callable[..., World]):
    here = world()
    here.hello()
    here.step(0)
    here.rollout(0)
    here.step(1)
    here.writer.write("0", b"round 1, damaged beyond reading")
    here.hello(last_round=1)  # the actor believes it written and waits
    here.step(2)
    here.rollout(2)
    here.step(3)
    assert [len(update.used) for update in here.history()] == [1, 0, 1]


def test_a_silent_actor_leaves_and_comes_back_when_it_says_hello(world: Callable[..., World]):
    here = world(**{"actors.count": 2, "pace.actor_deadline": 1.0})
    here.hello(0)
    here.hello(1)
    here.step(0)
    here.rollout(0, slot=0)
    assert here.step(1).facts.roster == {0: 0}, "slot 1 was silent past its deadline"
    here.hello(1)
    here.rollout(1, slot=0)
    joined = here.until(lambda policy: 1 in policy.facts.roster)
    first = joined.facts.roster[1]
    for slot in (0, 1):
        here.rollout(first, slot=slot)
    here.step(first + 1)
    assert {used.slot for used in here.history()[-1].used} == {0, 1}


def test_when_all_were_silent_one_hello_is_enough_to_go_on(world: Callable[..., World]):
    here = world(**{"pace.actor_deadline": 0.5})
    here.hello()
    here.step(0)
    for _ in range(10):  # as an actor does that waits: now and then, and less often than the deadline
        time.sleep(1.0)
        here.hello()
    joined = here.until(lambda policy: policy.facts.roster.get(0, 0) > 0)
    here.rollout(joined.facts.roster[0])
    here.step(joined.facts.roster[0] + 1)


def test_an_actor_of_another_environment_is_not_let_in(world: Callable[..., World]):
    here = world(**{"actors.count": 2, "pace.actor_deadline": 1.0})
    here.hello(0)
    here.step(0)
    here.hello(1, spaces=OTHER)
    here.rollout(0, slot=0)
    assert 1 not in here.step(1).facts.roster
