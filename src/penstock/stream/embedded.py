"""The embedded log: topics in LMDB files under one folder, used by many processes of one machine.

    control/   runs, commands, claims and every topic that asks to be synced; flushed at each commit
    common/    metrics, dead letters and topics that belong to no run
    <run>/     experiences, model updates and history of one run

Each environment may hold `budget_bytes` of records. At the budget the oldest records of topics with any
retention are dropped, whatever their policy would still allow; topics without one are kept whole, and
so is all that is protected: then writers wait, until the write deadline.
"""

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import ConfigError, Unavailable
from penstock.model import topics
from penstock.stream import environment, layout, recovery, topiclog
from penstock.stream.base import Buffer, Flow, Position, Reader, Record, TopicInfo, TopicPolicy, Writer
from penstock.stream.environment import Environment, LogFull
from penstock.stream.layout import NEVER
from penstock.stream.recovery import OnEvent
from penstock.stream.shared import SHARED, policy_of
from penstock.stream.wake import Listener

CONTROL, COMMON = "control", "common"
_SYNCED = (topics.RUNS, topics.COMMANDS)
_SPACE = "\0space"
"""What writers listen to that wait for room; no topic can have this name."""
_REMOVED = NEVER
"""In the place of `swept`: the topic was removed, and only its next offset is remembered."""
_OFFSETS_A_GENERATION = 1 << 40
_EPOCHS_A_GENERATION = 1_000_000


class EmbeddedStream:
    """A Stream; see stream.base for the promises. Any thread may use it; its handles are for one each."""

    url, shared = "embedded", False

    def __init__(
        self,
        root: Path,
        *,
        budget_bytes: int = 4 << 30,
        write_deadline_seconds: float = 60.0,
        poll_seconds: float = 0.05,
        on_event: OnEvent = recovery.warn,
    ) -> None:
        self.budget_bytes = budget_bytes
        self.write_deadline_seconds = write_deadline_seconds
        self.poll_seconds = poll_seconds
        self.flow = Flow()
        self._root, self._on_event = root, on_event
        self._lock = threading.Lock()
        self._environments: dict[str, Environment] = {}

    def ensure(self, topic: str, policy: TopicPolicy) -> None:
        home = self._environment(CONTROL if policy.synced else self._home(topic))
        with home.write() as txn:
            found = _open(txn, home, topic)
            found.adopt(policy)
            layout.store(txn, topic, found)

    def writer(self, topic: str) -> Writer:
        return EmbeddedWriter(self, self._environment(self._home(topic)), topic)

    def reader(self, topic: str, start: Position | None = None) -> Reader:
        home = self._environment(self._home(topic))
        return EmbeddedReader(home, topic, (start or {}).get(0), self.poll_seconds, self.flow)

    def end(self, topic: str) -> Position:
        home = self._environment(self._home(topic))
        with home.read() as txn:
            found = layout.find(txn, topic)
        return {0: _first_offset(home) if found is None else found.next}

    def backwards(self, topic: str, key: str) -> Iterator[Record]:
        home, wanted = self._environment(self._home(topic)), layout.encoded(key)
        with home.read() as txn:
            found = layout.find(txn, topic)
            offset = NEVER if found is None else layout.newest_offset(txn, found, wanted)
        while found is not None and offset != NEVER:
            with home.read() as txn:  # one transaction a record: the caller may take its time
                step = topiclog.read_one(txn, found, offset)
            if step is None:
                return
            record, offset = step
            yield record

    def newest(self, topic: str) -> list[Record]:
        with self._environment(self._home(topic)).read() as txn:
            found = layout.find(txn, topic)
            if found is None:
                return []
            steps = [topiclog.read_one(txn, found, offset) for offset in layout.newest_offsets(txn, found)]
        return [step[0] for step in steps if step is not None]

    def protect(self, topic: str, position: Position) -> None:
        home = self._environment(self._home(topic))
        with home.write() as txn:
            found = _open(txn, home, topic)
            found.protected = position.get(0, 0)
            layout.store(txn, topic, found)
        home.bell.ring(_SPACE)

    def claim(self, name: str) -> int:
        control = self._environment(CONTROL)
        with control.write() as txn:
            epoch = max(layout.claimed(txn, name), control.generation * _EPOCHS_A_GENERATION) + 1
            layout.claim(txn, name, epoch)
        return epoch

    def claimed(self, name: str) -> int:
        with self._environment(CONTROL).read() as txn:
            return layout.claimed(txn, name)

    def topics(self) -> list[TopicInfo]:
        if not self._root.is_dir():
            return []
        folders = (path.parent.name for path in self._root.glob("*/data.mdb"))
        found = []
        for folder in folders:
            if ".damaged-" in folder:
                continue
            with self._environment(folder).read() as txn:
                found += [
                    TopicInfo(name, 1, 1, topiclog.count(txn, topic, 0), topic.bytes, topic.policy)
                    for name, topic in layout.topics(txn)
                    if topic.swept != _REMOVED
                ]
        return sorted(found, key=lambda info: info.name)

    def remove(self, topic: str) -> None:
        home, left = self._environment(self._home(topic)), True
        while left:
            with home.write() as txn:
                found = layout.find(txn, topic)
                if found is None:
                    return
                # its next offset stays: an old position must not point at new records
                found.adopt(TopicPolicy(synced=found.synced))
                found.protected, found.swept = NEVER, _REMOVED
                left = topiclog.drop_some(txn, topic, found, 256)
            home.bell.ring(_SPACE)

    def remove_run(self, run: str) -> None:
        """Delete the run's environment; no process may use it any more. Unknown ones are no error."""
        folder = self._root / _run_folder(run)
        with self._lock:
            opened = self._environments.pop(run, None)
        if opened is not None:
            environment.release(opened)
        shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        with self._lock:
            opened = list(self._environments.values())
            self._environments.clear()
        for each in opened:
            environment.release(each)

    def _home(self, topic: str) -> str:
        """The environment that holds the topic."""
        if topic in _SYNCED:
            return CONTROL
        if (run := topics.run_of(topic)) is not None:
            return _run_folder(run)
        if topic in SHARED:
            return COMMON
        with self._environment(CONTROL).read() as txn:
            return COMMON if layout.find(txn, topic) is None else CONTROL

    def _environment(self, name: str) -> Environment:
        with self._lock:
            known = self._environments.get(name)
            if known is not None and known.is_current():
                return known
            if known is not None:  # its folder was removed, perhaps by another process
                environment.release(known)
            opened = environment.acquire(
                self._root / name,
                synced=name == CONTROL,
                map_size=_map_size(self.budget_bytes),
                on_event=self._on_event,
            )
            self._environments[name] = opened
            return opened


class EmbeddedWriter:
    def __init__(self, stream: EmbeddedStream, home: Environment, topic: str) -> None:
        self._stream, self._home, self._topic = stream, home, topic

    def write(self, key: str, value: Buffer) -> None:
        encoded, size = layout.encoded(key), memoryview(value).nbytes
        if layout.cost(len(encoded), size) > self._stream.budget_bytes:
            raise ConfigError(
                f"a record of {size} bytes can never fit the log; raise stream.budget_bytes, "
                f"now {self._stream.budget_bytes}"
            )
        flow = self._stream.flow
        if not self._append(encoded, value, size):
            began = time.monotonic()
            try:
                self._wait_for_room(encoded, value, size)
            finally:
                flow.waits += 1
                flow.waited_seconds += time.monotonic() - began
        self._rang(size)

    def offer(self, key: str, value: Buffer) -> None:
        encoded, size = layout.encoded(key), memoryview(value).nbytes
        if self._append(encoded, value, size):
            self._rang(size)
        else:
            self._stream.flow.dropped += 1

    def _rang(self, size: int) -> None:
        """Count a record that is in the log, and wake those who wait for it."""
        self._stream.flow.produced_records += 1
        self._stream.flow.produced_bytes += size
        self._home.bell.ring(self._topic)

    def close(self) -> None:
        """Nothing is held."""

    def _append(self, key: bytes, value: Buffer, size: int) -> bool:
        try:
            with self._home.write(size) as txn:
                topic = _open(txn, self._home, self._topic)
                return topiclog.append(txn, self._topic, topic, key, value, self._stream.budget_bytes)
        except LogFull:
            return False

    def _wait_for_room(self, key: bytes, value: Buffer, size: int) -> None:
        deadline = time.monotonic() + self._stream.write_deadline_seconds
        listener = Listener(self._home.path / "wake", _SPACE)
        try:
            while True:
                self._home.check_readers()  # a reader that died may hold pages back
                listener.drain()
                if self._append(key, value, size):
                    return
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise Unavailable(
                        f"{self._topic} waited {self._stream.write_deadline_seconds:g} s for room: "
                        f"the log {self._home.path} is at stream.budget_bytes={self._stream.budget_bytes} "
                        "and nothing may be dropped; raise it, or let the learner make a checkpoint"
                    )
                listener.wait(min(remaining, self._stream.poll_seconds))
        finally:
            listener.close()


class EmbeddedReader:
    def __init__(
        self, home: Environment, topic: str, start: int | None, poll_seconds: float, flow: Flow
    ) -> None:
        self._home, self._topic, self._offset = home, topic, start or 0
        self._poll_seconds, self._flow = poll_seconds, flow
        self._told = start is not None
        self.missed = 0
        self._listener: Listener | None = None
        self._caught_up = False

    def read(self, limit: int, timeout: float) -> list[Record]:
        deadline = time.monotonic() + timeout
        if self._caught_up and self._listener is not None and timeout > 0:
            # whatever came since the last look has rung: no need to look before waiting
            self._listener.wait(min(timeout, self._poll_seconds))
        while True:
            if self._listener is not None:
                self._listener.drain()
            records = self._fetch(limit)
            remaining = deadline - time.monotonic()
            if records or remaining <= 0:
                return records
            if self._listener is None:
                # registered only now, and then looked once more: a record may have come in between
                self._listener = Listener(self._home.path / "wake", self._topic)
                continue
            self._listener.wait(min(remaining, self._poll_seconds))

    def position(self) -> Position:
        return {0: self._offset}

    def lag(self) -> int:
        with self._home.read() as txn:
            topic = layout.find(txn, self._topic)
            return 0 if topic is None else topiclog.count(txn, topic, self._offset)

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _fetch(self, limit: int) -> list[Record]:
        with self._home.read() as txn:
            topic = layout.find(txn, self._topic)
            if topic is None:
                self._offset = max(self._offset, _first_offset(self._home))
                return []
            if limit <= 0:
                return []
            if topic.next <= self._offset:
                self._told = True  # it stands here by now: what is dropped from here on it has missed
                return []
            records = topiclog.read(txn, topic, self._offset, limit)
        if self._told and not topic.compact:
            self._count_missed(records[0].offset if records else topic.next)
        self._told = True
        self._offset = records[-1].offset + 1 if records else topic.next
        self._caught_up = self._offset >= topic.next
        self._flow.consumed_records += len(records)
        self._flow.consumed_bytes += sum(len(record.value) for record in records)
        return records

    def _count_missed(self, found: int) -> None:
        """What lies between where this reader stood and the record it found; a new environment is no gap."""
        if found // _OFFSETS_A_GENERATION == self._offset // _OFFSETS_A_GENERATION:
            self.missed += found - self._offset


def _open(txn: layout.Transaction, home: Environment, topic: str) -> layout.Topic:
    """The topic, made anew where there is none or it was removed."""
    policy, found = policy_of(topic), layout.find(txn, topic)
    if found is None:
        return layout.make(txn, topic, policy, _first_offset(home))
    if found.swept == _REMOVED:
        found.swept = found.next
        found.adopt(policy)
    return found


def _first_offset(home: Environment) -> int:
    """Offsets go on past those of an environment that was set aside: old positions stay behind the new."""
    return home.generation * _OFFSETS_A_GENERATION


def _map_size(budget_bytes: int) -> int:
    """Room beside the budget for the tree, pages a reader still sees, and gaps that fit no record.

    Records of one size leave no gaps; sizes from 300 bytes to 5 MB, freed half a log at a time, made the
    file 1.4 times the budget and no larger. It costs only address space until it is used.
    """
    return (2 * budget_bytes + (64 << 20)) // 4096 * 4096


def _run_folder(run: str) -> str:
    if run in (CONTROL, COMMON) or "/" in run or run.startswith(".") or ".damaged-" in run:
        raise ConfigError(f"{run!r} cannot be a run's id; use letters, digits and dashes")
    return run
