"""The verbs: what may be asked of a run, when, and the command that says so.

Written once: the server's commander and the command line without a server both plan with these, then
give the command to the log. Keeping a run in the foreground (`train`, `resume`) is here too.
"""

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
from penstock.loop.commands import give
from penstock.loop.keeper import Keeper, Watcher
from penstock.loop.registry import RunRecord, find, register, registered, unregister
from penstock.loop.runs import RunFolder
from penstock.model.clients import is_client
from penstock.model.commands import MOST_ACTORS, Command, Verb, command
from penstock.model.run import LIVE, Labels, RunState, RunStatus
from penstock.model.spec import Spec
from penstock.stream.base import Stream

_S = RunState
ALLOWED: dict[Verb, frozenset[RunState]] = {
    "stop": frozenset({_S.PENDING, _S.RUNNING, _S.PAUSED, _S.STOPPING, _S.INTERRUPTED}),
    "pause": frozenset({_S.PENDING, _S.RUNNING}),
    "resume": frozenset({_S.PAUSED, _S.STOPPED, _S.DONE, _S.FAILED, _S.INTERRUPTED}),
    "scale": frozenset({_S.PENDING, _S.RUNNING, _S.PAUSED}),
    "set": frozenset({_S.PENDING, _S.RUNNING, _S.PAUSED}),
    "checkpoint": frozenset({_S.RUNNING, _S.PAUSED}),
    "evaluate": frozenset(RunState),
    "record": frozenset(RunState),
    "label": frozenset(RunState),
    "delete": frozenset({_S.PAUSED, _S.STOPPED, _S.DONE, _S.FAILED, _S.INTERRUPTED}),
}
"""Verb → the states of a run in which it makes sense."""

_FIXES: dict[Verb, str] = {
    "stop": "it has ended already",
    "pause": "only a running run can be paused",
    "resume": "only a run that is paused or has ended can be resumed; stop it first: penstock stop {run}",
    "scale": "only a live run can be scaled; resume it first: penstock resume {run}",
    "set": "only a live run can be changed; resume it first: penstock resume {run}",
    "checkpoint": "only a running run can be asked for a checkpoint; its last one is kept",
    "delete": "stop it first: penstock stop {run}",
}


# -- planning: pure but for plugins ----------------------------------------------------------------


def check_state(run: str, state: RunState, verb: Verb) -> None:
    """Raise Conflict, with what to do instead, where a run in this state cannot be asked that."""
    if state not in ALLOWED[verb]:
        raise Conflict(f"run {run} is {state}; {_FIXES[verb].format(run=run)}")


def scaled(*, actors: int | None = None, learner: int | None = None) -> dict[str, Any]:
    """The arguments of a `scale`; raise ConfigError out of range."""
    if actors is not None and not 0 <= actors <= MOST_ACTORS:
        raise ConfigError(f"a run has 0 to {MOST_ACTORS} actors, not {actors}")
    if learner is not None and learner not in (0, 1):
        raise ConfigError(f"a run has 0 or 1 learner, not {learner}")
    if actors is None and learner is None:
        raise ConfigError("say what to scale, as in: penstock scale RUN --actors 4")
    return {name: count for name, count in (("actors", actors), ("learner", learner)) if count is not None}


def check_scale(environment: str, arguments: Mapping[str, Any]) -> None:
    """Raise ConfigError where a policy of clients would get actors: there is nothing here for them to act in."""
    if is_client(environment) and arguments.get("actors"):
        raise ConfigError(f"{environment} is played by its clients; connect more of them instead of actors")


def changed(spec: Spec, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a `set`; raise ConfigError for a setting that is unknown, wrong or not live."""
    kind: type[Settings] = plugins.load("settings", spec.algorithm)
    values = {}
    for key, value in changes.items():
        name = key.removeprefix(f"{spec.algorithm}.")
        if name not in spec.settings:
            raise ConfigError(f"{spec.algorithm} has no setting {name!r}{nearest(name, spec.settings)}")
        if name not in kind.live:
            live = ", ".join(sorted(kind.live))
            raise ConfigError(f"{name} cannot change while a run goes on; these can: {live}")
        values[name] = files.scalar(value, key) if isinstance(value, str) else value
    read(kind, {**spec.settings, **values}, spec.algorithm)
    return values


def with_stop(spec: Spec, stop: Mapping[str, Any]) -> Spec:
    """The spec of a resumed run: only its stop conditions (and what to do about a gap) may change."""
    overrides = {f"stop.{name}": value for name, value in stop.items()}
    return config.resolve(config.to_mapping(spec), overrides) if overrides else spec


# -- without a server ------------------------------------------------------------------------------


def train(
    home: Path, spec: Spec, stream: Stream, executor: Executor, watch: Watcher, name: str | None = None,
    labels: Labels | None = None,
) -> RunStatus:  # fmt: skip
    """Make a run and keep it until it ends. A run whose settings turn out wrong leaves nothing behind."""
    folder, record = make(home, spec, stream, name, labels)
    try:
        give(stream, command(folder.run, "start", {"spec": config.to_mapping(spec)}))
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


def make(
    home: Path, spec: Spec, stream: Stream, name: str | None = None, labels: Labels | None = None
) -> tuple[RunFolder, RunRecord]:
    """A folder and topics for a new run; nothing stays where either cannot be had."""
    taken = set(registered(stream)) if stream.shared else set()
    while True:
        folder = RunFolder.create(home, spec, name, labels=labels)
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
    check_state(run, status.state, "resume")
    if folder.kept():  # paused, its keeper waits
        return _give(folder, stream, "resume")
    spec = folder.spec()
    if overrides:
        spec = _with_overrides(spec, overrides)
        folder.save_spec(spec)
    if status.state is RunState.INTERRUPTED:  # write down what its keeper no longer could
        folder.save_status(status)
    record = told(stream, run, spec)
    give(stream, command(run, "resume"))
    return Keeper(folder, record, stream, executor, watch).run()


def stop(home: Path, run: str, stream: Stream, patience_seconds: float = 90.0) -> RunStatus:
    """Ask a live run to drain, save and end; return once it has."""
    folder = RunFolder.open(home, run)
    state = folder.status().state
    check_state(run, state, "stop")
    _give(folder, stream, "stop")
    if not folder.kept():
        status = folder.status()
        if status.state is not RunState.STOPPED:
            folder.conclude(status.to(RunState.STOPPED, "stopped while no process of it ran"))
    until = time.monotonic() + patience_seconds
    while folder.kept():
        if time.monotonic() > until:
            raise Unavailable(
                f"run {run} is still {folder.status().state} after {patience_seconds:g} s; see: penstock logs {run}"
            )
        time.sleep(0.05)
    return folder.status()


def ask(
    home: Path, run: str, stream: Stream, verb: Verb, arguments: Mapping[str, Any] | None = None
) -> RunStatus:
    """Give a command to a live run of this host, where its state allows it; return at once."""
    folder = RunFolder.open(home, run)
    check_state(run, folder.status().state, verb)
    return _give(folder, stream, verb, _planned(folder.spec(), verb, arguments or {}))


def delete(home: Path, run: str, stream: Stream) -> None:
    """Remove a run that has ended: its topics, its folder with all checkpoints, its name."""
    folder = RunFolder.open(home, run)
    check_state(run, folder.status().state, "delete")
    if folder.kept():
        raise Conflict(f"run {run} is paused and has a keeper; {_FIXES['delete'].format(run=run)}")
    give(stream, command(run, "delete"))
    remove(folder, stream)


def remove(folder: RunFolder, stream: Stream) -> None:
    """What `delete` does; may be repeated after a crash. The folder goes last: it is the truth."""
    unregister(stream, folder.run)
    doomed = folder.path.with_name(f".deleted-{folder.run}")
    shutil.rmtree(doomed, ignore_errors=True)
    if folder.path.exists():
        folder.path.rename(doomed)  # gone for everybody at once
        shutil.rmtree(doomed, ignore_errors=True)


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
    give(stream, command(run, verb, _planned(find(stream, run).spec, verb, arguments)))


def _planned(spec: Spec, verb: Verb, arguments: Mapping[str, Any]) -> dict[str, Any]:
    if verb == "set":
        return changed(spec, arguments)
    if verb == "scale":
        check_scale(spec.environment.id, arguments)
    return dict(arguments)


def told(stream: Stream, run: str, spec: Spec, commands: dict[int, int] | None = None) -> RunRecord:
    """The run as the stream knows it, told anew where its spec changed or its record was lost."""
    try:
        known = find(stream, run)
    except (NotFound, Damaged):
        return register(stream, run, spec, commands)
    return known if known.spec == spec else register(stream, run, spec, known.commands)


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


def _give(
    folder: RunFolder, stream: Stream, verb: Verb, arguments: dict[str, Any] | None = None
) -> RunStatus:
    given: Command = command(folder.run, verb, arguments)
    give(stream, given)
    return folder.status()


def _with_overrides(spec: Spec, overrides: Mapping[str, Any]) -> Spec:
    for key in overrides:
        if not key.startswith("stop.") and key != "stream.on_gap":
            raise ConfigError(
                f"a resumed run keeps its spec; only stop.* and stream.on_gap may change, not {key}"
            )
    return config.resolve(config.to_mapping(spec), overrides)
