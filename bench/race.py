"""From process start to a mean return over 100 training episodes: ours and the peers, interleaved by seed.

A peer that needs more than `patience` times our median counts as slower and is stopped there; what is known
of it then is a lower bound, shown as `> x s`. SB3 gets a fifth more than the ratio we promise, else the
promise could not be seen to hold.
"""

import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import venvs
from bench.processes import Finished, penstock, run

OURS = "penstock"
TARGETS = {"CartPole-v1": 475.0, "LunarLander-v3": 200.0}
SB3_RATIO = {"CartPole-v1": 5.0, "LunarLander-v3": 4.0}
"""SB3's time over ours: what is promised for CartPole; what is aimed at for LunarLander (promised: 3)."""
PATIENCE = 4.0
OUR_LIMIT_SECONDS = 900.0
LEAST_LIMIT_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One training of one contestant."""

    who: str
    environment: str
    seed: int
    reached: bool
    stopped: bool
    """Stopped by us because it took too long: `seconds` is a lower bound."""
    seconds: float
    steps: int
    steps_per_second: float
    episodes: int
    mean_return: float | None
    cpu_seconds: float
    peak_mb: float
    others: float = 0.0
    """Share of all processors that other processes used meanwhile."""
    note: str = ""

    @property
    def time(self) -> float:
        """Seconds to the target; infinite where its own training ended without reaching it."""
        return self.seconds if self.reached or self.stopped else math.inf


def race(
    environments: Sequence[str], peers: Sequence[str], seeds: int, out: Path, cold: bool = False
) -> list[Outcome]:
    """Every contestant once for each seed, in turns; ours goes first because it sets the limit."""
    for peer in peers:
        venvs.ensure(peer)
    outcomes: list[Outcome] = []
    for environment in environments:
        for seed in range(1, seeds + 1):
            home = out / "home" / (f"cold-{environment}-{seed}" if cold else "race")
            outcomes.append(_told(ours(environment, seed, home, out / "logs")))
            limit = _limit_base(outcomes, environment)
            for peer in peers:
                seconds = max(limit * patience(peer, environment), LEAST_LIMIT_SECONDS)
                outcomes.append(_told(_peer(peer, environment, seed, seconds, out / "logs")))
    return outcomes


def patience(peer: str, environment: str) -> float:
    """How many times our median a peer may take."""
    return max(PATIENCE, 1.2 * SB3_RATIO.get(environment, 0.0)) if peer == "sb3" else PATIENCE


def ours(environment: str, seed: int, home: Path, logs: Path) -> Outcome:
    """`penstock train` with default settings; the clock stops at its last line, after its last checkpoint."""
    target = TARGETS[environment]
    argv = penstock("train", environment, "--seed", str(seed), "--target", str(target), "--json")
    done = run(
        argv, logs / f"{OURS}-{environment}.log", OUR_LIMIT_SECONDS, {"PENSTOCK_HOME": str(home.resolve())}
    )
    line = done.line or {}
    mean = line.get("mean_return")
    reached = mean is not None and mean >= target and line.get("episodes", 0) >= 100
    return _outcome(OURS, environment, seed, done, reached)


def _peer(peer: str, environment: str, seed: int, seconds: float, logs: Path) -> Outcome:
    argv = venvs.command(peer, environment, seed, TARGETS[environment], seconds)
    # the script ends itself at the limit and can then say how far it came; the parent is the net
    done = run(argv, logs / f"{peer}-{environment}.log", seconds + 15.0)
    return _outcome(peer, environment, seed, done, bool(done.line and done.line["reached"]), seconds)


def _outcome(
    who: str, environment: str, seed: int, done: Finished, reached: bool, limit: float = OUR_LIMIT_SECONDS
) -> Outcome:
    line = done.line or {}
    return Outcome(
        who=who,
        environment=environment,
        seed=seed,
        reached=reached,
        stopped=not reached and (done.timed_out or done.seconds >= limit),
        seconds=round(done.seconds if reached else min(done.seconds, limit), 2),
        steps=int(line.get("steps", 0)),
        steps_per_second=round(line.get("steps", 0) / done.seconds, 1),
        episodes=int(line.get("episodes", 0)),
        mean_return=line.get("mean_return"),
        cpu_seconds=round(done.cpu_seconds, 2),
        peak_mb=round(done.peak_mb, 1),
        others=round(done.others, 3),
        note="" if line or done.timed_out else f"ended with code {done.code} and no result; see its log",
    )


def _limit_base(outcomes: Iterable[Outcome], environment: str) -> float:
    own = [o for o in outcomes if o.who == OURS and o.environment == environment]
    return max(statistics.median(o.seconds for o in own), own[-1].seconds)


def _told(outcome: Outcome) -> Outcome:
    state = "reached" if outcome.reached else "stopped" if outcome.stopped else "not reached"
    print(
        f"{outcome.environment} seed {outcome.seed} {outcome.who}: {state} after {outcome.seconds:.1f} s, "
        f"{outcome.steps:,} steps, mean {outcome.mean_return} {outcome.note}",
        file=sys.stderr,
        flush=True,
    )
    return outcome


def summary(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """A row for each contestant and environment, ours first, then by time."""
    rows = []
    for environment in dict.fromkeys(o.environment for o in outcomes):
        here = [o for o in outcomes if o.environment == environment]
        names = list(dict.fromkeys(o.who for o in here))
        our_median = median_time([o for o in here if o.who == OURS])[0]
        for who in names:
            own = [o for o in here if o.who == who]
            seconds, bound = median_time(own)
            known = math.isfinite(seconds)
            rows.append(
                {
                    "environment": environment,
                    "who": who,
                    "median_seconds": seconds if known else None,
                    "lower_bound": bound,
                    "times_ours": round(seconds / our_median, 2) if known and our_median else None,
                    "reached": sum(o.reached for o in own),
                    "runs": len(own),
                    "median_steps": statistics.median(o.steps for o in own),
                    "steps_per_second": statistics.median(o.steps_per_second for o in own),
                    "cpu_seconds": statistics.median(o.cpu_seconds for o in own),
                    "peak_mb": max(o.peak_mb for o in own),
                    "others": max(o.others for o in own),
                    "seconds": [o.seconds if math.isfinite(o.time) else None for o in own],
                }
            )
    return rows


def median_time(outcomes: Sequence[Outcome]) -> tuple[float, bool]:
    """The median time, and whether it is only a lower bound (the run in the middle was stopped)."""
    ordered = sorted(outcomes, key=lambda o: (o.time, o.stopped))
    lower, upper = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return (lower.time + upper.time) / 2, lower.stopped or upper.stopped


def as_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {"summary": summary(outcomes), "runs": [asdict(o) for o in outcomes]}
