"""Train, resume, stop, scale and tune runs. Faces (the command line, Python) are thin around these."""

import contextlib
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock import config, plugins
from penstock.algorithms.settings import Settings, read
from penstock.config import files
from penstock.errors import ConfigError, Conflict, Damaged, NotFound, PenstockError, Unavailable, nearest
from penstock.executors.base import Executor
from penstock.loop.commands import MOST_ACTORS, give
from penstock.loop.keeper import Keeper, Watcher
from penstock.loop.registry import RunRecord, find, register, registered, unregister
from penstock.loop.runs import RunFolder
from penstock.model.commands import Verb, command
from penstock.model.run import LIVE, RunState, RunStatus
from penstock.model.spec import Spec
from penstock.stream.base import Stream


def train(
    home: Path, spec: Spec, stream: Stream, executor: Executor, watch: Watcher, name: str | None = None
) -> RunStatus:
    """Make a run and keep it until it ends. A run whose settings turn out wrong leaves nothing behind."""
    folder, record = make(home, spec, stream, name)
    try:
        keeper = Keeper(folder, record, stream, executor, watch)
    except PenstockError:
        unmake(folder, spec, stream)
        raise
    status = keeper.run()
    if status.state is RunState.FAILED and status.version is None:
        unmake(folder, spec, stream)
        raise ConfigError(status.reason or "the run could not start")
    return status


def unmake(folder: RunFolder, spec: Spec, stream: Stream) -> None:
    """Take back a run that could not start: its folder, its name, and its topics if it made them."""
    shutil.rmtree(folder.path, ignore_errors=True)
    with contextlib.suppress(PenstockError):  # why it could not start matters more
        unregister(stream, folder.run, keep_topics=not spec.stream.kafka.create)


def make(home: Path, spec: Spec, stream: Stream, name: str | None = None) -> tuple[RunFolder, RunRecord]:
    """A folder and topics for a new run; nothing stays where either cannot be had."""
    taken = set(registered(stream)) if stream.shared else set()
    while True:
        folder = RunFolder.create(home, spec, name)
        try:
            if folder.run not in taken:
                if not stream.shared:
                    stream.remove_run(folder.run)  # what an older run of that name may have left
                return folder, register(stream, folder.run, spec)
        except PenstockError:
            shutil.rmtree(folder.path, ignore_errors=True)
            raise
        shutil.rmtree(folder.path, ignore_errors=True)
        if name is not None:
            raise Conflict(
                f"there is a run {name} in this stream already, perhaps somebody else's; choose another name, "
                f"or remove it: penstock topics delete {name}"
            )


def resume(
    home: Path, run: str, overrides: Mapping[str, Any], stream: Stream, executor: Executor, watch: Watcher
) -> RunStatus:
    """Go on exactly where the run's newest checkpoint and log end; only stop conditions may change."""
    folder = _opened(home, run, stream)
    status = folder.status()
    if status.state in LIVE:
        raise Conflict(f"run {run} is {status.state}; stop it first: penstock stop {run}")
    spec = folder.spec()
    if overrides:
        spec = _with_stop(spec, overrides)
        folder.save_spec(spec)
    if status.state is RunState.INTERRUPTED:  # write down what its keeper no longer could
        folder.save_status(status)
    return Keeper(folder, _told(stream, run, spec), stream, executor, watch).run()


def stop(home: Path, run: str, stream: Stream, patience_seconds: float = 90.0) -> RunStatus:
    """Ask a live run to drain, save and end; return once it has."""
    folder = _live(home, run)
    give(stream, command(run, "stop"))
    until = time.monotonic() + patience_seconds
    while (status := folder.status()).state in LIVE:
        if time.monotonic() > until:
            raise Unavailable(
                f"run {run} is still {status.state} after {patience_seconds:g} s; see: penstock logs {run}"
            )
        time.sleep(0.05)
    return status


def scale(home: Path, run: str, actors: int, stream: Stream) -> RunStatus:
    """Change the number of actors of a live run."""
    if not 0 <= actors <= MOST_ACTORS:
        raise ConfigError(f"a run has 0 to {MOST_ACTORS} actors, not {actors}")
    return _tell(home, run, stream, "scale", {"actors": actors})


def tune(home: Path, run: str, changes: Mapping[str, Any], stream: Stream) -> RunStatus:
    """Change hyperparameters of a live run from its next update on."""
    folder = _live(home, run)
    return _tell(home, run, stream, "set", checked_changes(folder.spec(), changes))


def checkpoint(home: Path, run: str, stream: Stream) -> RunStatus:
    """Ask a live run for a checkpoint now."""
    return _tell(home, run, stream, "checkpoint", {})


def checked_changes(spec: Spec, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes as the learner takes them; raise ConfigError for one that is unknown, wrong or not live."""
    kind: type[Settings] = plugins.load("settings", spec.algorithm)
    values = {}
    for key, value in changes.items():
        name = key.removeprefix(f"{spec.algorithm}.")
        if name not in spec.settings:
            raise ConfigError(f"{spec.algorithm} has no setting {name!r}{nearest(name, spec.settings)}")
        if name not in kind.live:
            live = ", ".join(sorted(kind.live))
            raise ConfigError(f"{name} cannot change while a run goes on; these can: {live}")
        values[name] = files.scalar(value, key)
    read(kind, {**spec.settings, **values}, spec.algorithm)
    return values


def is_registered(stream: Stream, run: str) -> bool:
    return run in registered(stream)


def remove_topics(home: Path, run: str, stream: Stream) -> None:
    """Delete a run's topics, unless it is live on this host."""
    with contextlib.suppress(NotFound):
        status = RunFolder.open(home, run).status()
        if status.state in LIVE:
            raise Conflict(f"run {run} is {status.state}; stop it first: penstock stop {run}")
    unregister(stream, run)


def tell(stream: Stream, run: str, verb: Verb, arguments: Mapping[str, Any]) -> None:
    """Give a command to a run whose keeper is on another host; raise NotFound for an unknown run."""
    spec = find(stream, run).spec
    give(stream, command(run, verb, **(checked_changes(spec, arguments) if verb == "set" else arguments)))


def _opened(home: Path, run: str, stream: Stream) -> RunFolder:
    """A run's folder; of a run that began on another host, one made from what the stream knows of it."""
    try:
        return RunFolder.open(home, run)
    except NotFound:
        if not stream.shared:
            raise
    spec = find(stream, run).spec
    if spec.checkpoint.store is None:
        raise NotFound(
            f"the checkpoints of run {run} lie on the host that began it; only a run with checkpoint.store, "
            "a folder that hosts share, can go on elsewhere"
        )
    folder = RunFolder.create(home, spec, run, adopt=True)
    folder.save_status(folder.stored_status().to(RunState.INTERRUPTED, "it began on another host"))
    return folder


def _live(home: Path, run: str) -> RunFolder:
    folder = RunFolder.open(home, run)
    status = folder.status()
    if status.state not in LIVE:
        raise Conflict(f"run {run} is {status.state}; only a live run can be changed (penstock resume {run})")
    return folder


def _tell(home: Path, run: str, stream: Stream, verb: Verb, arguments: Mapping[str, Any]) -> RunStatus:
    folder = _live(home, run)
    give(stream, command(run, verb, **arguments))
    return folder.status()


def _told(stream: Stream, run: str, spec: Spec) -> RunRecord:
    """The run as the stream knows it, told anew where its spec changed or its record was lost."""
    try:
        known = find(stream, run)
    except (NotFound, Damaged):
        return register(stream, run, spec)
    return known if known.spec == spec else register(stream, run, spec, known.commands)


def _with_stop(spec: Spec, overrides: Mapping[str, Any]) -> Spec:
    for key in overrides:
        if not key.startswith("stop.") and key != "stream.on_gap":
            raise ConfigError(
                f"a resumed run keeps its spec; only stop.* and stream.on_gap may change, not {key}"
            )
    mapping = config.to_mapping(spec)
    return config.resolve(mapping, overrides)
