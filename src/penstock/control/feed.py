"""Runs' folders in, news out: what changed, told several times a second to whoever asked for it.

Reads from: `runs/<id>/` (the truth). Writes to: listeners, once a tick, from one thread of its own.
Only what somebody wants is read; a run is told at most once a tick, whatever it writes; every message is
encoded once and kept in a bounded ring, so that one who comes back soon gets what it missed.
"""

import contextlib
import os
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.control.feed_ring import Message, Ring
from penstock.control.feed_watch import RunWatch
from penstock.errors import Unavailable
from penstock.logs import Log
from penstock.loop.runs import RunFolder
from penstock.model.run import RUN_ID

KINDS: dict[str, str] = {
    "states": "watch_states",
    "metrics": "watch_metrics",
    "logs": "watch_logs",
    "events": "watch_states",
}
"""Kind of message → the operation one must be allowed to get it. `removed` comes with every kind."""

ALL = "*"
"""In the place of a run: every run, also those to come."""

Topic = tuple[str, str]
"""A kind, and a run or ALL."""

TICK_SECONDS = 0.25
WARM_SECONDS = 60.0
"""How long what nobody wants any more is still followed, for those who come back."""
LIST_SECONDS = 1.0
QUIET_TURNS = 4
"""A run that is not live is looked at in every so many ticks."""
PATIENCE_SECONDS = 5.0
MOST_FAULTS_TOLD = 20

Listener = Callable[[list[Message]], None]
News = tuple[str, str, dict[str, Any]]
"""Kind, run, body."""


@dataclass(slots=True)
class _Interest:
    began: int
    """The number after which no message of this topic is missing."""
    holders: int = 0
    idle_since: float = 0.0


class Feed:
    """The news of all runs under `home`. Any thread may call; listeners are called by the feed's own."""

    def __init__(self, home: Path, *, tick_seconds: float = TICK_SECONDS, ring: Ring | None = None) -> None:
        self._home, self._tick_seconds = home, tick_seconds
        self._ring = ring or Ring()
        self._listeners: dict[int, Listener] = {}
        self._interests: dict[Topic, _Interest] = {}
        self._kinds: dict[str, frozenset[str]] = {}
        """Run or ALL → the kinds that are wanted of it."""
        self._watches: dict[str, RunWatch] = {}
        self._hurried: frozenset[str] = frozenset()
        self._listed_at, self._turn = 0.0, 0
        self._lock = threading.Lock()
        self._wake, self._closing = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._log = Log(process="feed")
        self.viewers = 0
        """How many watch, as the faces tell it."""
        self.faults = 0
        """Looks into a run that failed."""

    @property
    def life(self) -> str:
        """Names this life of the server: numbers of another one mean nothing here."""
        return self._ring.life

    @property
    def seq(self) -> int:
        """The number of the newest message."""
        return self._ring.seq

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every batch from now on; the answer ends it."""
        key = id(listener)
        self._listeners = {**self._listeners, key: listener}

        def end() -> None:
            self._listeners = {other: kept for other, kept in self._listeners.items() if other != key}

        return end

    def want(self, topics: Collection[Topic]) -> None:
        """Follow these from now on: what is written after this returned is told. May block for a moment."""
        with self._locked():
            if not self._interests:
                self._list(new=False)
            for topic in topics:
                self._interests.setdefault(topic, _Interest(self._ring.seq)).holders += 1
            self._sort()
            for run, watch in self._watches.items():
                watch.follow(self._wanted(run))
            if self._thread is None and not self._closing.is_set():
                self._thread = threading.Thread(target=self._run, name="feed", daemon=True)
                self._thread.start()
        self._wake.set()

    def release(self, topics: Collection[Topic]) -> None:
        """End what one `want` began; topics that nobody holds stay warm for a while."""
        with self._locked():
            for topic in topics:
                if (interest := self._interests.get(topic)) is not None:
                    interest.holders -= 1
                    interest.idle_since = time.monotonic()

    def missed(self, life: str, seq: int, topics: Collection[Topic]) -> list[Message] | None:
        """All messages of these topics after `seq`; None where some of them cannot be had any more."""
        if life != self.life or not all(self._complete(topic, seq) for topic in topics):
            return None
        found = self._ring.after(seq)
        return None if found is None else [message for message in found if concerns(message, topics)]

    def knows(self, run: str) -> bool:
        """Whether there is such a run now."""
        return RUN_ID.fullmatch(run) is not None and (self._home / "runs" / run).is_dir()

    def changed(self, run: str) -> None:
        """Look at this run in the next tick rather than within a second: whoever changed it may say so."""
        if self._interests:
            self._hurried = self._hurried | {run}

    def close(self) -> None:
        """End the thread; return within seconds."""
        self._closing.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(PATIENCE_SECONDS)

    # -- the feed's own thread -------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing.is_set():
            with self._lock:
                idle = not self._interests
                messages = [] if idle else self._ring.add(self._ticked())
            if messages:
                self._tell(messages)
            if idle:
                self._wake.wait(WARM_SECONDS)
                self._wake.clear()
            else:
                self._closing.wait(self._tick_seconds)

    def _tell(self, messages: list[Message]) -> None:
        for listener in self._listeners.values():
            try:
                listener(messages)
            except Exception as error:  # one listener's fault is not the others'
                self._fault("listener_failed", error)

    def _ticked(self) -> list[News]:
        try:
            return self._tick()
        except Exception as error:  # the feed lives on
            self._fault("tick_failed", error)
            return []

    def _tick(self) -> list[News]:
        now = time.monotonic()
        self._turn += 1
        self._forget(now)
        hurried, self._hurried = self._hurried, frozenset()
        news: list[News] = []
        if hurried - self._watches.keys() or now - self._listed_at >= LIST_SECONDS:
            news += [("removed", run, {}) for run in self._list(new=True)]
        for run, watch in self._watches.items():
            kinds = self._wanted(run)
            if kinds and (watch.live or run in hurried or self._is_turn_of(run)):
                news += self._look(run, watch, kinds)
        return news

    def _look(self, run: str, watch: RunWatch, kinds: frozenset[str]) -> list[News]:
        try:
            return [(kind, run, body) for kind, body in watch.news(kinds)]
        except Exception as error:  # one run's odd files are not the others' fault
            self._fault("run_not_readable", error, run=run)
            return []

    def _list(self, *, new: bool) -> list[str]:
        """Find runs that came, `new` ones to be told from their start; return those that went."""
        self._listed_at = time.monotonic()
        runs = self._home / "runs"
        try:
            names = {name for name in os.listdir(runs) if RUN_ID.fullmatch(name)}
        except OSError:
            names = set()
        gone = [run for run in self._watches if run not in names]
        for run in gone:
            del self._watches[run]
        for run in sorted(names - self._watches.keys()):
            if (runs / run).is_dir():
                self._watches[run] = RunWatch(RunFolder(self._home, run), new=new)
        return [run for run in gone if self._wanted(run)]

    def _forget(self, now: float) -> None:
        """Drop what nobody has wanted for a while."""
        cold = [
            topic
            for topic, interest in self._interests.items()
            if interest.holders <= 0 and now - interest.idle_since > WARM_SECONDS
        ]
        for topic in cold:
            del self._interests[topic]
        if cold:
            self._sort()
        if not self._interests:
            self._watches.clear()

    def _sort(self) -> None:
        kinds: dict[str, set[str]] = {}
        for kind, run in self._interests:
            kinds.setdefault(run, set()).add(kind)
        self._kinds = {run: frozenset(wanted) for run, wanted in kinds.items()}

    def _wanted(self, run: str) -> frozenset[str]:
        nothing: frozenset[str] = frozenset()
        return self._kinds.get(ALL, nothing) | self._kinds.get(run, nothing)

    def _is_turn_of(self, run: str) -> bool:
        return (zlib.crc32(run.encode()) + self._turn) % QUIET_TURNS == 0

    def _complete(self, topic: Topic, seq: int) -> bool:
        """Whether every message of a topic after `seq` was made."""
        interests = (self._interests.get(topic), self._interests.get((topic[0], ALL)))
        return any(interest is not None and interest.began <= seq for interest in interests)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        if not self._lock.acquire(timeout=PATIENCE_SECONDS):
            raise Unavailable("the live feed waits for a slow disk; try again in a few seconds")
        try:
            yield
        finally:
            self._lock.release()

    def _fault(self, event: str, error: Exception, **fields: Any) -> None:
        self.faults += 1
        if self.faults <= MOST_FAULTS_TOLD:
            self._log.error(event, error=repr(error), **fields)


def concerns(message: Message, topics: Collection[Topic]) -> bool:
    """Whether a message is about one of these topics; that a run was removed concerns all who watch it."""
    if message.kind == "removed":
        return any(run in (ALL, message.run) for _, run in topics)
    return (message.kind, ALL) in topics or (message.kind, message.run) in topics
