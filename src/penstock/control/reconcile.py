"""Compares what is wanted of a run with what is, and repairs the difference. May be interrupted anywhere.

Reads: the run's row and its folder. Does: make the folder, tell the stream, start a keeper, write down the
end of a run whose keeper cannot, delete. Each step is done only where it is missing, so a repeated or
half-done repair ends the same.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from penstock import config
from penstock.control import verbs
from penstock.control.applying import desired_of
from penstock.control.keepers import Keepers
from penstock.errors import NotFound, PenstockError
from penstock.lineage.database import Lineage
from penstock.lineage.rows import RunRow
from penstock.loop.runs import RunFolder
from penstock.model.commands import Desired
from penstock.model.run import Labels, RunState, RunStatus
from penstock.stream.base import Stream

CONCERNED = ("pending", "running", "paused", "stopping", "interrupted")
"""States of runs that may need a look though nobody asked for anything."""


@dataclass(slots=True)
class Reconciler:
    """Repairs one run at a time; used by the controller's thread alone."""

    home: Path
    lineage: Lineage
    keepers: Keepers
    stream_of: Callable[[RunRow], Stream]
    most_runs: int

    def repair(self, run: str, live: int) -> bool:
        """One look at a run; returns whether a keeper was started. `live` counts runs that go on now."""
        with self.lineage.read() as reads:
            row = reads.run(run)
        if row is None:
            return False
        desired = desired_of(row)
        try:
            folder = RunFolder.open(self.home, run)
        except NotFound:
            return self._without_folder(row, desired, live)
        return self._with_folder(row, desired, folder, live)

    def _without_folder(self, row: RunRow, desired: Desired, live: int) -> bool:
        if desired.state in ("deleted", "stopped"):
            self._forget(row, RunFolder(self.home, row.run))
            return False
        if not row.managed or row.state != RunState.PENDING:
            return False  # somebody removed its folder: the index forgets it
        self._make(row)
        return self._with_folder(row, desired, RunFolder.open(self.home, row.run), live)

    def _with_folder(self, row: RunRow, desired: Desired, folder: RunFolder, live: int) -> bool:
        status = folder.status()
        if folder.kept() and status.keeper is not None:
            return False  # its keeper reads the same commands
        if desired.state == "deleted":
            self._forget(row, folder)
        elif desired.state == "stopped":
            self._write_end(folder, status, desired, RunState.STOPPED, "stopped while no process of it ran")
        elif should_start(desired, status):
            return self._start(row, desired, folder, status, live)
        return False

    def _make(self, row: RunRow) -> None:
        labels = Labels(project=row.project, tags=row.tags, group=row.group, note=row.note)
        spec = config.from_mapping(row.spec, f"the spec of {row.run}")
        stream = self.stream_of(row)
        if not stream.shared and not verbs.is_registered(stream, row.run):
            stream.remove_run(row.run)  # what an older run of that name may have left
        RunFolder.create(self.home, spec, row.run, labels=labels, managed=True, created_at=row.created_at)

    def _start(self, row: RunRow, desired: Desired, folder: RunFolder, status: RunStatus, live: int) -> bool:
        """Start a keeper where there is room; one that cannot be started any more has failed."""
        if desired.command is not None and desired.command != status.command and status.ended_at:
            self.keepers.forgive(row.run)
        if self.keepers.spent(row.run):
            words = f"its keeper failed again and again; see: penstock logs {row.run} --process keeper"
            self._write_end(folder, status, desired, RunState.FAILED, words)
            return False
        if live >= self.most_runs:
            return False  # it waits for its turn
        spec = verbs.with_stop(folder.spec(), desired.stop)
        if spec != folder.spec():
            folder.save_spec(spec)
        if status.state is RunState.INTERRUPTED:  # write down what its keeper no longer could
            folder.save_status(status)
        position = {int(partition): offset for partition, offset in row.position.items()}
        verbs.told(self.stream_of(row), row.run, spec, position or None)
        return self.keepers.start(row.run, row.stream)

    def _write_end(
        self, folder: RunFolder, status: RunStatus, desired: Desired, state: RunState, reason: str
    ) -> None:
        """Write down an end that no keeper can, as the answer to what was asked last."""
        if status.state in (RunState.PENDING, RunState.INTERRUPTED, RunState.PAUSED):
            folder.conclude(msgspec.structs.replace(status.to(state, reason), command=desired.command))

    def fail(self, run: str, reason: str) -> None:
        """Write down that a run cannot begin, whoever tries again."""
        with self.lineage.read() as reads:
            row = reads.run(run)
        try:
            folder = RunFolder.open(self.home, run)
            status = folder.status()
        except PenstockError:
            return
        if row is not None and status.state is RunState.PENDING:
            self._write_end(folder, status, desired_of(row), RunState.FAILED, reason)

    def _forget(self, row: RunRow, folder: RunFolder) -> None:
        verbs.remove(folder, self.stream_of(row))
        with self.lineage.write() as writer:
            writer.remove_run(row.run)


def should_start(desired: Desired, status: RunStatus) -> bool:
    """Whether a run without a keeper should get one.

    One that waits for its first; one that a server kept and that was interrupted; one that somebody asked to
    go on after it had ended. A run that is done, failed or was kept by hand is left alone.
    """
    if status.state is RunState.PENDING:
        return status.managed
    if desired.state != "running":
        return False
    asked = desired.command is not None and desired.command != status.command
    return asked or (status.managed and status.state is RunState.INTERRUPTED)
