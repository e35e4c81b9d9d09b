"""What actors and learner tell their keeper: the newest reports, smoothed rates, and metrics written down.

Reads from: `metrics.training` and `metrics.actors`. Writes to: the run's metrics, and to whoever wants events.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.loop.metrics import MetricsWriter
from penstock.loop.registry import FIRST_GUEST
from penstock.loop.runs import RunFolder
from penstock.loop.supervise import Supervised
from penstock.model import topics
from penstock.model.codec import Frame, decode
from penstock.stream.base import Stream
from penstock.stream.records import RecordReader

RETURNS_SHOWN = 1000
GUEST_SECONDS = 10.0
"""A guest that has not reported for so long is taken for gone."""
QUIET_SECONDS = 30.0
"""Where the learner tells nothing for so long, as one that is parked, the gateway's figures are written alone."""
WORDS = ("steps", "seconds", "time", "episodes", "updates", "version")

OnEvent = Callable[[str, str, dict[str, Any]], None]
"""Process, event, fields."""


class Hearing:
    """Used by the keeper alone."""

    def __init__(self, stream: Stream, folder: RunFolder, tensorboard: bool, on_event: OnEvent) -> None:
        self._run, self._on_event = folder.run, on_event
        self._readers = [
            RecordReader(stream, topic, _decode_report, stream.end(topic))
            for topic in (topics.METRICS_TRAINING, topics.METRICS_ACTORS)
        ]
        self._metrics = MetricsWriter(folder.path, tensorboard)
        self.report: dict[str, Any] = {}
        """The learner's newest report."""
        self._written_at, self._clients = time.monotonic(), 0.0
        self.actors: dict[int, dict[str, Any]] = {}
        """The newest report of each slot, guests included."""
        self.returns: deque[float] = deque(maxlen=RETURNS_SHOWN)
        """Mean returns so far, for the eye."""
        self.steps_per_second = 0.0
        """Lately: smoothed over some seconds."""
        self.bytes_per_second = 0.0
        """Read by the learner, lately."""

    def listen(self, seconds: float) -> None:
        """Take what was told; wait up to `seconds` for the learner."""
        for reader in self._readers:
            for record, report in reader.read(256, seconds):
                if record.key == self._run:
                    # anybody may write into a shared topic: an odd report is passed over, nobody ends for it
                    with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
                        self._take(report)
            seconds = 0.0

    def flow(self) -> dict[str, float]:
        """What all actors together sent through the stream since they started."""
        flows = [report["stream"] for report in self.actors.values() if "stream" in report]
        names = ("produced_records", "produced_bytes", "waits", "waited_seconds")
        return {f"stream/actors/{name}": sum(flow[name] for flow in flows) for name in names}

    def gateway(self) -> dict[str, float]:
        """How clients and the gateway are doing, where the experience comes through one."""
        told = [
            report["gateway"] for report in self.actors.values() if isinstance(report.get("gateway"), dict)
        ]
        return {name: value for one in told for name, value in one.items() if isinstance(value, int | float)}

    def close(self) -> None:
        self._metrics.close()

    def _take(self, report: dict[str, Any]) -> None:
        if "event" in report:
            self._on_event(report.get("process", ""), report["event"], report.get("fields", {}))
        elif "values" in report:
            self._look(report)
            self.report = report
            self._write(report["values"] | self.flow())
        elif "slot" in report:
            self.actors[report["slot"]] = report
            if self.report and time.monotonic() - self._written_at > QUIET_SECONDS:
                self._write_quiet(report["time"])

    def _write_quiet(self, at: float) -> None:
        """How clients do while nobody learns; where there are none one line says so."""
        clients = self.gateway().get("gateway/clients", 0.0)
        if clients or self._clients:
            self._write({"time": at})

    def _write(self, numbers: dict[str, Any]) -> None:
        """One line: where the learner stands, these numbers, and how clients do."""
        told, words = self.gateway(), {name: self.report[name] for name in WORDS}
        self._metrics.write(words | numbers | told)
        self._written_at, self._clients = time.monotonic(), told.get("gateway/clients", 0.0)

    def _look(self, report: dict[str, Any]) -> None:
        """Smooth the rate, remember the return."""
        if (mean := report["values"].get("charts/episodic_return")) is not None:
            self.returns.append(mean)
        before, now = self.report, report
        if before and now["time"] > before["time"]:
            read = [told["values"].get("stream/consumed_bytes", 0) for told in (before, now)]
            flow = max(0, read[1] - read[0]) / (now["time"] - before["time"])  # a new learner counts from 0
            self.bytes_per_second += (flow - self.bytes_per_second) * 0.1
        rate = report["values"]["charts/SPS"]
        self.steps_per_second += (rate - self.steps_per_second) * (0.1 if self.steps_per_second else 1.0)


def actor_row(slot: int, told: dict[str, Any] | None, kept: Supervised | None) -> dict[str, Any]:
    """One actor for those who look from outside: what it told last, and whether its process lives."""
    told, worker = told or {}, None if kept is None else kept.worker
    words = ("lag", "steps_per_second", "episodes", "mean_return", "host")
    version, heard_lately = told.get("version"), time.time() - told.get("time", 0) < GUEST_SECONDS
    return {
        "slot": slot,
        "guest": slot >= FIRST_GUEST,
        **{word: told.get(word) for word in words},
        "version": None if version is None else ".".join(map(str, version)),
        "restarts": 0 if kept is None else kept.restarts,
        "alive": worker is not None if kept is not None else heard_lately,
        "reported_at": told.get("time"),
        "pid": None if worker is None else worker.pid,
        "gateway": told.get("gateway"),
    }


def _decode_report(frame: Frame) -> dict[str, Any]:
    return decode(frame, dict[str, Any])
