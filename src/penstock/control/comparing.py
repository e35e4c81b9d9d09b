"""Runs side by side: where their specs differ, and one metric of each over the same steps.

Runs of one group differ in their seed only: they become one curve, a mean with its interval.
"""

import warnings
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
    """One curve for each run that stands alone, one for each group; all over the same steps."""
    steps = _grid(measured, points)
    lines = {run: _on_grid(steps, *known) for run, known in measured.items()}
    found = []
    for label, runs in _labelled(rows).items():
        mean, low, high = _interval(np.array([lines[run] for run in runs]))
        found.append(
            Curve(
                label=label,
                runs=runs,
                steps=steps.tolist(),
                mean=nullable(mean),
                low=nullable(low),
                high=nullable(high),
            )
        )
    return found


def _labelled(rows: list[RunRow]) -> dict[str, list[str]]:
    """Group → its runs among these; a run without companions goes by its own name."""
    found: dict[str, list[str]] = {}
    for row in rows:
        others = [other for other in rows if other.group == row.group]
        label = row.group if row.group is not None and len(others) > 1 else row.run
        found.setdefault(label, []).append(row.run)
    return found


def _grid(measured: dict[str, Points], points: int) -> Array:
    """From the first step that any run reported to the last."""
    ends = [(steps[0], steps[-1]) for steps, _ in measured.values() if len(steps)]
    if not ends:
        return np.empty(0)
    first, last = min(start for start, _ in ends), max(end for _, end in ends)
    return np.linspace(first, last, points) if last > first else np.array([first])


def _on_grid(grid: Array, steps: Array, values: Array) -> Array:
    """Between reports the line is straight; before the first and after the last there is nothing."""
    if not len(steps):
        return np.full(len(grid), np.nan)
    return np.interp(grid, steps, values, left=np.nan, right=np.nan)


def _interval(lines: Array) -> tuple[Array, Array, Array]:
    """Mean and interval over the runs that have a value there; of one run the mean itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a column of nothing has no mean: that is no fault
        mean = np.nanmean(lines, axis=0)
        count = np.sum(~np.isnan(lines), axis=0)
        error = np.where(count > 1, np.nanstd(lines, axis=0, ddof=1), 0.0) / np.sqrt(np.maximum(count, 1))
    spread = CERTAINTY * np.nan_to_num(error)
    return mean, mean - spread, mean + spread
