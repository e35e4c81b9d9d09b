"""Outages: brokers that die and return, links that are cut, records that nobody can read.

As in `campaign`: the same code runs briefly in `make test` and at length in `make faults`; a broken promise
is an AssertionError.
"""

import contextlib
import itertools
import json
import os
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from penstock.broker import Broker
from penstock.loop.journal import VARIABLE, read_journal
from tests.brokers import running
from tests.faults.checker import check_run
from tests.hosts import hosts
from tests.integration.harness import QUICK, Training, role, train

BACK_WITHIN_SECONDS = 15.0
"""After brokers or links are back, training must go on by itself within this time."""
MEMORY_GROWTH = 1.5
"""No process may take more memory than this many times what it took when training had settled."""
ENDLESS = (
    *QUICK, "--set", "stop.steps=null", "--set", "checkpoint.every_seconds=5",
    "--set", "stream.retention_bytes=8589934592", "--set", "stream.budget_bytes=17179869184",
)  # fmt: skip


@dataclass
class Outage:
    """One campaign, for the report."""

    name: str
    strikes: int = 0
    recoveries: list[float] = field(default_factory=list)
    """Seconds from the return to the next update."""
    longest_pause: float = 0.0
    """Seconds between two updates."""
    memory: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Process → own memory when training had settled and at its greatest, in MB."""
    facts: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


class Memory(threading.Thread):
    """Looks at the memory of a run's processes every second."""

    def __init__(self, run: Training) -> None:
        super().__init__(daemon=True)
        self._run, self._ended = run, threading.Event()
        self.seen: dict[str, list[float]] = {}

    def run(self) -> None:
        while not self._ended.wait(1.0):
            for process in [psutil.Process(self._run.process.pid), *self._run.workers()]:
                with contextlib.suppress(psutil.Error):
                    name = " ".join(process.cmdline()[3:6]) if process.cmdline() else ""
                    self.seen.setdefault(f"{process.pid} {name}", []).append(
                        process.memory_full_info().uss / 1e6
                    )

    def end(self) -> None:
        self._ended.set()
        self.join()

    def settled_and_greatest(self) -> dict[str, tuple[float, float]]:
        """What each long-lived process took after a while, and at most."""
        return {name: (max(seen[:15]), max(seen)) for name, seen in self.seen.items() if len(seen) > 30}


def broker_killed(home: Path, seed: int, kills: int, away_seconds: float = 20.0) -> Outage:
    """One broker, `kill -9` and back again, in one training that nobody touches."""
    chance = random.Random(seed)
    outage = Outage(f"one broker, away for {away_seconds:g} s, seed {seed}")
    with running(Broker(home / "broker")) as broker, _trained(home, broker, outage) as run:
        for _ in range(kills):
            _train_on(run, chance)
            broker.kill_node(1)
            outage.strikes += 1
            time.sleep(away_seconds)
            broker.start_node(1)
            broker.wait_ready()
            outage.recoveries.append(_seconds_to_go_on(run))
        _train_on(run, chance)
    _judge_recoveries(outage)
    return outage


def one_of_three(home: Path, seed: int, kills: int, away_seconds: float = 10.0) -> Outage:
    """Three brokers with three copies; any one killed: hardly a pause, nothing lost."""
    chance = random.Random(seed)
    outage = Outage(f"one of three brokers, seed {seed}")
    flags = ("--set", "stream.kafka.replication=3", "--set", "stream.kafka.min_insync_replicas=2")
    with running(Broker(home / "broker", nodes=3)) as broker, _trained(home, broker, outage, *flags) as run:
        for kill in range(kills):
            _train_on(run, chance)
            broker.kill_node(kill % 3 + 1)
            outage.strikes += 1
            time.sleep(away_seconds)
            broker.start_node(kill % 3 + 1)
            broker.wait_ready()
            time.sleep(away_seconds)  # until its copies have caught up
        _train_on(run, chance)
    assert outage.longest_pause <= BACK_WITHIN_SECONDS, f"training paused for {outage.longest_pause:.1f} s"
    return outage


def link_cut(home: Path, seed: int, cuts: int, cut_seconds: float = 30.0) -> Outage:
    """Actors on two hosts; first one link is cut, then both.

    While one host is there, training pauses no longer than `pace.actor_deadline` and a little; after a
    cut of both it goes on by itself.
    """
    chance = random.Random(seed)
    outage = Outage(f"links cut for {cut_seconds:g} s, seed {seed}")
    flags = ("--actors", "0", "--set", "pace.actor_deadline=10")
    with contextlib.ExitStack() as stack:
        first, second = made = stack.enter_context(hosts(2))
        broker = stack.enter_context(running(Broker(home / "broker", host=first.here)))
        run = stack.enter_context(_trained(home, broker, outage, *flags, ready=False))
        for host in made:
            url = f"kafka://{broker.bootstrap}"
            stack.enter_context(role(home / host.name, "actor", run.name, "--stream", url, host=host))
        run.wait_for_updates(20, 120)
        for cut in range(cuts):
            _train_on(run, chance)
            doomed = (first,) if cut % 2 == 0 else (first, second)
            before = time.time()
            for host in doomed:
                host.cut()
            outage.strikes += 1
            time.sleep(cut_seconds)
            for host in doomed:
                host.mend()
            if len(doomed) == 2:
                outage.recoveries.append(_seconds_to_go_on(run))
            else:
                pause = longest_pause(run, before)
                assert pause <= BACK_WITHIN_SECONDS, f"one of two links cut paused training for {pause:.1f} s"
            time.sleep(5.0)
        _train_on(run, chance)
    _judge_recoveries(outage)
    return outage


@contextlib.contextmanager
def _trained(
    home: Path, broker: Broker, outage: Outage, *flags: str, ready: bool = True
) -> Iterator[Training]:
    """A run that goes on until it is stopped; judged at the end, its restarts, log and memory."""
    began, url, journal = time.monotonic(), f"kafka://{broker.bootstrap}", home / "journal"
    os.environ[VARIABLE] = str(journal)
    with train(home / "home", "hurt", *ENDLESS, "--stream", url, *flags) as run:
        memory = Memory(run)
        try:
            run.wait_until_running()
            if ready:
                run.wait_for_updates(20, 120)
            memory.start()
            yield run
            outage.longest_pause = longest_pause(run)
            restarts = run.status().get("restarts", 0)
            run.process.terminate()
            assert run.result(120)["state"] == "stopped"
        finally:
            del os.environ[VARIABLE]
            memory.end()
    outage.memory = memory.settled_and_greatest()
    outage.facts = check_run(home / "home", "hurt", url, read_journal(journal)) | {"restarts": restarts}
    outage.seconds = time.monotonic() - began
    for name, (settled, greatest) in outage.memory.items():
        assert greatest <= settled * MEMORY_GROWTH + 30, (
            f"{name} grew from {settled:.0f} to {greatest:.0f} MB"
        )


def _train_on(run: Training, chance: random.Random) -> None:
    run.wait_for_updates(run.updates() + chance.randrange(20, 60), 120)


def _seconds_to_go_on(run: Training) -> float:
    before, since = run.updates(), time.monotonic()
    run.wait_for_updates(before + 2, 120)
    return time.monotonic() - since


def _judge_recoveries(outage: Outage) -> None:
    slow = [seconds for seconds in outage.recoveries if seconds > BACK_WITHIN_SECONDS]
    assert not slow, f"training took {max(slow):.1f} s to go on"


def longest_pause(run: Training, since: float = 0.0) -> float:
    """Seconds between two updates, at most, by the reports the keeper wrote."""
    rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    times = [row["time"] for row in rows if row["time"] >= since]
    times.append(time.time())
    return max((after - before for before, after in itertools.pairwise(times)), default=0.0)
