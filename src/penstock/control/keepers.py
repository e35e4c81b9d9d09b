"""Keepers as the server starts them: in the background, outliving it, found again by pid and start time."""

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from penstock.errors import PenstockError
from penstock.executors.base import Exit
from penstock.executors.local import open_log
from penstock.loop.processes import is_alive
from penstock.loop.runs import RunFolder
from penstock.loop.supervise import last_words
from penstock.model.run import LIVE, RunState

BACKOFF_SECONDS = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0)
BUDGET = 10
REFILL_SECONDS = 600.0


@dataclass(slots=True)
class _Tries:
    """How often the keeper of one run was started lately."""

    count: int = 0
    next_at: float = 0.0
    last_at: float = 0.0


@dataclass(slots=True)
class Keepers:
    """Starts keepers, with back-off and a budget, and tells which of them ended badly."""

    home: Path
    _children: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    _tries: dict[str, _Tries] = field(default_factory=dict)

    def start(self, run: str, stream: str) -> bool:
        """Start one unless it is too early after the last; return at once, with whether it was started."""
        tries, now = self._tries.setdefault(run, _Tries()), time.monotonic()
        if run in self._children or now < tries.next_at:
            return False
        if now - tries.last_at > REFILL_SECONDS:
            tries.count = 0
        tries.next_at = now + BACKOFF_SECONDS[min(tries.count + 1, len(BACKOFF_SECONDS) - 1)]
        tries.count, tries.last_at = tries.count + 1, now
        environment = {**os.environ, "PENSTOCK_HOME": str(self.home), "PENSTOCK_STREAM": stream}
        for name in ("PENSTOCK_PARENT", "PENSTOCK_NICE", "PENSTOCK_CPUS", "PENSTOCK_MEMORY"):
            environment.pop(name, None)
        with open_log(self._log(run)) as log:
            self._children[run] = subprocess.Popen(
                [sys.executable, "-m", "penstock.worker", "keep", run],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True,
            )  # fmt: skip
        return True

    def running(self) -> set[str]:
        """Runs whose keeper this server started and that has not ended."""
        return set(self._children)

    def spent(self, run: str) -> bool:
        """Whether starting it again is no use."""
        return run not in self._children and self._tries.get(run, _Tries()).count > BUDGET

    def forgive(self, run: str) -> None:
        """Somebody asked for it anew: it has all its tries again."""
        self._tries.pop(run, None)

    def reap(self) -> dict[str, tuple[int, str]]:
        """Runs whose keeper has ended since the last call: its exit code, and its last words if it ended badly."""
        ended = {run: child for run, child in self._children.items() if child.poll() is not None}
        for run in ended:
            del self._children[run]
        return {run: (child.returncode, self._words(run, child.returncode)) for run, child in ended.items()}

    def stop_all(self, runs: list[str], patience_seconds: float = 90.0) -> list[str]:
        """Ask the keepers of these runs to save and end; returns those that did not in time."""
        folders = [RunFolder(self.home, run) for run in runs]
        for folder in folders:
            self._ask(folder)
        until = time.monotonic() + patience_seconds
        while (left := [folder for folder in folders if self._lives(folder)]) and time.monotonic() < until:
            time.sleep(0.05)
        return [folder.run for folder in left]

    def _ask(self, folder: RunFolder) -> None:
        if folder.run in self._children:
            self._children[folder.run].send_signal(signal.SIGTERM)
            return
        try:
            status = folder.stored_status()
        except PenstockError:
            return
        keeper = status.keeper
        if status.managed and keeper is not None and keeper.host == socket.gethostname() and is_alive(keeper):
            os.kill(keeper.pid, signal.SIGTERM)

    def _lives(self, folder: RunFolder) -> bool:
        child = self._children.get(folder.run)
        if child is not None:
            return child.poll() is None
        try:
            status = folder.stored_status()
        except PenstockError:
            return False
        # a run that was accepted and not begun yet has no keeper: the next server begins it
        live = status.keeper is not None and (status.state in LIVE or status.state is RunState.PAUSED)
        return live and status.managed and folder.kept()

    def _words(self, run: str, code: int) -> str:
        if code in (Exit.FINISHED, Exit.REPLACED):  # it is done, or another keeper has the run: all is well
            return ""
        return last_words(self._log(run), 0) or f"its keeper ended with exit code {code}"

    def _log(self, run: str) -> Path:
        return RunFolder(self.home, run).log_file("keeper")
