"""What was measured, as Markdown."""

import numpy as np
from numpy.typing import NDArray

from intervals import Difference, paired

LEARNED = "Penstock"
LOADS = (0.6, 0.7, 0.8, 0.9)
PER_LOAD = 5

Scores = dict[str, NDArray[np.float64]]
"""Scheduler → its average bounded slowdown on each workload."""

MEASURES = ("average bounded slowdown", "median", "99 %", "mean wait, h", "longest wait, h", "utilisation")


def against(scores: Scores) -> dict[str, Difference]:
    """The learned policy against each other scheduler."""
    mine = scores[LEARNED]
    return {name: paired(mine, other) for name, other in scores.items() if name != LEARNED}


def table(scores: Scores) -> str:
    """Markdown, best scheduler first."""
    lines = [
        f"| scheduler | average bounded slowdown | {LEARNED} minus it | 95 % (t) | 95 % (bootstrap) "
        f"| {LEARNED} lower in | {LEARNED} is |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    differences = against(scores)
    for name in sorted(scores, key=lambda name: float(scores[name].mean())):
        words = [name, f"{scores[name].mean():,.1f}"]
        if name == LEARNED:
            words += [""] * 5
        else:
            d = differences[name]
            words += [f"{d.mean:+,.1f}", _interval(d.t), _interval(d.bootstrap)]
            words += [f"{d.lower} of {d.pairs}", d.verdict]
        lines.append("| " + " | ".join(words) + " |")
    return "\n".join(lines) + "\n"


def _interval(ends: tuple[float, float]) -> str:
    return f"{ends[0]:+,.1f} … {ends[1]:+,.1f}"


def by_load(scores: Scores) -> str:
    """Markdown: means per named load, for the synthetic workloads."""
    lines = [
        "| scheduler | " + " | ".join(f"load {load}" for load in LOADS) + " |",
        "|---|" + "---:|" * len(LOADS),
    ]
    for name, values in scores.items():
        means = values.reshape(len(LOADS), PER_LOAD).mean(axis=1)
        lines.append(f"| {name} | " + " | ".join(f"{mean:,.1f}" for mean in means) + " |")
    return "\n".join(lines) + "\n"


def other_measures(measured: dict[str, NDArray[np.float64]]) -> str:
    """Markdown: means over the workloads; a good average may hide what a few jobs pay for it."""
    lines = ["| scheduler | " + " | ".join(MEASURES) + " |", "|---|" + "---:|" * len(MEASURES)]
    for name, values in measured.items():
        *numbers, used = values.mean(axis=0).tolist()
        lines.append(f"| {name} | " + " | ".join(f"{number:,.1f}" for number in numbers) + f" | {used:.2f} |")
    return "\n".join(lines) + "\n"
