"""The way out: ended trajectories, in order, from memory or spool to the gateway.

Memory first: in ordinary times nothing touches the disk. While the gateway is away, is full, or the process ends,
what waits goes to the spool. Where the disk does not take it, it stays in memory. Order holds per source, also through
the spool. Whatever is lost is counted and said.
"""

from __future__ import annotations

import errno
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from penstock import proto
from penstock.client.ending import Ended
from penstock.client.figures import Counters, Reporter
from penstock.client.packing import Unfit, pack
from penstock.client.settings import Settings
from penstock.client.spool import Numbered, Spool
from penstock.client.trajectory import Arrays, Trajectory, held_bytes
from penstock.client.wire import opening
from penstock.errors import Damaged

MEMORY_BYTES = 64 << 20
"""Of ended trajectories that the sender has not packed yet, and of packed ones; more drops the oldest."""

BATCH_BYTES = 1 << 20
BATCH_COUNT = 64
"""Of one call. Small, because the interpreter is held while a call is made, and the application may be deciding."""

PACKED_AT_ONCE = 128 << 10
"""Bytes; then the interpreter is handed back, after a fraction of a millisecond. Not after each trajectory: whenever
it changes hands the application may have to wait for the system's scheduler."""

HAND_BACK_SECONDS = 1e-5
"""Not 0: then the interpreter would be taken again before whoever waits for it has woken up."""

POOL, POOL_BYTES = 16, 32 << 20
"""Sets of arrays that are kept for the next trajectories, and what they may take together."""

SEND_SECONDS = 10.0
TAKEN = {proto.SendReply.STORED, proto.SendReply.DUPLICATE}


class Outbox:
    """`put` and `ended` are the application's too; everything else belongs to the sender's thread."""

    def __init__(self, settings: Settings, counters: Counters) -> None:
        self._settings, self._counters = settings, counters
        self.run = ""
        """Who learns the policy now; each message says so, because it may reach the gateway when that run is gone."""
        self.spool = Spool(settings.spool_folder, settings.spool_bytes)
        self.max_bytes = BATCH_BYTES
        self.ended = Ended()
        """What the application may still say a reward for; the sender takes it after `flush_seconds`."""
        self._left: list[Trajectory] = []
        self._whole: deque[Trajectory] = deque()
        self._put_bytes = self._taken_bytes = 0
        self._ready: deque[Numbered] = deque()
        self._ready_bytes = 0
        self._sequence = 0
        self._oldest_since = 0.0
        self.pool: deque[Arrays] = deque(maxlen=POOL)

    # the application's thread

    def put(self, trajectory: Trajectory) -> bool:
        """Take a trajectory that nothing more will be said about; return whether there is enough to send."""
        self._put_bytes += trajectory.nbytes
        if not self._whole:
            self._oldest_since = time.monotonic()
        self._whole.append(trajectory)
        if self._put_bytes - self._taken_bytes > MEMORY_BYTES:
            try:
                dropped = self._whole.popleft()
            except IndexError:  # the sender was faster
                return True
            self._put_bytes -= dropped.nbytes
            self._lose(
                "memory_full", 1, "trajectories end faster than they can be packed; the oldest were dropped"
            )
        return len(self._whole) >= self._settings.send_frequency

    # the sender's thread

    def due(self) -> bool:
        """Whether something should be packed or sent now."""
        self._left += self.ended.take_paid(seconds=self._settings.flush_seconds)
        if (
            self._left
            or self._ready
            or len(self._whole) >= self._settings.send_frequency
            or self.spool.oldest()
        ):
            return True
        return bool(self._whole) and time.monotonic() - self._oldest_since >= self._settings.flush_seconds

    def waiting(self) -> tuple[int, int]:
        """Trajectories and bytes that are not delivered."""
        count = (
            len(self.ended) + len(self._left) + len(self._whole) + len(self._ready) + self.spool.trajectories
        )
        unpacked = self.ended.bytes() + self._put_bytes - self._taken_bytes
        return count, unpacked + self._ready_bytes + self.spool.bytes

    @property
    def crowded(self) -> bool:
        """Whether more is packed than memory should hold."""
        return self._ready_bytes > MEMORY_BYTES // 2

    def pack_all(self) -> None:
        """Turn whole trajectories into numbered messages."""
        packed = 0
        for trajectory in self._take():
            try:
                for piece in pack(trajectory, self.max_bytes):
                    self._sequence += 1
                    piece.message.run = self.run
                    content = piece.numbered(self._sequence)
                    self._ready.append((self._sequence, content))
                    self._ready_bytes += len(content)
                    packed += len(content)
                    if packed >= PACKED_AT_ONCE:
                        packed = 0
                        time.sleep(HAND_BACK_SECONDS)
            except Unfit as reason:
                self._counters.drop(str(reason))
            self._keep(trajectory.release())

    def _take(self) -> Iterator[Trajectory]:
        while self._left:
            yield self._left.pop(0)
        while self._whole:
            try:
                trajectory = self._whole.popleft()
            except IndexError:  # the application dropped the last one
                return
            self._taken_bytes += trajectory.nbytes
            yield trajectory

    def _keep(self, arrays: Arrays) -> None:
        # the application takes from the pool meanwhile; a tuple is made of it in one go
        if held_bytes(arrays) + sum(map(held_bytes, tuple(self.pool))) <= POOL_BYTES:
            self.pool.append(arrays)

    def check(self) -> None:
        """Say at the start, not with the first loss, that the spool cannot be written."""
        try:
            self.spool.check()
        except OSError as error:
            self._unwritable(error)

    def store(self, last: bool = False) -> None:
        """Move what is packed to the spool; what the disk does not take waits in memory, except the `last` time."""
        # a batch is dropped as one, so a small spool gets small ones
        most = min(self.max_bytes, self._settings.spool_bytes // 8)
        while self._ready:
            batch = self._next_batch(most)
            try:
                dropped = self.spool.put(batch)
            except OSError as error:
                self._unwritable(error)
                if not last and self._ready_bytes <= MEMORY_BYTES:
                    return
                self._make_room(batch, error)
                continue
            self._forget(len(batch))
            self._spool_was_full(dropped)

    def _make_room(self, batch: Sequence[Numbered], error: OSError) -> None:
        """Neither disk nor memory takes more: the oldest goes. On a full disk that lies in the spool."""
        stored = self.spool.oldest() if error.errno in (errno.ENOSPC, errno.EDQUOT) else None
        if stored is not None:
            self._counters.drop("disk", stored.count)
            self.spool.keep(stored, [])
        else:
            self._counters.drop("disk", len(batch))
            self._forget(len(batch))

    def _unwritable(self, error: OSError) -> None:
        self._counters.trouble(
            "disk",
            f"the spool {self.spool.folder} cannot be written, so what waits stays in memory, up to "
            f"{MEMORY_BYTES >> 20} MiB and until the process ends: {error}",
        )

    def _spool_was_full(self, dropped: int) -> None:
        self._lose(
            "spool_full",
            dropped,
            f"the spool {self.spool.folder} is full, so the oldest trajectories were dropped; raise spool.max_bytes "
            "to keep more",
        )

    def _lose(self, reason: str, count: int, sentence: str) -> None:
        if count:
            self._counters.drop(reason, count)
            self._counters.trouble(reason, sentence)

    def adopt(self) -> None:
        try:
            self._spool_was_full(self.spool.adopt())
        except OSError as error:
            self._counters.trouble("disk", f"the spool {self.spool.folder} cannot be read: {error}")

    def send(self, call: Callable[[bytes, float], Any], reporter: Reporter, until: float) -> float:
        """Deliver all that waits, oldest first; return the seconds to wait where the gateway is full, else 0.

        Raises what `call` raises, and OSError where the spool cannot be read; then nothing is lost and the next call
        goes on.
        """
        while time.monotonic() < until:
            stored = self.spool.oldest()
            if stored is not None:
                try:
                    batch = self.spool.read(stored)
                except Damaged as error:
                    self._counters.drop("damaged", stored.count)
                    self._counters.trouble("spool", str(error))
                    batch = []
                remaining, pause = (
                    self._deliver(call, reporter, stored.source, batch, until) if batch else ([], 0.0)
                )
                self.spool.keep(stored, remaining)
            elif self._ready:
                batch = self._next_batch(self.max_bytes)
                remaining, pause = self._deliver(call, reporter, self.spool.source, batch, until)
                self._forget(len(batch))
                self._ready.extendleft(reversed(remaining))
                self._ready_bytes += sum(len(content) for _, content in remaining)
            else:
                return 0.0
            if pause:
                return pause
        return 0.0

    def _deliver(
        self,
        call: Callable[[bytes, float], Any],
        reporter: Reporter,
        source: str,
        batch: Sequence[Numbered],
        until: float,
    ) -> tuple[list[Numbered], float]:
        """One call; what remains, and how long to wait before the next."""
        head = proto.SendRequest(
            policy=self._settings.policy, source=source, figures=reporter.report(self.waiting())
        )
        parts = [head.SerializeToString()]
        for _, content in batch:  # they are bytes already: taking them apart again would be slow
            parts += (opening(_TRAJECTORIES, len(content)), content)
        reply = call(b"".join(parts), max(0.1, min(SEND_SECONDS, until - time.monotonic())))
        outcomes = {receipt.sequence: receipt for receipt in reply.receipts}
        remaining = []
        for sequence, content in batch:
            receipt = outcomes.get(sequence)
            if receipt is not None and receipt.outcome in TAKEN:
                self._counters.sent += 1
            elif receipt is not None and receipt.outcome == proto.SendReply.REFUSED:
                self._counters.drop("refused")
                self._counters.trouble("refused", f"the gateway refused a trajectory: {receipt.reason[:300]}")
            else:
                remaining.append((sequence, content))
                if receipt is not None and receipt.reason:
                    self._counters.trouble(
                        "full", f"the gateway takes no more for now: {receipt.reason[:300]}"
                    )
        pause = min(max(reply.retry_seconds, 0.2), 30.0) if remaining else 0.0
        return remaining, pause

    def _next_batch(self, max_bytes: int) -> list[Numbered]:
        batch: list[Numbered] = []
        size = 0
        for numbered in self._ready:
            size += len(numbered[1]) + 16
            if batch and (size > max_bytes or len(batch) == BATCH_COUNT):
                break
            batch.append(numbered)
        return batch

    def _forget(self, count: int) -> None:
        for _ in range(count):
            self._ready_bytes -= len(self._ready.popleft()[1])


_TRAJECTORIES = proto.SendRequest.DESCRIPTOR.fields_by_name["trajectories"].number
