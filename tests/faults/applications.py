"""The gateway is killed while an application decides: the application must not notice, nothing may be lost."""

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from penstock.model.version import Version
from tests.faults.accounts import check_accounts, told
from tests.faults.checker import check_run
from tests.gateways import Gateway

CONFIGURATION: dict[str, Any] = {
    "client_id": "decider", "algorithm_name": "PPO", "send_frequency": 4, "flush_seconds": 1.0, "max_traj_length": 64,
    "algorithm_parameters": {
        "act_dim": 4, "input_size": 8, "traj_per_epoch": 32, "batch_size": 512, "train_pi_iters": 16, "seed": 1,
    },
}  # fmt: skip
TOLERANCE = 0.005
"""Seconds: what the client may add to the slowest decisions, and the most 999 of 1,000 may take."""


@dataclass
class Undisturbed:
    """One campaign, for the report."""

    name: str
    kills: int = 0
    seconds: float = 0.0
    decisions: int = 0
    p999: float = 0.0
    slowest: float = 0.0
    bare_p999: float = 0.0
    bare_slowest: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)


def killed_beside(home: Path, seed: int, kills: int, away: tuple[float, float] = (0.5, 3.0)) -> Undisturbed:
    """Kill the gateway `kills` times while an application decides; raise AssertionError where a promise breaks."""
    chance, outcome, began = random.Random(seed), Undisturbed(f"gateway, seed {seed}"), time.monotonic()
    stop, configuration, figures_file = home / "stop", home / "client.json", home / "figures.json"
    with Gateway(home, ("--idle", "900")) as gateway:
        words = CONFIGURATION | {
            "train_server_address": gateway.address,
            "spool": {"folder": str(home / "spool")},
        }
        configuration.write_text(json.dumps(words))
        with gateway.calls() as calls:  # so that training is under way when the clock starts
            run = calls.open("decider", CONFIGURATION).run
        client = _start(home, "client", configuration, stop, home / "client.npy", figures_file)
        bare = _start(home, "bare", stop, home / "bare.npy")
        try:
            _await_updates(home, run, 2)
            for _ in range(kills):
                time.sleep(chance.uniform(1.0, 4.0))
                gateway.kill()
                time.sleep(chance.uniform(*away))
                gateway.start()
            outcome.kills = kills
            _await_updates(home, run, _updates(home, run) + 2)
        finally:
            stop.touch()
            ended = [process.wait(60) for process in (client, bare)]
        assert ended == [0, 0], (home / "client.log").read_text() + (home / "bare.log").read_text()
        times, bare_times = np.load(home / "client.npy"), np.load(home / "bare.npy")
        figures = json.loads(figures_file.read_text())
        assert not figures["waiting_trajectories"], "the client left something in its spool"
        gateway_says = told(home, run, figures["sent"])
        counted = check_accounts(home, run, set(), gateway_says["gateway/received"])
        assert counted["stored"] == figures["sent"], (
            f"{figures['sent']} acknowledged, {counted['stored']} stored"
        )
        assert not figures["dropped"] or set(figures["dropped"]) <= {"not_ended"}, figures["dropped"]
        outcome.facts = {**check_run(home, run), **counted, "fallbacks": figures["fallbacks"]}
    versions = [Version.parse(text) for text in figures["versions"] if text != "None"]
    assert versions == sorted(versions), "versions went back"
    outcome.decisions, outcome.seconds = len(times), time.monotonic() - began
    outcome.p999, outcome.slowest = float(np.percentile(times, 99.9)), float(times.max())
    outcome.bare_p999, outcome.bare_slowest = float(np.percentile(bare_times, 99.9)), float(bare_times.max())
    return outcome


def judge_times(outcome: Undisturbed) -> None:
    """The promise about time, for campaigns at length: a test of seconds on a busy machine says little."""
    assert outcome.p999 <= TOLERANCE, f"999 of 1,000 decisions took up to {outcome.p999 * 1e3:.2f} ms"
    assert outcome.slowest <= outcome.bare_slowest + TOLERANCE, (
        f"the slowest decision took {outcome.slowest * 1e3:.1f} ms, "
        f"of the bare loop {outcome.bare_slowest * 1e3:.1f} ms"
    )


def _start(home: Path, kind: str, *arguments: Path) -> "subprocess.Popen[bytes]":
    with (home / f"{kind}.log").open("wb") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.faults.application", kind, *map(str, arguments)],
            stdout=said, stderr=said, env={**os.environ, "PENSTOCK_HOME": str(home)},
        )  # fmt: skip


def _updates(home: Path, run: str) -> int:
    return int(check_run(home, run)["updates"])


def _await_updates(home: Path, run: str, count: int, seconds: float = 180.0) -> None:
    until = time.monotonic() + seconds
    while _updates(home, run) < count:
        assert time.monotonic() < until, f"no {count} updates in {seconds:g} s"
        time.sleep(0.5)
