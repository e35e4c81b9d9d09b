"""Periodic evaluation of a live run: in a process of its own that yields to the others."""

import time
from dataclasses import dataclass, field

from penstock.executors.base import Executor, Worker, WorkerSpec
from penstock.loop.runs import RunFolder
from penstock.model.spec import EvaluationSpec

LAST_SECONDS = 60.0


@dataclass(slots=True)
class Evaluator:
    """Evaluates the newest checkpoint now and then, one at a time."""

    executor: Executor
    folder: RunFolder
    spec: EvaluationSpec
    place: dict[str, str]
    """Variables of the process: where the run lives."""
    worker: Worker | None = None
    _began_at: float = field(default_factory=time.monotonic)

    def tick(self, newest: str | None) -> None:
        """Begin one where it is due and there is a checkpoint."""
        if self.busy():
            return
        self.worker = None
        every = self.spec.every_seconds
        if every and newest and time.monotonic() - self._began_at >= every:
            self._began_at = time.monotonic()
            version = newest.rsplit("/", 1)[-1]
            arguments = ("evaluate", self.folder.run, version, str(self.spec.episodes))
            log = self.folder.log_file("evaluator")
            self.worker = self.executor.launch(
                WorkerSpec("evaluator", arguments, log, nice=10, environment=self.place)
            )

    def busy(self) -> bool:
        return self.worker is not None and self.worker.poll() is None

    def due_now(self) -> None:
        """Let the next tick begin one."""
        self._began_at = float("-inf")

    def kill(self) -> None:
        if self.worker is not None:
            self.worker.kill()
