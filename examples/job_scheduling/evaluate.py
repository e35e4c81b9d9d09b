"""Schedule 20 workloads that training never saw with every scheduler, and say who was better, and how surely.

    python examples/job_scheduling/evaluate.py examples/job_scheduling/trained

The argument is a folder that `penstock export` wrote, or a run. Writes table.md, scores.json and plot.png.
"""

import argparse
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import baselines
import lublin
import policy
import swf
from baselines import Choose, scheduled
from cluster import Cluster, Rules
from environment import EVALUATION_SEEDS
from report import LEARNED, LOADS, PER_LOAD, Scores, by_load, other_measures, table
from workload import Workload

JOBS = 1024
HERE = Path(__file__).parent


SETTINGS = {
    "As trained: the scheduler is asked again at every event, and requested times are exact": (1.0, Rules()),
    "EASY backfilling behind every scheduler (the policy was trained without)": (1.0, Rules(backfill=True)),
    "Users ask for up to 5 times the run time (the policy was trained without)": (5.0, Rules()),
    "The rules of RLScheduler: a named job is waited for (the policy was trained without)": (
        1.0,
        Rules(commit=True),
    ),
}
"""What is told about a setting → how far users overestimate, and the rules."""


@dataclass(frozen=True)
class Case:
    """One workload and what it is called."""

    name: str
    workload: Workload


def cases(overestimate: float = 1.0, jobs: int = JOBS) -> list[Case]:
    """The 20 workloads; their seeds are none of training."""
    made = []
    for i, load in enumerate(np.repeat(LOADS, PER_LOAD).tolist()):
        workload = lublin.generate(jobs, EVALUATION_SEEDS + i, load=load, overestimate=overestimate)
        made.append(Case(f"load {load}, seed {EVALUATION_SEEDS + i}", workload))
    return made


def of_log(path: Path, jobs: int = JOBS, most: int = 20) -> list[Case]:
    """Windows of a log in the Standard Workload Format, side by side and equally far apart."""
    workload = swf.read(path).workload
    count = min(most, len(workload) // jobs)
    if count < 3:
        raise ValueError(f"{path} holds {len(workload)} usable jobs; 3 windows of {jobs} are the least")
    firsts = np.linspace(0, len(workload) - jobs, count).astype(int).tolist()
    return [Case(f"{path.name} from job {first}", workload.window(first, jobs)) for first in firsts]


def schedulers(learned: policy.Actor) -> dict[str, Callable[[], Choose]]:
    """Every scheduler by name, made anew for each workload."""
    return {
        LEARNED: lambda: policy.scheduler(learned),
        "FCFS": lambda: baselines.fcfs,
        "SJF": lambda: baselines.sjf,
        "F1": lambda: baselines.f1,
        "SAF": lambda: baselines.saf,
        "random": lambda: baselines.uniform(0),
    }


def score(given: Iterable[Case], players: dict[str, Callable[[], Choose]], rules: Rules) -> Scores:
    """Every player on every workload."""
    measured = measure(given, players, rules)
    return {name: values[:, 0] for name, values in measured.items()}


def measure(
    given: Iterable[Case], players: dict[str, Callable[[], Choose]], rules: Rules
) -> dict[str, NDArray[np.float64]]:
    """Every player on every workload: [workloads, MEASURES]."""
    workloads = [case.workload for case in given]
    return {
        name: np.array([_measures(scheduled(workload, make(), rules)) for workload in workloads])
        for name, make in players.items()
    }


def _measures(cluster: Cluster) -> list[float]:
    slow, waits = cluster.slowdowns(), cluster.waits() / 3600
    median, tail = np.quantile(slow, (0.5, 0.99)).tolist()
    return [float(slow.mean()), median, tail, float(waits.mean()), float(waits.max()), cluster.utilisation()]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("policy", nargs="?", default=str(HERE / "trained"))
    parser.add_argument("--to", type=Path, default=HERE / "results")
    parser.add_argument("--log", type=Path, help="a log in the Standard Workload Format instead of the model")
    parser.add_argument("--jobs", type=int, default=JOBS, help="jobs of each workload")
    arguments = parser.parse_args()
    players = schedulers(policy.of(arguments.policy))
    arguments.to.mkdir(parents=True, exist_ok=True)
    if arguments.log is not None:
        report = table(score(of_log(arguments.log, arguments.jobs), players, Rules()))
        (arguments.to / "log.md").write_text(report, encoding="utf-8")
        print(report)
        return
    parts, all_scores = [], {}
    for title, (overestimate, rules) in SETTINGS.items():
        given = cases(overestimate, arguments.jobs)
        measured = measure(given, players, rules)
        scores = {name: values[:, 0] for name, values in measured.items()}
        all_scores[title] = {name: values.tolist() for name, values in scores.items()}
        parts.append(f"## {title}\n\n{table(scores)}\n{by_load(scores)}\n{other_measures(measured)}")
        print(parts[-1], flush=True)
    (arguments.to / "table.md").write_text("\n".join(parts), encoding="utf-8")
    names = [case.name for case in given]
    facts = {"workloads": names, "jobs": arguments.jobs, "scores": all_scores}
    (arguments.to / "scores.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    from plot import draw

    draw(facts, arguments.to / "plot.png")


if __name__ == "__main__":
    main()
