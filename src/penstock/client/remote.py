"""Decisions made by the gateway, for policies that are too large to be here."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from penstock import proto
from penstock.client.layout import OBSERVATIONS
from penstock.client.link import Link
from penstock.client.trajectory import Trajectory
from penstock.errors import Damaged, PenstockError, Unavailable
from penstock.model.version import Version

FIRST_REST, LONGEST_REST = 0.05, 2.0


class RemoteDecider:
    """Asks within the deadline. After a failure it rests, so that a dead gateway costs one deadline, not many."""

    def __init__(self, link: Link, policy: str, deadline: float) -> None:
        self._link, self._policy, self._deadline = link, policy, deadline
        self._rest, self._rests_until = FIRST_REST, 0.0
        self.version = Version(0, 0)

    def decide(self, trajectory: Trajectory, row: int) -> Any:
        """Raise Unavailable or Damaged where no usable answer came in time."""
        now = time.monotonic()
        if now < self._rests_until:
            raise Unavailable("the gateway did not answer a moment ago")
        try:
            act = self._ask(trajectory, row)
        except PenstockError:
            self._rests_until = time.monotonic() + self._rest
            self._rest = min(self._rest * 2, LONGEST_REST)
            raise
        self._rest = FIRST_REST
        return act

    def _ask(self, trajectory: Trajectory, row: int) -> Any:
        layout, masks = trajectory.layout, trajectory.masks
        request = proto.ActRequest(
            policy=self._policy,
            observations={OBSERVATIONS: trajectory.observations[row].astype("<f4", copy=False).tobytes()},
            mask=b"" if masks is None else masks[row].tobytes(),
        )
        reply = self._link.call("Act", request, self._deadline)
        kind = np.dtype("<i4" if layout.discrete else "<f4")
        if len(reply.action) != kind.itemsize * (1 if layout.discrete else layout.choices):
            raise Damaged(
                f"the gateway decided in {len(reply.action)} bytes, which is no action of this policy"
            )
        action = np.frombuffer(reply.action, kind)
        if not np.isfinite(action).all() or not np.isfinite(reply.log_prob):
            raise Damaged("the gateway decided with numbers that are not finite")
        if layout.discrete and not 0 <= int(action[0]) < layout.choices:
            raise Damaged(f"the gateway chose {int(action[0])} of {layout.choices} actions")
        version = Version(reply.version.epoch, reply.version.step)
        trajectory.decided_by(self, version)
        self.version = version
        assert trajectory.log_probs is not None
        trajectory.log_probs[row] = reply.log_prob
        trajectory.actions[row] = action[0] if layout.discrete else action
        return int(action[0]) if layout.discrete else np.clip(action, -layout.limit, layout.limit)
