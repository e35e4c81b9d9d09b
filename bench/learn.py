"""Whether every algorithm learns: each to its threshold, by the command line, with default settings."""

import sys
from pathlib import Path
from typing import Any

from bench.processes import penstock, run

THRESHOLDS = (
    ("ppo", "CartPole-v1", 475.0),
    ("impala", "CartPole-v1", 475.0),
    ("dqn", "CartPole-v1", 450.0),
    ("reinforce", "CartPole-v1", 300.0),
    ("sac", "Pendulum-v1", -200.0),
    ("ppo", "LunarLander-v3", 200.0),
)
LIMIT_SECONDS = 900.0


def measure(out: Path, seeds: int = 1) -> list[dict[str, Any]]:
    """A row for each algorithm, environment and seed."""
    return [
        _one(out, algorithm, environment, target, seed)
        for algorithm, environment, target in THRESHOLDS
        for seed in range(1, seeds + 1)
    ]


def _one(out: Path, algorithm: str, environment: str, target: float, seed: int) -> dict[str, Any]:
    home = (out / "home" / "learn").resolve()
    arguments = ["--algorithm", algorithm, "--seed", str(seed), "--target", str(target), "--json"]
    log = out / "logs" / f"learn-{algorithm}.log"
    done = run(penstock("train", environment, *arguments), log, LIMIT_SECONDS, {"PENSTOCK_HOME": str(home)})
    line = done.line or {}
    mean = line.get("mean_return")
    row = {
        "algorithm": algorithm,
        "environment": environment,
        "target": target,
        "seed": seed,
        "reached": mean is not None and mean >= target and line.get("episodes", 0) >= 100,
        "mean_return": mean,
        "steps": line.get("steps"),
        "seconds": round(done.seconds, 1),
    }
    print(f"learn {row}", file=sys.stderr, flush=True)
    return row
