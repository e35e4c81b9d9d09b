"""Commands that go back in what a run recorded: fork and replay."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from cyclopts import Parameter

from penstock.begin import Face, print_started
from penstock.flags import Json, Quiet, Set, assignments


def fork(
    run: str,
    /,
    *,
    at: str,
    algorithm: str | None = None,
    actors: int | None = None,
    steps: int | None = None,
    target: float | None = None,
    stream: str | None = None,
    name: str | None = None,
    no_train: Annotated[bool, Parameter(negative="")] = False,
    sets: Set = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Begin a new run where another one stood, with its weights, optimiser and counters, and train on from there.

    With a server it trains there; alone it trains here, in the foreground.

    The version is made again from the nearest checkpoint and the log, and its hash must be the recorded one.
    With another algorithm fresh weights learn all that was recorded up to it.

    Examples: `penstock fork cartpole-k3v9 --at 120`, `penstock fork cartpole-k3v9 --at best --set
    ppo.learning_rate=1e-4 --steps 500000`, `penstock fork cartpole-k3v9 --at newest --algorithm impala`

    Parameters
    ----------
    at
        A version of the run: EPOCH.STEP, just the step, best or newest.
    algorithm
        Another algorithm: it learns the recorded log up to the version, then goes on by itself.
    actors
        How many actor processes; default: as many as the run had then.
    steps
        End after this many environment steps, those before the fork included.
    target
        End once the mean return over the last 100 episodes reaches this.
    stream
        Where the fork's own experience is logged; default: where its origin's is.
    name
        The fork's id; default: one such as cartpole-k3v9.
    no_train
        Only make it; penstock resume trains it.
    """
    from penstock import config, remote
    from penstock.control import travel

    flags = {
        "algorithm": algorithm, "actors.count": actors, "stop.steps": steps, "stop.target": target,
        "stream.url": stream,
    }  # fmt: skip
    server = None if no_train else remote.server(config.home())
    if server is not None:
        wish = {"at": at, "changes": _changes(sets, flags), "name": name}
        print_started(server.ask("POST", f"/runs/{run}/forks", wish), json)
        return 0
    with _origin(run) as origin:
        spec = travel.plan_fork(origin, at, _changes(sets, flags))
    with Face(spec.stream, json, quiet) as face:
        status = travel.fork(face.home, spec, face.stream, face.executor, face.watch, name, not no_train)
    return face.conclude(status)


def replay(
    run: str,
    /,
    *,
    algorithm: str | None = None,
    until: str = "newest",
    name: str | None = None,
    sets: Set = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Train from the recorded log of a run alone, without environments.

    With the same algorithm and settings every update must give the recorded weights, and the end is equal
    to the bit. With others a new policy learns the same experience in the same order.

    Examples: `penstock replay cartpole-k3v9`, `penstock replay cartpole-k3v9 --algorithm dqn --set seed=7`

    Parameters
    ----------
    algorithm
        Learn with this one; default: the run's.
    until
        Learn up to this version: EPOCH.STEP, just the step, best or newest.
    name
        The new run's id; default: one such as cartpole-k3v9.
    """
    from penstock.control import travel
    from penstock.loop.view import summary
    from penstock.model.run import RunState
    from penstock.view import print_line

    with _origin(run) as origin:
        plan = travel.plan_replay(origin, until, _changes(sets, {"algorithm": algorithm}))
    with Face(plan.spec.stream, json, quiet) as face:
        ended = travel.replay(face.home, plan, face.stream, face.executor, face.watch, name)
    if not json:
        return face.conclude(ended.status)
    words = {"origin": ended.origin.run, "until": ended.origin.version}
    print_line(summary(ended.status) | words | {"equal": ended.equal, "missing": ended.missing})
    return 0 if ended.status.state in (RunState.DONE, RunState.STOPPED) else 1


def _changes(sets: Any, flags: dict[str, Any]) -> dict[str, Any]:
    return assignments(sets) | {path: value for path, value in flags.items() if value is not None}


@contextmanager
def _origin(run: str) -> Iterator[Any]:
    """A run of this machine and the stream that holds its log."""
    from penstock import config
    from penstock.loop.origin import Origin
    from penstock.loop.runs import RunFolder
    from penstock.wiring import open_stream

    home = config.home()
    folder = RunFolder.open(home, run)
    stream = open_stream(home, folder.spec().stream)
    try:
        yield Origin(folder, stream)
    finally:
        stream.close()
