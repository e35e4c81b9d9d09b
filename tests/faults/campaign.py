"""Kill campaigns: whatever is killed, whenever, the promises of DESIGN.md §7 hold.

Each campaign returns what it did and saw; a broken promise is an AssertionError. The same code runs
for seconds in `make test` and for as long as you like in `make faults`.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.checker import check_run
from tests.integration.harness import QUICK, Training, resume, train


@dataclass
class Outcome:
    """One campaign, for the report."""

    name: str
    kills: dict[str, int] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def killed(self, what: str) -> None:
        self.kills[what] = self.kills.get(what, 0) + 1


def synchronous(home: Path, seed: int, kills: int, updates: int = 400) -> Outcome:
    """Pace 0: a run killed again and again ends with the weights of one that was left alone."""
    flags = (
        *QUICK, "--set", "pace.lead=0", "--set", f"stop.updates={updates}", "--seed", str(seed),
        "--set", "checkpoint.every_updates=23", "--set", "checkpoint.every_seconds=1000",
        "--set", "actors.restarts=1000", "--set", "learner.restarts=1000",
    )  # fmt: skip
    with train(home, f"alone-{seed}", *flags) as run:
        expected = run.result(600)["weights_sha256"]
    outcome = Outcome(f"synchronous, seed {seed}")
    result = _hurt(home, f"hurt-{seed}", flags, random.Random(seed), kills, updates, outcome)
    assert result["weights_sha256"] == expected, (
        f"seed {seed}: the weights differ from those of the run left alone"
    )
    outcome.facts = {"weights_sha256": expected[:16], "equal": True} | check_run(home, f"hurt-{seed}")
    return outcome


def overlapped(home: Path, seed: int, kills: int, updates: int = 600) -> Outcome:
    """Pace 1: training goes on, versions never go back, every acknowledged rollout is accounted for once."""
    flags = (
        *QUICK, "--set", "pace.lead=1", "--set", f"stop.updates={updates}", "--seed", str(seed),
        "--set", "checkpoint.every_seconds=1", "--actors", "3",
        "--set", "actors.restarts=1000", "--set", "learner.restarts=1000",
    )  # fmt: skip
    outcome = Outcome(f"overlapped, seed {seed}")
    _hurt(home, f"overlapped-{seed}", flags, random.Random(seed), kills, updates, outcome)
    outcome.facts = check_run(home, f"overlapped-{seed}")
    return outcome


def _hurt(
    home: Path,
    name: str,
    flags: tuple[str, ...],
    chance: random.Random,
    kills: int,
    updates: int,
    outcome: Outcome,
) -> dict[str, Any]:
    """Kill `kills` times at random moments, spread over the run; return its result."""
    began = time.monotonic()
    run = train(home, name, *flags)
    try:
        for moment in sorted(chance.randrange(3, updates - 20) for _ in range(kills)):
            run.wait_for_updates(moment, 120)
            time.sleep(chance.random() * 0.1)
            run = _strike(run, home, name, chance, outcome)
        result = run.result(600)
    finally:
        run.kill_all()
    outcome.seconds = time.monotonic() - began
    return result


def _strike(run: Training, home: Path, name: str, chance: random.Random, outcome: Outcome) -> Training:
    victim = chance.choice(("learner", "actor", "actor", "keeper", "all"))
    if victim == "all":
        run.kill_all()
    elif victim == "keeper":
        workers = run.workers()
        run.process.kill()
        run.process.wait()
        _wait_gone(workers)
    else:
        if workers := run.workers(victim):
            chance.choice(workers).kill()
            outcome.killed(victim)
        return run
    outcome.killed(victim)
    return resume(home, name)


def _wait_gone(workers: list[Any]) -> None:
    """Workers end with their keeper; the next one may start when they have."""
    until = time.monotonic() + 30
    while any(worker.is_running() and worker.status() != "zombie" for worker in workers):
        assert time.monotonic() < until, "workers outlive their keeper"
        time.sleep(0.05)


CAMPAIGNS: dict[str, Callable[[Path, int, int], Outcome]] = {
    "synchronous": synchronous,
    "overlapped": overlapped,
}
