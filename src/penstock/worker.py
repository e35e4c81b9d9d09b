"""The processes of a run, as executors start them: `python -m penstock.worker ROLE RUN …`.

A worker ends with its keeper, tells why it ended by its exit code, and writes its last words to the
log as `error: …`. Arguments are read by hand: every tenth of a second of start-up counts.
"""

import ctypes
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import (
    ConfigError,
    Conflict,
    Diverged,
    EnvironmentFault,
    NotFound,
    PenstockError,
    Unavailable,
    Unreachable,
)
from penstock.executors.base import Exit

if TYPE_CHECKING:
    from penstock.loop.registry import RunRecord
    from penstock.stream.base import Stream

PR_SET_PDEATHSIG = 1
GRACE_SECONDS = 90
KEEPER_NICE = 5


class Stopping:
    """Whether somebody asked this process to end."""

    def __init__(self) -> None:
        self._asked = False
        signal.signal(signal.SIGTERM, self._ask)
        signal.signal(signal.SIGINT, self._ask)

    def __call__(self) -> bool:
        return self._asked

    def _ask(self, *_: object) -> None:
        if not self._asked:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(GRACE_SECONDS)  # whatever hangs, this process ends
        self._asked = True


def main(arguments: list[str] | None = None) -> int:
    """Run one role and return its exit code."""
    role, run, *rest = sys.argv[1:] if arguments is None else arguments
    roles: dict[str, Callable[[Path, str, list[str]], int]] = {
        "actor": actor,
        "learner": learner,
        "evaluate": evaluate,
        "watch": watch,
        "record": record,
        "keep": keep,
        "prepare": prepare_policy,
    }
    try:
        # a learner saves its work first; an actor has nothing to save and may be stuck in an environment
        end_with_parent(signal.SIGTERM if role == "learner" else signal.SIGKILL)
        return roles[role](home(), run, rest)
    except Conflict as error:
        return _last_words(error, Exit.REPLACED)
    except EnvironmentFault as error:
        return _last_words(error, Exit.ENVIRONMENT)
    except (ConfigError, NotFound, Diverged) as error:
        return _last_words(error, Exit.HOPELESS)
    except Unreachable as error:
        return _last_words(error, Exit.UNREACHABLE)
    except PenstockError as error:
        return _last_words(error, 1)


def actor(home: Path, run: str, arguments: list[str]) -> int:
    """Fill one slot: `actor RUN SLOT`; without a slot, join as a guest in one of its own: `actor RUN`."""
    from penstock.logs import Log
    from penstock.loop.actor import Actor, Stopped
    from penstock.loop.beat import Beat
    from penstock.loop.registry import guest_slot
    from penstock.wiring import join

    stopping = Stopping()
    stream, record = join(home, run)
    guest = not arguments
    slot = guest_slot(stream, run) if guest else int(arguments[0])
    beat = Beat(folder_of(home, run) / "beats" / str(slot))
    log = Log(process=f"actor-{slot}", run=run)
    log.info("actor_started", slot=slot, guest=guest)
    try:
        Actor(record, slot, stream, beat, stopping, guest).run()
    except Stopped:
        return Exit.DRAINED
    finally:
        log.info("actor_ends", slot=slot)
        stream.close()
    return Exit.DRAINED if stopping() else Exit.FINISHED


def learner(home: Path, run: str, arguments: list[str]) -> int:
    """Learn a run: `learner RUN [--takeover]`; a fork or a replay learns from its origin's log first."""
    from penstock.algorithms.runtime import prepare
    from penstock.wiring import join

    stopping, takeover = Stopping(), "--takeover" in arguments
    lock = None if takeover else only_one(folder_of(home, run) / "learner.lock", run)
    stream, record = join(home, run)
    if not (home / "runs" / run).is_dir():
        check_elsewhere(record, takeover)
    prepare(home / "cache" / "jax", record.spec.learner.threads)
    from penstock.loop.learner import LearnerLoop
    from penstock.loop.runs import link_store

    folder = link_store(folder_of(home, run), record.spec.checkpoint.store, run)
    try:
        if record.spec.origin is not None:
            code = descend(home, record, folder, stream, stopping)
            if code is not None or "--only-first" in arguments:
                return Exit.DRAINED if code is None else code
        reason = LearnerLoop(record, folder, stream, stopping).run()
    finally:
        stream.close()
        del lock
    return Exit.DRAINED if reason is None else Exit.FINISHED


def descend(
    home: Path, record: "RunRecord", folder: Path, stream: "Stream", stopping: Callable[[], bool]
) -> int | None:
    """Make a fork's first checkpoint, or a whole replay; how it ended, or None where a learner goes on."""
    from penstock.loop.fork import make_fork
    from penstock.loop.origin import Descendant, Origin
    from penstock.loop.replay import Replay
    from penstock.loop.runs import RunFolder
    from penstock.wiring import open_stream

    assert record.spec.origin is not None
    if not record.spec.origin.replay and any((folder / "checkpoints").glob("[0-9]*")):
        return None  # a fork that has begun needs its origin no more
    origin = RunFolder.open(home, record.spec.origin.run)
    source = open_stream(home, origin.spec().stream)
    try:
        child = Descendant(record, folder, stream, Origin(origin, source), stopping)
        if not record.spec.origin.replay:
            return None if make_fork(child) else Exit.DRAINED
        return Exit.DRAINED if Replay(child).run() is None else Exit.FINISHED
    finally:
        source.close()


def prepare_policy(home: Path, run: str, arguments: list[str]) -> int:
    """Publish the first version of a client's policy, so that it can act before anything is learned: `prepare RUN`."""
    from penstock.algorithms.runtime import prepare
    from penstock.wiring import join

    stream, record = join(home, run)
    prepare(home / "cache" / "jax", 1)
    from penstock.loop.first_version import publish_first

    try:
        publish_first(record, stream)
    finally:
        stream.close()
    return Exit.FINISHED


def evaluate(home: Path, run: str, arguments: list[str]) -> int:
    """Evaluate a checkpoint and remember the best: `evaluate RUN VERSION EPISODES [SEED ID]`."""
    from penstock.loop.evaluate import evaluate_checkpoint
    from penstock.loop.runs import RunFolder
    from penstock.model.version import Version

    version, episodes, *asked = arguments
    seed, id = (int(asked[0]), asked[1]) if asked else (None, None)
    evaluate_checkpoint(RunFolder.open(home, run), Version.parse(version), int(episodes), seed, id)
    return Exit.FINISHED


def watch(home: Path, run: str, arguments: list[str]) -> int:
    """Play for whoever watches: `watch RUN SOURCE DESCRIPTOR`; ends once nobody reads what it writes there."""
    from penstock.loop.runs import RunFolder
    from penstock.loop.watching import watch as play
    from penstock.wiring import open_stream

    which, descriptor = arguments
    folder = RunFolder.open(home, run)
    with open(int(descriptor), "wb", buffering=0) as pipe:

        def send(content: bytes) -> None:
            rest = memoryview(content)
            while rest:
                rest = rest[pipe.write(rest) :]

        play(folder, which, lambda: open_stream(home, folder.spec().stream), send)
    return Exit.FINISHED


def record(home: Path, run: str, arguments: list[str]) -> int:
    """Record one episode as a GIF: `record RUN ID`, as the wish of that id says."""
    from penstock.loop.recordings import Wishes, record_wish
    from penstock.loop.runs import RunFolder

    record_wish(RunFolder.open(home, run), Wishes(home).read(arguments[0]))
    return Exit.FINISHED


def keep(home: Path, run: str, arguments: list[str]) -> int:
    """Keep a run that a server started: `keep RUN`. It outlives the server, for a while."""
    from penstock.executors.local import LocalExecutor
    from penstock.loop.keeper import Keeper
    from penstock.loop.registry import find
    from penstock.loop.runs import RunFolder
    from penstock.wiring import open_stream

    os.nice(KEEPER_NICE)  # and all it starts: training yields to the server that steers it
    folder = RunFolder.open(home, run)
    stream = open_stream(home, folder.spec().stream)
    try:
        Keeper(folder, find(stream, run), stream, LocalExecutor(), lambda _: None, managed=True).run()
    finally:
        stream.close()
    return Exit.FINISHED


def check_elsewhere(record: "RunRecord", takeover: bool) -> None:
    """A learner of a run that began on another host needs its checkpoints, and somebody who means it."""
    if record.spec.checkpoint.store is None:
        raise ConfigError(
            f"the checkpoints of run {record.run} lie on the host that began it; only a run with "
            "checkpoint.store, a folder that hosts share, can be learned elsewhere"
        )
    if not takeover:
        raise Conflict(
            f"run {record.run} began on another host, whose learner may still hold it; say --takeover to replace it"
        )


def folder_of(home: Path, run: str) -> Path:
    """Where this process keeps its few files: the run's folder, or a place apart for a run of another host."""
    own = home / "runs" / run
    return own if own.is_dir() else home / "guests" / run


def home() -> Path:
    """Where the keeper lives; it passes the place on."""
    return Path(os.environ["PENSTOCK_HOME"])


def only_one(path: Path, run: str, patience_seconds: float = 15.0) -> object:
    """Hold the learner's lock of a run; raise Unavailable when another learner keeps it."""
    import fcntl

    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a+")
    until = time.monotonic() + patience_seconds  # the one before may still be writing its checkpoint
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError as error:
            if time.monotonic() > until:
                raise Unavailable(
                    f"run {run} has a learner already; stop it first, or take over with --takeover"
                ) from error
            time.sleep(0.1)


def end_with_parent(number: signal.Signals) -> None:
    """Ask the kernel for this signal when the keeper dies; stay within the limits that were set."""
    parent = os.environ.get("PENSTOCK_PARENT")
    if parent:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
        if os.getppid() != int(parent):  # it died before we asked
            os.kill(os.getpid(), number)
    if nice := int(os.environ.get("PENSTOCK_NICE") or 0):
        os.nice(nice)
    if cpus := os.environ.get("PENSTOCK_CPUS"):
        try:
            os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
        except OSError as error:
            raise ConfigError(f"cpus {cpus} cannot be used here: {error.strerror}") from error
    if memory := int(os.environ.get("PENSTOCK_MEMORY") or 0):
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


def _last_words(error: PenstockError, code: int) -> int:
    sys.stderr.write(f"error: {error}\n")
    return code


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # what was promised is written; JAX and BLAS threads need no farewell
    os._exit(code)
