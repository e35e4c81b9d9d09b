"""A command: what somebody wants of a run. Commands are the audit trail, so they say who and when.

What is wanted of a run follows from its commands alone, in the order of the log, each counted once:
`Desired` is that sum. Keeper, learner and controller all add up the same commands.
"""

import getpass
import time
import uuid
from typing import Any, Literal

import msgspec

from penstock.model.codec import Frame, Schema, decode, encode

Verb = Literal[
    "start", "stop", "pause", "resume", "scale", "set", "checkpoint", "evaluate", "record", "label",
    "delete", "create_token", "revoke_token",
]  # fmt: skip
Wanted = Literal["running", "paused", "stopped", "deleted"]

LIFECYCLE: dict[str, Wanted] = {
    "start": "running", "resume": "running", "pause": "paused", "stop": "stopped", "delete": "deleted",
}  # fmt: skip
"""Verbs that say whether a run should go on."""

MOST_ACTORS = 16
NO_RUN = ".control"
"""Stands for the run in commands about tokens; no run can have this name."""


class Command(msgspec.Struct, frozen=True):
    id: str
    run: str
    verb: Verb
    arguments: dict[str, Any]
    who: str
    at: float
    request: str = ""
    """A hash of what was asked under an Idempotency-Key: the same key with another wish is refused."""
    undoes: str = ""
    """Id of the change that this one takes back."""

    def encode(self) -> bytes:
        return encode(Schema.COMMAND, self)


class Desired(msgspec.Struct, frozen=True):
    """What all commands so far want of a run."""

    actors: int
    state: Wanted = "running"
    learner: int = 1
    """0 parks the learner; the actors wait for it."""
    settings: dict[str, Any] = {}
    """Hyperparameters changed while running."""
    stop: dict[str, Any] = {}
    """Stop conditions that a `resume` changed."""
    command: str | None = None
    """Id of the last command that said whether it should go on."""

    def after(self, command: Command) -> "Desired":
        """What is wanted after one more command; arguments that make no sense change nothing."""
        if command.verb == "start" and self.command is not None and self.state != "deleted":
            return self  # there is one of that name already
        if command.verb in LIFECYCLE:
            changed = command.arguments.get("stop") if command.verb == "resume" else None
            stop = self.stop | changed if isinstance(changed, dict) else self.stop
            return msgspec.structs.replace(self, state=LIFECYCLE[command.verb], command=command.id, stop=stop)
        if command.verb == "set":
            return msgspec.structs.replace(self, settings=self.settings | command.arguments)
        if command.verb == "scale":
            actors, learner = actors_of(command), learners_of(command)
            return msgspec.structs.replace(
                self,
                actors=self.actors if actors is None else actors,
                learner=self.learner if learner is None else learner,
            )
        return self


def command(
    run: str, verb: Verb, arguments: dict[str, Any] | None = None, *, who: str = "", id: str = "",
    request: str = "", undoes: str = "",
) -> Command:  # fmt: skip
    """A command given now, by the person at this machine unless somebody else is named."""
    return Command(
        id or uuid.uuid4().hex,
        run,
        verb,
        arguments or {},
        who or getpass.getuser(),
        time.time(),
        request,
        undoes,
    )


def decode_command(frame: Frame) -> Command:
    return decode(frame, Command)


def actors_of(command: Command) -> int | None:
    """How many actors a `scale` wants; None where it says nothing, or what makes no sense."""
    return _within(command.arguments.get("actors"), MOST_ACTORS)


def learners_of(command: Command) -> int | None:
    """How many learners, 0 or 1, a `scale` wants; None as above."""
    return _within(command.arguments.get("learner"), 1)


def _within(count: Any, most: int) -> int | None:
    whole = isinstance(count, int) and not isinstance(count, bool)
    return count if whole and 0 <= count <= most else None
