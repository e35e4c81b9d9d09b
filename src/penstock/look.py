"""Commands that look at many runs and at what was done: compare, metrics, commands, tokens and more.

They ask the server where one runs; without one they read the same index from the runs' folders.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from penstock.errors import ConfigError, PenstockError
from penstock.flags import Json
from penstock.steer import need_server

if TYPE_CHECKING:
    from penstock.control.reads import Reads
    from penstock.lineage.rows import RunQuery

token = App(
    name="token", help="Tokens for people and programs: list, create, revoke. They need a running server."
)
Points = Annotated[int, Parameter(help="At most so many rows.")]


def runs(
    *, search: str | None = None, project: str | None = None, tag: str | None = None, group: str | None = None,
    state: Annotated[list[str] | None, Parameter(negative="")] = None, sort: str = "-created_at",
    limit: int | None = None, json: Json = False,
) -> None:  # fmt: skip
    """List all runs, newest first; or those that are searched for.

    Examples: `penstock runs`, `penstock runs --search lunar --state running --sort -mean_return`

    Parameters
    ----------
    search
        Part of an id, environment, algorithm, tag or note.
    state
        pending, running, paused, stopping, stopped, done, failed or interrupted; may be repeated.
    sort
        created_at, run, steps, mean_return, steps_per_second, environment or state; with - for descending.
    """
    import msgspec

    from penstock import config
    from penstock.loop.runs import statuses
    from penstock.model.run import RunStatus
    from penstock.view import print_json, runs_table

    damaged: list[Any] = []
    asked = (search, project, tag, group, state, limit)
    if all(word is None for word in asked) and sort == "-created_at" and "PENSTOCK_SERVER" not in os.environ:
        found, damaged = statuses(config.home())
        known: list[Any] = msgspec.to_builtins(found)
    else:
        words = {"search": search, "project": project, "tag": tag, "group": group, "sort": sort}
        known = _listed(words, tuple(state or ()), limit)
    print_json(known) if json else print(runs_table(msgspec.convert(known, list[RunStatus]), time.time()))
    for error in damaged:
        print(f"warning: {error}", file=sys.stderr)


def _runs_of(query: "RunQuery") -> "Callable[[Reads], Any]":
    return lambda reads: reads.runs(query)


def _listed(words: dict[str, Any], states: tuple[str, ...], limit: int | None) -> list[Any]:
    """Page by page, up to the limit."""
    from penstock.lineage.rows import RunQuery

    found: list[Any] = []
    cursor: str | None = None
    while limit is None or len(found) < limit:
        query = RunQuery(**words, states=states, limit=200, cursor=cursor)
        asked = {**words, "state": list(states) or None, "limit": 200, "cursor": cursor}
        page = read_from("/runs", asked, _runs_of(query))
        found += page["items"]
        if (cursor := page["next"]) is None:
            break
    return found[:limit]


def facts_elsewhere(run: str) -> dict[str, Any]:
    """What `show` tells of a run whose folder is on another machine."""
    server = need_server("PENSTOCK_SERVER names none")
    known: dict[str, Any] = server.get(f"/runs/{run}")
    events = server.get(f"/runs/{run}/events", limit=20)
    return known | {
        "path": f"{server.address}/api/v1/runs/{run}",
        "actors_now": server.get(f"/runs/{run}/actors"),
        "checkpoints": [one["version"] for one in server.get(f"/runs/{run}/checkpoints")],
        "evaluations": server.get(f"/runs/{run}/evaluations"),
        "events": [{**event, **event.pop("fields", {})} for event in events],
    }


def evaluated(server: Any, run: str, wish: dict[str, Any]) -> dict[str, Any]:
    """Have the server play, and wait for the result."""
    asked = server.ask("POST", f"/runs/{run}/evaluations", wish)
    while True:
        known: dict[str, Any] = server.get(f"/runs/{run}/evaluations/{asked['command']['id']}")
        if known["state"] == "done":
            return known
        if known["state"] == "failed":
            raise PenstockError(f"the evaluation of {run} failed: {known['reason']}")
        time.sleep(0.2)


def print_evaluation(known: dict[str, Any], json: bool) -> None:
    from penstock.view import print_json

    if json:
        return print_json(known)
    low, high = min(known["returns"]), max(known["returns"])
    return print(
        f"{known['run']} {known['checkpoint']}: return {known['mean']:,.2f} ± {known['std']:,.2f} "
        f"({low:,.1f} to {high:,.1f}) over {len(known['returns'])} episodes"
    )


def compare(
    *run: str, metric: str = "charts/episodic_return", points: Points = 20, json: Json = False
) -> None:
    """Set runs side by side: how far they came, and where their specs differ. Seeds of a group are averaged.

    Example: `penstock compare cartpole-k3v9 cartpole-m2x7`
    """
    from penstock.view import print_json, table

    if len(run) < 2:
        raise ConfigError("name at least two runs, as in: penstock compare cartpole-k3v9 cartpole-m2x7")
    found = read_from(
        "/compare", {"run": list(run), "metric": metric, "points": points},
        lambda reads: reads.compare(list(run), metric, points),
    )  # fmt: skip
    if json:
        return print_json(found)
    heads = ("run", "state", "algorithm", "seed", "steps", "return", "steps/s")
    rows = [
        (one["run"], one["state"], one["algorithm"], str(one["seed"]), f"{one['steps']:,}", _number(one["mean_return"]),
         f"{one['steps_per_second']:,.0f}")
        for one in found["runs"]
    ]  # fmt: skip
    print(table(heads, rows, right={3, 4, 5, 6}))
    if found["differences"]:
        names = tuple(one["run"] for one in found["runs"])
        lines = [
            (item["path"], *(str(item["values"].get(name)) for name in names))
            for item in found["differences"]
        ]
        print("\n" + table(("setting", *names), lines, right=set()))
    return None


def metrics(
    run: str, /, *name: str, since: float | None = None, points: Points = 20, json: Json = False
) -> None:
    """Print a run's metrics against environment steps; without names, which there are.

    Example: `penstock metrics cartpole-k3v9 charts/episodic_return losses/entropy --points 50`
    """
    from penstock.view import print_json, table

    names = list(name)
    found = read_from(
        f"/runs/{run}/metrics", {"names": names or None, "since": since, "points": points},
        lambda reads: reads.metrics(run, names or None, since, points),
    )  # fmt: skip
    if json:
        return print_json(found)
    if not names:
        return print("\n".join(found["names"]) or f"run {run} has no metrics yet")
    heads = ("steps", "seconds", *names)
    columns = [found["columns"].get(head, []) for head in heads]
    rows = [tuple(_short(value) for value in line) for line in zip(*columns, strict=True)]
    return print(table(heads, rows, right=set(range(len(heads)))))


def commands(
    run: str | None = None, /, *, who: str | None = None, verb: str | None = None, limit: int = 20,
    json: Json = False,
) -> None:  # fmt: skip
    """The audit trail: who asked what of which run, when, and what came of it; newest first.

    Example: `penstock commands cartpole-k3v9 --verb set`
    """
    from penstock.view import print_json, table

    words = {"run": run, "who": who, "verb": verb}
    known = _recorded(words, limit) if _has_server() else _given(words, limit)
    if json:
        return print_json(known)
    rows = [
        (time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one["at"])), one["who"], one["run"], one["verb"],
         one["outcome"], _change(one), one["id"])
        for one in known
    ]  # fmt: skip
    return print(table(("when", "who", "run", "verb", "outcome", "change", "id"), rows, right=set()))


def _has_server() -> bool:
    from penstock import config, remote

    return remote.server(config.home()) is not None


def _recorded(words: dict[str, Any], limit: int) -> list[Any]:
    """What the server has applied, with what it changed."""
    found: list[Any] = need_server("").get("/commands", **words, limit=limit)["items"]
    return found


def _given(words: dict[str, Any], limit: int) -> list[Any]:
    """What this machine's log holds; without a server nobody records what came of it."""
    import msgspec

    from penstock import config
    from penstock.model import topics
    from penstock.model.commands import NO_RUN, decode_command
    from penstock.stream.records import RecordReader
    from penstock.stream.shared import SHARED
    from penstock.wiring import open_stream

    stream = open_stream(config.home())
    try:
        stream.ensure(topics.COMMANDS, SHARED[topics.COMMANDS])
        reader = RecordReader(stream, topics.COMMANDS, decode_command)
        given = [command for batch in reader.drain() for _, command in batch if command.run != NO_RUN]
    finally:
        stream.close()
    wanted = {name: word for name, word in words.items() if word is not None}
    chosen = [one for one in given if all(getattr(one, name) == word for name, word in wanted.items())]
    more = {"outcome": "given", "reason": None, "old": None, "new": None}
    return [msgspec.to_builtins(one) | more for one in reversed(chosen[-limit:])]


def environments(*, search: str | None = None, json: Json = False) -> None:
    """List environments that can be trained here.

    Example: `penstock environments --search lunar`
    """
    from penstock.view import print_json

    found = read_from("/environments", {"search": search}, lambda reads: reads.environments(search))
    if json:
        return print_json(found)
    return print(
        "\n".join(one["id"] + ("" if one["installed"] else f"  ({one['missing']})") for one in found)
    )


def algorithms(*, json: Json = False) -> None:
    """List algorithms, and which of their settings may change while a run goes on."""
    from penstock.view import print_json

    found = read_from("/algorithms", {}, lambda reads: reads.algorithms())
    if json:
        return print_json(found)
    return print(
        "\n".join(f"{one['name']:<10} {one['summary']}  live: {', '.join(one['live'])}" for one in found)
    )


def download(run: str, /, *, to: Path, checkpoint: str = "best", json: Json = False) -> None:
    """Copy one checkpoint of a run, as it lies in its folder.

    Example: `penstock download cartpole-k3v9 --to ./checkpoint`
    """
    import shutil

    from penstock import config
    from penstock.loop.runs import RunFolder
    from penstock.view import print_json

    folder = RunFolder.open(config.home(), run)
    version = folder.choose(checkpoint)
    if to.exists():
        raise ConfigError(f"{to} is there already; name a folder that is not")
    shutil.copytree(folder.checkpoint_path(version), to)
    print_json({"run": run, "checkpoint": str(version), "to": str(to)}) if json else print(to)


def server(*, json: Json = False) -> None:
    """What the running server is and how it does."""
    from penstock.view import print_json

    found = need_server("there is none to ask").get("/server")
    if json:
        return print_json(found)
    return print("\n".join(f"{name:<16} {value}" for name, value in found.items()))


@token.command(name="list")
def list_tokens(*, json: Json = False) -> None:
    """All tokens: whose, with which role, until when; never the secrets."""
    from penstock.view import print_json, table

    found = need_server("tokens belong to a server").get("/tokens")
    if json:
        return print_json(found)
    rows = [(one["id"], one["name"], one["role"], _until(one)) for one in found]
    return print(table(("id", "name", "role", "valid"), rows, right=set()))


@token.command(name="create")
def create_token(
    name: str, /, *, role: str = "viewer", days: float | None = None, json: Json = False
) -> None:
    """Give somebody a token; its secret is shown this once.

    Example: `penstock token create grafana --role viewer --days 90`

    Parameters
    ----------
    role
        viewer (sees), operator (starts, steers and stops runs) or admin (deletes runs, gives tokens).
    days
        Until it expires; default: never.
    """
    from penstock.view import print_json

    wish = {"name": name, "role": role, "days": days}
    made = need_server("tokens belong to a server").ask("POST", "/tokens", wish)
    print_json(made) if json else print(f"{made['token']}\n(id {made['id']}; it is not shown again)")


@token.command(name="revoke")
def revoke_token(id: str, /, *, json: Json = False) -> None:
    """End a token at once.

    Example: `penstock token revoke 1f0c5a9b22e7`
    """
    from penstock.view import print_json

    gone = need_server("tokens belong to a server").ask("DELETE", f"/tokens/{id}")
    print_json(gone) if json else print(f"the token {id} of {gone['name']} is revoked")


def read_from(path: str, params: dict[str, Any], alone: "Callable[[Reads], Any]") -> Any:
    """From the server, or from the folders by the same code."""
    from penstock import config, remote

    home = config.home()
    asked = remote.server(home)
    if asked is not None:
        return asked.get(path, **params)
    from pydantic import BaseModel

    from penstock.control.index import Indexer
    from penstock.control.reads import Reads
    from penstock.lineage.database import Lineage

    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    lineage = Lineage(f"sqlite:///{home / 'penstock.db'}")
    try:
        Indexer(home, lineage).scan(full=True)
        found = alone(Reads(home, lineage))
    finally:
        lineage.close()
    if isinstance(found, BaseModel):
        return found.model_dump(mode="json", by_alias=True)
    return [one.model_dump(mode="json", by_alias=True) for one in found]


def _change(command: dict[str, Any]) -> str:
    if command["outcome"] == "refused":
        return str(command["reason"])
    old, new = command["old"] or {}, command["new"] or {}
    return ", ".join(f"{name} {old.get(name, '-')} → {value}" for name, value in new.items())


def _until(one: dict[str, Any]) -> str:
    if one["revoked_at"] is not None:
        return "revoked"
    if one["expires_at"] is None:
        return "for ever"
    return time.strftime("until %Y-%m-%d %H:%M", time.localtime(one["expires_at"]))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:,.6g}"
