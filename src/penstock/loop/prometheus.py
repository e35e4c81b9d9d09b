"""What Prometheus reads of a run: the keeper's newest knowledge, on loopback, when somebody asks."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from prometheus_client import Metric

    from penstock.loop.keeper import Keeper

HOST = "127.0.0.1"
FLOW = {
    "produced_records": "Records written to the stream.",
    "produced_bytes": "Bytes written to the stream.",
    "consumed_records": "Records read from the stream.",
    "consumed_bytes": "Bytes read from the stream.",
    "waits": "Writes that had to wait for room or for a broker.",
    "waited_seconds": "Seconds that writes have waited.",
    "dropped": "Reports dropped because there was no room.",
}


NO_OUTCOME = ("dead_letters", "pending", "received", "missed")


class Endpoint:
    """Serves /metrics while a keeper runs; does nothing without a port."""

    def __init__(self, keeper: "Keeper", port: int | None) -> None:
        self.address: str | None = None
        self._server: Any = None
        if port is None:
            return
        from prometheus_client import CollectorRegistry, start_http_server

        registry = CollectorRegistry()
        registry.register(_Collector(keeper))
        try:
            self._server, _ = start_http_server(port, HOST, registry)
        except OSError as error:
            raise ConfigError(
                f"prometheus: port {port} on {HOST} cannot be used: {error.strerror}"
            ) from error
        self.address = f"http://{HOST}:{self._server.server_port}/metrics"

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


class _Collector:
    """Turns reports into metrics at the moment of a scrape."""

    def __init__(self, keeper: "Keeper") -> None:
        self._keeper = keeper

    def describe(self) -> list["Metric"]:
        """Nothing is known beforehand."""
        return []

    def collect(self) -> Iterator["Metric"]:
        keeper = self._keeper
        told = keeper.heard.report.get("values", {})
        # what is not finite comes through JSON as null
        values: dict[str, float] = {name: value for name, value in told.items() if value is not None}
        actors = dict(keeper.heard.actors)
        yield from self._run(values)
        yield from self._flows(values, actors)
        yield from self._accounts(values)
        yield from self._slots(actors)
        yield from self._charts(values)
        for name, value in keeper.heard.gateway().items():
            yield self._gauge(re.sub(r"\W", "_", name), f"{name} of the newest report of the gateway.", value)

    def _run(self, values: dict[str, float]) -> Iterator["Metric"]:
        keeper, report = self._keeper, self._keeper.heard.report
        yield self._counter("environment_steps", "Environment steps learned from.", report.get("steps", 0))
        yield self._counter("episodes", "Finished episodes.", report.get("episodes", 0))
        yield self._counter("updates", "Updates of the learner.", report.get("updates", 0))
        yield self._counter("restarts", "Restarts of actors and learner.", keeper.restarts)
        yield self._gauge("stream_lag_records", "Records written and not yet read by the learner.",
                          values.get("stream/lag", 0))  # fmt: skip
        yield self._gauge(
            "steps_per_second", "Environment steps per second, lately.", keeper.heard.steps_per_second
        )

    def _flows(self, values: dict[str, float], actors: dict[int, dict[str, Any]]) -> Iterator["Metric"]:
        from prometheus_client.core import CounterMetricFamily

        flows = {f"actor-{slot}": report.get("stream", {}) for slot, report in actors.items()}
        flows["learner"] = {name: values.get(f"stream/{name}", 0) for name in FLOW}
        for name, text in FLOW.items():
            family = CounterMetricFamily(f"penstock_stream_{name}", text, labels=("run", "process"))
            for process, flow in flows.items():
                family.add_metric((self._keeper.folder.run, process), flow.get(name, 0))
            yield family

    def _accounts(self, values: dict[str, float]) -> Iterator["Metric"]:
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(
            "penstock_rollouts", "Rollouts by what became of them.", labels=("run", "outcome")
        )
        for name, count in values.items():
            if name.startswith("accounting/") and name.removeprefix("accounting/") not in NO_OUTCOME:
                family.add_metric((self._keeper.folder.run, name.removeprefix("accounting/")), count)
        yield family
        yield self._counter(
            "rollouts_received", "Rollouts read by the learner.", values.get("accounting/received", 0)
        )
        yield self._counter(
            "rollouts_missed", "Records retention dropped unread.", values.get("accounting/missed", 0)
        )
        yield self._gauge("rollouts_pending", "Rollouts read and waiting for their update.",
                          values.get("accounting/pending", 0))  # fmt: skip
        yield self._counter(
            "dead_letters", "Records that could not be read.", values.get("accounting/dead_letters", 0)
        )

    def _slots(self, actors: dict[int, dict[str, Any]]) -> Iterator["Metric"]:
        from prometheus_client.core import GaugeMetricFamily

        for name, text in {
            "steps_per_second": "Environment steps per second of one actor.",
            "lag": "Updates an actor is ahead of the policy it uses.",
            "loaded_after": "Seconds from publishing a version to its loading.",
        }.items():
            family = GaugeMetricFamily(f"penstock_actor_{name}", text, labels=("run", "slot"))
            for slot, report in actors.items():
                family.add_metric((self._keeper.folder.run, str(slot)), report.get(name) or 0.0)
            yield family

    def _charts(self, values: dict[str, float]) -> Iterator["Metric"]:
        """Losses, returns and whatever else the algorithm tells."""
        for name, value in values.items():
            if not name.startswith(("accounting/", "stream/", "seconds/")):
                yield self._gauge(re.sub(r"\W", "_", name).lower(), f"{name} of the newest report.", value)

    def _counter(self, name: str, text: str, value: float) -> "Metric":
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(f"penstock_{name}", text, labels=("run",))
        family.add_metric((self._keeper.folder.run,), value)
        return family

    def _gauge(self, name: str, text: str, value: float) -> "Metric":
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(f"penstock_{name}", text, labels=("run",))
        family.add_metric((self._keeper.folder.run,), value)
        return family
