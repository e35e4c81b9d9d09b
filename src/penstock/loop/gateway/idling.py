"""When a policy's learner is wanted, and asking for it beside the thread that packs.

A keeper may have to start first, which takes seconds: meanwhile versions, reports and hellos must go on.
"""

import threading
import time
from dataclasses import dataclass
from typing import Protocol

from penstock.errors import Conflict, NotFound, PenstockError
from penstock.logs import Log

RETRY_SECONDS = 5.0


class Steering(Protocol):
    """How the gateway starts and stops what learns; slow, so never called with a lock held."""

    def scale_learner(self, run: str, learners: int) -> None:
        """Bring the learner (1) or park it (0); raise PenstockError where it cannot be asked."""

    def revive(self, run: str) -> None:
        """See that the run has a keeper where it should have one."""


@dataclass(slots=True)
class Idling:
    """Whether a learner is wanted: with the first data, until none has come for a while."""

    seconds: float
    awake: bool | None = None
    """None: nobody knows what the gateway before this one left behind."""
    retry_at: float = 0.0

    def wants(self, has_work: bool, stored_at: float, now: float) -> int | None:
        """How many learners to ask for now; None where nothing is to change."""
        if now < self.retry_at:
            return None
        busy = has_work or (self.awake is True and now - stored_at < self.seconds)
        if busy and self.awake is not True:
            return 1
        return 0 if not busy and self.awake is not False and now - stored_at >= self.seconds else None


class Waking:
    """Brings and parks the learner of one run; `mind` is called by one thread and returns at once."""

    def __init__(self, run: str, policy: str, steering: Steering, idle_seconds: float) -> None:
        self._run, self._policy, self._steering = run, policy, steering
        self._log = Log(process="gateway", run=run)
        self._idling = Idling(idle_seconds)
        self._asking: threading.Thread | None = None
        self._told = ""

    @property
    def awake(self) -> bool:
        return self._idling.awake is True

    @property
    def parked(self) -> bool:
        """Whether there is no learner, and nobody is just asking for one."""
        return self._idling.awake is False and (self._asking is None or not self._asking.is_alive())

    def mind(self, has_work: bool, stored_at: float) -> None:
        """Ask where something is to change; one question at a time."""
        if self._asking is not None and self._asking.is_alive():
            return
        wanted = self._idling.wants(has_work, stored_at, time.monotonic())
        if wanted is not None:
            self._asking = threading.Thread(
                target=self._ask, args=(wanted,), name=f"steer-{self._policy}", daemon=True
            )
            self._asking.start()

    def close(self, seconds: float) -> None:
        """Let a question that is on its way arrive, for so long."""
        if self._asking is not None:
            self._asking.join(seconds)

    def _ask(self, wanted: int) -> None:
        try:
            if wanted:
                self._steering.revive(self._run)
            self._steering.scale_learner(self._run, wanted)
            self._idling.awake = bool(wanted)
            self._log.info("learner_woken" if wanted else "learner_parked", policy=self._policy)
        except Exception as error:  # whatever it is, it is asked again
            self._idling.retry_at = time.monotonic() + RETRY_SECONDS
            if not wanted and isinstance(error, Conflict | NotFound):
                self._idling.awake = False  # a run that was stopped has none to park
                return
            reason = str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
            if reason != self._told:  # a run that stays stopped is told once
                self._told = reason
                self._log.warning("learner_not_asked", policy=self._policy, reason=reason)
