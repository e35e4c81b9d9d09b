"""A workload: jobs in order of arrival, as columns, and the machine they were made for."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Workload:
    """Column i of each array is job i; times are seconds."""

    processors: int
    """Of the machine."""
    submit: Times
    run: Times
    """How long a job really runs; a scheduler must not look at it."""
    request: Times
    """How long its user said it would run."""
    procs: Counts

    def __post_init__(self) -> None:
        sizes = {len(self.submit), len(self.run), len(self.request), len(self.procs)}
        if len(sizes) != 1:
            raise ValueError(f"the columns of a workload have different lengths: {sorted(sizes)}")
        if not len(self):
            raise ValueError("a workload needs at least one job")
        if (np.diff(self.submit) < 0).any():
            raise ValueError("the jobs of a workload must be sorted by submit time")
        if not ((self.procs >= 1) & (self.procs <= self.processors)).all():
            raise ValueError(f"every job must ask for 1 to {self.processors} processors")
        if not ((self.run > 0) & (self.request > 0)).all():
            raise ValueError("every job must run, and ask to run, for more than 0 seconds")

    def __len__(self) -> int:
        return len(self.submit)

    @cached_property
    def load(self) -> float:
        """The offered load: work that arrives, as a share of what the machine can do meanwhile."""
        span = float(self.submit[-1] - self.submit[0])
        return float(self.run @ self.procs) / (self.processors * span) if span > 0 else float("inf")

    def at_load(self, load: float) -> "Workload":
        """The same jobs with all gaps between arrivals scaled, so that they offer this load."""
        if not load > 0:
            raise ValueError(f"a load must be above 0, not {load}")
        first = self.submit[0]
        submit = first + (self.submit - first) * (self.load / load)
        return Workload(self.processors, submit, self.run, self.request, self.procs)

    def window(self, first: int, jobs: int) -> "Workload":
        """`jobs` jobs from number `first` on; they keep their submit times."""
        part = slice(first, first + jobs)
        return Workload(
            self.processors, self.submit[part], self.run[part], self.request[part], self.procs[part]
        )
