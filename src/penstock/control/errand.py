"""One process that the controller sends out: it yields to the others, has a limit, and leaves its last words."""

import time
from dataclasses import dataclass
from pathlib import Path

from penstock.executors.base import Executor, Worker, WorkerSpec
from penstock.loop.runs import RunFolder
from penstock.loop.supervise import last_words

NICE = 10


@dataclass(frozen=True, slots=True)
class Errand:
    """Begun with `begin`; `over` tells when to ask `words`; `end` is for always."""

    worker: Worker
    log: Path
    log_start: int
    until: float

    @classmethod
    def begin(
        cls, executor: Executor, folder: RunFolder, name: str, arguments: tuple[str, ...], seconds: float
    ) -> "Errand":
        """Send it out; `name` is its log's."""
        log = folder.log_file(name)
        start = log.stat().st_size if log.exists() else 0
        place = {"PENSTOCK_HOME": str(folder.home)}
        worker = executor.launch(WorkerSpec(arguments[0], arguments, log, nice=NICE, environment=place))
        return cls(worker, log, start, time.monotonic() + seconds)

    def over(self) -> bool:
        """Whether it has ended, or had its time."""
        return self.worker.poll() is not None or time.monotonic() > self.until

    def words(self) -> str:
        """Why it did not do what it was sent for."""
        code = self.worker.poll()
        if code is None:
            return "it took too long"
        return last_words(self.log, self.log_start) or f"its process ended with exit code {code}"

    def end(self) -> None:
        self.worker.kill()
