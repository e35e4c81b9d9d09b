"""Trajectories that have ended, while their last reward may still be said: until the next request, or for a while."""

from __future__ import annotations

from time import monotonic

from penstock.client.trajectory import Trajectory


class Ended:
    """The application adds and takes; the sender takes what nobody came for. A dict gives each to one of them only."""

    def __init__(self) -> None:
        self._since: dict[Trajectory, float] = {}

    def __len__(self) -> int:
        return len(self._since)

    def add(self, trajectory: Trajectory) -> None:
        self._since[trajectory] = monotonic()

    def take_paid(self, only: Trajectory | None = None, seconds: float = 0.0) -> list[Trajectory]:
        """Those (or `only` that one) whose last reward has come and that ended `seconds` ago."""
        now = monotonic()
        ripe = [
            one for one, since in list(self._since.items()) if only in (None, one) and now - since >= seconds
        ]
        taken = [one for one in ripe if one.paid and self._since.pop(one, None) is not None]
        for trajectory in taken:
            trajectory.handed = True
        return taken

    def take_unpaid(self, only: Trajectory | None = None) -> list[Trajectory]:
        """The rest of those; nobody waits for their reward any more."""
        taken = [one for one in list(self._since) if only in (None, one) and not one.paid]
        for trajectory in taken:
            del self._since[trajectory]
            trajectory.handed = True
        return taken

    def bytes(self) -> int:
        return sum(trajectory.nbytes for trajectory in list(self._since))
