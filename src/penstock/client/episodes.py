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
    """What is open, and what has ended but waits for its last reward."""

    def __init__(self, layout: Layout, limit: int, courier: Courier, counters: Counters) -> None:
        self._layout, self._limit = layout, limit
        self._courier, self._counters = courier, counters
        # weak: an application that forgets a trajectory without ending it has let it go
        self._open: weakref.WeakSet[Trajectory] = weakref.WeakSet()
        self._unpaid: list[Trajectory] = []

    def begin(self, old: Trajectory | None) -> Trajectory:
        """A new one, after `old` or beside it; raise Conflict where the last reward before it is missing."""
        self._settle()
        late = [trajectory for trajectory in self._unpaid if old is None or trajectory is old]
        if late:
            self._unpaid = [trajectory for trajectory in self._unpaid if trajectory not in late]
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
        """Hand it over, at once or when its last reward has come."""
        trajectory.ended = True
        self._open.discard(trajectory)
        if not trajectory.length:
            trajectory.handed = True
        elif trajectory.rewards[trajectory.length - 1] is None:
            self._unpaid.append(trajectory)
        else:
            self._hand_over(trajectory)

    def close(self) -> None:
        """Hand over what is whole; what is open or unpaid is dropped and counted."""
        self._settle()
        self._counters.drop("not_ended", sum(1 for trajectory in self._open if trajectory.length))
        self._counters.drop("no_reward", len(self._unpaid))
        self.let_go()

    def let_go(self) -> None:
        """Nothing that is open goes on; in a forked child it belongs to the parent."""
        for trajectory in self._open:
            trajectory.ended = trajectory.handed = True
        self._open.clear()

    def _settle(self) -> None:
        """Hand over ended trajectories whose last reward has come since."""
        paid = [traj for traj in self._unpaid if traj.rewards[traj.length - 1] is not None]
        self._unpaid = [traj for traj in self._unpaid if traj not in paid]
        for traj in paid:
            self._hand_over(traj)

    def _hand_over(self, trajectory: Trajectory) -> None:
        trajectory.handed = True
        self._courier.put(trajectory)
