"""A command: what somebody wants of a run. Commands are the audit trail, so they say who and when."""

import getpass
import time
import uuid
from typing import Any, Literal

import msgspec

from penstock.model.codec import Frame, Schema, decode, encode

Verb = Literal["stop", "scale", "set", "checkpoint"]


class Command(msgspec.Struct, frozen=True):
    id: str
    run: str
    verb: Verb
    arguments: dict[str, Any]
    who: str
    at: float

    def encode(self) -> bytes:
        return encode(Schema.COMMAND, self)


def command(run: str, verb: Verb, **arguments: Any) -> Command:
    """A command given now by the person at this machine."""
    return Command(uuid.uuid4().hex, run, verb, arguments, getpass.getuser(), time.time())


def decode_command(frame: Frame) -> Command:
    return decode(frame, Command)
