"""A picture of the scores: every workload is a line across the schedulers; paired differences beside."""

from pathlib import Path
from typing import Any

import numpy as np

from intervals import paired
from report import LEARNED


def draw(facts: dict[str, Any], file: Path) -> None:
    """Write a PNG of what `evaluate` found in the setting the policy was trained for."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    scores = {name: np.array(values) for name, values in next(iter(facts["scores"].values())).items()}
    names = sorted(scores, key=lambda name: float(scores[name].mean()))
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), width_ratios=(3, 2), layout="constrained")
    for i in range(len(facts["workloads"])):
        left.plot(
            range(len(names)), [scores[name][i] for name in names], color="0.8", linewidth=0.8, zorder=1
        )
    left.boxplot([scores[name] for name in names], positions=range(len(names)), widths=0.5, zorder=2)
    left.plot(range(len(names)), [scores[name].mean() for name in names], "D", color="tab:blue", label="mean")
    left.set_yscale("log")
    left.set_xticks(range(len(names)), names, rotation=20, ha="right")
    left.set_ylabel("average bounded slowdown (log)")
    left.set_title(
        f"{len(facts['workloads'])} unseen workloads of {facts['jobs']} jobs; lower is better", fontsize=10
    )
    left.legend()

    others = [name for name in names if name not in (LEARNED, "random")]
    for place, name in enumerate(others):
        scale = float(scores[name].mean()) / 100
        found = paired(scores[LEARNED], scores[name])
        right.plot([end / scale for end in found.t], [place] * 2, color="tab:blue", linewidth=2)
        right.plot(found.mean / scale, place, "D", color="tab:blue")
    right.axvline(0, color="0.3", linewidth=1)
    right.set_yticks(range(len(others)), [f"{LEARNED} − {name}" for name in others])
    right.set_xlabel("difference in % of the other's mean, 95 % interval")
    right.set_title("left of 0: the trained policy is better", fontsize=10)
    figure.savefig(file, dpi=110)
    plt.close(figure)
