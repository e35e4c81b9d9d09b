"""One policy that clients act for: its queue, its versions, and the thread that packs one for the other.

Reads from: `trajectories.<run>`, `model_updates.<run>`. Writes to: `experiences.<run>`, `metrics.actors`.
"""

import socket
import threading
import time
from collections import deque
from dataclasses import asdict
from typing import Any

from penstock.errors import PenstockError, Unavailable
from penstock.logs import Log
from penstock.loop.gateway.configuration import is_off_policy
from penstock.loop.gateway.figures import ClientFigures, OwnFigures
from penstock.loop.gateway.holding import Holding
from penstock.loop.gateway.idling import Steering, Waking
from penstock.loop.gateway.packing import OUTCOMES, Pack, Packer, accounted
from penstock.loop.gateway.queue import Queue
from penstock.loop.gateway.receiving import Expected
from penstock.loop.gateway.remote_acting import RemoteActing
from penstock.loop.gateway.rounds import SLOT, Rounds
from penstock.loop.gateway.trajectory import Trajectory
from penstock.loop.gateway.versions import Versions
from penstock.loop.registry import RunRecord, registered
from penstock.model import topics
from penstock.model.clients import policy_of, shape_of
from penstock.model.codec import Schema, encode
from penstock.model.rollout import RolloutFacts
from penstock.stream.base import Stream
from penstock.stream.records import RecordReader

TICK_SECONDS = 0.05
READ_AT_ONCE = 64
REPORT_SECONDS = 1.0
REGISTRY_SECONDS = 1.0
RETRY_SECONDS = 5.0
END_SECONDS = 10.0
QUIET_SECONDS = 90.0
"""A policy that nobody asked for so long, and whose learner is parked, gives its place to others."""


class Service:
    """Serves one run's policy; `close` ends its thread. Many threads may ask."""

    def __init__(
        self, record: RunRecord, stream: Stream, steering: Steering, own: OwnFigures, idle_seconds: float,
        holding: Holding,
    ) -> None:  # fmt: skip
        self.record, self.run, self.policy = record, record.run, policy_of(record.spec.environment.id)
        self._stream, self._own, self._holding = stream, own, holding
        self._log = Log(process="gateway", run=record.run)
        spaces = shape_of(record.spec.environment.kwargs).spaces()
        self.off_policy = is_off_policy(record.spec.algorithm)
        self.expected = Expected(record.run, spaces, self.off_policy)
        self._rounds = Rounds(stream, record, spaces)
        packed = self._rounds.packed
        self.versions = Versions(stream, record.run)
        self.queue = Queue(stream, self.expected, record.spec.stream, packed)
        self._packer = Packer.go_on(spaces, record.spec.actors, not self.off_policy, packed)
        self._pending: tuple[int, Pack] | None = None
        """A rollout that is packed and perhaps not in the log, and its round."""
        self._sizes: deque[int | None] = deque()
        """Of what was read and is not accounted for; None for duplicates, which the queue does not count."""
        self._unsettled: deque[tuple[int, int, str, int]] = deque()
        """Partition, offset, source and sequence of what was read and is in no rollout of the log."""
        self._accounted = accounted(self._packer.counts)
        start = None if packed is None else packed.position
        self._reader = RecordReader(stream, topics.trajectories(record.run), Trajectory.decode, start)
        self._reports = stream.writer(topics.METRICS_ACTORS)
        self.clients, self.acting = ClientFigures(), RemoteActing(self.expected)
        self._idle_seconds = idle_seconds
        self._waking = Waking(record.run, self.policy, steering, idle_seconds)
        # the first report is due at once: others hear that the policy is served
        self._reported_at, self._rows = time.monotonic() - REPORT_SECONDS, 0
        self._returns = list[float]()
        self._looked_at = time.monotonic()
        self._last: RolloutFacts | None = None
        self.trouble: str | None = None
        """Why it has ended by itself."""
        self._asked_at = time.monotonic()
        self._using = threading.Lock()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"policy-{self.policy}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self._ending.is_set()

    def use(self) -> bool:
        """Whether it serves; whoever asks keeps it from letting go of its policy."""
        with self._using:
            self._asked_at = time.monotonic()
            return self.alive

    def close(self) -> None:
        """End the thread; what is stored stays, and the next gateway goes on."""
        self._ending.set()
        self._thread.join(END_SECONDS)
        self._waking.close(END_SECONDS)

    # -- the thread ------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while not self._ending.is_set():
                try:
                    self._tick()
                except Unavailable as error:  # the log is away: clients are told to come again
                    self._log.warning("gateway_waits", reason=str(error))
                    self._ending.wait(RETRY_SECONDS)
        except PenstockError as error:
            self.trouble = str(error)
            self._log.error("policy_closed", policy=self.policy, reason=str(error))
        except Exception as error:  # one policy's trouble is not the others'
            self.trouble = f"{type(error).__name__}: {error}"
            self._log.error("policy_closed", policy=self.policy, reason=self.trouble)
        finally:
            self._ending.set()
            self._reader.close()
            self.versions.close()

    def _tick(self) -> None:
        self._mind_the_registry()  # first: what follows may fail for as long as the log of a deleted run is gone
        self.versions.poll(0)
        self._read()
        self._write_round()
        self._let_go()
        self._mind_the_learner()
        self.queue.flush(self._rounds.packed.position if self._rounds.packed else {})
        self._report()
        self._retire()

    def _read(self) -> None:
        """Take what came, up to what the next rollout needs."""
        if self._packer.full:
            self.versions.poll(TICK_SECONDS)
            return
        for record, trajectory in self._reader.read(READ_AT_ONCE, TICK_SECONDS):
            facts, size = trajectory.facts, len(record.value)
            wanted = self.queue.arrived(facts.source, facts.sequence, size)
            self._sizes.append(size if wanted else None)
            if wanted:
                self._unsettled.append((record.partition, record.offset, facts.source, facts.sequence))
            self._packer.add((record.partition, record.offset), trajectory, duplicate=not wanted)

    def _write_round(self) -> None:
        if self._pending is None:
            turn = self._rounds.turn(self.versions.newest)
            if turn is None:
                return
            self._packer.drop_stale(turn, self.record.spec.pace.max_lag)
            if (due := self._packer.due()) is None:
                return
            self._pending = turn, self._packer.pack(due)
        self._holding.check()  # two gateways would write the same rounds
        # A write that fails may have landed: so the same rollout comes again in the same round, and counts once.
        facts = self._rounds.write(*self._pending)
        self._pending = None
        self._settle(facts)
        self._last = facts
        self._rows += facts.steps
        self._returns.extend(episode.total_reward for episode in facts.episodes)

    def _settle(self, facts: RolloutFacts) -> None:
        """Tell the queue which numbers nobody packs again, whoever goes on from here."""
        assert facts.packed is not None
        numbers = list[tuple[str, int]]()
        while self._unsettled and self._unsettled[0][1] < facts.packed.position.get(self._unsettled[0][0], 0):
            numbers.append(self._unsettled.popleft()[2:])
        self.queue.settle(numbers)

    def _let_go(self) -> None:
        """Tell the queue what is accounted for by now."""
        count = accounted(self._packer.counts) - self._accounted
        if count:
            self._accounted += count
            sizes = [size for _ in range(count) if (size := self._sizes.popleft()) is not None]
            self.queue.taken_off(len(sizes), sum(sizes))

    def _mind_the_learner(self) -> None:
        self._waking.mind(self._packer.full or self._just_stored(), self.queue.stored_at)
        if self._waking.awake:
            self._rounds.say_hello()

    def _just_stored(self) -> bool:
        """Whether more may come soon. What lay there at the start and fills no rollout would wake a learner in vain."""
        recent = time.monotonic() - self.queue.stored_at < self._idle_seconds
        return recent and self.queue.waiting > 0 and self.queue.counts["stored"] > 0

    def _retire(self) -> None:
        """Give the place to others once nothing is to be done here; the next call brings the policy back."""
        if not self._waking.parked or self._packer.full:
            return
        with self._using:
            if time.monotonic() - self._asked_at >= max(QUIET_SECONDS, self._idle_seconds):
                self._ending.set()
                self._log.info("policy_let_go", policy=self.policy)

    def _mind_the_registry(self) -> None:
        """A run that was deleted, or that another gateway serves now, takes no more here."""
        if time.monotonic() - self._looked_at < REGISTRY_SECONDS:
            return
        self._looked_at = time.monotonic()
        if self.run not in registered(self._stream):
            raise _Gone(f"run {self.run} was deleted")
        self._holding.check()

    # -- telling ---------------------------------------------------------------------------------

    def figures(self) -> dict[str, float]:
        """Queue, clients and process, as they are now."""
        counts, waiting = self._packer.counts, self.queue.waiting
        return {
            **self.clients.sums(),
            **self._own.now(),
            "gateway/queue_trajectories": waiting,
            "gateway/queue_bytes": self.queue.bytes,
            "gateway/received": accounted(counts) - counts["duplicate"] + waiting,
            **{f"gateway/{name}": counts[name] for name in OUTCOMES},
            **{f"gateway/sent_{name}": count for name, count in self.queue.counts.items()},
        }

    def _report(self) -> None:
        """What an actor tells, and how clients do; at most once a second."""
        elapsed = time.monotonic() - self._reported_at
        if elapsed < REPORT_SECONDS:
            return
        last, newest = self._last, self.versions.version
        report: dict[str, Any] = {
            "run": self.run,
            "slot": SLOT,
            "round": self._rounds.last_round,
            "incarnation": self._rounds.incarnation,
            "version": newest if last is None else last.version,
            "lag": 0 if last is None else max(0, last.round - last.version.step),
            "episodes": len(self._returns),
            "mean_return": sum(self._returns) / len(self._returns) if self._returns else None,
            "steps_per_second": self._rows / elapsed,
            "loaded_after": self.versions.loaded_after,
            "host": socket.gethostname(),
            "served_by": self._holding.holder,
            "stream": asdict(self._stream.flow),
            "time": time.time(),
            "gateway": self.figures(),
        }
        self._reports.offer(self.run, encode(Schema.REPORT, report))
        self._reported_at, self._rows = time.monotonic(), 0
        self._returns.clear()


class _Gone(PenstockError):
    """The run is no more."""
