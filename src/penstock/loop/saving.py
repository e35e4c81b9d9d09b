"""Writes checkpoints beside the learning: one thread, one checkpoint at a time."""

import threading
import time
from pathlib import Path

from penstock.algorithms.base import State
from penstock.errors import PenstockError, Unavailable
from penstock.loop.checkpoint import Checkpoint, CheckpointStore
from penstock.model.policy import Policy


class Saver:
    """Starts a write and tells later how it went; the caller never waits for the disk by accident."""

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self._thread: threading.Thread | None = None
        self._error: PenstockError | None = None
        self._started_at = time.monotonic()
        self.newest: Path | None = None

    def start(self, head: Checkpoint, state: State, policy: Policy, memory_rows: int) -> None:
        """Write in the background; `wait` must have been called for the one before."""
        self._started_at = time.monotonic()
        self._thread = threading.Thread(
            target=self._write, args=(head, state, policy, memory_rows), daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Return once nothing is being written."""
        if self._thread is not None:
            self._thread.join()

    def finished(self) -> bool:
        """Whether a write has ended since the last call."""
        if self._thread is None or self._thread.is_alive():
            return False
        self._thread = None
        return True

    def seconds_since(self) -> float:
        return time.monotonic() - self._started_at

    def take_error(self) -> PenstockError | None:
        error, self._error = self._error, None
        return error

    def _write(self, head: Checkpoint, state: State, policy: Policy, memory_rows: int) -> None:
        try:
            self.newest = self._store.write(head, state, policy, memory_rows)
        except PenstockError as error:
            self._error = error
        except Exception as error:  # a thread must not die in silence: what was not saved is told
            self._error = Unavailable(f"cannot write a checkpoint: {type(error).__name__}: {error}")
