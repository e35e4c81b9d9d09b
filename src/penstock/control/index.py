"""Keeps the database true to `runs/<id>/`: cheap enough to be asked several times a second.

A folder whose modification time stands still has the same state, labels and spec: those files are replaced,
never changed in place. So one look at a run that has ended costs a single system call. Live runs are looked
at closely each time (a killed keeper changes no file), and of the others a few at every scan, in turn.
"""

import contextlib
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from penstock.control.folder_rows import checkpoint_rows, read_spec, run_row
from penstock.control.looking import Look, Seen, has_news, look_at, signature_of
from penstock.errors import ConfigError, Damaged, PenstockError, Unavailable
from penstock.lineage.database import Lineage
from penstock.lineage.writing import Writer
from penstock.loop.runs import RunFolder
from penstock.model.run import RUN_ID, RunState

SLICES = 25
"""Of runs that have ended, one in so many is looked at closely in each scan."""
BATCH = 100
"""Runs in one transaction, so that commands need not wait for a rebuild."""


class Indexer:
    """Used by one thread."""

    def __init__(self, home: Path, lineage: Lineage) -> None:
        self._home, self._lineage = home, lineage
        self._runs = home / "runs"
        self._seen: dict[str, Seen] = {}
        self._present: set[str] = set()
        """Folders that were there at the last scan."""
        self._turn = 0
        self.damaged: dict[str, str] = {}
        """Runs whose folders cannot be read, and why; they are passed over."""
        self._damaged_at: dict[str, int] = {}

    def scan(self, full: bool) -> list[str]:
        """Bring what changed into the database; returns those runs, also the ones that are gone.

        A run whose folder vanished is forgotten. With `full` every folder is read again, and runs whose folder
        was never seen are forgotten too, except those that wait for one (pending) or for their end (deleted).
        """
        found = self._folders()
        if full:
            self._seen.clear()
            self._damaged_at.clear()
        candidates = [name for name in self._chosen(found) if self._looks_changed(name, found[name])]
        changed = []
        for start in range(0, len(candidates), BATCH):
            changed += self._store(candidates[start : start + BATCH], found)
        return changed + self._forget(found, full)

    # -- looking ---------------------------------------------------------------------------------

    def _folders(self) -> dict[str, int]:
        """Every run's folder and when it was modified."""
        found = {}
        try:
            with os.scandir(self._runs) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):  # it is just being removed
                        if RUN_ID.fullmatch(entry.name) and entry.is_dir():
                            found[entry.name] = entry.stat().st_mtime_ns
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise Unavailable(f"{self._runs} cannot be read: {error.strerror or error}") from error
        return found

    def _chosen(self, found: dict[str, int]) -> Iterable[str]:
        """New, modified or live ones, and some of the others."""
        self._turn = (self._turn + 1) % SLICES
        for number, (name, modified) in enumerate(found.items()):
            seen = self._seen.get(name)
            if number % SLICES == self._turn:
                yield name
            elif seen is None:
                if self._damaged_at.get(name) != modified:
                    yield name
            elif seen.modified != modified or seen.status.state.live:
                yield name

    def _looks_changed(self, name: str, modified: int) -> bool:
        seen = self._seen.get(name)
        if seen is None or signature_of(f"{self._runs}/{name}") != seen.signature:
            return True
        seen.modified = modified
        try:
            return seen.status.state.live and has_news(RunFolder(self._home, name), seen)
        except Damaged:
            return True

    # -- storing ---------------------------------------------------------------------------------

    def _store(self, names: list[str], found: dict[str, int]) -> list[str]:
        """One transaction; what was seen is remembered only once it is stored. Returns what really changed."""
        looks = [look for name in names if (look := self._look(name, found[name])) is not None]
        if not looks:
            return []
        try:
            with self._lineage.write() as writer:
                writer.fetch([look.folder.run for look in looks])
                changed = [look.folder.run for look in looks if _put(writer, look)]
        except ConfigError as error:  # some number or word that no database takes
            if len(names) > 1:
                return [run for name in names for run in self._store([name], found)]
            self._pass_over(names[0], found[names[0]], error)
            return []
        for look in looks:
            self._seen[look.folder.run] = look.seen
            self.damaged.pop(look.folder.run, None)
        return changed

    def _look(self, name: str, modified: int) -> Look | None:
        try:
            return look_at(RunFolder(self._home, name), modified, self._seen.get(name))
        except Damaged as error:
            self._pass_over(name, modified, error)
            return None

    def _pass_over(self, name: str, modified: int, error: PenstockError) -> None:
        self.damaged[name], self._damaged_at[name] = str(error), modified
        self._seen.pop(name, None)

    # -- forgetting ------------------------------------------------------------------------------

    def _forget(self, found: dict[str, int], full: bool) -> list[str]:
        gone = sorted(self._present - found.keys())
        if full:
            gone += self._never_seen(found)
        for name in gone:
            with self._lineage.write() as writer:
                row = writer.run(name)
                # one that is to be deleted has topics as well: the controller sees to it
                if row is not None and row.desired.get("state") != "deleted":
                    writer.remove_run(name)
            self._seen.pop(name, None)
            self.damaged.pop(name, None)
            self._damaged_at.pop(name, None)
        self._present = set(found)
        return gone

    def _never_seen(self, found: dict[str, int]) -> list[str]:
        """Rows without a folder, but for those that wait until theirs is made."""
        with self._lineage.read() as reader:
            rows = reader.changed_runs(0)
        return [
            row.run
            for row in rows
            if row.run not in found and row.run not in self._present and row.state != RunState.PENDING
        ]


def _put(writer: Writer, look: Look) -> bool:
    """Store what a look found; tell whether it was new."""
    run = look.folder.run
    stored = writer.run(run)
    spec = look.spec if look.spec is not None else stored.spec if stored else read_spec(look.folder)
    row = replace(run_row(stored, look.seen.status, look.labels, spec), disk_bytes=look.seen.disk_bytes)
    changed = writer.put_run(row, look.seen.states)
    if look.new_checkpoints:
        known = writer.checkpoints(run) if stored else []
        rows = checkpoint_rows(look.folder, known)
        if rows != known:
            writer.put_checkpoints(run, rows)
            changed = True
    if look.evaluations:
        done = {one.id for one in writer.evaluations(run) if one.state == "done"}
        new = [one for one in look.evaluations if one.id not in done]
        for one in new:
            writer.put_evaluation(one)
        changed = changed or bool(new)
    return changed
