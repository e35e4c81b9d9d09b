"""Synthetic workloads after Lublin and Feitelson.

U. Lublin and D. G. Feitelson, "The workload on parallel supercomputers: modeling the characteristics of
rigid jobs", J. Parallel Distrib. Comput. 63(11), 2003. Names and numbers are those of the batch jobs in the
authors' program (lublin99.c). Sizes are two-stage uniform in log2, with extra weight on 1 and on powers of
two; the logarithm of the run time is hyper-gamma, mixed by size; the logarithm of the gap between arrivals
is gamma, stretched by a daily cycle of 48 half hours.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from workload import Counts, Times, Workload

MAX_LOG_RUN = 12.0
"""Runs longer than e^12 s (about 45 h) are drawn again."""
MAX_LOG_GAP = 13.0
"""Gaps longer than e^13 s (about 5 days) are drawn again."""
SLOTS = 48
SLOT_SECONDS = 1800
DAY_START = 11
"""The gamma of the daily cycle begins here, in slots after midnight."""
MAX_JOBS = 5_000_000


@dataclass(frozen=True)
class Batch:
    """The published parameters of batch jobs; u_high and u_med are those of a machine of 128."""

    serial: float = 0.2927
    power_of_two: float = 0.6686
    u_low: float = 1.2
    u_med: float = 5.0
    u_high: float = 7.0
    u_prob: float = 0.875
    a1: float = 6.57
    b1: float = 0.823
    a2: float = 639.1
    b2: float = 0.0156
    pa: float = -0.003
    pb: float = 0.6986
    a_arr: float = 6.0415 * 1.0519  # by ARAR: from the rush hours to the whole day
    b_arr: float = 0.8531
    a_num: float = 6.1271
    b_num: float = 5.2740

    @classmethod
    def of_machine(cls, processors: int) -> "Batch":
        """For another size: u_high is its log2, and u_med stays two below, as published."""
        if processors < 8:
            raise ValueError(f"the model needs a machine of 8 processors or more, not {processors}")
        high = math.log2(processors)
        return cls(u_high=high, u_med=high - 2.0)


def generate(
    jobs: int,
    seed: int,
    processors: int = 128,
    load: float | None = None,
    overestimate: float = 1.0,
) -> Workload:
    """A workload of `jobs` batch jobs; the same arguments give the same one.

    `load` scales all gaps to that offered load; None keeps the model's own. The model has no requested
    times: they are the run times, times a factor uniform in [1, `overestimate`] (the f-model of Mu'alem and
    Feitelson, 2001).
    """
    if not 2 <= jobs <= MAX_JOBS:
        raise ValueError(f"a workload has 2 to {MAX_JOBS} jobs, not {jobs}")
    if overestimate < 1:
        raise ValueError(f"overestimate must be 1 or more, not {overestimate}")
    model, rng = Batch.of_machine(processors), np.random.default_rng([0x10B11, seed])
    procs = sizes(model, jobs, rng)
    run = runtimes(model, procs, rng)
    submit = arrivals(model, jobs, rng)
    request = np.ceil(run * rng.uniform(1.0, overestimate, jobs)) if overestimate > 1 else run
    made = Workload(processors, submit, run, request, procs)
    return made if load is None else made.at_load(load)


def sizes(model: Batch, jobs: int, rng: np.random.Generator) -> Counts:
    """Processors of each job."""
    kind = rng.random(jobs)
    low = rng.random(jobs) <= model.u_prob
    start = np.where(low, model.u_low, model.u_med)
    end = np.where(low, model.u_med, model.u_high)
    exponent = start + rng.random(jobs) * (end - start)
    exponent = np.where(kind <= model.serial + model.power_of_two, np.floor(exponent + 0.5), exponent)
    size = np.floor(2.0**exponent + 0.5)
    size = np.minimum(size, np.floor(2.0**model.u_high + 1e-9))  # rounding up must not leave the machine
    return np.where(kind <= model.serial, 1, size).astype(np.int64)


def runtimes(model: Batch, procs: Counts, rng: np.random.Generator) -> Times:
    """Seconds each job runs, at least 1: the larger the job, the likelier the long gamma."""
    share = np.clip(model.pa * procs + model.pb, 0.0, 1.0)
    logs = np.full(len(procs), np.inf)
    while (again := np.flatnonzero(logs > MAX_LOG_RUN)).size:
        short = rng.random(again.size) <= share[again]
        logs[again] = np.where(
            short, rng.gamma(model.a1, model.b1, again.size), rng.gamma(model.a2, model.b2, again.size)
        )
    seconds: Times = np.maximum(np.floor(np.exp(logs)), 1.0)
    return seconds


def arrivals(model: Batch, jobs: int, rng: np.random.Generator) -> Times:
    """Submit times in whole seconds, from midnight of the first day.

    A gap is an amount of points; a half hour costs more of them in the rush. So the points spent so far,
    read backwards through the summed weights of the slots, are the time.
    """
    logs = np.full(jobs, np.inf)
    while (again := np.flatnonzero(logs > MAX_LOG_GAP)).size:
        logs[again] = rng.gamma(model.a_arr, model.b_arr, again.size)
    points = np.cumsum(np.exp(logs)) / SLOT_SECONDS
    edges = np.concatenate(([0.0], np.cumsum(daily_cycle(model))))
    days, rest = np.divmod(points, edges[-1])
    slots = np.interp(rest, edges, np.arange(SLOTS + 1.0))
    submit: Times = np.floor((days * SLOTS + slots) * SLOT_SECONDS)
    return submit


def daily_cycle(model: Batch) -> NDArray[np.float64]:
    """The weight of each half hour of the day, 1 on average."""
    return np.array(_cycle(model.a_num, model.b_num))


@cache
def _cycle(a: float, b: float) -> tuple[float, ...]:
    weights = np.zeros(SLOTS)
    for i in range(DAY_START, SLOTS + DAY_START):
        weights[(i - 1) % SLOTS] = gamma_cdf(i + 0.5, a, b) - gamma_cdf(i - 0.5, a, b)
    return tuple((weights / weights.mean()).tolist())


def gamma_cdf(x: float, a: float, b: float) -> float:
    """The distribution function of gamma(shape a, scale b), by its power series (all we need is x < 15 a b)."""
    x /= b
    if x <= 0:
        return 0.0
    term = total = 1.0 / a
    for n in range(1, 1000):
        term *= x / (a + n)
        total += term
        if term < total * 1e-15:
            break
    return total * math.exp(-x + a * math.log(x) - math.lgamma(a))
