"""The verbs as the server's faces call them: checked, recorded with who asked, answered once.

Each states what should be; the controller's loop brings it about. `key` is an Idempotency-Key: the same key
with the same wish gets the answer of the first time, also after a crash; with another wish it is refused.
"""

import hashlib
import secrets
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from pydantic import BaseModel

from penstock import config
from penstock.control import travel, verbs
from penstock.control.applying import desired_of
from penstock.control.catalog import check_environment
from penstock.control.controller import Controller
from penstock.control.permissions import Principal
from penstock.control.tokens import Tokens, hashed, new_secret
from penstock.control.views import (
    Accepted,
    CommandView,
    EvaluateRequest,
    ForkRequest,
    LabelRequest,
    NewToken,
    RecordRequest,
    ResumeRequest,
    RunView,
    Started,
    StartRequest,
    TokenRequest,
    TokenView,
)
from penstock.envs.make import refuse_client
from penstock.errors import ConfigError, Conflict, NotFound, Stale, Unavailable, nearest
from penstock.lineage.rows import CommandRow, RunRow
from penstock.loop.origin import Origin
from penstock.loop.recordings import Wishes
from penstock.loop.runs import RunFolder
from penstock.model.commands import NO_RUN, Command, Verb, command
from penstock.model.run import Labels, RunState, run_id
from penstock.model.spec import Spec
from penstock.stream.base import Stream

OF_THE_FORM = {"name", "project", "tags", "note", "seeds"}
"""Fields of a start that are not the spec's."""
MOST_WAITING = 50
"""Recordings that wait, of all runs."""


class Commander:
    """Used by many threads."""

    def __init__(
        self, home: Path, controller: Controller, tokens: Tokens, open_run_stream: Callable[[Spec], Stream]
    ) -> None:
        self._home, self._controller, self._tokens = home, controller, tokens
        self._lineage = controller.lineage
        self._open_run_stream = open_run_stream
        self._beginning = threading.Lock()

    # -- beginning -------------------------------------------------------------------------------

    def start(self, who: Principal, request: StartRequest, key: str | None = None) -> Started:
        """Begin a run, or one for each seed; raise ConfigError where the spec makes no sense."""
        mapping = request.model_dump(exclude=OF_THE_FORM, exclude_unset=True)
        stream = mapping.setdefault("stream", {})
        if isinstance(stream, dict):
            stream.setdefault("url", self._controller.url)
        spec = config.resolve(mapping)
        if spec.origin is not None:
            raise ConfigError("a start has no origin; fork a run instead: POST /api/v1/runs/RUN/forks")
        check_environment(spec.environment.id)
        self._check_stream(spec)
        labels = Labels(project=request.project or "default", tags=tuple(request.tags), note=request.note)
        wish = _Wish(who, key, request)
        if request.seeds == 1:
            return self._begin([spec], request.name, labels, wish)
        group = f"{request.name or run_id(spec.environment.id, Random(wish.id(0)))}-seeds"
        specs = [msgspec.structs.replace(spec, seed=spec.seed + number) for number in range(request.seeds)]
        return self._begin(specs, request.name, msgspec.structs.replace(labels, group=group), wish)

    def _check_stream(self, spec: Spec) -> None:
        """Another log than the server's must answer now: the controller waits for nobody's brokers."""
        if spec.stream.url != self._controller.url:
            stream = self._open_run_stream(spec)
            try:
                stream.topics()
            finally:
                stream.close()

    def fork(self, who: Principal, run: str, request: ForkRequest, key: str | None = None) -> Started:
        """Begin a new run where another one stood."""
        wish = _Wish(who, key, request, run)
        if (again := self._again(wish.id(0), wish)) is not None:
            return self._started([again])
        row = self._row(run)
        folder = RunFolder.open(self._home, run)
        stream = self._open_run_stream(folder.spec())
        try:
            spec = travel.plan_fork(Origin(folder, stream), request.at, request.changes)
        finally:
            stream.close()
        labels = Labels(project=row.project, tags=row.tags, note=f"fork of {run} at {request.at}")
        return self._begin([spec], request.name, labels, wish)

    def _begin(self, specs: list[Spec], name: str | None, labels: Labels, wish: "_Wish") -> Started:
        """One command for each spec, all at once; those that were accepted under this key before stay as they are."""
        several, words = len(specs) > 1, {"labels": msgspec.to_builtins(labels), "managed": True}
        with self._beginning:  # no two at once find the same name free
            known = [self._again(wish.id(number), wish) for number in range(len(specs))]
            new: list[tuple[Command, str]] = []
            for number, (spec, row) in enumerate(zip(specs, known, strict=True)):
                if row is None:
                    id = wish.id(number)
                    run = self._new_name(spec, f"{name}-{spec.seed}" if name and several else name, id)
                    arguments = words | {"spec": config.to_mapping(spec)}
                    given = command(run, "start", arguments, who=wish.who.name, id=id, request=wish.digest)
                    new.append((given, spec.stream.url))
            made = iter([_applied(row) for row in self._controller.submit_all(new)] if new else [])
        return self._started([row if row is not None else next(made) for row in known])

    def _new_name(self, spec: Spec, name: str | None, id: str) -> str:
        """The name asked for, or one that follows from the command's id, so that asking again gives the same."""
        if name is not None:
            if self._is_taken(name):
                raise Conflict(f"there is a run {name} already; choose another name or resume it")
            return name
        randomness = Random(id)
        while self._is_taken(drawn := run_id(spec.environment.id, randomness)):
            pass
        return drawn

    def _is_taken(self, name: str) -> bool:
        with self._lineage.read() as reads:
            return reads.run(name) is not None or (self._home / "runs" / name).exists()

    def _started(self, rows: list[CommandRow]) -> Started:
        commands = [CommandView.model_validate(row) for row in rows]
        runs = [view for row in rows if (view := self._view(row.run)) is not None]
        if len(runs) < len(rows):
            gone = ", ".join(sorted({row.run for row in rows} - {run.run for run in runs}))
            raise Conflict(f"what was started under this key was deleted since: {gone}; choose a new key")
        return Started(group=runs[0].group if runs else None, runs=runs, commands=commands)

    # -- steering --------------------------------------------------------------------------------

    def stop(self, who: Principal, run: str, key: str | None = None) -> Accepted:
        """Let it save its work and end."""
        return self._ask(_Wish(who, key, None, run, "stop"), run, "stop", lambda _: {})

    def pause(self, who: Principal, run: str, key: str | None = None) -> Accepted:
        """Let it rest: its work is saved, its processes wait."""
        return self._ask(_Wish(who, key, None, run, "pause"), run, "pause", lambda _: {})

    def resume(self, who: Principal, run: str, request: ResumeRequest, key: str | None = None) -> Accepted:
        """Let it go on exactly where it ended, perhaps to other limits."""

        def plan(row: RunRow) -> dict[str, Any]:
            spec = config.from_mapping(row.spec, f"the spec of {run}")
            verbs.with_stop(spec, desired_of(row).stop | dict(request.stop))
            return {"stop": dict(request.stop)} if request.stop else {}

        return self._ask(_Wish(who, key, request, run, "resume"), run, "resume", plan)

    def scale_actors(self, who: Principal, run: str, actors: int, key: str | None = None) -> Accepted:
        def plan(row: RunRow) -> dict[str, Any]:
            arguments = verbs.scaled(actors=actors)
            verbs.check_scale(row.environment, arguments)
            return arguments

        return self._ask(_Wish(who, key, actors, run, "actors"), run, "scale", plan)

    def scale_learner(self, who: Principal, run: str, learner: int, key: str | None = None) -> Accepted:
        wish = _Wish(who, key, learner, run, "learner")
        return self._ask(wish, run, "scale", lambda _: verbs.scaled(learner=learner))

    def set_hyperparameters(
        self, who: Principal, run: str, settings: dict[str, Any], key: str | None = None
    ) -> Accepted:
        """Change hyperparameters from the next update on."""
        wish = _Wish(who, key, settings, run, "set")
        return self._ask(wish, run, "set", lambda row: self._checked(row, settings))

    def rollback(
        self, who: Principal, run: str, command: str | None = None, key: str | None = None
    ) -> Accepted:
        """Take a change of hyperparameters back: set what was before it."""
        wish = _Wish(who, key, command, run, "rollback")

        def plan(row: RunRow) -> dict[str, Any]:
            change = self._change(run, command)
            wish.undoes = change.id
            return self._checked(row, change.old or {})

        return self._ask(wish, run, "set", plan)

    def save_checkpoint(self, who: Principal, run: str, key: str | None = None) -> Accepted:
        return self._ask(_Wish(who, key, None, run, "checkpoint"), run, "checkpoint", lambda _: {})

    def evaluate(
        self, who: Principal, run: str, request: EvaluateRequest, key: str | None = None
    ) -> Accepted:
        """Play episodes with a checkpoint; the result has the command's id."""

        def plan(_: RunRow) -> dict[str, Any]:
            version = self._playable(run).choose(request.checkpoint)
            return {"checkpoint": str(version), "episodes": request.episodes, "seed": request.seed}

        return self._ask(_Wish(who, key, request, run, "evaluate"), run, "evaluate", plan)

    def record(self, who: Principal, run: str, request: RecordRequest, key: str | None = None) -> Accepted:
        """Record one episode of a checkpoint; the recording has the command's id."""

        def plan(_: RunRow) -> dict[str, Any]:
            version = self._playable(run).choose(request.checkpoint)
            if len(Wishes(self._home).all()) >= MOST_WAITING:
                raise Unavailable(f"{MOST_WAITING} recordings wait to be made already; try again later")
            return {"checkpoint": str(version), "seed": request.seed}

        return self._ask(_Wish(who, key, request, run, "record"), run, "record", plan)

    def label(
        self, who: Principal, run: str, request: LabelRequest, key: str | None = None,
        revisions: frozenset[int] | None = None,
    ) -> Accepted:  # fmt: skip
        """Change its project, tags or note, where it is still as it was seen."""
        words = request.model_dump(exclude_none=True)
        if not words:
            raise ConfigError("say what to change: project, tags or note")
        wish = _Wish(who, key, request, run, "label", revisions=revisions)
        return self._ask(wish, run, "label", lambda _: words)

    def delete(
        self, who: Principal, run: str, key: str | None = None, revisions: frozenset[int] | None = None
    ) -> Accepted:
        """Remove it with all its data; only one that has ended, and is still as it was seen."""
        return self._ask(
            _Wish(who, key, None, run, "delete", revisions=revisions), run, "delete", lambda _: {}
        )

    def _playable(self, run: str) -> RunFolder:
        """The folder of a run whose environment can be played here; raise ConfigError for a client's."""
        folder = RunFolder.open(self._home, run)
        refuse_client(folder.spec().environment)
        return folder

    def _ask(self, wish: "_Wish", run: str, verb: Verb, plan: Callable[[RunRow], dict[str, Any]]) -> Accepted:
        id = wish.id(0)
        row = self._again(id, wish)
        if row is None:
            known = self._row(run)
            if wish.revisions is not None and known.revision not in wish.revisions:
                raise Stale(f"run {run} has changed since you looked; look again and decide anew")
            arguments = plan(known)
            verbs.check_state(run, self._state(known, verb), verb)
            row = self._submit(run, verb, arguments, wish, id, known.stream)
        return Accepted(command=CommandView.model_validate(row), run=self._view(run))

    def _state(self, row: RunRow, verb: Verb) -> RunState:
        """The state as the run's folder tells it now; what a server will bring back counts as running."""
        desired = desired_of(row)
        if desired.state == "deleted":
            raise NotFound(f"run {row.run} is being deleted")
        try:
            folder = RunFolder.open(self._home, row.run)
        except NotFound:
            return RunState.PENDING
        status = folder.status()
        if (
            verb == "resume"
            and desired.state == "paused"
            and status.state in (RunState.PENDING, RunState.RUNNING)
        ):
            return RunState.PAUSED  # it was asked to rest, and may be asked to go on before it does
        coming = desired.state == "running" and (
            (status.managed and status.state is RunState.INTERRUPTED)
            or (desired.command is not None and desired.command != status.command)
        )
        if coming and verb != "delete" and not folder.kept():
            return RunState.PENDING
        if verb == "delete" and status.state is RunState.PAUSED and folder.kept():
            return RunState.RUNNING
        return status.state

    def _checked(self, row: RunRow, settings: dict[str, Any]) -> dict[str, Any]:
        spec = config.from_mapping(row.spec, f"the spec of {row.run}")
        return verbs.changed(spec, settings)

    def _change(self, run: str, id: str | None) -> CommandRow:
        """The change of hyperparameters to take back: that one, or the last that still holds."""
        with self._lineage.read() as reads:
            trail = reads.commands(run, None, None, 500, None).items
        undone: set[str] = set()
        for row in trail:  # newest first
            if row.verb == "start":
                break  # what is before it belongs to another run of that name
            if row.verb != "set" or row.outcome != "applied":
                continue
            if "undoes" in row.arguments:
                undone.add(row.arguments["undoes"])
            elif row.id not in undone and id in (None, row.id) and row.old:
                return row
        which = f"change {id} that still holds" if id else "change of hyperparameters that still holds"
        raise NotFound(f"run {run} has no {which}; see: penstock commands {run} --verb set")

    # -- tokens ----------------------------------------------------------------------------------

    def create_token(self, who: Principal, request: TokenRequest, key: str | None = None) -> NewToken:
        """Give a token; its secret is shown this once. Asking again under the same key cannot show it again."""
        wish = _Wish(who, key, request, NO_RUN, "create_token")
        if self._again(wish.id(0), wish) is not None:
            raise Conflict("this token was given already and its secret shown once; revoke it and ask anew")
        secret, id = new_secret(), secrets.token_hex(6)
        expires = None if request.days is None else time.time() + request.days * 86_400
        words = {
            "id": id, "name": request.name, "role": str(request.role), "sha256": hashed(secret),
            "expires_at": expires,
        }  # fmt: skip
        self._submit(NO_RUN, "create_token", words, wish, wish.id(0), self._controller.url)
        self._tokens.changed()
        with self._lineage.read() as reads:
            row = reads.token(id)
        return NewToken(**TokenView.model_validate(row).model_dump(), token=secret)

    def revoke_token(self, who: Principal, id: str, key: str | None = None) -> TokenView:
        """End a token at once; repeated, it changes nothing."""
        wish = _Wish(who, key, id, NO_RUN, "revoke_token")
        if self._again(wish.id(0), wish) is None:
            with self._lineage.read() as reads:
                known = {row.id for row in reads.tokens()}
            if id not in known:
                raise NotFound(f"there is no token {id!r}{nearest(id, known)}")
            self._submit(NO_RUN, "revoke_token", {"id": id}, wish, wish.id(0), self._controller.url)
            self._tokens.changed()
        with self._lineage.read() as reads:
            return TokenView.model_validate(reads.token(id))

    # -- once ------------------------------------------------------------------------------------

    def _again(self, id: str, wish: "_Wish") -> CommandRow | None:
        """The command that was accepted under this key before; raise Conflict where it was another wish."""
        if wish.key is None:
            return None
        with self._lineage.read() as reads:
            row = reads.command(id)
        if row is not None and row.request != wish.digest:
            raise Conflict(
                f"the Idempotency-Key {wish.key[:40]!r} was used for another request; choose a new one"
            )
        return row

    def _submit(
        self, run: str, verb: Verb, arguments: dict[str, Any], wish: "_Wish", id: str, url: str
    ) -> CommandRow:
        given: Command = command(
            run, verb, arguments, who=wish.who.name, id=id, request=wish.digest, undoes=wish.undoes
        )
        return _applied(self._controller.submit(given, url, wish.revisions))

    def _row(self, run: str) -> RunRow:
        with self._lineage.read() as reads:
            row = reads.run(run)
            known = [] if row is not None else reads.names()
        if row is None:
            raise NotFound(f"there is no run {run!r}{nearest(run, known)}")
        return row

    def _view(self, run: str) -> RunView | None:
        with self._lineage.read() as reads:
            row = reads.run(run)
        return None if row is None else RunView.model_validate(row)


def _applied(row: CommandRow) -> CommandRow:
    if row.outcome == "refused":
        raise Conflict(f"{row.verb} of {row.run} was refused: {row.reason}")
    return row


class _Wish:
    """What somebody asked for, so that asking again is recognised."""

    def __init__(
        self, who: Principal, key: str | None, what: Any, *place: str, revisions: frozenset[int] | None = None
    ) -> None:
        self.who, self.key, self.revisions = who, key, revisions
        self.undoes = ""
        shown = what.model_dump(mode="json") if isinstance(what, BaseModel) else what
        content = msgspec.json.encode([place, shown], enc_hook=str)
        self.digest = hashlib.sha256(content).hexdigest()[:32] if key else ""
        self._random = uuid.uuid4().hex

    def id(self, number: int) -> str:
        """The command's id: of a key always the same, otherwise new."""
        base = f"{self.who.token or self.who.name}\n{self.key}" if self.key is not None else self._random
        return hashlib.sha256(f"{base}\n{number}".encode()).hexdigest()[:32]
