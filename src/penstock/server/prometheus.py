"""What Prometheus scrapes: the server's own traffic, and its runs as they are at that moment."""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from penstock.control.control import Control
from penstock.control.views import RunView
from penstock.lineage.rows import RunQuery
from penstock.model.run import LIVE, RunState
from penstock.server.traffic import Traffic

MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4
MOST_RUNS = 200
"""Live runs that have lines of their own; more are only counted."""


def scrape(control: Control, traffic: Traffic) -> bytes:
    """All of it, as text."""
    registry = CollectorRegistry()
    registry.register(_Runs(control))
    return generate_latest(registry) + generate_latest(traffic.registry)


class _Runs:
    """Asks the control plane at the moment of a scrape."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def describe(self) -> list[Metric]:
        """Nothing is known beforehand."""
        return []

    def collect(self) -> Iterator[Metric]:
        server = self._control.server()
        states = dict.fromkeys(RunState, 0) | server.runs
        yield _family(
            "runs", "Runs by state.", ("state",), [((state,), count) for state, count in states.items()]
        )
        yield _gauge("viewers", "Open live connections.", server.viewers)
        yield _gauge("commands_behind", "Commands accepted and not yet applied.", server.commands_behind)
        yield _gauge("disk_free_bytes", "Free bytes where runs are kept.", server.disk_free_bytes)
        yield _gauge(
            "start_time_seconds", "When the server started, in seconds since 1970.", server.started_at
        )
        parts = [((name,), float(word == "ok")) for name, word in server.checks.items()]
        yield _family("ready", "1 where a part of the server is well.", ("part",), parts)
        commands = CounterMetricFamily("penstock_commands", "Commands in the audit trail.")
        commands.add_metric((), self._commands())
        yield commands
        yield from self._live()

    def _commands(self) -> int:
        newest = self._control.reads.commands(None, None, None, 1, None).items
        return newest[0].sequence if newest else 0

    def _live(self) -> Iterator[Metric]:
        query = RunQuery(states=tuple(sorted(LIVE)), limit=MOST_RUNS)
        runs = self._control.reads.runs(query).items
        for name, text in {
            "steps": "Environment steps a live run has learned from.",
            "steps_per_second": "Environment steps per second of a live run.",
            "mean_return": "Mean return of a live run's last episodes.",
            "actors": "Actors wanted of a live run.",
            "restarts": "Restarts of a live run's actors and learner.",
        }.items():
            yield _family(f"run_{name}", text, ("run",), _values(runs, name))


def _values(runs: list[RunView], name: str) -> list[tuple[tuple[str, ...], float]]:
    pairs = [(run.run, getattr(run, name)) for run in runs]
    return [((run,), value) for run, value in pairs if value is not None]


def _family(
    name: str, text: str, labels: tuple[str, ...], values: Iterable[tuple[tuple[str, ...], float]]
) -> Metric:
    family = GaugeMetricFamily(f"penstock_{name}", text, labels=labels)
    for label, value in values:
        family.add_metric(label, value)
    return family


def _gauge(name: str, text: str, value: float) -> Metric:
    return _family(name, text, (), [((), value)])
