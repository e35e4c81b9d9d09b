"""Schedulers that learned nothing here: each scores the visible jobs, and the lowest score is next.

Ties go to the earlier arrival. They look at requested times, never at run times.
"""

from collections.abc import Callable

import numpy as np

from cluster import Cluster
from workload import Times, Workload

Choose = Callable[[Cluster], int]
"""A scheduler: the place in the visible queue of the job that is next."""


def fcfs(cluster: Cluster) -> int:
    """First come, first served."""
    return 0


def sjf(cluster: Cluster) -> int:
    """Shortest job first."""
    return int(cluster.workload.request[cluster.visible].argmin())


def f1(cluster: Cluster) -> int:
    """F1 of Carastan-Santos and de Camargo (SC'17): log10(r)·n + 870·log10(s), s being the submit time."""
    workload, jobs = cluster.workload, cluster.visible
    submit = np.maximum(workload.submit[jobs], 1.0)
    scores = np.log10(workload.request[jobs]) * workload.procs[jobs] + 870.0 * np.log10(submit)
    return int(scores.argmin())


def sjf_that_fits(cluster: Cluster) -> int:
    """The shortest job that fits now; else the one that fits soonest. Not a published baseline, but a plain
    question to a learned policy: does it know more than this?"""
    workload, jobs = cluster.workload, cluster.visible
    return int(np.lexsort((workload.request[jobs], cluster.until_fits(workload.procs[jobs])))[0])


def uniform(seed: int) -> Choose:
    """Any visible job."""
    rng = np.random.default_rng(seed)
    return lambda cluster: int(rng.integers(len(cluster.visible)))


def slowdowns(workload: Workload, choose: Choose, backfill: bool = False) -> Times:
    """The bounded slowdown of each job of a workload under a scheduler."""
    cluster = Cluster(workload, backfill)
    while not cluster.done:
        cluster.start(choose(cluster))
    return cluster.slowdowns()
