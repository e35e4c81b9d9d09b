"""The RL4Sys experiment, rebuilt: what does it cost a system to link our client?

LunarLander steps per second with random actions, with inference only (the same NumPy policy, called directly), with
our client while a real gateway trains beside it, and with the local samplers of RLlib and TorchRL. The first three
take turns every few hundred steps, so that a slow moment of the machine and the learner's work fall on all alike;
medians count. `request_for_action` is timed from
outside, each call, while training goes on.
"""

import contextlib
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import gymnasium
import numpy as np

from bench import venvs
from bench.processes import end_tree, penstock, run
from penstock.client import RL4SysAgent
from penstock.client.deciding import Decider
from penstock.model.tensors import Array
from penstock.policy.acting import Acting

ENVIRONMENT = "LunarLander-v3"
BLOCK = 256
SAMPLERS = ("rllib", "torchrl")
PARAMETERS = {"act_dim": 4, "input_size": 8, "traj_per_epoch": 16, "pi_lr": 3e-4, "batch_size": 512}
PROMISES = {
    "added_us": 10.0, "share_of_random": 0.6, "times_sampler": 3.0, "decision_p50_us": 25.0, "decision_p99_us": 200.0
}  # fmt: skip


def measure(out: Path, turns: int = 7, seconds: float = 6.0, peers: tuple[str, ...] = ()) -> dict[str, Any]:
    """All of it; `peers` of SAMPLERS are installed and measured too."""
    for peer in peers:
        venvs.ensure(peer)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as home, gateway(Path(home), out) as address:
        os.environ["PENSTOCK_HOME"] = home
        with RL4SysAgent(configuration(address)) as agent:
            wait_for_training(agent, 180.0)
            return _turns(agent, out, turns, seconds, peers)


def _turns(
    agent: RL4SysAgent, out: Path, turns: int, seconds: float, peers: tuple[str, ...]
) -> dict[str, Any]:
    """Blocks of a few hundred steps take turns, so that training goes on beside all loops alike."""
    blocks: dict[str, list[float]] = {"random": [], "inference": [], "client": []}
    decided: dict[str, list[Array]] = {"inference": [], "client": []}
    added, samplers = [], {peer: [] for peer in peers}
    began = agent.counters.swaps
    for _ in range(turns):
        loops = {"random": random_loop(), "inference": inference_loop(agent), "client": client_loop(agent)}
        until = time.perf_counter() + 4 * seconds
        while time.perf_counter() < until:
            for name, loop in loops.items():
                started = time.perf_counter()
                times = next(loop)
                blocks[name].append((time.perf_counter() - started) / BLOCK)
                if times is not None:
                    decided[name].append(times)
        added.append(added_us(agent))
        for peer in peers:
            samplers[peer].append(sampler(peer, out, seconds))
    rates = {name: statistics.median(1 / block for block in taken) for name, taken in blocks.items()}
    rates |= {peer: statistics.median(values) for peer, values in samplers.items()}
    pairs = zip(blocks["random"], blocks["client"], strict=True)
    return {
        "steps_per_second": {name: round(rate) for name, rate in rates.items()},
        "blocks": len(blocks["client"]),
        "added_us": round(statistics.median(added), 2),
        "added_us_runs": [round(value, 2) for value in added],
        "share_of_random": round(statistics.median(alone / with_client for alone, with_client in pairs), 3),
        "times_sampler": {peer: round(rates["client"] / rates[peer], 2) for peer in peers},
        **_percentiles("decision", np.concatenate(decided["client"])),
        **_percentiles("bare", np.concatenate(decided["inference"])),
        "decisions_timed": len(decided["client"]) * BLOCK,
        "versions_meanwhile": agent.counters.swaps - began,
        "load": round(os.getloadavg()[0], 1),
        "promised": PROMISES,
    }


def _percentiles(name: str, times: Array) -> dict[str, float]:
    found = np.percentile(times, (50, 99, 99.9)) * 1e6
    return {
        f"{name}_{which}_us": round(float(one), 1)
        for which, one in zip(("p50", "p99", "p999"), found, strict=True)
    }


def verdicts(facts: dict[str, Any] | None) -> list[tuple[str, str, str, str]]:
    """A row for each promise: what, promised, measured, whether it holds."""
    if facts is None:
        return []
    most = {
        "added_us": "the client adds to a step of inference only, µs",
        "decision_p50_us": "request_for_action while training, p50, µs",
        "decision_p99_us": "request_for_action while training, p99, µs",
    }
    rows = [
        (words, f"≤ {PROMISES[name]:g}", f"{facts[name]:g}", "yes" if facts[name] <= PROMISES[name] else "NO")
        for name, words in most.items()
    ]
    least, share = PROMISES["share_of_random"], facts["share_of_random"]
    words = "LunarLander through the client, share of random actions' steps/s"
    rows.append((words, f"≥ {least:.0%}", f"{share:.0%}", "yes" if share >= least else "NO"))
    for peer, times in facts["times_sampler"].items():
        held = "yes" if times >= PROMISES["times_sampler"] else "NO"
        rows.append((f"the same, times {peer}'s local sampler", "≥ 3", f"{times:g}", held))
    return rows


# the loops: each makes BLOCK steps at a time, and tells how many seconds each decision took where it decides


def random_loop() -> Iterator[None]:
    environment = gymnasium.make(ENVIRONMENT)
    environment.action_space.seed(1)
    environment.reset(seed=1)
    while True:
        for action in [environment.action_space.sample() for _ in range(BLOCK)]:
            _, _, terminated, truncated, _ = environment.step(action)
            if terminated or truncated:
                environment.reset()
        yield


def inference_loop(agent: RL4SysAgent) -> Iterator[Array]:
    """The policy alone, as anybody would call it: nothing is kept, nothing is sent."""
    acting, environment = bare(agent), gymnasium.make(ENVIRONMENT)
    observation, _ = environment.reset(seed=1)
    row, clock = np.zeros((1, 8), np.float32), time.perf_counter
    for block in itertools.count():
        times = np.empty(BLOCK)
        for step, noise in enumerate(acting.noise((1, 2, block), BLOCK, 1)):
            started = clock()
            row[0] = observation
            actions, _ = acting.decide({"observations": row}, None, noise)
            times[step] = clock() - started
            observation, _, terminated, truncated, _ = environment.step(actions.item())
            if terminated or truncated:
                observation, _ = environment.reset()
        yield times


def client_loop(agent: RL4SysAgent) -> Iterator[Array]:
    """RL4Sys' own loop."""
    environment = gymnasium.make(ENVIRONMENT)
    observation, _ = environment.reset(seed=1)
    trajectory, clock = None, time.perf_counter
    while True:
        times = np.empty(BLOCK)
        for step in range(BLOCK):
            started = clock()
            trajectory, action = agent.request_for_action(trajectory, observation)
            times[step] = clock() - started
            observation, reward, terminated, truncated, _ = environment.step(action.act)
            agent.add_to_trajectory(trajectory, action)
            action.update_reward(reward)
            if terminated or truncated:
                agent.mark_end_of_trajectory(trajectory, action, not terminated, observation)
                observation, _ = environment.reset()
        yield times


def added_us(agent: RL4SysAgent, rounds: int = 40, steps: int = 200) -> float:
    """Microseconds a step that the client adds to the bare policy, of this thread's own time: median of pairs."""
    acting, seen, differences = bare(agent), np.random.default_rng(1).random(8), []
    row, clock = np.zeros((1, 8), np.float32), time.thread_time
    for number in range(rounds):
        started = clock()
        for noise in acting.noise((1, 3, number), steps, 1):
            row[0] = seen
            actions, _ = acting.decide({"observations": row}, None, noise)
            actions.item()
        alone = clock() - started
        trajectory, started = None, clock()
        for _ in range(steps):
            trajectory, action = agent.request_for_action(trajectory, seen)
            agent.add_to_trajectory(trajectory, action)
            action.update_reward(0.0)
        differences.append((clock() - started - alone) / steps * 1e6)
        assert trajectory is not None
        agent.mark_end_of_trajectory(trajectory, action)
    return statistics.median(differences)


def sampler(peer: str, out: Path, seconds: float) -> float:
    script = venvs.SCRIPTS / f"{peer}_sample.py"
    argv = [str(venvs.ensure(peer)), str(script), ENVIRONMENT, str(seconds)]
    done = run(argv, out / "logs" / f"{peer}-sample.log", 120.0 + seconds)
    if done.line is None:
        raise SystemExit(f"{peer} gave no number; see {out}/logs/{peer}-sample.log")
    return float(done.line["steps_per_second"])


# what it needs


def bare(agent: RL4SysAgent) -> Acting:
    """The policy the client has now, without the client."""
    held = agent._courier.newest
    assert held is not None
    decider = Decider(held.description, held.tensors, held.version, held.acting, seed=1)
    return cast(Acting, decider._acting)


def configuration(address: str) -> dict[str, Any]:
    return {
        "client_id": "bench", "algorithm_name": "PPO", "algorithm_parameters": PARAMETERS,
        "train_server_address": address, "send_frequency": 10, "max_traj_length": 1000,
    }  # fmt: skip


def wait_for_training(agent: RL4SysAgent, seconds: float) -> None:
    """Land until the learner has made its first version from what was sent."""
    loop, until = client_loop(agent), time.monotonic() + seconds
    while agent.version is None or agent.version.step < 1:
        if time.monotonic() > until:
            raise SystemExit(f"no version was learned in {seconds:.0f} s; figures: {agent.figures()}")
        next(loop)


@contextlib.contextmanager
def gateway(home: Path, out: Path) -> Iterator[str]:
    """A real gateway in a home of its own; everything it started ends with it."""
    import psutil

    known = set(psutil.Process().children(recursive=True))
    (out / "logs").mkdir(parents=True, exist_ok=True)
    with (out / "logs" / "gateway.log").open("ab") as log:
        process = subprocess.Popen(
            penstock("gateway", "--port", "0"), stdout=log, stderr=log, env={**os.environ, "PENSTOCK_HOME": str(home)}
        )  # fmt: skip
        try:
            yield _address(home, process, 60.0)
        finally:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            end_tree(known)
            end_keepers(home)


def end_keepers(home: Path) -> None:
    """Keepers live in sessions of their own; those of this home end here, by the pid they wrote down."""
    for state in (home / "runs").glob("*/state.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            os.kill(json.loads(state.read_text())["keeper"]["pid"], signal.SIGTERM)


def _address(home: Path, process: "subprocess.Popen[bytes]", seconds: float) -> str:
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError, ValueError, KeyError):
            return str(json.loads((home / "gateway.json").read_text())["address"])
        time.sleep(0.1)
    raise SystemExit("the gateway did not start; see logs/gateway.log")


if __name__ == "__main__":
    print(json.dumps(measure(Path("bench/out"), peers=tuple(sys.argv[1:])), indent=1))
