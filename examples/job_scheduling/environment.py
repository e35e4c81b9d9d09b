"""The cluster as a Gymnasium environment: a queue of jobs to look at, the next one to name.

An observation is one row of 8 numbers in [0, 1] for each of the 128 visible jobs; empty places are rows of
zeros, and `info["action_mask"]` forbids them. An episode schedules `jobs` jobs that follow each other in a
long workload, from an empty machine on; workload, load and place are drawn from the seed.
"""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

import lublin
import swf
from baselines import scheduled, sjf
from cluster import BOUND, VISIBLE, Cluster, Rules
from workload import Workload

FEATURES = 8
"""Requested time, processors, wait, whether it fits, seconds until it fits, free processors, length of the
queue, place in it; all times as logarithms."""
TRAINING_SEEDS = 1_000_000
"""Workloads of training have seeds below this one."""
EVALUATION_SEEDS = 2_000_000
"""Workloads of evaluation have seeds from this one on. Those between were looked at while this was built."""
MAX_JOBS = 100_000
SPAN = 4
"""A workload to draw from is this many episodes long."""
LONGEST = 10 * 86_400.0
"""Seconds that count as 1; longer ones do too."""
LEAST_WAIT = 600.0
"""Seconds of average wait below which an episode is easy, and no longer weighs the same as others."""

Rows = NDArray[np.float32]
Mask = NDArray[np.bool_]

_BY_LONGEST = 1.0 / float(np.log1p(LONGEST))
_PLACES = (np.arange(VISIBLE) / VISIBLE).astype(np.float32)
_MASKS = np.tril(np.ones((VISIBLE + 1, VISIBLE), np.bool_), -1)
_MASKS.flags.writeable = False


class Scheduling(gym.Env[Rows, np.int64]):
    """Name the next job to start, again and again.

    Rewards sum to 1 − the average bounded slowdown, divided by what shortest-job-first reaches on the same
    jobs (so that an easy and a hard episode weigh the same): −1 is as good as that baseline. Each reward is
    what the waiting jobs have lost while time passed since the last decision. With `wait_weight`, the
    average wait counts too, as a share of that baseline's.
    """

    def __init__(
        self,
        loads: tuple[float, ...] = (0.7, 0.9, 1.1),
        jobs: int = 256,
        processors: int = 128,
        overestimate: float = 1.0,
        wait_weight: float = 0.0,
        commit: bool = False,
        backfill: bool = False,
        log: str | None = None,
    ) -> None:
        """`log` names a file in the Standard Workload Format to draw from instead of the model."""
        if not 2 <= jobs <= MAX_JOBS:
            raise ValueError(f"jobs must be 2 to {MAX_JOBS}, not {jobs}")
        self.loads, self.jobs, self.processors = tuple(loads), jobs, processors
        self.overestimate, self.wait_weight = overestimate, wait_weight
        self.rules = Rules(commit, backfill)
        self._log = swf.read(Path(log)).workload if log is not None else None
        self.observation_space = gym.spaces.Box(0.0, 1.0, (VISIBLE, FEATURES), np.float32)
        self.action_space = gym.spaces.Discrete(VISIBLE)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Rows, dict[str, Any]]:
        """Begin an episode; `options["workload"]` schedules that one, whole, instead of drawing one."""
        super().reset(seed=seed)
        workload = (options or {}).get("workload")
        self.begin(self._draw() if workload is None else workload)
        return self.view.rows(), self._info()

    def begin(self, workload: Workload) -> None:
        self.cluster = Cluster(workload, self.rules)
        self.view = View(self.cluster)
        self._loss = Loss(self.cluster, self.wait_weight)

    def step(self, action: np.int64 | int) -> tuple[Rows, float, bool, bool, dict[str, Any]]:
        self.cluster.name(int(action))
        done = self.cluster.done
        reward = -self._loss.since_last()
        return self.view.rows(), reward, done, False, self._info()

    def _info(self) -> dict[str, Any]:
        if self.cluster.done:
            return {"bounded_slowdown": float(self.cluster.slowdowns().mean())}
        return {"action_mask": mask_of(self.cluster)}

    def _draw(self) -> Workload:
        if self._log is not None:
            whole = self._log
        else:
            seed = int(self.np_random.integers(TRAINING_SEEDS))
            load = self.loads[int(self.np_random.integers(len(self.loads)))]
            whole = lublin.generate(SPAN * self.jobs, seed, self.processors, load, self.overestimate)
        first = int(self.np_random.integers(max(1, len(whole) - self.jobs + 1)))
        return whole.window(first, self.jobs)


def mask_of(cluster: Cluster) -> Mask:
    """Which of the VISIBLE places hold a job."""
    mask: Mask = _MASKS[len(cluster.visible)]
    return mask


class View:
    """A cluster's queue as rows."""

    def __init__(self, cluster: Cluster) -> None:
        workload = cluster.workload
        self.cluster, self._submit, self._procs = cluster, workload.submit, workload.procs
        self._table = np.zeros((len(workload), FEATURES), np.float32)
        self._table[:, 0] = _scaled(workload.request)
        self._table[:, 1] = np.log2(workload.procs) / np.log2(max(2, workload.processors))

    def rows(self) -> Rows:
        """[VISIBLE, FEATURES] in [0, 1]."""
        cluster = self.cluster
        jobs = cluster.visible
        rows, count = np.zeros((VISIBLE, FEATURES), np.float32), len(jobs)
        if not count:
            return rows
        part, procs = rows[:count], self._procs[jobs]
        part[:] = self._table[jobs]
        part[:, 2] = _scaled((cluster.now - self._submit[jobs]).astype(np.float32))
        part[:, 3] = procs <= cluster.free
        frees, times = cluster.releases()
        part[:, 4] = _scaled(times)[frees.searchsorted(procs)]  # few releases, many jobs: scale first
        part[:, 5] = cluster.free / cluster.processors
        part[:, 6] = count / VISIBLE
        part[:, 7] = _PLACES[:count]
        return rows


class Loss:
    """What waiting has cost all jobs together, as far as time has passed; 1 + wait_weight is the cost of SJF."""

    def __init__(self, cluster: Cluster, wait_weight: float) -> None:
        workload = cluster.workload
        self._cluster, self._at, self._told = cluster, cluster.now, 0.0
        known = scheduled(workload, sjf, cluster.rules)
        self._rate = 1.0 / np.maximum(workload.run, BOUND) / float(known.slowdowns().sum())
        # job j has lost (time − begins_j) · rate_j; below BOUND seconds the first moments cost nothing
        self._begins = workload.submit + np.maximum(BOUND - workload.run, 0.0)
        self._wait_rate = wait_weight / max(float(known.waits().sum()), LEAST_WAIT * len(workload))

    def since_last(self) -> float:
        """What was lost since the last call."""
        now, started = self._cluster.now, self._cluster.started
        if now == self._at:
            return 0.0
        ends = np.where(np.isnan(started), now, started)
        total = float(np.maximum(ends - self._begins, 0.0) @ self._rate)
        if self._wait_rate:
            waits = np.maximum(ends - self._cluster.workload.submit, 0.0)
            total += float(waits.sum()) * self._wait_rate
        lost, self._told, self._at = total - self._told, total, now
        return lost


def _scaled(seconds: NDArray[Any]) -> NDArray[Any]:
    scaled: NDArray[Any] = np.minimum(np.log1p(seconds) * _BY_LONGEST, 1.0)
    return scaled
