"""Commands that begin runs or take part in them: train, start, resume, actor, learner."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from penstock.errors import ConfigError
from penstock.flags import Json, Quiet, Set, StreamUrl, assignments

Source = Annotated[str, Parameter(allow_leading_hyphen=True)]
"""A lone - is standard input."""
Flag = Annotated[bool, Parameter(negative="")]
Tags = Annotated[list[str] | None, Parameter("--tag", negative="", help="A label; may be repeated.")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Wish:
    """What `train` and `start` are told about a run."""

    algorithm: str | None = None
    """ppo, impala, dqn, reinforce, sac, or an installed plugin."""
    actors: int | None = None
    """How many actor processes."""
    steps: int | None = None
    """End after this many environment steps."""
    target: float | None = None
    """End once the mean return over the last 100 episodes reaches this."""
    seed: int | None = None
    """Everything random follows from it."""
    seeds: int = 1
    """This many runs that differ in their seed only; they make a group."""
    stream: StreamUrl = None
    name: str | None = None
    """The run's id; default: one such as cartpole-k3v9."""
    project: str = "default"
    """What it belongs to."""
    tags: Tags = None
    keep_going: Flag = False
    """No stop condition: go on until somebody stops it."""
    no_tensorboard: Flag = False
    """Write no TensorBoard events."""
    sets: Set = None

    def spec(self, source: str, **more: Any) -> Any:
        """The spec this makes of an environment or a file; raise ConfigError."""
        from penstock import config

        if self.seeds < 1:
            raise ConfigError(f"--seeds is at least 1, not {self.seeds}")
        flags = {
            "algorithm": self.algorithm, "actors.count": self.actors, "stop.steps": self.steps, "seed": self.seed,
            "stop.target": self.target, "stream.url": self.stream, **more,
        }  # fmt: skip
        overrides = assignments(self.sets) | {
            path: value for path, value in flags.items() if value is not None
        }
        if self.keep_going:
            overrides |= dict.fromkeys(("stop.steps", "stop.target", "stop.seconds", "stop.updates"))
        if self.no_tensorboard:
            overrides["tensorboard"] = False
        return config.resolve(_from_stdin() if source == "-" else source, overrides)


NOTHING_ELSE = Wish()


def train(
    source: Source, /, *, wish: Wish = NOTHING_ELSE, prometheus: int | None = None, json: Json = False,
    quiet: Quiet = False,
) -> int:  # fmt: skip
    """Train a policy here until a stop condition holds. Ctrl-C once saves and ends, twice ends now.

    Several seeds are trained one after the other.

    Examples: `penstock train CartPole-v1`, `penstock train ./my_env.py:MyEnv --algorithm dqn`,
    `penstock train LunarLander-v3 --actors 2 --set ppo.learning_rate=1e-3`, `penstock train spec.yaml`

    Parameters
    ----------
    source
        An environment id, a class as file.py:Class, a spec file, or - for a spec on standard input.
    prometheus
        Serve /metrics for Prometheus on this port of 127.0.0.1; 0 takes a free one.
    """
    import msgspec

    from penstock.control import verbs
    from penstock.model.run import Labels, RunState

    spec, name, several = wish.spec(source, prometheus=prometheus), wish.name, wish.seeds > 1
    group = _group(spec, name) if several else None
    labels = Labels(project=wish.project, tags=tuple(wish.tags or ()), group=group)
    code = 0
    for number in range(wish.seeds):
        one = msgspec.structs.replace(spec, seed=spec.seed + number)
        called = f"{name}-{one.seed}" if name and several else name
        with Face(one.stream, json, quiet) as face:
            status = verbs.train(face.home, one, face.stream, face.executor, face.watch, called, labels)
        code = max(code, face.conclude(status))
        if status.state is RunState.STOPPED:
            break
    return code


def start(source: Source, /, *, wish: Wish = NOTHING_ELSE, json: Json = False) -> None:
    """Start a run in the background and return: the server keeps it going; without one, a keeper of its own.

    Example: `penstock start CartPole-v1 --seeds 5 --project pendulums`

    Parameters
    ----------
    source
        An environment id, a class as file.py:Class, a spec file, or - for a spec on standard input.
    """
    from penstock import config, remote

    spec, tags = wish.spec(source), wish.tags or []
    server = remote.server(config.home())
    if server is None:
        flags = ["--project", wish.project, *(part for tag in tags for part in ("--tag", tag))]
        return print_started({"runs": _start_alone(spec, wish.name, wish.seeds, flags)}, json)
    mapping = config.to_mapping(spec)
    if wish.stream is None:
        mapping["stream"].pop("url")  # the server's own
    form = {"name": wish.name, "project": wish.project, "tags": tags, "seeds": wish.seeds}
    return print_started(server.ask("POST", "/runs", mapping | form), json)


def resume(run: str, /, *, steps: int | None = None, target: float | None = None, sets: Set = None,
           stream: StreamUrl = None, json: Json = False, quiet: Quiet = False) -> int:  # fmt: skip
    """Go on with a run exactly where it was paused or ended, also after a crash.

    With a server it goes on there; alone it goes on here, in the foreground. With `--stream` a run that began
    on another host goes on here, from checkpoints in its shared store.

    Example: `penstock resume cartpole-k3v9 --steps 200000`

    Parameters
    ----------
    steps
        A new limit of environment steps.
    target
        A new target of the mean return.
    """
    from penstock import config, remote
    from penstock.control import verbs
    from penstock.view import told

    flags = {"stop.steps": steps, "stop.target": target}
    overrides = assignments(sets) | {path: value for path, value in flags.items() if value is not None}
    server = remote.server(config.home()) if stream is None else None
    stop = {path.removeprefix("stop."): value for path, value in overrides.items()}
    if server is not None and all(path.startswith("stop.") for path in overrides):
        told(server.ask("POST", f"/runs/{run}/resume", {"stop": _numbers(stop)}), json, "resume")
        return 0
    with Face(stream_spec(run, stream), json, quiet) as face:
        status = verbs.resume(face.home, run, overrides, face.stream, face.executor, face.watch)
    return face.conclude(status)


def actor(run: str, /, *, slot: int | None = None, stream: StreamUrl = None) -> int:
    """Make experience for a run, here and now, until Ctrl-C or the run is done; any host that reaches its stream.

    Example: `penstock actor lunarlander-k3v9 --stream kafka://broker:9092`

    Parameters
    ----------
    slot
        Fill this slot, as a keeper's own actors do; default: join as a guest, in a slot of its own.
    """
    return _role("actor", run, stream, *([] if slot is None else [str(slot)]))


def learner(run: str, /, *, takeover: Flag = False, stream: StreamUrl = None) -> int:
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
        if status.state in (RunState.DONE, RunState.STOPPED, RunState.RUNNING, RunState.PAUSED):
            return 0
        if not self._json:
            print(f"error: {status.reason}", file=sys.stderr)
        return 1


def print_started(answer: Any, json: bool) -> None:
    """Tell which runs were begun in the background."""
    from penstock.view import print_json

    if json:
        return print_json(answer)
    for one in [answer] if "run" in answer else answer["runs"]:
        print(f"{one['run']} is started; watch it: penstock show {one['run']}")
    return None


def stream_spec(run: str, url: str | None) -> Any:
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


def _start_alone(spec: Any, name: str | None, seeds: int, flags: list[str]) -> list[Any]:
    import msgspec

    from penstock import config, launching

    if seeds > 1:
        raise ConfigError(
            "several runs in the background need a server (penstock up); or: penstock train --seeds"
        )
    folder, _ = launching.train(config.home(), spec, name, *flags)
    return [msgspec.to_builtins(folder.status())]


def _group(spec: Any, name: str | None) -> str:
    from random import SystemRandom

    from penstock.model.run import run_id

    return f"{name or run_id(spec.environment.id, SystemRandom())}-seeds"


def _numbers(words: dict[str, Any]) -> dict[str, Any]:
    """`--set stop.steps=1e6` as the number it is."""
    from penstock.config import files

    return {
        name: files.scalar(value, name) if isinstance(value, str) else value for name, value in words.items()
    }


def _from_stdin() -> Any:
    from penstock.config import files

    return files.parse(sys.stdin.read(), "standard input")


def _role(role: str, run: str, url: str | None, *arguments: str) -> int:
    import os

    from penstock import config, worker
    from penstock.executors.base import Exit

    os.environ["PENSTOCK_HOME"] = str(config.home())
    os.environ["PENSTOCK_STREAM"] = url or stream_spec(run, None).url
    os.environ.pop("PENSTOCK_PARENT", None)
    return 0 if worker.main([role, run, *arguments]) in (Exit.FINISHED, Exit.DRAINED) else 1
