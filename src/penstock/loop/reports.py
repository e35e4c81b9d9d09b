"""What the learner tells people: sums since the last report, at a rate a person can follow.

Writes to: `metrics.training`.
"""

import time
from collections import defaultdict
from typing import Any

import numpy as np

from penstock.loop.checkpoint import Progress
from penstock.model import topics
from penstock.model.codec import Schema, encode
from penstock.model.policy import PolicyFacts
from penstock.model.rollout import Rollout
from penstock.stream.base import Stream

REPORT_SECONDS = 0.1


class Reporter:
    """Collects over updates, writes at most ten reports a second."""

    def __init__(self, stream: Stream, run: str) -> None:
        self._run, self._writer = run, stream.writer(topics.METRICS_TRAINING)
        self._seconds: dict[str, float] = defaultdict(float)
        self._metrics: dict[str, float] = {}
        self._lags: list[int] = []
        self._reported_at, self._reported_steps = time.monotonic(), -1
        self._lap_at = time.monotonic()
        self.waiting = False
        """Whether something was held back because the last report was too fresh."""

    def spent(self, what: str, seconds: float) -> None:
        self._seconds[f"learner/{what}"] += seconds

    def lap(self) -> float:
        """Seconds since the last lap: what an update adds to the training time."""
        before, self._lap_at = self._lap_at, time.monotonic()
        return self._lap_at - before

    def rollouts(self, rollouts: list[Rollout], step: int) -> None:
        """Count where actors spent their time and how old their policies were."""
        for rollout in rollouts:
            self._lags.append(step - rollout.facts.version.step)
            for name, seconds in rollout.facts.seconds.items():
                self._seconds[f"actors/{name}"] += seconds

    def metrics(self, metrics: dict[str, float]) -> None:
        self._metrics.update(metrics)

    def report(
        self, progress: Progress, facts: PolicyFacts, accounts: dict[str, int], *, checkpoint: str,
        final: bool, reason: str | None,
    ) -> None:  # fmt: skip
        """Write a report unless the last one is too fresh; the final one is always written."""
        now = time.monotonic()
        elapsed = now - self._reported_at
        self.waiting = elapsed < REPORT_SECONDS and not final and self._reported_steps >= 0
        if self.waiting:
            return
        steps = progress.environment_steps
        rate = (steps - max(self._reported_steps, 0)) / elapsed if elapsed > 0 else 0.0
        values: dict[str, Any] = {
            "charts/episodic_return": _mean(progress.returns),
            "charts/episodic_length": _mean(progress.lengths),
            "charts/SPS": rate,
            "pace/lag": float(np.mean(self._lags)) if self._lags else 0.0,
            **self._metrics,
            **{f"seconds/{name}": seconds for name, seconds in self._seconds.items()},
            **accounts,
        }
        message = {
            "run": self._run, "time": time.time(), "steps": steps, "seconds": progress.seconds,
            "episodes": progress.episodes, "updates": progress.updates, "version": str(facts.version),
            "weights_sha256": facts.weights_sha256, "roster": sorted(facts.roster), "checkpoint": checkpoint,
            "final": final, "reason": reason,
            "values": {name: value for name, value in values.items() if value is not None},
        }  # fmt: skip
        tell = self._writer.write if final else self._writer.offer  # learning never waits for its own news
        tell(self._run, encode(Schema.REPORT, message))
        self._reported_at, self._reported_steps = now, steps
        self._lags.clear()
        self._seconds.clear()

    def event(self, event: str, **fields: Any) -> None:
        message = {
            "run": self._run,
            "time": time.time(),
            "process": "learner",
            "event": event,
            "fields": fields,
        }
        self._writer.write(self._run, encode(Schema.REPORT, message))


def _mean(values: list[float] | list[int]) -> float | None:
    return float(np.mean(values)) if values else None
