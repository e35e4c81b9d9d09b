"""One run on several hosts: network namespaces with homes of their own, and a real Kafka between them."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.broker import Broker
from tests.brokers import QUICK as QUICK_BROKER
from tests.brokers import running
from tests.faults.checker import check_run
from tests.hosts import Host, hosts
from tests.integration.harness import QUICK, penstock, resume, role, train


class World(NamedTuple):
    here: Path
    """The home of this host."""
    shared: Path
    """A folder that all hosts see."""
    url: str
    hosts: list[Host]

    def home(self, host: Host) -> Path:
        return self.here.parent / host.name


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("hosts")
    with (
        hosts(2) as made,
        running(Broker(folder / "broker", host=made[0].here, settings=QUICK_BROKER)) as broker,
    ):
        yield World(folder / "here", folder / "shared", f"kafka://{broker.bootstrap}/team", made)


def test_an_actor_with_an_empty_home_on_another_host_joins_and_trains(world: World):
    there, flags = world.hosts[0], (*QUICK, "--actors", "0", "--stream", world.url)
    with train(world.here, "far", *flags, "--set", "stop.updates=40") as run:
        run.wait_until_running()
        with role(world.home(there), "actor", "far", "--stream", world.url, host=there) as actor:
            assert run.result(120)["updates"] == 40
            assert actor.wait(30) == 0, "the run is done, and so is its guest"
    joined = [event["slot"] for event in run.events() if event["event"] == "actor_joined"]
    assert joined == [1000]
    assert check_run(world.here, "far", world.url)["used"] >= 39


def test_a_guest_that_leaves_says_so_and_the_run_goes_on(world: World):
    there = world.hosts[1]
    flags = (*QUICK, "--actors", "1", "--stream", world.url, "--set", "stop.steps=null")
    with train(world.here, "left", *flags) as run:
        run.wait_until_running()
        with role(world.home(there), "actor", "left", "--stream", world.url, host=there) as actor:
            run.wait_until(lambda: any(e["event"] == "actor_joined" for e in run.events()), 60, "a guest")
            run.wait_for_updates(run.updates() + 10)
            actor.send_signal(signal.SIGINT)
            assert actor.wait(30) == 0
        run.wait_until(lambda: any(e["event"] == "actor_left" for e in run.events()), 30, "a goodbye")
        run.wait_for_updates(run.updates() + 10, 30)  # far less than pace.actor_deadline
        penstock(world.home(there), "stop", "left", "--stream", world.url)
        assert run.result(60)["state"] == "stopped"


def test_a_learner_on_another_host_takes_over_from_the_shared_store(world: World):
    first, second = world.hosts
    flags = (
        *QUICK, "--actors", "0", "--stream", world.url, "--set", f"checkpoint.store={world.shared}",
        "--set", "checkpoint.every_seconds=1", "--set", "stop.updates=600",
    )  # fmt: skip
    with train(world.home(first), "moved", *flags, host=first) as run:
        run.wait_until_running()
        with role(world.here, "actor", "moved", "--stream", world.url) as actor:
            run.wait_for_updates(30)
            time.sleep(1.5)
            run.kill_all()  # the whole host is gone
            elsewhere = ("learner", "moved", "--stream", world.url)
            refused = penstock(world.home(second), *elsewhere, check=False)
            assert "say --takeover" in refused.stderr
            with role(world.home(second), *elsewhere, "--takeover", host=second) as learner:
                assert learner.wait(180) == 0, learner.communicate()[0]
            assert actor.wait(30) == 0
    facts = check_run(world.here, "moved", world.url)
    assert (facts["updates"], facts["epochs"]) == (600, 2)


def test_a_run_goes_on_under_a_keeper_on_another_host(world: World):
    first, second = world.hosts
    flags = (*QUICK, "--stream", world.url, "--set", f"checkpoint.store={world.shared}",
             "--set", "checkpoint.every_updates=10", "--set", "pace.lead=0")  # fmt: skip
    with train(world.home(second), "alone", *flags, "--set", "stop.updates=60") as run:
        expected = run.result(120)["weights_sha256"]
    with train(world.home(first), "carried", *flags, "--set", "stop.updates=30", host=first) as run:
        run.result(120)
    with resume(
        world.here / "new", "carried", "--stream", world.url, "--set", "stop.updates=60", host=second
    ) as run:
        assert run.result(120)["weights_sha256"] == expected, "synchronous: the same bits on another host"


def test_a_run_without_a_shared_store_stays_where_its_checkpoints_are(world: World):
    with train(world.here, "bound", *QUICK, "--stream", world.url, "--set", "stop.updates=3") as run:
        run.result(60)
    for words in (("resume", "bound"), ("learner", "bound", "--takeover")):
        done = penstock(world.here / "other", *words, "--stream", world.url, check=False)
        assert done.returncode != 0
        assert "checkpoint.store" in done.stderr


def test_a_name_that_somebody_else_uses_is_refused(world: World):
    with train(world.here, "mine", *QUICK, "--stream", world.url, "--set", "stop.updates=3") as run:
        run.result(60)
    done = penstock(
        world.here / "stranger", "train", "CartPole-v1", "--name", "mine", "--stream", world.url, check=False
    )
    assert done.returncode == 1
    assert "there is a run mine in this stream already" in done.stderr
    assert not (world.here / "stranger" / "runs" / "mine").exists()
