"""Evaluations that somebody asked for: one at a time, in a process that yields to the others.

A server that is killed in the middle asks again when it is back; `evaluations.jsonl` holds each result once.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from penstock.control.errand import Errand
from penstock.errors import PenstockError
from penstock.executors.base import Executor
from penstock.lineage.database import Lineage
from penstock.lineage.rows import EvaluationRow
from penstock.loop.runs import RunFolder

LIMIT_SECONDS = 3600.0


@dataclass(slots=True)
class Evaluations:
    """Used by the controller's thread alone."""

    home: Path
    lineage: Lineage
    executor: Executor
    _errand: Errand | None = None
    _row: EvaluationRow | None = None

    def tick(self) -> None:
        """See to the one under way; begin the next."""
        if self._errand is not None and self._row is not None:
            if not self._errand.over():
                return
            self._conclude(self._row)
        self._errand = self._row = None
        with self.lineage.read() as reads:
            waiting = reads.evaluations_in("running", "queued")
        if waiting:
            self._begin(waiting[0])

    def _begin(self, row: EvaluationRow) -> None:
        folder = RunFolder(self.home, row.run)
        if self._result(folder, row) is not None:  # made before somebody killed the server
            return self._conclude(row)
        if not folder.path.is_dir():
            return self._store(replace(row, state="failed", reason="the run was deleted"))
        arguments = ("evaluate", row.run, row.checkpoint, str(row.episodes), str(row.seed), row.id)
        self._errand = Errand.begin(self.executor, folder, "evaluations", arguments, LIMIT_SECONDS)
        self._row = row
        return self._store(replace(row, state="running"))

    def _conclude(self, row: EvaluationRow) -> None:
        why = self._errand.words() if self._errand is not None else "it was not made"
        self.close()
        result = self._result(RunFolder(self.home, row.run), row)
        return self._store(result or replace(row, state="failed", reason=why))

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
        if self._errand is not None:
            self._errand.end()
