"""The words of the live feed: what a viewer may say, and what it is told. See docs/live.md."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec

from penstock.control.feed import ALL, Topic
from penstock.control.feed_ring import Message
from penstock.server.problems import KINDS as PROBLEMS

MOST_BYTES = 64 << 10
"""The longest message a viewer may send."""
FRAME_BYTES = 256 << 10
"""The longest batch; more messages come in several."""
RUNS_NAMED = 64
"""A gap that concerns more runs names none."""

Kind = Literal["states", "metrics", "logs", "events"]
Word = Annotated[str, msgspec.Meta(max_length=256)]
Run = Annotated[str, msgspec.Meta(max_length=63)]


class Words(
    msgspec.Struct, tag_field="type", tag=str.lower, forbid_unknown_fields=True, frozen=True, kw_only=True
):
    """What anybody may say begins with its type."""

    id: Word | int | None = None
    """Comes back with the answer."""


class Hello(Words, frozen=True, kw_only=True):
    """The first message of a viewer that could not send a header."""

    token: Word | None = None
    since: int | None = None
    feed: Word | None = None


class Subscribe(Words, frozen=True, kw_only=True):
    kinds: Annotated[list[Kind], msgspec.Meta(min_length=1, max_length=16)]
    runs: Annotated[list[Run], msgspec.Meta(min_length=1, max_length=256)] | Literal["*"] = "*"
    since: int | None = None
    feed: Word | None = None

    def topics(self) -> frozenset[Topic]:
        runs = [ALL] if self.runs == ALL else self.runs
        return frozenset((kind, run) for kind in self.kinds for run in runs)


class Unsubscribe(Words, frozen=True, kw_only=True):
    """Without kinds: of every kind. Without runs: all of them."""

    kinds: Annotated[list[Kind], msgspec.Meta(max_length=16)] | None = None
    runs: Annotated[list[Run], msgspec.Meta(max_length=256)] | Literal["*"] | None = None

    def concerns(self, topic: Topic) -> bool:
        kind, run = topic
        runs = [ALL] if self.runs == ALL else self.runs
        return (self.kinds is None or kind in self.kinds) and (runs is None or run in runs)


class Ping(Words, frozen=True, kw_only=True):
    pass


Said = Hello | Subscribe | Unsubscribe | Ping

_DECODER: msgspec.json.Decoder[Said] = msgspec.json.Decoder(Said)
_ENCODER = msgspec.json.Encoder()


def decode(text: str) -> Said:
    """What a viewer said; raise msgspec.ValidationError for words that are not ours, DecodeError for no JSON."""
    try:
        return _DECODER.decode(text)
    except RecursionError as error:
        raise msgspec.DecodeError("it is nested too deeply") from error


def told(kind: str, **fields: Any) -> str:
    """One message of the server; fields that are None are left out."""
    return _ENCODER.encode({"type": kind, **{k: v for k, v in fields.items() if v is not None}}).decode()


def trouble(status: int, detail: str, id: str | int | None = None) -> str:
    """An error, in the words of problem details."""
    kind, title = PROBLEMS.get(status, ("error", "Error"))
    return told("error", problem=f"/problems/{kind}", title=title, status=status, detail=detail, id=id)


def gap(life: str, seq: int, topics: Iterable[Topic], reason: str) -> str:
    """Some news cannot be had any more: ask for these kinds of these runs by REST, then go on from `seq`."""
    found = set(topics)
    runs = sorted({run for _, run in found})
    every = ALL in runs or len(runs) > RUNS_NAMED
    kinds = sorted({kind for kind, _ in found})
    return told("gap", feed=life, seq=seq, kinds=kinds, runs=ALL if every else runs, reason=reason)


def batches(messages: list[Message]) -> list[tuple[str, list[Message]]]:
    """Messages as few frames, each with what is in it."""
    frames: list[list[Message]] = []
    size = FRAME_BYTES + 1
    for message in messages:
        if size + len(message.encoded) > FRAME_BYTES:
            frames.append([])
            size = 0
        frames[-1].append(message)
        size += len(message.encoded)
    return [(_batch(frame), frame) for frame in frames]


def _batch(messages: list[Message]) -> str:
    joined = b",".join(message.encoded for message in messages)
    return (b'{"type":"batch","seq":%d,"messages":[%b]}' % (messages[-1].seq, joined)).decode()
