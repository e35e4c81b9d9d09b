"""Commands that start and change runs; the other half of the command line."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from penstock.errors import ConfigError
from penstock.flags import Json, Quiet, Set, StreamUrl, assignments

if TYPE_CHECKING:
    from penstock.model.commands import Verb
    from penstock.model.run import RunStatus
    from penstock.stream.base import Stream

Here = Callable[[Path, "Stream"], "RunStatus"]
"""Does a verb on this host, given its home and the run's stream."""


def train(
    source: Annotated[str, Parameter(allow_leading_hyphen=True)],  # a lone - is standard input
    /,
    *,
    algorithm: str | None = None,
    actors: int | None = None,
    steps: int | None = None,
    seed: int | None = None,
    target: float | None = None,
    stream: StreamUrl = None,
    name: str | None = None,
    prometheus: int | None = None,
    keep_going: Annotated[bool, Parameter(negative="")] = False,
    no_tensorboard: Annotated[bool, Parameter(negative="")] = False,
    sets: Set = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Train a policy until a stop condition holds. Ctrl-C once saves and ends, twice ends now.

    Examples: `penstock train CartPole-v1`, `penstock train ./my_env.py:MyEnv --algorithm dqn`,
    `penstock train LunarLander-v3 --actors 2 --set ppo.learning_rate=1e-3`, `penstock train spec.yaml`

    Parameters
    ----------
    source
        An environment id, a class as file.py:Class, a spec file, or - for a spec on standard input.
    algorithm
        ppo, impala, dqn, reinforce, sac, or an installed plugin.
    actors
        How many actor processes.
    steps
        End after this many environment steps.
    seed
        Everything random follows from it.
    target
        End once the mean return over the last 100 episodes reaches this.
    name
        The run's id; default: one such as cartpole-k3v9.
    prometheus
        Serve /metrics for Prometheus on this port of 127.0.0.1; 0 takes a free one.
    keep_going
        Go on until Ctrl-C: no stop condition.
    no_tensorboard
        Write no TensorBoard events.
    """
    from penstock import config
    from penstock.control import verbs

    flags = {
        "algorithm": algorithm, "actors.count": actors, "stop.steps": steps, "seed": seed,
        "stop.target": target, "stream.url": stream, "prometheus": prometheus,
    }  # fmt: skip
    overrides = assignments(sets) | {path: value for path, value in flags.items() if value is not None}
    if keep_going:
        overrides |= dict.fromkeys(("stop.steps", "stop.target", "stop.seconds", "stop.updates"))
    if no_tensorboard:
        overrides["tensorboard"] = False
    spec = config.resolve(_from_stdin() if source == "-" else source, overrides)
    with Face(spec.stream, json, quiet) as face:
        status = verbs.train(face.home, spec, face.stream, face.executor, face.watch, name)
    return face.conclude(status)


def resume(run: str, /, *, steps: int | None = None, target: float | None = None, sets: Set = None,
           stream: StreamUrl = None, json: Json = False, quiet: Quiet = False) -> int:  # fmt: skip
    """Go on with a run exactly where it ended, after a stop or a crash.

    With `--stream` a run that began on another host goes on here, from checkpoints in its shared store.

    Example: `penstock resume cartpole-k3v9 --steps 200000`

    Parameters
    ----------
    steps
        A new limit of environment steps.
    target
        A new target of the mean return.
    """
    from penstock.control import verbs

    flags = {"stop.steps": steps, "stop.target": target}
    overrides = assignments(sets) | {path: value for path, value in flags.items() if value is not None}
    with Face(_stream_spec(run, stream), json, quiet) as face:
        status = verbs.resume(face.home, run, overrides, face.stream, face.executor, face.watch)
    return face.conclude(status)


def stop(run: str, /, *, stream: StreamUrl = None, json: Json = False) -> None:
    """Let a run save its work and end. It can be resumed.

    Example: `penstock stop cartpole-k3v9`
    """
    from penstock.control import verbs

    _answer(json, stream, run, "stop", lambda home, log: verbs.stop(home, run, log))


def scale(run: str, /, *, actors: int, stream: StreamUrl = None, json: Json = False) -> None:
    """Change the number of actors of a live run.

    Example: `penstock scale cartpole-k3v9 --actors 4`
    """
    from penstock.control import verbs

    _answer(
        json, stream, run, "scale", lambda home, log: verbs.scale(home, run, actors, log), {"actors": actors}
    )


def set_(run: str, /, *assignment: str, stream: StreamUrl = None, json: Json = False) -> None:
    """Change hyperparameters of a live run, from its next update on.

    Example: `penstock set cartpole-k3v9 learning_rate=1e-4 entropy=0.001`
    """
    if not assignment:
        raise ConfigError("say what to change, as in: penstock set RUN learning_rate=1e-4")
    from penstock.control import verbs

    changes = assignments(list(assignment))
    _answer(json, stream, run, "set", lambda home, log: verbs.tune(home, run, changes, log), changes)


def checkpoint(run: str, /, *, stream: StreamUrl = None, json: Json = False) -> None:
    """Ask a live run for a checkpoint now."""
    from penstock.control import verbs

    _answer(json, stream, run, "checkpoint", lambda home, log: verbs.checkpoint(home, run, log))


def actor(run: str, /, *, slot: int | None = None, stream: StreamUrl = None) -> int:
    """Make experience for a run, here and now, until Ctrl-C or the run is done; any host that reaches its stream.

    Example: `penstock actor lunarlander-k3v9 --stream kafka://broker:9092`

    Parameters
    ----------
    slot
        Fill this slot, as a keeper's own actors do; default: join as a guest, in a slot of its own.
    """
    return _role("actor", run, stream, *([] if slot is None else [str(slot)]))


def learner(
    run: str, /, *, takeover: Annotated[bool, Parameter(negative="")] = False, stream: StreamUrl = None
) -> int:
    """Learn a run, here and now.

    On another host than the one that began it this needs `--takeover` and a run with `checkpoint.store`.

    Example: `penstock learner lunarlander-k3v9 --takeover --stream kafka://broker:9092`

    Parameters
    ----------
    takeover
        Replace a learner that still holds the run: it stops publishing at once.
    """
    return _role("learner", run, stream, *(["--takeover"] if takeover else []))


class Face:
    """What a person sees of a keeper in the foreground: a display, and a summary at the end."""

    def __init__(self, stream: Any, json: bool, quiet: bool) -> None:
        from penstock import config
        from penstock.executors.local import LocalExecutor
        from penstock.loop.display import choose
        from penstock.wiring import open_stream

        self.home: Path = config.home()
        self.stream = open_stream(self.home, stream)
        self.executor = LocalExecutor()
        self._json, self._quiet = json, quiet
        self._display = choose(json or quiet)

    def __enter__(self) -> "Face":
        self._display.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._display.__exit__(*error)
        self.stream.close()

    def watch(self, keeper: Any) -> None:
        from penstock.loop.view import snapshot

        self._display.update(snapshot(keeper))

    def conclude(self, status: Any) -> int:
        """Print how it ended; the exit code says whether it ended well."""
        from penstock.loop.view import summary
        from penstock.model.run import RunState
        from penstock.view import print_line

        if self._json:
            print_line(summary(status))
        elif not self._quiet:
            print(f"{status.run} is {status.state}: {status.reason}")
            print(f"  penstock evaluate {status.run}   penstock play {status.run} --gif {status.run}.gif")
        if status.state in (RunState.DONE, RunState.STOPPED):
            return 0
        if not self._json:
            print(f"error: {status.reason}", file=sys.stderr)
        return 1


def _answer(
    json: bool,
    url: str | None,
    run: str,
    verb: "Verb",
    here: "Here",
    arguments: Mapping[str, Any] | None = None,
) -> None:
    """Do a verb on a live run of this host, or tell it to a keeper on another; print what came of it."""
    from penstock import config
    from penstock.control import verbs
    from penstock.errors import NotFound
    from penstock.view import print_json
    from penstock.wiring import open_stream

    home = config.home()
    stream = open_stream(home, _stream_spec(run, url))
    try:
        status = here(home, stream)
    except NotFound:
        if not stream.shared:
            raise
        verbs.tell(stream, run, verb, arguments or {})
        answer: Any = {"run": run, "told": verb}
        words = f"{run} was told to {verb}; its keeper is on another host"
    else:
        answer, words = status, f"{run} is {status.state}" + (f": {status.reason}" if status.reason else "")
    finally:
        stream.close()
    print_json(answer) if json else print(words)


def _stream_spec(run: str, url: str | None) -> Any:
    """The stream of a run: what its folder says, under another address where one is given."""
    import msgspec

    from penstock import config
    from penstock.errors import NotFound
    from penstock.loop.runs import RunFolder
    from penstock.model.spec import StreamSpec

    try:
        known = RunFolder.open(config.home(), run).spec().stream
    except NotFound:
        if url is None:
            raise
        return StreamSpec(url=url)
    same_kind = url is not None and known.url != "embedded" and url != "embedded"
    return msgspec.structs.replace(known, url=url) if same_kind else known


def _from_stdin() -> Any:
    from penstock.config import files

    return files.parse(sys.stdin.read(), "standard input")


def _role(role: str, run: str, url: str | None, *arguments: str) -> int:
    import os

    from penstock import config, worker
    from penstock.executors.base import Exit

    os.environ["PENSTOCK_HOME"] = str(config.home())
    os.environ["PENSTOCK_STREAM"] = url or _stream_spec(run, None).url
    os.environ.pop("PENSTOCK_PARENT", None)
    return 0 if worker.main([role, run, *arguments]) in (Exit.FINISHED, Exit.DRAINED) else 1
