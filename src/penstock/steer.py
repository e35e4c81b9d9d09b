"""Commands that change runs: through the server where one runs, else straight to the run's log."""

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from penstock.begin import Tags, stream_spec
from penstock.errors import ConfigError, Unavailable
from penstock.flags import Json, StreamUrl, assignments

if TYPE_CHECKING:
    from penstock.model.commands import Verb
    from penstock.model.run import RunStatus
    from penstock.stream.base import Stream

STOP_SECONDS = 90.0
Yes = Annotated[bool, Parameter(["--yes", "-y"], negative="", help="Do not ask.")]


def stop(run: str, /, *, stream: StreamUrl = None, json: Json = False) -> None:
    """Let a run save its work and end; return once it has. It can be resumed.

    Example: `penstock stop cartpole-k3v9`
    """
    from penstock.control import verbs

    def wait(server: Any) -> Any:
        server.ask("POST", f"/runs/{run}/stop")
        until = time.monotonic() + STOP_SECONDS
        while (known := server.get(f"/runs/{run}"))["state"] not in (
            "stopped",
            "done",
            "failed",
            "interrupted",
        ):
            if time.monotonic() > until:
                raise Unavailable(f"run {run} is still {known['state']}; see: penstock logs {run}")
            time.sleep(0.1)
        return {"run": known}

    _do(run, json, stream, wait, "stop", {}, alone=lambda home, log: verbs.stop(home, run, log))


def pause(run: str, /, *, stream: StreamUrl = None, json: Json = False) -> None:
    """Let a run rest: its work is saved, its processes wait and use no processor. Resume goes on at once.

    Example: `penstock pause cartpole-k3v9`
    """
    _do(run, json, stream, ("POST", "pause", None), "pause", {})


def scale(
    run: str, /, *, actors: int | None = None, learner: int | None = None, stream: StreamUrl = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Change the number of actors (0 to 16) of a live run, or park its learner (0) and bring it back (1).

    Example: `penstock scale cartpole-k3v9 --actors 4`
    """
    from penstock.control import verbs

    counts = verbs.scaled(actors=actors, learner=learner)

    def both(server: Any) -> Any:
        for part, count in counts.items():
            answer = server.ask("POST", f"/runs/{run}/{part}", {part: count})
        return answer

    _do(run, json, stream, both, "scale", counts)


def set_(run: str, /, *assignment: str, stream: StreamUrl = None, json: Json = False) -> None:
    """Change hyperparameters of a live run, from its next update on.

    Example: `penstock set cartpole-k3v9 learning_rate=1e-4 entropy=0.001`
    """
    if not assignment:
        raise ConfigError("say what to change, as in: penstock set RUN learning_rate=1e-4")
    changes = assignments(list(assignment))
    _do(run, json, stream, ("POST", "settings", {"settings": changes}), "set", changes)


def undo(run: str, /, *, command: str | None = None, json: Json = False) -> None:
    """Take back a change of hyperparameters: the last one, or the one that `penstock commands` shows.

    Example: `penstock undo cartpole-k3v9`

    Parameters
    ----------
    command
        The id of the change; default: the last.
    """
    server = need_server("taking back a change needs the record that a server keeps")
    _tell(
        server.ask("POST", f"/runs/{run}/settings/rollback", {"command": command}), json, "take a change back"
    )


def checkpoint(run: str, /, *, stream: StreamUrl = None, json: Json = False) -> None:
    """Ask a live run for a checkpoint now."""
    _do(run, json, stream, ("POST", "checkpoints", None), "checkpoint", {})


def label(
    run: str, /, *, project: str | None = None, tags: Tags = None, note: str | None = None, json: Json = False
) -> None:
    """Change a run's project, tags or note.

    Example: `penstock label cartpole-k3v9 --project pendulums --tag baseline`
    """
    import msgspec

    from penstock import config, remote
    from penstock.loop.runs import RunFolder

    words = {
        name: value
        for name, value in (("project", project), ("tags", tags), ("note", note))
        if value is not None
    }
    if not words:
        raise ConfigError("say what to change: --project, --tag or --note")
    if (server := remote.server(config.home())) is not None:
        return _tell(server.ask("PATCH", f"/runs/{run}", words), json, "change its labels")
    folder = RunFolder.open(config.home(), run)
    labels = msgspec.to_builtins(folder.labels()) | words
    folder.save_labels(msgspec.convert(labels, type(folder.labels())))
    return _tell({"run": msgspec.to_builtins(folder.status())}, json)


def delete(run: str, /, *, stream: StreamUrl = None, yes: Yes = False, json: Json = False) -> None:
    """Remove a run that has ended, with its checkpoints, logs and experience. This cannot be undone.

    Example: `penstock delete cartpole-k3v9`
    """
    from penstock.control import verbs

    if not yes:
        if not sys.stdin.isatty():
            raise ConfigError(f"deleting {run} removes all its data for good; say --yes")
        if input(f"delete {run} with all its data? [y/N] ").strip().lower() not in ("y", "yes"):
            raise ConfigError("nothing was deleted")

    def here(home: Path, log: "Stream") -> Any:
        verbs.delete(home, run, log)
        return {"run": run, "state": "deleted", "reason": None}

    _do(run, json, stream, ("DELETE", "", None), "delete", {}, alone=here)


def _do(
    run: str, json: bool, url: str | None, ask: tuple[str, str, Any] | Callable[[Any], Any], verb: "Verb",
    arguments: Mapping[str, Any], alone: "Callable[[Path, Stream], RunStatus | Any] | None" = None,
) -> None:  # fmt: skip
    """Have a verb done by the server; without one by the run's own log, here or on another host."""
    import msgspec

    from penstock import config, remote
    from penstock.control import verbs
    from penstock.errors import NotFound
    from penstock.view import print_json
    from penstock.wiring import open_stream

    home = config.home()
    server = remote.server(home) if url is None else None
    if server is not None:
        if callable(ask):
            return _tell(ask(server), json, "" if verb == "stop" else verb)
        method, part, body = ask
        return _tell(server.ask(method, f"/runs/{run}/{part}".rstrip("/"), body), json, verb)
    stream = open_stream(home, stream_spec(run, url))
    try:
        status = alone(home, stream) if alone else verbs.ask(home, run, stream, verb, arguments)
    except NotFound:
        if not stream.shared:
            raise
        verbs.tell(stream, run, verb, arguments)
        words = f"{run} was told to {verb}; its keeper is on another host"
        return print_json({"run": run, "told": verb}) if json else print(words)
    finally:
        stream.close()
    known = msgspec.to_builtins(status)
    return print_json(known) if json else _tell({"run": known}, json, "" if alone else verb)


def _tell(answer: Any, json: bool, asked: str = "") -> None:
    from penstock.view import told

    told(answer, json, asked)


def need_server(why: str) -> Any:
    from penstock import config, remote

    server = remote.server(config.home())
    if server is None:
        raise Unavailable(f"{why}; start one: penstock up")
    return server
