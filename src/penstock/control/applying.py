"""What a command changes in the database; called inside the transaction that also advances the log's offset.

A command whose id is known changes nothing: however often it was written, it has one effect. Nothing here
starts or ends a process: that is `reconcile`'s work, which compares what is wanted with what is.
"""

import contextlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from penstock import config
from penstock.control import verbs
from penstock.errors import NotFound, PenstockError, Unavailable
from penstock.lineage.rows import CommandRow, EvaluationRow, Outcome, RunRow, TokenRow
from penstock.lineage.writing import Writer
from penstock.loop.recordings import Wish, Wishes
from penstock.loop.runs import RunFolder
from penstock.model.commands import Command, Desired
from penstock.model.run import Labels
from penstock.stream.base import Record

LABELS = ("project", "tags", "note")


@dataclass(frozen=True, slots=True)
class Change:
    """What a command did: what was before and after, or why it was refused."""

    old: dict[str, Any] | None = None
    new: dict[str, Any] | None = None
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Applying:
    """Applies the commands of one stream."""

    writer: Writer
    home: Path
    stream: str
    past: bool = False
    """Whether the index is being rebuilt: what has no folder any more is history, and nothing begins."""

    def apply(self, record: Record, command: Command) -> CommandRow:
        """Change what is wanted, once; returns the command as it stands in the trail."""
        known = self.writer.command(command.id)
        if known is not None:
            return known
        change = self._change(record, command)
        outcome: Outcome = "applied" if change.refused is None else "refused"
        row = CommandRow(
            id=command.id, run=command.run, verb=command.verb, arguments=_shown(command), who=command.who,
            at=command.at, outcome=outcome, reason=change.refused, old=change.old, new=change.new,
            applied_at=time.time(), request=command.request,
        )  # fmt: skip
        return replace(row, sequence=self.writer.add_command(row))

    def _change(self, record: Record, command: Command) -> Change:
        try:
            with self.writer.attempt():  # one that fails half way leaves nothing, and the transaction usable
                return self._do(record, command)
        except Unavailable:
            raise
        except OSError as error:
            return Change(refused=f"it cannot be written down: {error.strerror or error}")
        except (PenstockError, KeyError, TypeError, ValueError, AttributeError) as error:
            # anybody may write into a shared topic: an odd command is refused, the others go on
            return Change(refused=f"it cannot be understood: {error}")

    def _do(self, record: Record, command: Command) -> Change:
        if command.verb == "start":
            return self._start(record, command)
        if command.verb in _WITHOUT_RUN:
            return _WITHOUT_RUN[command.verb](self.writer, command)
        row = self.writer.run(command.run)
        if row is None:
            return Change() if self.past else Change(refused=f"there is no run {command.run}")
        return _OF_A_RUN.get(command.verb, _steer)(self, row, command)

    def _start(self, record: Record, command: Command) -> Change:
        row, managed = self.writer.run(command.run), bool(command.arguments.get("managed"))
        if row is None and (self.past or not managed):
            return Change()
        taken = row is not None and desired_of(row).state != "deleted"
        if taken and managed and not self.past:
            return Change(refused=f"there is a run {command.run} already")
        fresh = row if row is not None and (taken or self.past) else self._row(command, managed)
        spec = command.arguments["spec"]
        learners = spec.get("learner", {}).get("count", 1)
        desired = Desired(spec["actors"]["count"], learner=learners).after(command)
        place = {str(record.partition): record.offset}  # its keeper reads it too: so it knows what it honours
        self.writer.put_run(replace(fresh, desired=msgspec.to_builtins(desired), position=place))
        return Change(new={"state": "running"})

    def _row(self, command: Command, managed: bool) -> RunRow:
        spec = command.arguments["spec"]
        labels = msgspec.convert(command.arguments.get("labels", {}), Labels)
        return RunRow(
            run=command.run, state="pending", environment=spec["environment"]["id"], algorithm=spec["algorithm"],
            seed=spec["seed"], created_at=command.at, actors=spec["actors"]["count"], managed=managed, spec=spec,
            stream=self.stream, **msgspec.structs.asdict(labels),
        )  # fmt: skip


def desired_of(row: RunRow) -> Desired:
    return msgspec.convert(row.desired, Desired)


def _steer(self: Applying, row: RunRow, command: Command) -> Change:
    """Commands that add up: state, actors, learner, hyperparameters."""
    if command.verb == "set" and not self.past:
        verbs.changed(config.from_mapping(row.spec, f"the spec of {row.run}"), command.arguments)
    before = desired_of(row)
    after = before.after(command)
    self.writer.put_run(replace(row, desired=msgspec.to_builtins(after)))
    if command.verb == "set":
        spec = row.spec.get(row.algorithm, {})
        old = {name: before.settings.get(name, spec.get(name)) for name in command.arguments}
        return Change(old, dict(command.arguments))
    names = [
        name
        for name in ("state", "actors", "learner", "stop")
        if getattr(before, name) != getattr(after, name)
    ]
    return Change(
        {name: getattr(before, name) for name in names}, {name: getattr(after, name) for name in names}
    )


def _label(self: Applying, row: RunRow, command: Command) -> Change:
    """Into the folder first, which is the truth; doing it again after a crash changes nothing more."""
    new = {name: command.arguments[name] for name in LABELS if command.arguments.get(name) is not None}
    old = {name: asdict(row)[name] for name in new}
    now = Labels(project=row.project, tags=row.tags, group=row.group, note=row.note)
    labels = msgspec.convert(msgspec.to_builtins(now) | new, Labels)
    if not self.past:
        with contextlib.suppress(NotFound):  # it may be about to be made, with these
            RunFolder.open(self.home, row.run).save_labels(labels)
        self.writer.put_run(replace(row, project=labels.project, tags=labels.tags, note=labels.note))
    return Change(old, new)


def _evaluate(self: Applying, row: RunRow, command: Command) -> Change:
    wanted = command.arguments
    if self.writer.evaluation(command.id) is None and not self.past:
        self.writer.put_evaluation(
            EvaluationRow(
                id=command.id, run=row.run, state="queued", checkpoint=wanted["checkpoint"],
                episodes=wanted["episodes"], seed=wanted["seed"], at=command.at,
            )
        )  # fmt: skip
    return Change()


def _record(self: Applying, row: RunRow, command: Command) -> Change:
    """Into a file first, as a label; doing it again after a crash changes nothing more."""
    if not self.past:
        wanted = command.arguments
        Wishes(self.home).add(
            Wish(
                id=command.id, run=row.run, checkpoint=wanted["checkpoint"], seed=wanted["seed"], at=command.at
            )
        )  # fmt: skip
    return Change()


def _create_token(writer: Writer, command: Command) -> Change:
    wanted = command.arguments
    if writer.token(wanted["id"]) is None:
        writer.add_token(
            TokenRow(
                id=wanted["id"], name=wanted["name"], role=wanted["role"], sha256=wanted["sha256"],
                created_at=command.at, created_by=command.who, expires_at=wanted.get("expires_at"),
            )
        )  # fmt: skip
    return Change(new={"id": wanted["id"], "name": wanted["name"], "role": wanted["role"]})


def _revoke_token(writer: Writer, command: Command) -> Change:
    token = writer.token(command.arguments["id"])
    if token is None:
        return Change(refused=f"there is no token {command.arguments['id']}")
    if token.revoked_at is None:
        writer.revoke_token(token.id, command.at)
    return Change(old={"revoked_at": token.revoked_at}, new={"revoked_at": token.revoked_at or command.at})


def _shown(command: Command) -> dict[str, Any]:
    """The arguments as people may see them."""
    undoes = {"undoes": command.undoes} if command.undoes else {}
    return {name: value for name, value in command.arguments.items() if name != "sha256"} | undoes


_OF_A_RUN: dict[str, Callable[[Applying, RunRow, Command], Change]] = {
    "label": _label,
    "evaluate": _evaluate,
    "record": _record,
}
_WITHOUT_RUN: dict[str, Callable[[Writer, Command], Change]] = {
    "create_token": _create_token,
    "revoke_token": _revoke_token,
}
