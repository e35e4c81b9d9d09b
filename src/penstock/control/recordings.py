"""Recordings that somebody asked for: one at a time, in a process that yields to the others.

A wish waits in a file until what became of it is written down: a server that is killed goes on with it.
"""

from dataclasses import dataclass
from pathlib import Path

from penstock.control.errand import Errand
from penstock.executors.base import Executor
from penstock.loop.recordings import Wish, Wishes, record_failure, recorded
from penstock.loop.runs import RunFolder

LIMIT_SECONDS = 600.0


@dataclass(slots=True)
class Recordings:
    """Used by the controller's thread alone."""

    home: Path
    executor: Executor
    _errand: Errand | None = None
    _wish: Wish | None = None

    def tick(self) -> None:
        """See to the one under way; begin the next."""
        if self._errand is not None and self._wish is not None:
            if not self._errand.over():
                return
            self._conclude(self._errand, self._wish)
        self._errand = self._wish = None
        waiting = Wishes(self.home).all()
        if waiting:
            self._begin(waiting[0])

    def _begin(self, wish: Wish) -> None:
        folder = RunFolder(self.home, wish.run)
        if not folder.path.is_dir() or self._is_made(folder, wish):  # deleted, or made before a crash
            return Wishes(self.home).remove(wish.id)
        self._errand = Errand.begin(
            self.executor, folder, "recordings", ("record", wish.run, wish.id), LIMIT_SECONDS
        )
        self._wish = wish
        return None

    def _conclude(self, errand: Errand, wish: Wish) -> None:
        why = errand.words()
        errand.end()
        folder = RunFolder(self.home, wish.run)
        if folder.path.is_dir() and not self._is_made(folder, wish):
            record_failure(folder, wish, why)
        Wishes(self.home).remove(wish.id)

    def _is_made(self, folder: RunFolder, wish: Wish) -> bool:
        return any(one.id == wish.id for one in recorded(folder))

    def close(self) -> None:
        """End the one under way; it begins anew with the next server."""
        if self._errand is not None:
            self._errand.end()
