"""How long a rollout of a client's trajectories is: few lengths, because a learner compiles for each."""

from math import prod

import numpy as np

from penstock.model.clients import MOST_ROWS
from penstock.model.spaces import Spaces

ROLLOUT_BYTES = 24 << 20
"""A rollout is one record, and Kafka takes 32 MiB of one."""
STEMS = (7, 6, 5, 4)
SMALLEST = 4


def rollout_size(rows: int) -> int:
    """The largest of {4, 5, 6, 7} · 2ᵏ that is at most `rows`; 0 below 4."""
    if rows < SMALLEST:
        return 0
    double = max(0, rows.bit_length() - 3)
    return next(stem << double for stem in STEMS if stem << double <= rows)


def row_bytes(spaces: Spaces) -> int:
    """What one step takes in a rollout."""
    columns = [*spaces.observation.columns.values(), spaces.action.column]
    numbers = sum(prod(column.shape) * np.dtype(column.dtype).itemsize for column in columns)
    return numbers + 4 + 4 + 1 + 1 + (spaces.action.choices if spaces.action.masked else 0)


def most_rows(spaces: Spaces) -> int:
    """The longest rollout: by rows and by bytes."""
    return rollout_size(min(MOST_ROWS, ROLLOUT_BYTES // row_bytes(spaces)))
