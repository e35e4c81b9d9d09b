"""The command line: thin functions over the rooms below. Heavy imports wait until they are needed."""

import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter

from penstock import __version__, assist, begin, look, recording, steer, travel, up
from penstock.broker.cli import broker
from penstock.errors import ConfigError, PenstockError
from penstock.flags import Checkpoint, Json, Set, assignments
from penstock.gateway import gateway
from penstock.topics import topics

HELP = """Distributed reinforcement learning: train a policy here, watch it, and take it with you.

`penstock train CartPole-v1`, then `penstock runs`, `penstock play RUN --gif out.gif`."""

app = App(
    name="penstock",
    help=HELP,
    help_format="markdown",
    version=__version__,
    suppress_keyboard_interrupt=False,
)

app.command(up.up, sort_key=0)
app.command(up.down, sort_key=0)
app.command(begin.train, sort_key=1)
app.command(begin.start, sort_key=1)
app.command(begin.resume, sort_key=2)
app.command(steer.stop, sort_key=3)
app.command(steer.pause, sort_key=3)
app.command(steer.scale, sort_key=4)
app.command(steer.set_, name="set", sort_key=5)
app.command(steer.undo, sort_key=5)
app.command(steer.checkpoint, sort_key=6)
app.command(travel.fork, sort_key=7)
app.command(travel.replay, sort_key=8)
app.command(steer.label, sort_key=9)
app.command(steer.delete, sort_key=9)
app.command(look.runs, sort_key=10)
app.command(recording.play, sort_key=31)
app.command(recording.recordings, sort_key=31)
app.command(look.compare, sort_key=13)
app.command(look.metrics, sort_key=13)
app.command(look.commands, sort_key=14)
app.command(look.download, sort_key=34)
app.command(look.environments, sort_key=21)
app.command(look.algorithms, sort_key=21)
app.command(look.server, sort_key=41)
app.command(look.token)
app.command(assist.mcp, sort_key=43)
app.command(begin.actor, sort_key=50)
app.command(begin.learner, sort_key=51)
app.command(gateway, sort_key=52)
app.command(broker)
app.command(topics)


def main() -> None:
    """The `penstock` command."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code: 0 success, 1 failure, 2 wrong usage, 130 interrupted."""
    try:
        code = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except CycloptsError as error:
        return _fail(" ".join(str(error).split()) + " (see penstock --help)", 2)
    except PenstockError as error:
        return _fail(str(error), 1)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # whoever read our output has gone: no more writing, not even at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        return _fail(f"{type(error).__name__}: {error}; this is a bug, PENSTOCK_DEBUG=1 shows where", 1)


def _fail(message: str, code: int) -> int:
    if os.environ.get("PENSTOCK_DEBUG") == "1":
        import traceback

        traceback.print_exc()
    print(f"error: {message}", file=sys.stderr)
    return code


def _folder(run: str) -> Any:
    from penstock import config
    from penstock.loop.runs import RunFolder

    return RunFolder.open(config.home(), run)


@app.command(sort_key=20)
def spec(
    environment: str | None = None,
    /,
    *,
    algorithm: str | None = None,
    sets: Set = None,
    schema: Annotated[bool, Parameter(negative="")] = False,
    json: Json = False,
) -> None:
    """Print the complete spec a run would have, with every default and preset filled in.

    Example: `penstock spec CartPole-v1 --set pace.lead=0 > my.yaml`

    Parameters
    ----------
    environment
        An environment id, a class as file.py:Class, or a spec file.
    algorithm
        ppo, impala, dqn, reinforce, sac, or an installed plugin.
    schema
        Print the JSON Schema of spec files instead.
    """
    from penstock import config
    from penstock.view import print_json

    if schema:
        return print_json(config.schema())
    if environment is None:
        raise ConfigError("name an environment or a spec file, as in: penstock spec CartPole-v1")
    overrides = assignments(sets) | ({} if algorithm is None else {"algorithm": algorithm})
    resolved = config.resolve(environment, overrides)
    return print_json(config.to_mapping(resolved)) if json else print(config.to_yaml(resolved), end="")


@app.command(sort_key=11)
def show(run: str, /, *, json: Json = False) -> None:
    """Show one run: its state, progress, checkpoints, evaluations and last events."""
    from penstock.view import facts, page, print_json

    known = look.facts_elsewhere(run) if "PENSTOCK_SERVER" in os.environ else facts(_folder(run))
    print_json(known) if json else print(page(known, time.time()))


@app.command(sort_key=12)
def logs(
    run: str,
    /,
    *,
    process: str | None = None,
    follow: Annotated[bool, Parameter(["--follow", "-f"], negative="")] = False,
    lines: int = 50,
) -> None:
    """Print the logs of a run's processes.

    Example: `penstock logs cartpole-k3v9 --process learner --follow`

    Parameters
    ----------
    process
        learner, actor-0, actor-1 … or evaluator; default: all.
    follow
        Go on until the run ends.
    lines
        How many of the last lines of each process.
    """
    from penstock.view import log_files, print_logs

    folder = _folder(run)
    log_files(folder, process)
    print_logs(
        lambda: log_files(folder, process),
        lines,
        lambda: not follow or not folder.status().state.live,
        sys.stdout,
    )


@app.command(sort_key=30)
def evaluate(
    run: str, /, *, episodes: int = 10, checkpoint: Checkpoint = "best", seed: int = 0, json: Json = False
) -> None:
    """Play episodes with a checkpoint, without exploration, and tell the returns; a server plays and records them.

    Example: `penstock evaluate cartpole-k3v9 --episodes 20 --checkpoint newest`
    """
    from penstock import config, remote
    from penstock.envs.make import refuse_client
    from penstock.loop.evaluate import evaluate as play_episodes
    from penstock.view import print_json

    server = remote.server(config.home())
    if server is not None:
        wish = {"episodes": episodes, "checkpoint": checkpoint, "seed": seed}
        return look.print_evaluation(look.evaluated(server, run, wish), json)
    folder = _folder(run)
    refuse_client(folder.spec().environment)
    result = play_episodes(folder, folder.choose(checkpoint), episodes, seed)
    return print_json(result) if json else print(result.text())


@app.command(sort_key=32)
def plot(*run: str, png: Path, metric: str = "charts/episodic_return") -> None:
    """Draw the return curves of runs against environment steps.

    Example: `penstock plot cartpole-k3v9 cartpole-m2x7 --png curves.png`
    """
    from penstock.loop.plot import plot as draw

    if not run:
        raise ConfigError("name the runs to draw, as in: penstock plot cartpole-k3v9 --png curves.png")
    draw([_folder(name) for name in run], png, metric)
    print(png)


@app.command(sort_key=33)
def export(
    run: str, /, *, to: Path, checkpoint: Checkpoint = "best", episodes: int = 10, json: Json = False
) -> None:
    """Write a folder to share: weights as safetensors, config.json, a model card, a replay.

    Example: `penstock export cartpole-k3v9 --to ./cartpole`
    """
    from penstock.loop.export import export as write
    from penstock.view import print_json

    folder = _folder(run)
    exported = write(folder, folder.choose(checkpoint), to, episodes)
    print_json(exported) if json else print(exported.text())


@app.command(sort_key=40)
def doctor(*, json: Json = False) -> int:
    """Say what this machine can do, and what is missing for each optional part."""
    from penstock.doctor import as_json, diagnose, text
    from penstock.view import print_json

    diagnosis = diagnose()
    print_json(as_json(diagnosis)) if json else print(text(diagnosis))
    return 0 if diagnosis.ready else 1


if __name__ == "__main__":
    main()
