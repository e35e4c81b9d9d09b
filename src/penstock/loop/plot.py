"""Return curves of several runs as one picture."""

from pathlib import Path
from typing import Any

from penstock.errors import ConfigError, NotFound
from penstock.loop.metrics import read_metrics
from penstock.loop.runs import RunFolder

Curve = tuple[list[float], list[float]]


def plot(runs: list[RunFolder], file: Path, metric: str = "charts/episodic_return") -> None:
    """Draw `metric` against environment steps into `file` (png, svg or pdf by its ending)."""
    curves = {run.run: curve(run, metric) for run in runs}
    if not any(steps for steps, _ in curves.values()):
        raise NotFound(f"none of these runs has reported {metric!r} yet")
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    for run in runs:
        axes.plot(*curves[run.run], label=_label(run), linewidth=1.5)
    targets = {target for run in runs if (target := _target(run, metric)) is not None}
    for target in sorted(targets):
        axes.axhline(target, color="grey", linestyle=":", linewidth=1)
    axes.set_xlabel("environment steps")
    axes.set_ylabel("mean return" if metric == "charts/episodic_return" else metric)
    axes.ticklabel_format(axis="x", style="sci", scilimits=(0, 5))
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    try:
        figure.savefig(file, dpi=150)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the picture {file} cannot be written: {error}") from error
    finally:
        pyplot.close(figure)


def curve(run: RunFolder, metric: str) -> Curve:
    """Steps and values of one metric, where it was reported."""
    columns = read_metrics(run.path, [metric])
    pairs = [
        (steps, value)
        for steps, value in zip(columns["steps"], columns[metric], strict=True)
        if steps is not None and value is not None
    ]
    return [steps for steps, _ in pairs], [value for _, value in pairs]


def _label(run: RunFolder) -> str:
    status = run.status()
    return f"{run.run} ({status.algorithm}, {status.environment}, seed {status.seed})"


def _target(run: RunFolder, metric: str) -> float | None:
    return run.spec().stop.target if metric == "charts/episodic_return" else None


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise ConfigError("drawing needs matplotlib: pip install 'penstock[plot]'") from error
    matplotlib.use("agg")  # no window, no display server
    from matplotlib import pyplot

    return pyplot
