"""Trajectories from their first row until the courier has them. Runs in the application's thread."""

from __future__ import annotations

import weakref
from typing import Any

from penstock.client.courier import Courier
from penstock.client.figures import Counters
from penstock.client.layout import Layout
from penstock.client.trajectory import Trajectory
from penstock.errors import Conflict


class Episodes:
    """What is open, and when what has ended is handed over."""

    def __init__(self, layout: Layout, limit: int, courier: Courier, counters: Counters) -> None:
        self._layout, self._limit = layout, limit
        self._courier, self._counters = courier, counters
        # weak: an application that forgets a trajectory without ending it has let it go
        self._open: weakref.WeakSet[Trajectory] = weakref.WeakSet()
        self._ended = courier.outbox.ended

    def begin(self, old: Trajectory | None) -> Trajectory:
        """A new one, after `old` or beside it; raise Conflict where the last reward before it is missing."""
        self._hand_over(old)
        late = self._ended.take_unpaid(old)
        if late:
            self._counters.drop("no_reward", len(late))
            raise Conflict(
                "the last step of an ended trajectory has no reward, so it was dropped; call action.update_reward "
                "before the next request"
            )
        try:
            arrays = self._courier.outbox.pool.pop()
        except IndexError:
            arrays = None
        trajectory = Trajectory(self._layout, self._limit, arrays)
        self._open.add(trajectory)
        return trajectory

    def cut_off(self, trajectory: Trajectory, observation: Any, mask: Any) -> None:
        """It has reached its limit: what is seen now ends it."""
        trajectory.final = self._layout.final(observation)
        trajectory.final_mask = None if mask is None else self._layout.mask(mask)
        self.end(trajectory)

    def end(self, trajectory: Trajectory) -> None:
        """It is handed over at the next request: until then its last reward may come, or be said anew."""
        trajectory.ended = True
        self._open.discard(trajectory)
        if trajectory.length:
            self._ended.add(trajectory)
        else:
            trajectory.handed = True

    def close(self) -> None:
        """Hand over what is whole; what is open or unpaid is dropped and counted."""
        self._hand_over(None)
        self._counters.drop("not_ended", sum(1 for trajectory in self._open if trajectory.length))
        self._counters.drop("no_reward", len(self._ended.take_unpaid()))
        self.let_go()

    def let_go(self) -> None:
        """Nothing that is open goes on; in a forked child it belongs to the parent."""
        for trajectory in self._open:
            trajectory.ended = trajectory.handed = True
        self._open.clear()

    def _hand_over(self, old: Trajectory | None) -> None:
        """`old`, or all that has ended, where the last reward has come."""
        for trajectory in self._ended.take_paid(old):
            self._courier.put(trajectory)
