"""What the command line prints about runs: tables and pages for people, objects for programs."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from penstock import config
from penstock.errors import Damaged
from penstock.loop.files import read_json
from penstock.loop.logfiles import last_lines, read_on
from penstock.loop.logfiles import log_files as log_files  # the command line looks for it here
from penstock.loop.runs import RunFolder
from penstock.model.run import RunStatus

FOLLOW_SECONDS = 0.25
COLUMNS = ("run", "state", "environment", "algorithm", "steps", "return", "steps/s", "created")


def runs_table(statuses: list[RunStatus], now: float) -> str:
    """All runs, aligned, one line each."""
    if not statuses:
        return "no runs yet; start one with: penstock train CartPole-v1"
    return table(COLUMNS, [_row(status, now) for status in statuses], right={4, 5, 6})


def table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]], right: set[int]) -> str:
    """Aligned columns, one line a row; those in `right` to the right."""
    lines = [heads, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _row(status: RunStatus, now: float) -> tuple[str, ...]:
    return (
        status.run,
        str(status.state),
        Path(status.environment).name,  # an environment of one's own is a long path
        status.algorithm,
        f"{status.steps:,}",
        _number(status.mean_return),
        f"{status.steps_per_second:,.0f}",
        f"{age(now - status.created_at)} ago",
    )


def facts(folder: RunFolder) -> dict[str, Any]:
    """Everything `show --json` prints: the status, and what lies in the folder."""
    best = folder.best()
    status: dict[str, Any] = msgspec.to_builtins(folder.status())
    return {
        **status,
        **msgspec.to_builtins(folder.labels()),
        "actors_now": _actors(folder),
        "path": str(folder.path),
        "spec": config.to_mapping(folder.spec()),
        "checkpoints": [str(version) for version in folder.checkpoints()],
        "best": None if best is None else str(best),
        "evaluations": folder.evaluations(),
        "events": folder.events()[-20:],
    }


def _actors(folder: RunFolder) -> list[dict[str, Any]]:
    """What the keeper wrote down last about each actor."""
    try:
        return read_json(folder.actors_file, list[dict[str, Any]])
    except Damaged:
        return []


def page(known: dict[str, Any], now: float) -> str:
    """The same for people."""
    evaluation = known["evaluations"][-1] if known["evaluations"] else None
    reason = f" ({known['reason']})" if known["reason"] else ""
    rows = {
        "run": known["run"],
        "state": f"{known['state']}{reason}",
        "project": ", ".join([known["project"], *known["tags"]])
        + (f": {known['note']}" if known["note"] else ""),
        "environment": known["environment"],
        "algorithm": f"{known['algorithm']}, seed {known['seed']}, {known['actors']} actors",
        **_origin(known["spec"]["origin"]),
        "created": f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(known['created_at']))}"
        f" ({age(now - known['created_at'])} ago)",
        "progress": f"{known['steps']:,} steps, {known['episodes']:,} episodes, {known['updates']:,} updates"
        f" in {age(known['seconds'])} ({known['steps_per_second']:,.0f} steps/s)",
        "return": _number(known["mean_return"]),
        "version": f"{known['version'] or '-'}  {(known['weights_sha256'] or '')[:16]}".rstrip(),
        "actors": ", ".join(_actor_words(actor) for actor in known["actors_now"]) or "none",
        "checkpoints": ", ".join(known["checkpoints"]) + (f" (best {known['best']})" if known["best"] else "")
        or "none",
        "evaluated": _evaluated(evaluation),
        "restarts": str(known["restarts"]),
        "folder": known["path"],
    }
    lines = [f"{name:<12} {value}" for name, value in rows.items()]
    lines += ["", *(event_line(event) for event in known["events"][-8:])] if known["events"] else []
    return "\n".join(lines)


def _actor_words(actor: dict[str, Any]) -> str:
    rate = actor.get("steps_per_second")
    return f"{actor['slot']} at {actor.get('version') or '-'}" + (f" ({rate:,.0f} steps/s)" if rate else "")


def _origin(origin: dict[str, Any] | None) -> dict[str, str]:
    if origin is None:
        return {}
    return {"origin": f"{origin['run']} {'up to' if origin['replay'] else 'at'} {origin['version']}"}


def _evaluated(evaluation: dict[str, Any] | None) -> str:
    if evaluation is None:
        return "not yet"
    mean, std = evaluation.get("mean"), evaluation.get("std")
    return f"{_number(mean)} ± {_number(std)} at {evaluation.get('checkpoint', '-')}"


def event_line(event: dict[str, Any]) -> str:
    """One event for people: when, what, and its fields."""
    at = time.strftime("%H:%M:%S", time.localtime(event.get("time", 0)))
    fields = {name: value for name, value in event.items() if name not in ("time", "event", "run")}
    words = " ".join(f"{name}={value}" for name, value in fields.items())
    return printable(f"{at} {event.get('event', '?')} {words}".rstrip())


def print_logs(
    files: Callable[[], list[Path]], lines: int, is_over: Callable[[], bool], out: IO[str]
) -> None:
    """Print the last `lines` of each file, then what is added, until `is_over`; new files are found."""
    positions: dict[Path, int] = {}
    while True:
        over = is_over()  # asked before reading: what was written before the end is still printed
        paths = files()
        for path in paths:
            name = f"{path.stem:<9} " if len(paths) > 1 else ""
            if path in positions:
                new, positions[path] = read_on(path, positions[path])
            else:
                new, positions[path] = last_lines(path, lines)
            for line in new:
                print(name + printable(line), file=out)
        out.flush()
        if over:
            return
        time.sleep(FOLLOW_SECONDS)


def printable(text: str) -> str:
    """Text from a log or an environment may hold anything, also what would move a terminal's cursor."""
    return "".join(letter if letter.isprintable() or letter == "\t" else "�" for letter in text)


def print_json(value: Any) -> None:
    """One JSON document on standard output; NaN and infinity are null."""
    content = msgspec.json.format(msgspec.json.encode(value), indent=2)
    sys.stdout.write(content.decode() + "\n")


def print_line(value: Any) -> None:
    """One line of JSON, for programs that read the last line."""
    print(msgspec.json.encode(value).decode(), flush=True)


def told(answer: Any, json: bool, asked: str = "") -> None:
    """Print what a run was asked, and how it is."""
    if json:
        print_json(answer)
        return
    known = answer.get("run") or {"run": answer["command"]["run"], "state": "gone", "reason": None}
    reason = f": {known['reason']}" if known["reason"] else ""
    if asked:
        print(f"{known['run']} was told to {asked}; a moment ago it was {known['state']}")
    else:
        print(f"{known['run']} is {known['state']}{reason}")


def age(seconds: float) -> str:
    """A length of time as people say it."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"
