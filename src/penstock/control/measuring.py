"""Metrics as people ask for them: by name, from a step on, and no more points than a picture can show."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from penstock.control.series import Series, SeriesStore
from penstock.control.views import Metrics
from penstock.errors import ConfigError, nearest
from penstock.loop.metrics import AXES
from penstock.model.codec import Array

DEFAULT_POINTS = 1000
MOST_POINTS = 20_000

SHORT = {
    "mean_return": "charts/episodic_return",
    "mean_length": "charts/episodic_length",
    "steps_per_second": "charts/SPS",
    "lag": "pace/lag",
}
"""What a status calls them → what reports call them."""


def read_metrics(
    store: SeriesStore,
    file: Path,
    run: str,
    names: Sequence[str] | None,
    since: float | None,
    points: int | None,
) -> Metrics:
    """Columns of at most `points` reports beyond step `since`.

    Of one name the least and the greatest of each stretch stay; of several every so many reports do, the first
    and the last among them. Raises ConfigError for a name the run does not have, unless it has none yet.
    """
    wanted = DEFAULT_POINTS if points is None else points
    if not 2 <= wanted <= MOST_POINTS:
        raise ConfigError(f"points is {wanted}; ask for 2 to {MOST_POINTS}")
    series = store.of(file)
    with series.lock:
        series.follow()
        known, start = series.names, series.after(since)
        asked = known if names is None else [name for name in dict.fromkeys(names) if name not in AXES]
        check_names(run, asked, known)
        columns = {name: _values(series, name, start) for name in (*AXES, *asked)}
        total, last = series.total(start), series.column("steps", max(0, len(series) - 1))
    rows = chosen_rows([columns[name] for name in asked], len(columns["steps"]), wanted)
    return Metrics(
        run=run,
        names=known,
        columns={name: nullable(values[rows]) for name, values in columns.items()},
        total=total,
        last_step=last[0] if last else since,
    )


def check_names(run: str, asked: Sequence[str], known: Sequence[str]) -> None:
    for name in asked:
        if known and SHORT.get(name, name) not in known:
            raise ConfigError(f"run {run} has no metric {name!r}{nearest(name, [*known, *SHORT])}")


def read_curve(store: SeriesStore, file: Path, metric: str) -> tuple[Array, Array, list[str]]:
    """Steps and values of one metric where it has any, and all names the run has."""
    series = store.of(file)
    with series.lock:
        series.follow()
        steps, values = _values(series, "steps", 0), _values(series, metric, 0)
        names = series.names
    there = ~np.isnan(values)
    return steps[there], values[there], names


def _values(series: Series, name: str, start: int) -> Array:
    return np.array(series.column(SHORT.get(name, name), start), np.float64)


def chosen_rows(columns: list[Array], count: int, points: int) -> Array:
    """Which of `count` rows stay."""
    if count <= points:
        return np.arange(count)
    if len(columns) != 1:
        return np.unique(np.linspace(0, count - 1, points).round().astype(int))
    return _extremes(columns[0], points)


def _extremes(values: Array, points: int) -> Array:
    """The first, the last, and the least and greatest of each stretch between."""
    kept = {0, len(values) - 1}
    stretches = (points - 2) // 2
    if stretches:
        edges = np.linspace(1, len(values) - 1, stretches + 1).astype(int)
        for start, end in pairwise(edges):
            part = values[start:end]
            if len(part):
                kept.add(int(start + np.argmin(np.where(np.isnan(part), np.inf, part))))
                kept.add(int(start + np.argmax(np.where(np.isnan(part), -np.inf, part))))
    return np.array(sorted(kept))


def nullable(values: Array) -> list[float | None]:
    """As JSON has it: null where there is no number."""
    return [None if value != value else value for value in values.tolist()]
