"""Paired differences and how sure we are of them: 95 % intervals, by Student's t and by bootstrap."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
RESAMPLES = 20_000
T_QUANTILE = {
    2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 11: 2.201,
    12: 2.179, 13: 2.160, 14: 2.145, 15: 2.131, 16: 2.120, 17: 2.110, 18: 2.101, 19: 2.093, 20: 2.086,
    24: 2.064, 29: 2.045, 39: 2.023, 59: 2.001, 99: 1.984,
}  # fmt: skip
"""The 97.5 % quantile of Student's t by degrees of freedom; for others the next lower one, which is wider."""


@dataclass(frozen=True)
class Difference:
    """Mean of a − b over pairs; where an interval lies below 0, a is surely lower."""

    mean: float
    t: tuple[float, float]
    bootstrap: tuple[float, float]
    lower: int
    """Pairs in which a was lower."""
    pairs: int

    @property
    def verdict(self) -> str:
        """What both intervals say of a; the more doubtful one decides."""
        if max(self.t[1], self.bootstrap[1]) < 0:
            return "better"
        return "worse" if min(self.t[0], self.bootstrap[0]) > 0 else "not told apart"


def paired(a: NDArray[np.float64], b: NDArray[np.float64], seed: int = 0) -> Difference:
    """Compare two schedulers over the same workloads."""
    difference = np.asarray(a, np.float64) - np.asarray(b, np.float64)
    count = len(difference)
    if count < 3:
        raise ValueError(f"an interval needs at least 3 pairs, not {count}")
    mean, error = float(difference.mean()), float(difference.std(ddof=1)) / count**0.5
    half = T_QUANTILE[max(freedom for freedom in T_QUANTILE if freedom < count)] * error
    draws = np.random.default_rng(seed).integers(count, size=(RESAMPLES, count))
    low, high = np.quantile(difference[draws].mean(axis=1), (0.025, 0.975))
    wins = int((difference < 0).sum())
    return Difference(mean, (mean - half, mean + half), (float(low), float(high)), wins, count)
