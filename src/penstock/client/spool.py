"""Trajectories that wait on disk while the gateway is away: bounded, oldest dropped first, delivered once.

    <folder>/<source>/lock          held by the process that fills or empties this source
    <folder>/<source>/<sequence>-<count>.batch

A source belongs to one process. What a dead process left is adopted by whoever gets its lock, and sent under the
source it was written by: (source, sequence) names a trajectory for ever, so a second delivery is seen as one.
A batch is written beside and renamed: it is whole or absent. Not thread-safe: it belongs to the sender.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import zlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import Damaged

MAGIC = b"PSB1"
SOURCE = re.compile(r"[0-9a-f]{32}")
BATCH = re.compile(r"(\d{20})-(\d{1,6})\.batch")
MAX_BATCH = 8 << 20
BLOCK = 4096
Numbered = tuple[int, bytes]
"""Sequence and the trajectory's message."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One file."""

    path: Path
    source: str
    count: int
    size: int


class Spool:
    """One process's waiting trajectories and what it adopted. Touches the disk only when it must."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder, self.max_bytes = folder, max_bytes
        self.source = secrets.token_hex(16)
        self.trajectories = self.bytes = 0
        """What waits: running totals, because there may be very many batches."""
        self._locks: dict[str, int] = {}
        self._batches: deque[Batch] = deque()

    def put(self, trajectories: Sequence[Numbered]) -> int:
        """Write them down as one batch; return how many older ones had to go. Raise OSError where disk fails."""
        self._own()
        name = f"{trajectories[0][0]:020d}-{len(trajectories)}.batch"
        path = self.folder / self.source / name
        batch = Batch(path, self.source, len(trajectories), _write(path, trajectories))
        self._batches.append(batch)
        self._count(batch, 1)
        return self._drop_oldest()

    def check(self) -> None:
        """Raise OSError where nothing could be written here now; leaves nothing behind but the folder."""
        self._own()
        if not self.trajectories:
            self._release(self.source)

    def _own(self) -> None:
        if self.source not in self._locks and not self._lock(self.source):
            raise OSError(f"the spool {self.folder} cannot be locked")

    def oldest(self) -> Batch | None:
        return self._batches[0] if self._batches else None

    def read(self, batch: Batch) -> list[Numbered]:
        """What is in it; raise Damaged where it does not hold, OSError where the system cannot read it now."""
        try:
            if batch.path.stat().st_size > MAX_BATCH:
                raise Damaged(f"{batch.path} is too large for a batch")
            return _read(batch.path.read_bytes(), batch.path)
        except FileNotFoundError as error:  # any other error may pass, and the batch is whole
            raise Damaged(f"{batch.path} was removed by somebody else") from error

    def keep(self, batch: Batch, remaining: Sequence[Numbered]) -> None:
        """Of the oldest batch only these are still to be delivered; none means it is done."""
        if remaining:  # the name says what it began as; `count` what it has
            rest = Batch(batch.path, batch.source, len(remaining), _write(batch.path, remaining))
            self._batches[0] = rest
            self._count(rest, 1)
        else:
            self._batches.popleft()
            with contextlib.suppress(OSError):
                batch.path.unlink()
        self._count(batch, -1)
        following = self.oldest()
        if batch.source != self.source and (following is None or following.source != batch.source):
            self._release(batch.source)  # the batches of one source lie together

    def _count(self, batch: Batch, sign: int) -> None:
        self.trajectories += sign * batch.count
        self.bytes += sign * batch.size

    def adopt(self) -> int:
        """Take over what dead processes left; return how many trajectories had to go to stay within bounds."""
        with contextlib.suppress(OSError):
            for entry in sorted(self.folder.iterdir()):
                if SOURCE.fullmatch(entry.name) and entry.name not in self._locks:
                    with contextlib.suppress(
                        OSError
                    ):  # one that cannot be read now does not keep us from others
                        self._adopt(entry)
        return self._drop_oldest()

    def _adopt(self, folder: Path) -> None:
        source = folder.name
        if not self._lock(source):
            return
        found: list[Batch] = []
        try:
            found = _batches(folder, source)
        finally:
            if not found:
                self._release(source)
        self._batches.extendleft(reversed(found))
        for batch in found:
            self._count(batch, 1)

    def close(self) -> None:
        """Let go of every lock; what is left is for whoever comes next, and the totals still say how much."""
        for source in list(self._locks):
            self._release(source)
        self._batches.clear()

    def abandon(self) -> None:
        """After a fork: the parent still holds these locks, so the child only closes its copies."""
        for lock in self._locks.values():
            os.close(lock)
        self._locks = {}
        self._batches.clear()
        self.trajectories = self.bytes = 0

    def _drop_oldest(self) -> int:
        dropped = 0
        while self.bytes > self.max_bytes and self._batches:
            dropped += self._batches[0].count
            self.keep(self._batches[0], [])
        return dropped

    def _lock(self, source: str) -> bool:
        folder = self.folder / source
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # whoever held it before may have removed the folder: then this lock guards nothing
            if os.fstat(lock).st_ino == os.stat(folder / "lock").st_ino:
                self._locks[source] = lock
                return True
        except OSError:
            pass
        os.close(lock)
        return False

    def _release(self, source: str) -> None:
        lock = self._locks.pop(source, None)
        if lock is None:
            return
        folder = self.folder / source
        with contextlib.suppress(OSError):
            if not _batches(folder, source):
                for leftover in folder.glob("*.part"):
                    leftover.unlink()
                (folder / "lock").unlink()
                folder.rmdir()
        os.close(lock)


def _batches(folder: Path, source: str) -> list[Batch]:
    found = []
    for path in sorted(folder.iterdir()):
        named = BATCH.fullmatch(path.name)
        if named:
            found.append(Batch(path, source, int(named[2]), _on_disk(path.stat().st_size)))
    return found


def _write(path: Path, trajectories: Sequence[Numbered]) -> int:
    body = b"".join(
        sequence.to_bytes(8, "little") + len(content).to_bytes(4, "little") + content
        for sequence, content in trajectories
    )
    whole = MAGIC + zlib.crc32(body).to_bytes(4, "little") + body
    beside = path.with_suffix(".part")
    try:
        beside.write_bytes(whole)
        os.replace(beside, path)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    return _on_disk(len(whole))


def _on_disk(size: int) -> int:
    """What a file takes of the disk: whole blocks."""
    return -(-size // BLOCK) * BLOCK


def _read(content: bytes, path: Path) -> list[Numbered]:
    body = content[8:]
    if content[:4] != MAGIC or zlib.crc32(body) != int.from_bytes(content[4:8], "little"):
        raise Damaged(f"{path} is not a whole batch")
    found, at = [], 0
    while at < len(body):
        sequence, length = (
            int.from_bytes(body[at : at + 8], "little"),
            int.from_bytes(body[at + 8 : at + 12], "little"),
        )
        at += 12
        if at + length > len(body):
            raise Damaged(f"{path} ends in the middle of a trajectory")
        found.append((sequence, body[at : at + length]))
        at += length
    return found
