"""Runs side by side: where their specs differ, and one metric of each over the steps it has.

Runs of one group differ in their seed only: they become one curve, a mean with its interval.
"""

from typing import Any

import numpy as np

from penstock.control.measuring import nullable
from penstock.control.views import Curve, Difference
from penstock.lineage.rows import RunRow
from penstock.model.codec import Array

CERTAINTY = 1.96
"""Standard errors to each side: 95 % of a normal distribution."""

Points = tuple[Array, Array]
"""Steps and values."""


def differences(rows: list[RunRow]) -> list[Difference]:
    """Every path of the specs whose values are not all the same."""
    flat = {row.run: _flat(row.spec) for row in rows}
    paths = dict.fromkeys(path for spec in flat.values() for path in spec)
    found = []
    for path in paths:
        values = {run: spec.get(path) for run, spec in flat.items()}
        first, *others = values.values()
        if any(other != first or type(other) is not type(first) for other in others):
            found.append(Difference(path=path, values=values))
    return found


def _flat(values: dict[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        path = f"{before}{name}"
        found |= _flat(value, f"{path}.") if isinstance(value, dict) and value else {path: value}
    return found


def curves(rows: list[RunRow], measured: dict[str, Points], points: int) -> list[Curve]:
    """One curve for each run that stands alone, one for each group; each over the steps it has."""
    return [_curve(label, runs, measured, points) for label, runs in _labelled(rows).items()]


def _curve(label: str, runs: list[str], measured: dict[str, Points], points: int) -> Curve:
    """Of a group, over those seeds that have begun to report; of them, only where all have numbers."""
    begun = [run for run in runs if len(measured[run][0])]
    steps = _grid([measured[run][0] for run in begun], points)
    lines = [np.interp(steps, *measured[run]) for run in begun]
    mean, low, high = _interval(np.array(lines)) if lines else (steps, steps, steps)
    return Curve(
        label=label, runs=begun or runs, steps=steps.tolist(),
        mean=nullable(mean), low=nullable(low), high=nullable(high),
    )  # fmt: skip


def _labelled(rows: list[RunRow]) -> dict[str, list[str]]:
    """Group → its runs among these; a run without companions goes by its own name."""
    found: dict[str, list[str]] = {}
    for row in rows:
        others = [other for other in rows if other.group == row.group]
        label = row.group if row.group is not None and len(others) > 1 else row.run
        found.setdefault(label, []).append(row.run)
    return found


def _grid(reported: list[Array], points: int) -> Array:
    """The steps that all runs have between their first report and their last; those of one run as they are."""
    if not reported:
        return np.empty(0)
    if len(reported) == 1 and len(reported[0]) <= points:
        return reported[0]
    first, last = max(steps[0] for steps in reported), min(steps[-1] for steps in reported)
    if first > last:
        return np.empty(0)
    return np.linspace(first, last, points) if last > first else np.array([first])


def _interval(lines: Array) -> tuple[Array, Array, Array]:
    """Mean and interval at each step; of one run the mean itself."""
    mean = lines.mean(axis=0)
    if len(lines) == 1:
        return mean, mean, mean
    spread = CERTAINTY * lines.std(axis=0, ddof=1) / np.sqrt(len(lines))
    return mean, mean - spread, mean + spread
