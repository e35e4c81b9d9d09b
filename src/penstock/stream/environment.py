"""One LMDB environment: opened once a process, checked after a reboot, never left unusable.

Unsynced environments are written through the map and left to the kernel to flush: what is committed
survives the death of any process, not a loss of power. Synced ones flush at every commit. Disk space
is taken before it is written to, so that a full disk is an error and not a SIGBUS.
"""

import errno
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb

from penstock.errors import Damaged, PenstockError, Unavailable
from penstock.stream import layout, recovery
from penstock.stream.recovery import OnEvent
from penstock.stream.wake import Bell

_AHEAD = 2 << 20
"""Disk space taken before it is needed, for what a transaction touches beside its record."""
_READER_CHECK_SECONDS = 10.0
_DAMAGE = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError, lmdb.VersionMismatchError)
_REPAIRABLE = (lmdb.MapResizedError, lmdb.PanicError, lmdb.ReadersFullError)

_opened: dict[str, "Environment"] = {}
_opening = threading.Lock()


class LogFull(Unavailable):
    """The map has no room; what is dropped or no longer read makes some."""


def acquire(path: Path, *, synced: bool, map_size: int, on_event: OnEvent) -> "Environment":
    """The process's handle of `path`; give it back with `release`."""
    with _opening:
        known = _opened.get(os.path.realpath(path))
        if known is not None and known.is_current():
            known.users += 1
            known.grow(map_size)
            return known
        environment = Environment(path, synced, map_size, on_event)
        _opened[os.path.realpath(path)] = environment
        return environment


def release(environment: "Environment") -> None:
    """Close it when this was its last user."""
    with _opening:
        environment.users -= 1
        if environment.users > 0:
            return
        environment.close()
        for key in [key for key, known in _opened.items() if known is environment]:
            del _opened[key]


class Environment:
    """Use `acquire`: LMDB must not open an environment twice in one process. Any thread may use it."""

    def __init__(self, path: Path, synced: bool, map_size: int, on_event: OnEvent) -> None:
        self.path, self.synced, self.users = path, synced, 1
        self._map_size = map_size
        self._gate = threading.Condition()
        self._active = 0
        with recovery.one_opens(path):
            recovery.set_aside_after_reboot(path, on_event)
            # LMDB cuts a file it writes through the map to its own map: never below another process's
            self._map_size = max(map_size, _file_size(path))
            try:
                self._lmdb = self._open()
            except _DAMAGE as error:
                recovery.set_aside(path, str(error), on_event)
                self._lmdb = self._open()
            recovery.mark_checked(path)
        self.generation = recovery.generation(path)
        self._inode = _inode(path)
        self._file = os.open(path / "data.mdb", os.O_RDWR | os.O_CLOEXEC)
        self._allocated, self._page_size = 0, self._lmdb.stat()["psize"]
        self._readers_checked = 0.0
        self.check_readers()
        self.bell = Bell(path / "wake")

    def read(self) -> "_Transaction":
        """A read transaction: copy and leave at once, for it keeps old pages from being reused."""
        return _Transaction(self, write=False, size=0)

    def write(self, size: int = 0) -> "_Transaction":
        """A write transaction that adds about `size` bytes; committed unless the block raises.

        One transaction writes at a time, over all processes. Raises LogFull when the map has no room.
        """
        if time.monotonic() - self._readers_checked > _READER_CHECK_SECONDS:
            self.check_readers()
        return _Transaction(self, write=True, size=size)

    def check_readers(self) -> int:
        """Free the slots of readers that died; returns how many there were."""
        self._readers_checked = time.monotonic()
        return self._lmdb.reader_check()

    def grow(self, map_size: int) -> None:
        """Let the map be at least `map_size` bytes."""
        if map_size <= self._map_size:
            return
        with self._alone(), recovery.one_opens(self.path):
            self._map_size = max(map_size, _file_size(self.path))
            self._lmdb.set_mapsize(self._map_size)

    def is_current(self) -> bool:
        """Whether the files at the path are still the ones that are open here."""
        return _inode(self.path) == self._inode

    def info(self) -> dict[str, int]:
        info = self._lmdb.info()
        return {"last_pgno": info["last_pgno"], "map_size": info["map_size"], "readers": info["num_readers"]}

    def close(self) -> None:
        with self._alone():
            self._lmdb.close()
            os.close(self._file)
            self.bell.close()

    def _open(self) -> "lmdb.Environment":
        flags = {} if self.synced else {"writemap": True, "map_async": True, "metasync": False}
        try:
            return lmdb.open(
                os.fspath(self.path), map_size=self._map_size, max_readers=1024, max_spare_txns=8, **flags
            )
        except lmdb.Error as error:
            if isinstance(error, _DAMAGE):
                raise
            raise Unavailable(f"the log {self.path} cannot be opened: {error}") from error

    def _begin(self, write: bool) -> Any:
        """Enter, and begin; what another process did to the map or the slots is put right first."""
        for last_try in (False, False, True):
            with self._gate:
                self._active += 1
            try:
                return self._lmdb.begin(write=True, buffers=True) if write else self._lmdb.begin()
            except lmdb.Error as error:
                self._leave()
                if last_try or not isinstance(error, _REPAIRABLE):
                    raise self._translated(error) from error
                self._repair(error)
        raise AssertionError("the last try returns or raises")

    def _end(self, txn: Any, error: BaseException | None) -> None:
        """Commit, or abort after an error; LMDB's errors become ours."""
        try:
            if error is None:
                txn.commit()
            else:
                txn.abort()
        except lmdb.Error as failure:
            error = failure
        finally:
            self._leave()
        if isinstance(error, lmdb.Error):
            if isinstance(error, lmdb.PanicError):
                self._reopen()
            raise self._translated(error) from error

    def _translated(self, error: lmdb.Error) -> PenstockError:
        if isinstance(error, lmdb.MapFullError):
            return LogFull(f"the log {self.path} is full")
        if isinstance(error, lmdb.DiskError):
            return Unavailable(f"the disk that holds {self.path} is full; free some space")
        if isinstance(error, _DAMAGE):
            recovery.mark_doubtful(self.path)
            return Damaged(f"the log {self.path} is damaged; restart to have it set aside: {error}")
        return Unavailable(f"the log {self.path} cannot be used: {error}")

    def _leave(self) -> None:
        with self._gate:
            self._active -= 1
            if self._active == 0:
                self._gate.notify_all()

    def _repair(self, error: lmdb.Error) -> None:
        if isinstance(error, lmdb.MapResizedError):  # a process with a larger budget wrote behind our map
            self.grow(max(self._map_size, _file_size(self.path)) + (64 << 20))
        elif isinstance(error, lmdb.PanicError):
            self._reopen()
        else:
            self.check_readers()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No transaction of this process is open meanwhile."""
        with self._gate:
            self._gate.wait_for(lambda: self._active == 0)
            yield

    def _reopen(self) -> None:
        with self._alone():
            self._lmdb.close()
            self._lmdb = self._open()

    def _take_disk(self, size: int, txn: Any) -> None:
        """Have the disk blocks this transaction may write: on a full disk a hole in a map is a SIGBUS.

        What is taken ahead is kept in three steps, so that on a full disk, when no record can be added, those
        that only delete still can be, and after them records that fit into what was deleted.
        """
        used = (self._lmdb.info()["last_pgno"] + 1) * self._page_size
        if used + size + _AHEAD <= self._allocated:
            return
        ahead = size + 2 * _AHEAD + min(used // 8, 64 << 20)
        if self._allocate(used, ahead):
            self._allocated = used + ahead
            return
        has_free_pages = used - layout.used(txn) > 4 * size + _AHEAD
        needed = _AHEAD // 8 if size == 0 else size + _AHEAD // (4 if has_free_pages else 2)
        if not self._allocate(used, needed):
            raise Unavailable(
                f"the disk that holds {self.path} is full; free some space or lower stream.budget_bytes"
            )

    def _allocate(self, start: int, size: int) -> bool:
        try:
            os.posix_fallocate(self._file, start, max(1, min(size, self._map_size - start)))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise Unavailable(f"the log {self.path} cannot take disk space: {error}") from error
            return False
        return True


class _Transaction:
    """A context manager by hand: on the way of every record, and a generator costs twice as much."""

    __slots__ = ("_environment", "_size", "_txn", "_write")

    def __init__(self, environment: Environment, write: bool, size: int) -> None:
        self._environment, self._write, self._size = environment, write, size
        self._txn: Any = None

    def __enter__(self) -> Any:
        self._txn = self._environment._begin(self._write)
        if self._write:
            try:
                self._environment._take_disk(self._size, self._txn)
            except BaseException as error:
                self._environment._end(self._txn, error)
                raise
        return self._txn

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._environment._end(self._txn, error)


def _file_size(path: Path) -> int:
    try:
        return os.stat(path / "data.mdb").st_size
    except OSError:
        return 0


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path / "data.mdb")
    except OSError:
        return None
    return found.st_dev, found.st_ino
