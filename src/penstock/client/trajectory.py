"""What an application experienced: rows in arrays made beforehand, and the action of each row.

Everything here runs in the application's thread. A trajectory that has ended belongs to the courier.
"""

from __future__ import annotations

from math import nan
from typing import Any

import numpy as np

from penstock.client.layout import Layout
from penstock.errors import Conflict
from penstock.model.tensors import Array
from penstock.model.version import Version

WHOLE_BYTES = 16 << 20
"""A trajectory gets as many rows as fit into this at once. The system gives it memory only as rows are written, while
a longer one must be copied to grow, in the middle of a decision."""

FEWEST_ROWS = 16

LARGEST = 1e9
"""What a gateway takes for a reward, either way."""


Arrays = tuple[Array, Array, Array, Array | None, Array | None]
"""Observations, network outputs, actions, log-probabilities (remote only), masks (masked only)."""


def held_bytes(arrays: Arrays) -> int:
    """What a set of arrays takes of memory at most."""
    return sum(array.nbytes for array in arrays if array is not None)


def _arrays(layout: Layout, rows: int) -> Arrays:
    return (
        np.zeros((rows, *layout.observation), np.float32),
        np.zeros((rows, layout.width), np.float32),
        np.zeros((rows, *layout.action), layout.action_type),
        np.zeros(rows, np.float32) if layout.remote else None,
        np.zeros((rows, layout.choices), np.bool_) if layout.masked else None,
    )


class Trajectory:
    """Rows of one episode, or of a piece of one. Made by `request_for_action`."""

    __slots__ = (
        "__weakref__", "actions", "capacity", "decider", "ended", "final", "final_mask", "foreign", "handed",
        "layout", "length",
        "limit", "log_probs", "masks", "observations", "outputs", "requests", "rewards", "terminated", "version",
    )  # fmt: skip

    def __init__(self, layout: Layout, limit: int, arrays: Arrays | None = None) -> None:
        self.layout, self.limit = layout, limit
        if arrays is None:
            arrays = _arrays(layout, min(limit, max(FEWEST_ROWS, WHOLE_BYTES // layout.row_bytes)))
        self.observations, self.outputs, self.actions, self.log_probs, self.masks = arrays
        self.capacity = len(self.observations)
        self.length = self.requests = 0
        self.rewards: list[float | None] = [None] * self.capacity
        self.foreign = bytearray(self.capacity)
        self.ended = self.handed = self.terminated = False
        self.final: Array | None = None
        self.final_mask: Array | None = None
        self.version: Version | None = None
        self.decider: object = None

    def release(self) -> Arrays:
        """Its arrays, for another trajectory; this one is over."""
        return self.observations, self.outputs, self.actions, self.log_probs, self.masks

    def grow(self) -> None:
        """Twice the rows, up to the limit."""
        more = min(self.capacity, self.limit - self.capacity)
        for name in ("observations", "outputs", "actions", "log_probs", "masks"):
            array = getattr(self, name)
            if array is not None:
                setattr(self, name, np.concatenate((array, np.zeros((more, *array.shape[1:]), array.dtype))))
        self.rewards.extend([None] * more)
        self.foreign.extend(bytes(more))
        self.capacity += more

    def decided_by(self, decider: object, version: Version) -> None:
        """Remember who decided, and the oldest version that did."""
        self.decider = decider
        if self.version is None or version < self.version:
            self.version = version

    @property
    def paid(self) -> bool:
        """Whether its last reward has come."""
        return self.rewards[self.length - 1] is not None

    @property
    def nbytes(self) -> int:
        """What its rows weigh."""
        return self.length * self.layout.row_bytes + 256

    def is_completed(self) -> bool:
        """Whether it has ended."""
        return self.ended


class Action:
    """One decision: `act` is what to do, `update_reward` says what came of it."""

    __slots__ = ("_request", "_row", "_trajectory", "act", "added", "told")

    def __init__(self, act: Any, trajectory: Trajectory, row: int, told: bool = True) -> None:
        self.act = act
        self._trajectory = trajectory
        self._row, self._request = row, trajectory.requests
        self.added = False
        """Whether its step was kept; else the next request takes its row."""
        self.told = told
        """False in shadow mode until `did` says what was really done."""

    def update_reward(self, reward: float) -> None:
        """Say what came of it; may be called until the next request, the last call counts."""
        trajectory = self._own()
        try:
            value = float(reward)
        except (TypeError, ValueError, OverflowError):
            value = nan
        if not -LARGEST <= value <= LARGEST:
            raise Conflict(f"a reward must be a number within ±{LARGEST:g}, not {reward!r:.100}")
        if not trajectory.handed:
            trajectory.rewards[self._row] = value
        self._in_time("reward")

    def did(self, action: Any) -> None:
        """Say what was really done, where that is not `act`: a person's or another system's decision."""
        trajectory = self._own()
        if not trajectory.handed:
            trajectory.actions[self._row] = trajectory.layout.foreign_action(action)
            trajectory.foreign[self._row] = 1
        self._in_time("action")
        self.told = True

    def _in_time(self, what: str) -> None:
        """Asked after it is written: the sender may take the trajectory meanwhile, and marks it before it looks."""
        if self._trajectory.handed:
            raise Conflict(f"this {what} came too late: its trajectory has ended and is on its way")

    @property
    def reward(self) -> float | None:
        """What `update_reward` said, or None."""
        return self._own().rewards[self._row]

    @property
    def foreign(self) -> bool:
        """Whether a fallback or a person decided, not the policy."""
        return bool(self._own().foreign[self._row])

    @property
    def newest(self) -> bool:
        """Whether nothing was asked for in its trajectory since."""
        return self._request == self._trajectory.requests

    def _own(self) -> Trajectory:
        """Its trajectory, while its row there is still its own."""
        if not self.added and self._request != self._trajectory.requests:
            raise Conflict("this action was not added before the next request, so its step is forgotten")
        return self._trajectory
