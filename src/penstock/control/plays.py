"""Policies at play for those who watch: one process for each run and source, however many watch it.

A play begins with its first viewer and ends some seconds after the last has left. It is a thread here that starts the
process, reads its pictures and ends it: the kernel ends a process together with the thread that started it.
"""

import os
import select
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from penstock.envs.make import refuse_client
from penstock.errors import Conflict, Damaged, Unavailable
from penstock.executors.base import Executor, Worker, WorkerSpec
from penstock.logs import Log
from penstock.loop.runs import RunFolder
from penstock.loop.watch_frames import Messages, Shown, encode

MOST_PLAYS = 4
LINGER_SECONDS = 4.0
"""How long a play goes on for nobody: a page that is loaded anew finds it warm."""
START_SECONDS = 120.0
"""A process may take so long to say its first word."""
SLACK_SECONDS = 5.0
"""Added to the environment's own limit of a step: pictures are drawn and waited for as well."""
TURN_SECONDS = 0.25
END_SECONDS = 5.0
NICE = 10
"""Below training, which a keeper starts at 5; at 19 a busy machine would show a picture a minute."""
MEMORY_BYTES = 4 << 30
READ_BYTES = 256 << 10

Listener = Callable[[bytes], None]
"""Gets each message as it is, from the play's thread; must return at once."""
Key = tuple[str, str]
"""Run and source."""


@dataclass(slots=True, eq=False)
class Play:
    """One process and who watches it."""

    folder: RunFolder
    source: str
    limit_seconds: float
    executor: Executor
    retire: Callable[["Play"], bool]
    """Asked once it seems to be over: whether it is; then nobody joins it any more."""
    listeners: list[Listener] = field(default_factory=list)
    newest: bytes = b""
    """The last message, for those who come later."""
    left_at: float = 0.0
    """When the last viewer left."""
    unwanted: threading.Event = field(default_factory=threading.Event)
    pid: int = 0

    def run(self) -> str | None:
        """Play until nobody watches, or tell why it ended before."""
        reading, writing = os.pipe()
        try:
            worker = self._launch(writing)
        except OSError as error:
            os.close(reading)
            return f"the process that plays could not be started: {error.strerror or error}"
        finally:
            os.close(writing)
        try:
            return self._follow(reading, worker)
        except Damaged as error:
            return str(error)
        finally:
            os.close(reading)
            _end(worker)

    @property
    def deserted(self) -> bool:
        return not self.listeners

    def tell(self, message: bytes) -> None:
        self.newest = message
        for listener in list(self.listeners):
            listener(message)

    def _launch(self, writing: int) -> Worker:
        arguments = ("watch", self.folder.run, self.source, str(writing))
        spec = WorkerSpec(
            "watch", arguments, self.folder.log_file("watch"), nice=NICE, memory_bytes=MEMORY_BYTES,
            environment={"PENSTOCK_HOME": str(self.folder.home)}, descriptors=(writing,),
        )  # fmt: skip
        worker = self.executor.launch(spec)
        self.pid = worker.pid
        return worker

    def _follow(self, reading: int, worker: Worker) -> str | None:
        messages, until, limit = Messages(), time.monotonic() + START_SECONDS, START_SECONDS
        while not (self.over and self.retire(self)):
            ready, _, _ = select.select([reading], [], [], TURN_SECONDS)
            if not ready:
                if time.monotonic() > until:
                    return _hung(limit, first=not self.newest)
                continue
            content = os.read(reading, READ_BYTES)
            if not content:
                return _death(worker)
            for shown, whole in messages.feed(content):
                limit = self.limit_seconds + SLACK_SECONDS if shown.state == "playing" else START_SECONDS
                until = time.monotonic() + limit
                if shown.state == "failed":
                    return shown.words
                self.tell(whole)
        return None

    @property
    def over(self) -> bool:
        late = self.deserted and time.monotonic() - self.left_at > LINGER_SECONDS
        return late or self.unwanted.is_set()


class Plays:
    """All of one server; used by many threads."""

    def __init__(self, home: Path, executor: Executor, most: int = MOST_PLAYS) -> None:
        self._home, self._executor, self._most = home, executor, most
        self._plays: dict[Key, Play] = {}
        self._threads: set[threading.Thread] = set()
        self._lock = threading.Lock()
        self._log = Log(process="plays")

    def join(self, run: str, source: str, listener: Listener) -> Callable[[], None]:
        """Listen to a play, which begins if it does not go on yet; returns how to leave.

        `source` is `live` or the version of a checkpoint that is there. Raises Unavailable where too many go on,
        ConfigError where the run has no environment here.
        """
        with self._lock:
            play = self._plays.get((run, source)) or self._begin(run, source)
            if play.newest:
                listener(play.newest)
            play.listeners.append(listener)

        def leave() -> None:
            with self._lock:
                if listener in play.listeners:
                    play.listeners.remove(listener)
                    play.left_at = time.monotonic()

        return leave

    def pids(self) -> dict[Key, int]:
        """The processes that play now."""
        with self._lock:
            return {key: play.pid for key, play in self._plays.items() if play.pid}

    def close(self) -> None:
        """End all of them."""
        with self._lock:
            for play in self._plays.values():
                play.unwanted.set()
            threads = list(self._threads)
        for thread in threads:
            thread.join(END_SECONDS)

    def _begin(self, run: str, source: str) -> Play:
        self._make_room()
        folder = RunFolder(self._home, run)
        if not folder.path.is_dir():
            raise Conflict(f"run {run} has not begun yet; it can be watched once it has")
        environment = folder.spec().environment
        refuse_client(environment)
        play = Play(
            folder,
            source,
            environment.step_limit_seconds,
            self._executor,
            self._retire,
            left_at=time.monotonic(),
        )
        thread = threading.Thread(target=self._run, args=(play, (run, source)), name="play", daemon=True)
        self._plays[run, source] = play
        self._threads.add(thread)
        thread.start()
        return play

    def _make_room(self) -> None:
        """Raise Unavailable where all are watched; one that nobody watches any more makes room."""
        if len(self._plays) < self._most:
            return
        for key, play in list(self._plays.items()):
            if play.deserted:
                play.unwanted.set()
                del self._plays[key]
                return
        raise Unavailable(
            f"{self._most} policies are being watched already, as many as this server plays at once; wait until "
            "somebody leaves, or watch one of those"
        )

    def _retire(self, play: Play) -> bool:
        """Whether it is over still: somebody may have come since it looked, and must not watch one that ends."""
        with self._lock:
            over = play.over
            if over:
                self._forget(play)
            return over

    def _forget(self, play: Play) -> None:
        key = (play.folder.run, play.source)
        if self._plays.get(key) is play:
            del self._plays[key]

    def _run(self, play: Play, key: Key) -> None:
        try:
            why = play.run()
        except Exception as error:  # whatever it is, viewers must not wait for ever
            why = f"the play had an accident: {type(error).__name__}: {error}"
        with self._lock:  # from here on nobody joins this one
            self._forget(play)
            self._threads.discard(threading.current_thread())
        if why is None and not play.deserted:
            why = "the play was ended by the server; watch it again"
        if why is not None:
            self._log.warning("play_ended", run=key[0], source=key[1], reason=why)
            play.tell(encode(Shown(state="failed", words=why)))


def _hung(limit: float, first: bool) -> str:
    if first:
        return f"the process that plays said nothing for {limit:g} s and was ended; its log, watch, may tell more"
    return (
        f"the environment did not answer for {limit:g} s and was ended; where its steps are that slow, raise "
        "environment.step_limit_seconds"
    )


def _death(worker: Worker) -> str:
    """What is to be said of a process that ended without a word."""
    until = time.monotonic() + END_SECONDS
    while (code := worker.poll()) is None and time.monotonic() < until:
        time.sleep(0.01)
    how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
    return f"the process that plays {how}; its log, watch, may tell more"


def _end(worker: Worker) -> None:
    """End it and take note of it, so that the kernel can forget it."""
    worker.kill()
    until = time.monotonic() + END_SECONDS
    while worker.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
