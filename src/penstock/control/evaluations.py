"""Evaluations that somebody asked for: one at a time, in a process that yields to the others.

A server that is killed in the middle asks again when it is back; `evaluations.jsonl` holds each result once.
"""

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from penstock.errors import PenstockError
from penstock.executors.base import Executor, Worker, WorkerSpec
from penstock.lineage.database import Lineage
from penstock.lineage.rows import EvaluationRow
from penstock.loop.runs import RunFolder
from penstock.loop.supervise import last_words

LIMIT_SECONDS = 3600.0


@dataclass(slots=True)
class Evaluations:
    """Used by the controller's thread alone."""

    home: Path
    lineage: Lineage
    executor: Executor
    _worker: Worker | None = None
    _row: EvaluationRow | None = None
    _log_start: int = 0
    _began_at: float = field(default=0.0)

    def tick(self) -> None:
        """See to the one under way; begin the next."""
        if self._worker is not None and self._row is not None:
            code = self._worker.poll()
            if code is None and time.monotonic() - self._began_at < LIMIT_SECONDS:
                return
            self._conclude(self._row, code)
        self._worker = self._row = None
        with self.lineage.read() as reads:
            waiting = reads.evaluations_in("running", "queued")
        if waiting:
            self._begin(waiting[0])

    def _begin(self, row: EvaluationRow) -> None:
        folder = RunFolder(self.home, row.run)
        if self._result(folder, row) is not None:  # made before somebody killed the server
            return self._conclude(row, 0)
        if not folder.path.is_dir():
            return self._store(replace(row, state="failed", reason="the run was deleted"))
        arguments = ("evaluate", row.run, row.checkpoint, str(row.episodes), str(row.seed), row.id)
        log = folder.log_file("evaluations")
        self._log_start = log.stat().st_size if log.exists() else 0
        place = {"PENSTOCK_HOME": str(self.home)}
        self._worker = self.executor.launch(
            WorkerSpec("evaluate", arguments, log, nice=10, environment=place)
        )
        self._row, self._began_at = row, time.monotonic()
        return self._store(replace(row, state="running"))

    def _conclude(self, row: EvaluationRow, code: int | None) -> None:
        if self._worker is not None:
            self._worker.kill()
        folder = RunFolder(self.home, row.run)
        result = self._result(folder, row)
        if result is not None:
            return self._store(result)
        words = last_words(folder.log_file("evaluations"), self._log_start)
        why = "it took too long" if code is None else words or f"its process ended with exit code {code}"
        return self._store(replace(row, state="failed", reason=why))

    def _result(self, folder: RunFolder, row: EvaluationRow) -> EvaluationRow | None:
        try:
            found = [line for line in folder.evaluations() if line.get("id") == row.id]
        except PenstockError:
            return None
        if not found:
            return None
        line = found[0]
        return replace(
            row, state="done", mean=line["mean"], std=line["std"], returns=tuple(line["returns"]),
            lengths=tuple(line["lengths"]), seconds=line["seconds"], at=line["time"],
        )  # fmt: skip

    def _store(self, row: EvaluationRow) -> None:
        with self.lineage.write() as writer:
            if writer.run(row.run) is not None:
                writer.put_evaluation(row)

    def close(self) -> None:
        """End the one under way; it begins anew with the next server."""
        if self._worker is not None:
            self._worker.kill()
