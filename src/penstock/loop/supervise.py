"""One worker kept alive: restarted after a fault, with back-off, within a budget.

A fault is an exit that was not asked for, or a heart that stands still. An hour without one refills
the budget. Brokers that are away are nobody's fault here: waiting for them costs no budget.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path

from penstock.executors.base import Executor, Exit, Worker, WorkerSpec
from penstock.loop.beat import Pulse

REFILL_SECONDS = 3600.0
UNREACHABLE_SECONDS = 2.0
BACKOFF_SECONDS = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Fault:
    """What happened to a worker, in words."""

    name: str
    reason: str
    exit: int
    hopeless: bool
    """Whether starting it again cannot help: the budget is spent, or a setting is wrong."""


@dataclass(slots=True)
class Supervised:
    """A worker that should be running."""

    executor: Executor
    spec: WorkerSpec
    budget: int
    pulse: Pulse | None = None
    still_limit_seconds: float = 0.0
    may_end: bool = True
    """Whether it may end by itself; an actor may not."""
    worker: Worker | None = None
    restarts: int = 0
    ended: int | None = None
    """Exit code of a worker that ended as it should."""
    _spent: int = 0
    _faulted_at: float = 0.0
    _start_at: float = 0.0
    _log_start: int = field(default=0)

    def tick(self) -> Fault | None:
        """Start, restart or look after the worker; returns a fault once, when it happens."""
        now = time.monotonic()
        if self.ended is not None:
            return None
        if self.worker is None:
            if now >= self._start_at:
                self._log_start = self.spec.log.stat().st_size if self.spec.log.exists() else 0
                self.worker = self.executor.launch(self.spec)
            return None
        code = self.worker.poll()
        if code is None:
            return self._check_heart(now)
        self.worker.kill()  # what it may have started itself
        self.worker = None
        if code in (Exit.FINISHED, Exit.DRAINED, Exit.REPLACED):
            if not self.may_end:
                return self._fault(now, code, "ended from outside")
            self.ended = code
            return None
        return self._fault(now, code, last_words(self.spec.log, self._log_start) or _death(code))

    def _check_heart(self, now: float) -> Fault | None:
        if self.pulse is None or self.pulse.still_for() <= self.still_limit_seconds:
            return None
        assert self.worker is not None
        self.worker.kill()
        self.worker = None
        self.pulse = Pulse(self.pulse.path)
        limit = f"{self.still_limit_seconds:g} s (environment.step_limit_seconds)"
        return self._fault(now, Exit.ENVIRONMENT, f"the environment hung past {limit} and was ended")

    def _fault(self, now: float, code: int, reason: str) -> Fault:
        if now - self._faulted_at > REFILL_SECONDS:
            self._spent = 0
        self._faulted_at = now
        hopeless = code == Exit.HOPELESS or (self._spent >= self.budget and code != Exit.UNREACHABLE)
        if hopeless:
            self.ended = code
        elif code == Exit.UNREACHABLE:
            self._start_at = now + UNREACHABLE_SECONDS
            self.restarts += 1
        else:
            self._start_at = now + BACKOFF_SECONDS[min(self._spent, len(BACKOFF_SECONDS) - 1)]
            self._spent += 1
            self.restarts += 1
        return Fault(self.spec.name, reason, code, hopeless)


def last_words(log: Path, start: int) -> str:
    """The sentence a worker wrote before it ended, from its own part of the log."""
    try:
        with log.open("rb") as file:
            file.seek(max(start, log.stat().st_size - 65_536))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    words = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return words[-1] if words else ""


def _death(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"ended with exit code {code}; its log tells more"
