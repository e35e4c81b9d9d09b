"""Beginning and refusing policies: nothing is begun that cannot be served, and what fails twice is taken back.

The test takes the parts of whoever keeps runs and of the child that makes the first version.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConfigError, NotFound, Unavailable
from penstock.executors.base import Exit, WorkerSpec
from penstock.loop.gateway import gateway as gateways
from penstock.loop.gateway import service as services
from penstock.loop.gateway.gateway import Gateway
from penstock.loop.policies import Publisher
from penstock.loop.registry import find, register, unregister
from penstock.model.spec import Spec, StreamSpec
from penstock.model.version import Version
from penstock.stream.base import Stream
from penstock.wiring import open_stream
from tests.integration.test_gateway_service import eventually, version

SHAPE = {"algorithm_parameters": {"act_dim": 2, "input_size": 2}}


@dataclass
class Runs:
    """Begins runs by writing them into the log."""

    stream: Stream
    begun: list[str] = field(default_factory=list)
    discarded: list[str] = field(default_factory=list)

    def start(self, spec: Spec) -> str:
        run = f"r-{len(self.begun)}"
        self.begun.append(run)
        register(self.stream, run, spec)
        return run

    def discard(self, run: str) -> None:
        self.discarded.append(run)
        unregister(self.stream, run)

    def learns(self, run: str) -> bool:
        return False

    def scale_learner(self, run: str, learners: int) -> None: ...

    def revive(self, run: str) -> None: ...


@dataclass
class Ended:
    """A child that has ended."""

    code: int
    pid: int = 0

    def poll(self) -> int:
        return self.code

    def stop(self) -> None: ...

    def kill(self) -> None: ...


@dataclass
class Children:
    """Ends each child as told; one that is told nothing publishes a first version."""

    stream: Stream
    endings: list[tuple[int, str]] = field(default_factory=list)
    launched: int = 0
    place: str = "here"

    def launch(self, spec: WorkerSpec) -> Ended:
        self.launched += 1
        code, words = self.endings.pop(0) if self.endings else (Exit.FINISHED, "")
        spec.log.parent.mkdir(parents=True, exist_ok=True)
        with spec.log.open("a") as log:
            log.write(words)
        if code == Exit.FINISHED:
            run = spec.arguments[1]
            Publisher(self.stream, run, 0).publish(version(find(self.stream, run), Version(0, 0)))
        return Ended(code)


@dataclass
class Place:
    gateway: Gateway
    runs: Runs
    children: Children


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    stream = open_stream(tmp_path, StreamSpec())
    runs, children = Runs(stream), Children(stream)
    gateway = Gateway(tmp_path, stream, runs, children, idle_seconds=0.2)
    yield Place(gateway, runs, children)
    gateway.close()
    stream.close()


def refused(call: Callable[[], Any], kind: type[Exception]) -> str:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


def test_a_policy_without_a_place_is_not_begun_and_an_idle_one_gives_its_place_away(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateways, "MOST_POLICIES", 1)
    first = place.gateway.open("first", SHAPE).service
    words = refused(lambda: place.gateway.open("second", SHAPE), Unavailable)
    assert "serves 1 policies already" in words
    assert place.runs.begun == ["r-0"], "the second was not begun"
    monkeypatch.setattr(services, "QUIET_SECONDS", 0.2)
    eventually(lambda: not first.alive)
    assert place.gateway.open("second", SHAPE).service.run == "r-1"
    monkeypatch.setattr(gateways, "MOST_POLICIES", 2)
    again = place.gateway.service("first")
    assert (again.run, again.versions.version) == ("r-0", Version(0, 0)), "the next call brings it back"


def test_a_policy_whose_learner_is_parked_stays_while_it_is_asked_for(place: Place) -> None:
    service = place.gateway.open("p", SHAPE).service
    eventually(lambda: service._waking.parked)
    service._retire()
    assert place.gateway.known("p") is service


def test_a_first_version_that_fails_twice_is_a_refusal_with_its_last_words(place: Place) -> None:
    trace = 'Traceback (most recent call last):\n  File "/x/y.py", line 3\nMemoryError: Unable to allocate 29.8 GiB\n'
    place.children.endings = [(1, trace), (1, trace)]
    words = refused(lambda: place.gateway.open("large", SHAPE), ConfigError)
    assert "in 2 tries: MemoryError: Unable to allocate 29.8 GiB" in words
    assert "/" not in words, "a path of another machine helps nobody"
    assert place.runs.discarded == ["r-0"]
    assert refused(lambda: place.gateway.open("large", SHAPE), ConfigError) == words
    assert place.children.launched == 2, "who comes back at once is answered without a try"
    assert place.runs.begun == ["r-0"]
    assert "no policy 'large'" in refused(lambda: place.gateway.service("large"), NotFound)
    smaller = {"algorithm_parameters": {"act_dim": 2, "input_size": 2, "seed": 5}}
    assert place.gateway.open("large", smaller).service.run == "r-1"


def test_a_child_that_was_killed_once_is_tried_again(place: Place) -> None:
    place.children.endings = [(-9, "")]
    assert place.gateway.open("p", SHAPE).service.versions.version == Version(0, 0)
    assert place.children.launched == 2


def test_a_log_that_is_away_refuses_nothing_for_good(place: Place) -> None:
    place.children.endings = [(Exit.UNREACHABLE, "error: the brokers do not answer\n")]
    assert refused(lambda: place.gateway.open("p", SHAPE), Unavailable) == "the brokers do not answer"
    assert place.gateway.open("p", SHAPE).service.run == "r-0"
    assert place.runs.discarded == []


def test_what_no_memory_holds_begins_nothing(place: Place) -> None:
    huge = {
        "algorithm_name": "DQN",
        "algorithm_parameters": {"act_dim": 2, "input_size": 2, "buf_size": 10**13},
    }
    assert "buf_size needs" in refused(lambda: place.gateway.open("p", huge), ConfigError)
    assert place.runs.begun == []
