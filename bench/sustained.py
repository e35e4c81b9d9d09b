"""Steps per second of a long LunarLander run, over the physical limit right before and after it.

The spec is the one that reaches 200: only the stop conditions differ. Start-up is left out: the window begins
`WARM_UP_SECONDS` after the first update and ends with the last report.
"""

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import limit
from bench.processes import penstock, run

ENVIRONMENT = "LunarLander-v3"
WARM_UP_SECONDS = 10.0
NEVER = 1e9


def measure(out: Path, rounds: int = 3, seconds: float = 90.0, limit_seconds: float = 10.0) -> dict[str, Any]:
    """Limit, run, limit, run, … limit: the median ratio of a run to the mean of its two neighbours."""
    limits = [limit.wrapped(ENVIRONMENT, limit_seconds)]
    speeds, ratios = [], []
    for seed in range(1, rounds + 1):
        speeds.append(one(out, seed, seconds))
        limits.append(limit.wrapped(ENVIRONMENT, limit_seconds))
        ratios.append(speeds[-1] / statistics.mean(limits[-2:]))
        print(
            f"sustained {speeds[-1]:,.0f} of {limits[-1]:,.0f} steps/s: {ratios[-1]:.0%}",
            file=sys.stderr,
            flush=True,
        )
    return {
        "environment": ENVIRONMENT,
        "steps_per_second": round(statistics.median(speeds)),
        "limit_steps_per_second": round(statistics.median(limits)),
        "ratio": round(statistics.median(ratios), 3),
        "runs": [round(speed) for speed in speeds],
        "limits": [round(value) for value in limits],
    }


def one(out: Path, seed: int, seconds: float, flags: Sequence[str] = ()) -> float:
    """Steps per second of one run, after its warm-up."""
    home = (out / "home" / "sustained").resolve()
    arguments = ["--seed", str(seed), "--target", str(NEVER), "--steps", "1000000000", "--json"]
    argv = penstock("train", ENVIRONMENT, *arguments, "--set", f"stop.seconds={seconds}", *flags)
    done = run(argv, out / "logs" / "sustained.log", seconds + 120.0, {"PENSTOCK_HOME": str(home)})
    if done.line is None:
        raise SystemExit(f"the sustained run ended without a result; see {out / 'logs' / 'sustained.log'}")
    with (home / "runs" / done.line["run"] / "metrics.jsonl").open() as lines:
        return speed([(row["steps"], row["seconds"]) for row in map(json.loads, lines) if "steps" in row])


def speed(points: Sequence[tuple[float, float]]) -> float:
    """Steps per second between the first report after the warm-up and the last one."""
    begin = points[0][1] + WARM_UP_SECONDS
    window = [point for point in points if point[1] >= begin]
    if len(window) < 2:
        raise SystemExit("the sustained run was too short: no two reports after the warm-up")
    (first_steps, first), (last_steps, last) = window[0], window[-1]
    return (last_steps - first_steps) / (last - first)
