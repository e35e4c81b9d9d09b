"""One policy's service on a real log of either kind: stored once, packed once, also when it is another process's turn.

The test takes the learner's part: it publishes versions whose roster lets the gateway's slot go on.
"""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock import proto
from penstock.errors import Unavailable
from penstock.loop.gateway import queue as queues
from penstock.loop.gateway import service as services
from penstock.loop.gateway.configuration import translate
from penstock.loop.gateway.figures import OwnFigures
from penstock.loop.gateway.holding import Holdings
from penstock.loop.gateway.idling import Idling
from penstock.loop.gateway.packing import accounted
from penstock.loop.gateway.queue import Queue, decode_facts
from penstock.loop.gateway.rounds import SLOT
from penstock.loop.gateway.service import Service
from penstock.loop.policies import Publisher
from penstock.loop.registry import RunRecord, register, unregister
from penstock.model import delta, topics
from penstock.model.policy import NetworkSpec, Policy, PolicyDescription, PolicyFacts
from penstock.model.rollout import Packed, Rollout, decode_experience
from penstock.model.run import run_id
from penstock.model.spec import StreamSpec
from penstock.model.tensors import weights_sha256
from penstock.model.version import Version
from penstock.policy import networks
from penstock.stream.base import Stream
from penstock.stream.records import RecordReader
from penstock.wiring import open_stream

SOURCE = "5" * 32
ROWS = 4


@dataclass
class Wishes:
    """What the service asks of whoever keeps runs."""

    learners: list[int] = field(default_factory=list)
    keeper_is_there: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.keeper_is_there.set()

    def scale_learner(self, run: str, learners: int) -> None:
        self.learners.append(learners)

    def revive(self, run: str) -> None:
        assert self.keeper_is_there.wait(60), "the test never let it start"


@dataclass
class Bench:
    stream: Stream
    record: RunRecord
    holdings: Holdings
    wishes: Wishes = field(default_factory=Wishes)
    made: list[Service] = field(default_factory=list)

    def service(self, idle: float = 60.0) -> Service:
        holding = self.holdings.take("p", self.record.run)
        self.holdings.remember("p", self.record.run, holding)
        self.made.append(Service(self.record, self.stream, self.wishes, OwnFigures(), idle, holding))
        return self.made[-1]

    def publish(self, step: int, epoch: int = 1) -> Policy:
        """The next version, as a learner that waits for the gateway's slot would publish it."""
        policy = version(self.record, Version(epoch, step))
        Publisher(self.stream, self.record.run, epoch).publish(policy)
        return policy

    def rollouts(self) -> list[Rollout]:
        found = RecordReader(self.stream, topics.experiences(self.record.run), decode_experience)
        return [item for batch in found.drain() for _, item in batch if isinstance(item, Rollout)]

    def stored(self) -> list[int]:
        found = RecordReader(self.stream, topics.trajectories(self.record.run), decode_facts)
        return [facts.sequence for batch in found.drain() for _, facts in batch]


def version(record: RunRecord, number: Version) -> Policy:
    from penstock.model.clients import shape_of

    spaces = shape_of(record.spec.environment.kwargs).spaces()
    description = PolicyDescription("ppo", "categorical", spaces, NetworkSpec(hidden=(8,)))
    tensors = networks.initial(description, np.random.default_rng(number.step))
    return Policy(
        PolicyFacts(
            record.run, number, weights_sha256(tensors), description, {SLOT: 0}, 0, published_at=time.time()
        ),
        tensors,
    )


@pytest.fixture
def bench(url: str, tmp_path: Path) -> Iterator[Bench]:
    import random

    configuration = {"algorithm_parameters": {"act_dim": 2, "input_size": 2, "traj_per_epoch": 4}}
    spec = translate("p", configuration, url)
    stream = open_stream(tmp_path, StreamSpec(url=url))
    run = run_id("client:p", random.SystemRandom())
    made = Bench(stream, register(stream, run, spec), Holdings(tmp_path, stream))
    yield made
    for service in made.made:
        service.close()
    unregister(stream, run)
    stream.close()


def message(number: int, *, step: int = 0, epoch: int = 0, foreign: bool = False) -> Any:
    """Row t of trajectory n shows (n, t)."""
    seen = np.stack((np.full(ROWS, number), np.arange(ROWS)), 1).astype("<f4")
    return proto.Trajectory(
        sequence=number, length=ROWS, version=proto.Version(epoch=epoch, step=step), terminated=True,
        observations={"observations": seen.tobytes()}, actions=bytes(4 * ROWS), rewards=bytes(4 * ROWS),
        log_probs=np.full(ROWS, -0.7, "<f4").tobytes(), foreign=b"\1" * ROWS if foreign else b"",
    )  # fmt: skip


def send(service: Service, *numbers: int, **more: Any) -> list[int]:
    newest = service.versions.version
    return [service.queue.store(SOURCE, message(number, **more), newest).outcome for number in numbers]


def eventually(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come true"
        time.sleep(0.02)


def rows_of(rollouts: list[Rollout]) -> list[tuple[int, int]]:
    return [
        tuple(row) for item in rollouts for row in item.columns["observations"][:, 0].astype(int).tolist()
    ]


def test_what_is_sent_becomes_rollouts_once_whoever_dies(bench: Bench) -> None:
    bench.publish(0)
    step = 0
    service = bench.service()
    for turn in range(4):
        numbers = range(turn * 5 + 1, turn * 5 + 6)
        before = len(bench.rollouts())
        assert set(send(service, *numbers)) == {queues.STORED}
        eventually(lambda before=before: len(bench.rollouts()) > before)
        service._ending.set()  # as if killed: nothing more is written down
        service._thread.join()
        step += 1
        bench.publish(step)
        service = bench.service()
        assert set(send(service, *numbers)) == {queues.DUPLICATE}, "what was acknowledged is known again"
    bench.publish(step + 1)
    eventually(lambda: service.queue.waiting < 4)
    rollouts = bench.rollouts()
    assert bench.stored() == list(range(1, 21))
    rows = rows_of(rollouts)
    assert rows == [(number, row) for number in range(1, 21) for row in range(ROWS)][: len(rows)]
    figures = service.figures()
    assert (
        figures["gateway/received"] == 20 == figures["gateway/packed"] + figures["gateway/queue_trajectories"]
    )
    packed = rollouts[-1].facts.packed
    assert packed is not None
    assert accounted(packed.counts) == packed.position[0]
    assert [item.facts.round for item in rollouts] == sorted({item.facts.round for item in rollouts})


@dataclass
class Faltering:
    """A writer whose next writes fail, after they landed or before."""

    real: Any
    fails: list[str] = field(default_factory=list)

    def write(self, key: str, value: Any) -> None:
        how = self.fails.pop(0) if self.fails else "lands"
        if how != "lost":
            self.real.write(key, value)
        if how != "lands":
            raise Unavailable("the log did not answer in time")


@pytest.mark.parametrize("fault", ["lost", "landed"])
def test_a_rollout_that_could_not_be_written_comes_again_as_it_was(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(services, "RETRY_SECONDS", 0.05)
    bench.publish(0)
    service = bench.service()
    writer = Faltering(service._rounds._writer)
    monkeypatch.setattr(service._rounds, "_writer", writer)
    monkeypatch.setattr(service._rounds, "say_hello", lambda: None)
    writer.fails.append(fault)
    send(service, 1, 2, 3, 4)
    eventually(lambda: service.queue.waiting == 0)
    bench.publish(1)
    send(service, 5, 6, 7, 8)
    eventually(lambda: service._rounds.last_round == 1)
    by_round = {item.facts.round: item for item in bench.rollouts()}
    assert rows_of(list(by_round.values())) == [
        (number, row) for number in range(1, 9) for row in range(ROWS)
    ]
    assert len(bench.rollouts()) == (2 if fault == "lost" else 3)


def test_numbers_that_could_not_be_written_down_are_written_the_next_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.publish(0)
    service = bench.service()
    service._ending.set()  # the test does what its thread would do
    service._thread.join()
    writer = Faltering(service.queue._told, ["lost"])
    monkeypatch.setattr(service.queue, "_told", writer)
    send(service, 1, 2)
    service.queue.settle([(SOURCE, 1), (SOURCE, 2)])
    with pytest.raises(Unavailable):
        service.queue.flush({0: 2}, now=True)
    assert service.queue.store("6" * 32, message(1), service.versions.version).outcome == queues.STORED
    service.queue.settle([("6" * 32, 1)])
    service.queue.flush({0: 3}, now=True)
    # as if retention had dropped all that is told
    packed = Packed({0: 3}, 0, 0, {"packed": 3})
    again = Queue(bench.stream, service.expected, bench.record.spec.stream, packed)
    for source, numbers in ((SOURCE, (1, 2)), ("6" * 32, (1,))):
        for number in numbers:
            assert again.store(source, message(number), service.versions.version).outcome == queues.DUPLICATE


def test_a_write_that_failed_and_landed_is_packed_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "REST_SECONDS", 0.0)
    bench.publish(0)
    service = bench.service()
    writer = Faltering(service.queue._writer, ["landed"])
    monkeypatch.setattr(service.queue, "_writer", writer)
    with service.queue._lock:  # the client comes again before the packer has read anything
        newest = service.versions.version
        first = service.queue._store(SOURCE, 1, message(1), newest)
        again = service.queue._store(SOURCE, 1, message(1), newest)
    assert [first.outcome, again.outcome] == [queues.LATER, queues.STORED]
    writer.fails.append("landed")
    assert send(service, 2) == [queues.LATER]
    eventually(lambda: service.queue.waiting == 2)  # the packer has read it: now it is known
    assert send(service, 2, 3, 4) == [queues.DUPLICATE, queues.STORED, queues.STORED]
    eventually(lambda: bench.rollouts())
    eventually(lambda: service.queue.waiting == 0)
    assert bench.stored() == [1, 1, 2, 3, 4]
    assert rows_of(bench.rollouts()) == [(number, row) for number in range(1, 5) for row in range(ROWS)]
    figures = service.figures()
    names = ("received", "packed", "duplicate", "queue_bytes")
    assert [figures[f"gateway/{name}"] for name in names] == [4, 4, 1, 0]
    service.close()
    assert bench.service().queue.waiting == 0


@pytest.mark.parametrize("written_down", ["before the copy", "after the copy"])
def test_a_copy_that_lands_while_gateways_change_is_packed_once(bench: Bench, written_down: str) -> None:
    """A write that failed may land late: between its copies one gateway ends and another begins."""
    bench.publish(0)
    service = bench.service()
    send(service, 1, 2, 3, 4)
    eventually(lambda: service._rounds.last_round == 0)
    service._ending.set()  # from here on the test does what its thread would do
    service._thread.join()
    packed = service._rounds.packed
    assert packed is not None
    assert packed.position == {0: 4}
    if written_down == "before the copy":
        service.queue.flush(packed.position, now=True)
    topic = topics.trajectories(bench.record.run)
    original = next(record for record in bench.stream.backwards(topic, SOURCE) if record.offset == 1)
    bench.stream.writer(topic).write(SOURCE, original.value)
    assert send(service, 5) == [queues.STORED]
    if written_down == "after the copy":
        service.queue.flush(packed.position, now=True)
    again = bench.service()
    assert again.queue.waiting == 1, "5 waits, the copy of 2 does not"
    bench.publish(1)
    assert send(again, 2, 5, 6, 7, 8) == [queues.DUPLICATE] * 2 + [queues.STORED] * 3
    eventually(lambda: again._rounds.last_round == 1)
    eventually(lambda: again.queue.waiting == 0)
    assert bench.stored() == [1, 2, 3, 4, 2, 5, 6, 7, 8]
    assert rows_of(bench.rollouts()) == [(number, row) for number in range(1, 9) for row in range(ROWS)]
    figures = again.figures()
    names = ("received", "packed", "duplicate", "queue_bytes")
    assert [figures[f"gateway/{name}"] for name in names] == [8, 8, 1, 0]


def test_after_one_that_has_to_wait_the_others_wait_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "REST_SECONDS", 600.0)
    bench.publish(0)
    service = bench.service()
    writer = Faltering(service.queue._writer, ["lands", "lost"])
    monkeypatch.setattr(service.queue, "_writer", writer)
    newest, messages = service.versions.version, [message(number) for number in range(1, 6)]

    def outcomes(until: float = float("inf")) -> list[int]:
        return [one.outcome for one in service.queue.store_all(SOURCE, messages, newest, until)]

    assert outcomes() == [queues.STORED] + [queues.LATER] * 4
    assert bench.stored() == [1], "nothing overtakes"
    assert outcomes() == [queues.DUPLICATE] + [queues.LATER] * 4, "for a while nobody tries"
    service.queue._rests_until = 0.0
    assert set(outcomes(until=0.0)) == {queues.LATER}, "who asked is gone"
    assert outcomes() == [queues.DUPLICATE] + [queues.STORED] * 4
    assert bench.stored() == [1, 2, 3, 4, 5]


def test_the_source_that_was_silent_longest_is_forgotten_once_it_is_packed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "MOST_SOURCES", 2)
    bench.publish(0)
    service = bench.service()
    service._ending.set()  # the test does what its thread would do
    service._thread.join()
    queue, newest = service.queue, service.versions.version

    def outcome(name: str, number: int) -> int:
        return queue.store(name * 32, message(number), newest).outcome

    assert [outcome(name, 1) for name in "abca"] == [queues.STORED] * 3 + [queues.DUPLICATE]
    assert all(queue.arrived(name * 32, 1, 1) for name in "abc")
    queue.settle([(name * 32, 1) for name in "abc"])
    assert outcome("a", 2) == queues.STORED  # b was silent longest now
    assert list(queue._sources) == ["c" * 32, "a" * 32]
    queue.flush({0: 3}, now=True)
    again = Queue(bench.stream, service.expected, bench.record.spec.stream, Packed({0: 4}, 0, 0, {}))
    assert len(again._sources) == 2


def test_what_is_dropped_is_counted_by_its_reason(bench: Bench) -> None:
    bench.publish(0)
    service = bench.service()
    send(service, 1, 2, foreign=True)
    send(service, 3, 4, 5)
    time.sleep(0.3)
    bench.publish(20)  # max_lag is 8: what version 0.0 decided is too old now
    eventually(lambda: service.versions.version.step == 20)
    send(service, 6, 7, 8, 9, step=20, epoch=1)
    eventually(lambda: bench.rollouts())
    eventually(lambda: service.queue.waiting == 0)
    figures = service.figures()
    assert {name: figures[f"gateway/{name}"] for name in ("received", "packed", "stale", "foreign")} == {
        "received": 9, "packed": 4, "stale": 3, "foreign": 2,
    }  # fmt: skip
    assert figures["gateway/queue_bytes"] == 0


def test_a_full_queue_says_later_and_loses_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "MOST_QUEUED_BYTES", 4096)
    bench.publish(0)
    service = bench.service()
    service._packer.actors = type(bench.record.spec.actors)(trajectories=1000)  # nothing is packed for now
    outcomes = send(service, *range(1, 31))
    assert set(outcomes) == {queues.STORED, queues.LATER}
    stored = [number for number, outcome in enumerate(outcomes, 1) if outcome == queues.STORED]
    assert bench.stored() == stored
    assert outcomes == sorted(outcomes), "once full it stays full"
    assert send(service, *stored[:3]) == [queues.DUPLICATE] * 3


def test_versions_are_handed_out_as_deltas_and_never_go_back(bench: Bench) -> None:
    first = bench.publish(0)
    service = bench.service()
    second = bench.publish(1)
    eventually(lambda: service.versions.version == second.facts.version)
    change = service.versions.change(first.facts.version, first.facts.weights_sha256)
    assert change is not None
    assert change.policy.facts == second.facts
    if change.kind == "delta":
        assert weights_sha256(delta.apply(first.tensors, change.payload)) == second.facts.weights_sha256
    other = service.versions.change(first.facts.version, "0" * 64)
    assert other is not None
    assert other.kind == "whole", "another base than ours is no base"
    same = service.versions.change(second.facts.version, second.facts.weights_sha256)
    assert same is not None
    assert same.kind == "nothing"
    service.close()
    again = bench.service()
    assert again.versions.version == second.facts.version


def test_a_run_that_was_deleted_takes_no_more(bench: Bench) -> None:
    bench.publish(0)
    service = bench.service()
    unregister(bench.stream, bench.record.run, keep_topics=True)
    eventually(lambda: not service.alive)
    assert service.trouble is not None
    assert "deleted" in service.trouble


def test_what_was_made_for_another_run_is_refused_with_the_reason(bench: Bench) -> None:
    """Its version may look like one of ours: every run counts from 0.0."""
    bench.publish(3)
    service = bench.service()
    old, ours, unsaid = (message(number, step=2, epoch=1) for number in (1, 2, 3))
    old.run, ours.run = "deleted-1", bench.record.run
    newest = service.versions.version
    receipts = service.queue.store_all(SOURCE, [old, ours, unsaid], newest)
    assert [one.outcome for one in receipts] == [queues.REFUSED, queues.STORED, queues.STORED]
    assert "made for run 'deleted-1'" in receipts[0].reason
    assert bench.record.run in receipts[0].reason
    (whole,) = service.queue.store_all(SOURCE, [message(4)], newest, run="deleted-1")
    assert whole.outcome == queues.REFUSED, "the call says it for those that name none"
    assert bench.stored() == [2, 3]


def test_a_learner_is_woken_by_data_and_parked_without(bench: Bench) -> None:
    bench.publish(0)
    service = bench.service(idle=1.0)
    send(service, 1)
    eventually(lambda: bench.wishes.learners)
    assert bench.wishes.learners[0] == 1
    eventually(lambda: bench.wishes.learners[-1] == 0)
    send(service, 2)
    eventually(lambda: bench.wishes.learners[-1] == 1)


def test_versions_come_while_a_keeper_takes_its_time_to_start(bench: Bench) -> None:
    bench.publish(0)
    bench.wishes.keeper_is_there.clear()
    service = bench.service()
    send(service, 1)
    bench.publish(1)
    eventually(lambda: service.versions.version == Version(1, 1))
    assert bench.wishes.learners == []
    bench.wishes.keeper_is_there.set()
    eventually(lambda: bench.wishes.learners == [1])


def test_a_start_wakes_no_learner_for_what_fills_no_rollout(bench: Bench) -> None:
    """Else each start would bring the learners of all policies at once."""
    bench.publish(0)
    service = bench.service()
    send(service, 1, 2)  # of the four that a rollout takes
    service.close()
    bench.wishes.learners.clear()
    service = bench.service(idle=1.0)
    eventually(lambda: bench.wishes.learners)
    assert bench.wishes.learners == [0], "only parked, in case one was left awake"


@pytest.mark.parametrize(
    ("awake", "work", "quiet", "wanted"),
    [
        (None, True, 0.0, 1), (None, False, 5.0, None), (None, False, 11.0, 0), (True, False, 5.0, None),
        (True, True, 11.0, None), (True, False, 11.0, 0), (False, False, 11.0, None), (False, True, 0.0, 1),
    ],
)  # fmt: skip
def test_when_a_learner_is_wanted(awake: bool | None, work: bool, quiet: float, wanted: int | None) -> None:
    assert Idling(10.0, awake).wants(work, 100.0 - quiet, 100.0) == wanted
