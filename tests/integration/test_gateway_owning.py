"""Which run a client's policy is learned by: that does not change because somebody forks it, or by the clock."""

import random

import msgspec
import pytest

from penstock.loop.gateway.configuration import translate
from penstock.loop.gateway.owning import owner, owners
from penstock.loop.registry import register, unregister
from penstock.model.run import run_id
from penstock.model.spec import OriginSpec, Spec
from penstock.stream.base import Stream


@pytest.fixture
def spec(url: str) -> Spec:
    policy = run_id("owned", random.SystemRandom())
    return translate(policy, {"algorithm_parameters": {"act_dim": 2, "input_size": 2}}, url)


def test_a_fork_is_not_the_clients_run_also_after_the_origin_is_gone(stream: Stream, spec: Spec) -> None:
    policy = spec.environment.id.removeprefix("client:")
    run = run_id(policy, random.SystemRandom())
    register(stream, run, spec)
    fork = msgspec.structs.replace(spec, origin=OriginSpec(run=run, version="1.4"))
    register(stream, f"{run}-fork", fork)
    assert [one.run for one in owners(stream)[policy]] == [run]
    unregister(stream, run)
    assert policy not in owners(stream)
    unregister(stream, f"{run}-fork")


def test_of_several_the_one_that_was_served_stays_whatever_the_clock_says(
    stream: Stream, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = spec.environment.id.removeprefix("client:")
    names = [f"{run_id(policy, random.SystemRandom())}-{number}" for number in range(2)]
    register(stream, names[0], spec)
    monkeypatch.setattr("penstock.loop.registry.time.time", lambda: 1.0)  # a clock that was set back
    register(stream, names[1], spec)
    runs = owners(stream)[policy]
    assert [one.run for one in runs] == names
    for served, expected in ((None, names[0]), (names[1], names[1]), ("deleted", names[0])):
        found = owner(runs, served)
        assert found is not None
        assert found.run == expected
    for name in names:
        unregister(stream, name)
