"""Schedulers that learned nothing here: each scores the visible jobs, and the lowest score is next.

Ties go to the earlier arrival. They look at requested times, never at run times.
"""

from collections.abc import Callable

import numpy as np

from cluster import Cluster, Rules
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


def saf(cluster: Cluster) -> int:
    """Smallest area first: requested time times processors (Carastan-Santos et al., CCGRID'19)."""
    workload, jobs = cluster.workload, cluster.visible
    return int((workload.request[jobs] * workload.procs[jobs]).argmin())


def uniform(seed: int) -> Choose:
    """Any visible job."""
    rng = np.random.default_rng(seed)
    return lambda cluster: int(rng.integers(len(cluster.visible)))


def scheduled(workload: Workload, choose: Choose, rules: Rules = Rules()) -> Cluster:  # noqa: B008 - it is frozen
    """The cluster once a scheduler has started every job."""
    cluster = Cluster(workload, rules)
    while not cluster.done:
        cluster.name(choose(cluster))
    return cluster


def slowdowns(workload: Workload, choose: Choose, rules: Rules = Rules()) -> Times:  # noqa: B008 - it is frozen
    """The bounded slowdown of each job of a workload under a scheduler."""
    return scheduled(workload, choose, rules).slowdowns()
