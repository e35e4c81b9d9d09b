"""A run's folder as rows of the database: what it says of itself, its checkpoints, evaluations and states."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from penstock import config
from penstock.lineage.rows import CheckpointRow, EvaluationRow, RunRow, StateRow
from penstock.loop.runs import RunFolder
from penstock.model.run import Labels, RunState, RunStatus

MOST_EVALUATIONS = 1000
"""Of one run in the index; its file holds them all."""

STATES = frozenset(map(str, RunState))
_NO_COLUMNS = {"keeper", "command", "format"}
_STATUS = [name for name in RunStatus.__struct_fields__ if name not in _NO_COLUMNS]


class _Progress(msgspec.Struct):
    environment_steps: int | None = None


class _Head(msgspec.Struct):
    """What is wanted of checkpoint.json."""

    progress: _Progress = msgspec.field(default_factory=_Progress)
    at: float = 0.0


def run_row(stored: RunRow | None, status: RunStatus, labels: Labels, spec: dict[str, Any]) -> RunRow:
    """The row of a folder; what commands have made of a row that exists (desired, position) stays."""
    told: dict[str, Any] = {name: getattr(status, name) for name in _STATUS}
    told |= {"state": str(status.state), "spec": spec, "stream": spec["stream"]["url"]}
    told |= {name: getattr(labels, name) for name in Labels.__struct_fields__}
    return RunRow(**told, desired=derived(status)) if stored is None else replace(stored, **told)


def derived(status: RunStatus) -> dict[str, Any]:
    """What is wanted of a run that no command is known of: that it goes on as it is."""
    state = "running" if status.state.live else "paused" if status.state is RunState.PAUSED else "stopped"
    return {"state": state, "actors": status.actors, "learner": 1, "settings": {}}


def read_spec(folder: RunFolder) -> dict[str, Any]:
    """In file form, complete also where it was written before some setting existed; raise Damaged."""
    return config.to_mapping(folder.spec())


def checkpoint_rows(folder: RunFolder, known: list[CheckpointRow]) -> list[CheckpointRow]:
    """All whole checkpoints; those `known` never change, only which one is the best."""
    before = {row.version: row for row in known}
    best = str(folder.best())
    rows = []
    for version in map(str, folder.checkpoints()):
        row = before.get(version) or _checkpoint(folder, version)
        if row is not None:
            rows.append(replace(row, best=version == best))
    return rows


def _checkpoint(folder: RunFolder, version: str) -> CheckpointRow | None:
    path = folder.checkpoints_path / version
    try:
        head = msgspec.json.decode((path / "checkpoint.json").read_bytes(), type=_Head)
        with os.scandir(path) as entries:
            size = sum(entry.stat().st_size for entry in entries)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None  # just let go of, or damaged: nothing anybody could use
    steps = head.progress.environment_steps
    return CheckpointRow(run=folder.run, version=version, at=head.at, bytes=size, steps=steps)


def evaluation_row(run: str, line: dict[str, Any]) -> EvaluationRow | None:
    """A line of evaluations.jsonl; None where it lacks something."""
    try:
        at, returns = float(line["time"]), tuple(float(value) for value in line["returns"])
        return EvaluationRow(
            id=line.get("id") or f"{run}:{line['checkpoint']}:{at:.3f}",
            run=run,
            state="done",
            checkpoint=str(line["checkpoint"]),
            episodes=len(returns),
            seed=int(line.get("seed", 0)),
            at=at,
            mean=float(line["mean"]),
            std=float(line["std"]),
            returns=returns,
            lengths=tuple(int(value) for value in line["lengths"]),
            seconds=float(line.get("seconds", 0.0)),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def state_row(run: str, line: dict[str, Any]) -> StateRow | None:
    """An event that tells of a new state; None for every other."""
    state, at = line.get("state"), line.get("time")
    if line.get("event") != "state" or state not in STATES or not isinstance(at, int | float):
        return None
    reason = line.get("reason")
    return StateRow(run=run, state=str(state), reason=None if reason is None else str(reason), at=float(at))


def read_new_lines(path: Path, offset: int, most_bytes: int) -> tuple[list[dict[str, Any]], int]:
    """Whole JSON lines from `offset` on, and where the next begins; of a long stretch only its end."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = max(offset if offset <= size else 0, size - most_bytes)
            file.seek(start)
            content = file.read(size - start)
    except OSError:
        return [], offset
    end = content.rfind(b"\n") + 1
    return [line for text in content[:end].splitlines() if (line := _object(text))], start + end


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        values = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def disk_bytes(*paths: Path) -> int:
    """What folders take on this disk: holes in files do not count, nor what lies behind links."""
    total, waiting = 0, [str(path) for path in paths]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError:
            continue  # it is being removed
    return total
