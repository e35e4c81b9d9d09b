"""A cluster that runs a workload, job by job, as a scheduler names them.

Whenever jobs wait, the scheduler names the next one to start, out of the first VISIBLE in order of arrival.
One that fits starts at once. One that does not makes the cluster wait, in one of two ways (`Rules.commit`):
until anything arrives or ends, and then the scheduler is asked again, as real ones are at every event; or
until that very job fits, the setting of RLScheduler (Zhang et al., SC'20), in which a name is a promise. With
`Rules.backfill`, jobs that do not delay the named one start meanwhile. Jobs run on any free processors, to
their end.

This is the hot path of training. Scalars live in lists, because NumPy scalars are slow; what is done to the
whole queue is done to arrays.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from workload import Counts, Times, Workload

VISIBLE = 128
"""How many waiting jobs a scheduler sees."""
BOUND = 10.0
"""Seconds: slowdowns of shorter jobs are bounded (Feitelson et al., 1997)."""


def bounded_slowdown(wait: Times, run: Times) -> Times:
    """max(1, (wait + run) / max(run, 10)) of each job."""
    return np.maximum(1.0, (wait + run) / np.maximum(run, BOUND))


@dataclass(frozen=True)
class Rules:
    """How a cluster treats a named job that does not fit."""

    commit: bool = False
    """Wait for it, whatever arrives meanwhile; otherwise ask again at the next event."""
    backfill: bool = False
    """EASY: let others pass it as long as they do not delay it, by the times users asked for."""


class Cluster:
    """One pass over a workload. At rest it always has a waiting job, or is `done`."""

    def __init__(self, workload: Workload, rules: Rules = Rules()) -> None:  # noqa: B008 - it is frozen
        self.workload, self.rules = workload, rules
        self.processors = workload.processors
        self.now, self.free = 0.0, workload.processors
        self.started: Times = np.full(len(workload), np.nan)
        """When each job started; NaN while it has not."""
        self._submit: list[float] = workload.submit.tolist()
        self._run: list[float] = workload.run.tolist()
        self._request: list[float] = workload.request.tolist()
        self._procs: list[int] = workload.procs.tolist()
        self._queue = np.zeros(len(workload), np.int64)
        self._waiting = self._arrived = 0
        self._ends: list[tuple[float, int]] = []  # a heap of (real end, job)
        self._expected: list[tuple[float, int]] = []  # sorted (requested end, job)
        self._rest()

    @property
    def done(self) -> bool:
        """Whether every job has started."""
        return self._waiting == 0

    @property
    def waiting(self) -> Counts:
        """All jobs that wait, in order of arrival; a view that `start` changes."""
        return self._queue[: self._waiting]

    @property
    def visible(self) -> Counts:
        """Those of them that a scheduler may choose from."""
        return self._queue[: min(self._waiting, VISIBLE)]

    def name(self, place: int) -> None:
        """Start the job at `place` of the visible queue, or wait as the rules say; then pass time until a decision."""
        if not 0 <= place < min(self._waiting, VISIBLE):
            raise IndexError(f"place {place} of the queue is empty; {len(self.visible)} jobs are visible")
        job = int(self._queue[place])
        while self._procs[job] > self.free:
            if self.rules.backfill and self._waiting > 1:
                self._fill_behind(job)
            self._next_event()
            if not self.rules.commit:
                return
        self._begin(job)
        self._rest()

    def until_fits(self, procs: Counts) -> Times:
        """Seconds until so many processors are free, if running jobs take the time they asked for."""
        frees, times = self.releases()
        found: Times = times[frees.searchsorted(procs)]
        return found

    def releases(self) -> tuple[Counts, Times]:
        """Processors that will be free, and in how many seconds, by the time running jobs asked for."""
        free, now, procs = self.free, self.now, self._procs
        frees, times = [free], [0.0]
        for end, job in self._expected:
            free += procs[job]
            frees.append(free)
            times.append(end - now if end > now else 1.0)  # past its time it ends any moment
        return np.array(frees), np.array(times)

    def slowdowns(self) -> Times:
        """The bounded slowdown of every job; the workload must be done."""
        return bounded_slowdown(self.waits(), self.workload.run)

    def waits(self) -> Times:
        """Seconds each job waited; the workload must be done."""
        if not self.done:
            raise RuntimeError(f"{self._waiting} jobs still wait; schedule them before asking how it went")
        return self.started - self.workload.submit

    def utilisation(self) -> float:
        """The share of the machine that was used, from the first arrival to the last end."""
        workload = self.workload
        span = float((self.started + workload.run).max() - workload.submit[0])
        return float(workload.run @ workload.procs) / (self.processors * span)

    def _rest(self) -> None:
        """Pass the time until a job waits, or all have started."""
        if not self._waiting and self._arrived < len(self._submit):
            self._advance(self._submit[self._arrived])

    def _next_event(self) -> None:
        """To the next end or arrival. Something runs, or the named job would fit."""
        time = self._ends[0][0]
        if self._arrived < len(self._submit):
            time = min(time, self._submit[self._arrived])
        self._advance(time)

    def _advance(self, time: float) -> None:
        """End what has ended by then and queue what has arrived."""
        if time > self.now:
            self.now = time
        ends, now = self._ends, self.now
        while ends and ends[0][0] <= now:
            _, job = heappop(ends)
            self.free += self._procs[job]
            expected = (float(self.started[job]) + self._request[job], job)
            del self._expected[bisect_left(self._expected, expected)]
        submit, arrived = self._submit, self._arrived
        while arrived < len(submit) and submit[arrived] <= now:
            self._queue[self._waiting] = arrived
            self._waiting += 1
            arrived += 1
        self._arrived = arrived

    def _begin(self, job: int) -> None:
        place = int(self.waiting.searchsorted(job))  # jobs are numbered in order of arrival
        self._waiting -= 1
        self._queue[place : self._waiting] = self._queue[place + 1 : self._waiting + 1]
        self.free -= self._procs[job]
        self.started[job] = self.now
        heappush(self._ends, (self.now + self._run[job], job))
        insort(self._expected, (self.now + self._request[job], job))

    def _fill_behind(self, reserved: int) -> None:
        """EASY (Lifka, 1995): start, in order of arrival, what does not delay the job that was promised to be next."""
        need, free, shadow = self._procs[reserved], self.free, self.now
        for end, job in self._expected:
            free += self._procs[job]
            if free >= need:
                shadow = max(end, self.now)
                break
        spare = free - need  # processors that stay free when the promised job has started
        for job in self.waiting[self.workload.procs[self.waiting] <= self.free].tolist():
            procs = self._procs[job]
            in_time = self.now + self._request[job] <= shadow
            if procs <= self.free and (in_time or procs <= spare):
                if not in_time:
                    spare -= procs
                self._begin(job)
