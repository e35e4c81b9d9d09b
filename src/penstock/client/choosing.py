"""Who decides: the newest policy, the one before it, or the fallback. Swapped by one assignment."""

from __future__ import annotations

import secrets
import threading
from time import monotonic
from typing import Any

from penstock.client.deciding import Decider
from penstock.client.fallback import Fallback, StepBack
from penstock.client.figures import Counters
from penstock.client.remote import RemoteDecider
from penstock.client.trajectory import Trajectory
from penstock.model.version import Version

LATE_IN_A_ROW = 8
REST_SECONDS = 1.0


class Chooser:
    """`decider` is read by the application without a lock; the courier and the switches write it under one."""

    def __init__(self, counters: Counters, off: dict[str, bool]) -> None:
        self._counters, self._off = counters, off
        self._lock = threading.Lock()
        self._newest: Decider | RemoteDecider | None = None
        self._before: Decider | None = None
        self._fallback: Fallback | None = None
        self.decider: Decider | RemoteDecider | Fallback | StepBack
        self.late_in_a_row = 0

    @property
    def is_off(self) -> bool:
        return any(self._off.values())

    @property
    def version(self) -> Version | None:
        return None if self._newest is None else self._newest.version

    def begin(self, fallback: Fallback, remote: RemoteDecider | None) -> None:
        """From here on there is always somebody who decides."""
        self._fallback = fallback
        self._newest = remote or self._newest
        self.apply()

    def swap(self, decider: Decider) -> None:
        """A version that is ready; called by the courier."""
        with self._lock:
            self._before = self._newest if isinstance(self._newest, Decider) else None
            self._newest = decider
            self._counters.swaps += 1
        self.apply()

    def switch(self, who: str, off: bool) -> None:
        """Somebody turns the policy off or on again; it is off while anybody wants that."""
        if self._off.get(who) != off:
            self._off[who] = off
            self.apply()

    def apply(self) -> None:
        with self._lock:
            if self._fallback is not None:  # else the agent is not that far yet
                policy = None if self.is_off else self._newest
                self.decider = policy or self._fallback

    def decide_otherwise(self, trajectory: Trajectory, row: int, failed: object, error: Exception) -> Any:
        """The one who should have decided could not; never raises."""
        kind = "remote" if isinstance(failed, RemoteDecider) else "policy"
        self._counters.trouble(kind, f"the policy did not decide: {error}")
        before = None if failed is self._before else self._before
        return self._step_back(before, float("inf")).decide(trajectory, row)

    def was_late(self, decider: object) -> None:
        """One late decision is the machine's; many in a row are the policy's, which then rests."""
        self._counters.late += 1
        self.late_in_a_row += 1
        if self.late_in_a_row < LATE_IN_A_ROW or decider is not self._newest:
            return
        self.late_in_a_row = 0
        self._counters.trouble("late", f"{LATE_IN_A_ROW} decisions in a row took longer than deadline_ms")
        rest = self._step_back(self._before, monotonic() + REST_SECONDS)
        with self._lock:
            if not self.is_off and decider is self._newest:
                self.decider = rest

    def forked(self, counters: Counters) -> None:
        """In a child: other noise than the parent's, and a lock nobody holds."""
        self._counters, self._lock = counters, threading.Lock()
        for decider in (self._newest, self._before):
            if isinstance(decider, Decider):
                decider.reseed(secrets.randbits(63))

    def _step_back(self, before: Decider | None, until: float) -> StepBack:
        assert self._fallback is not None
        return StepBack(before, self._fallback, self._counters, until, self.apply)
