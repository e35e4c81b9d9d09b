"""The JSON Schema of every record, for readers that are not ours: `python -m penstock.schemas DIR`.

In: the types that write the records. Out: one file a kind (`schemas/` in the repository); the frame around
them is described in `schemas/README.md`. A record of columns has its schema for the JSON in front of them.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.inspect import DataclassType, Field, NamedTupleType, StructType, Type, type_info

from penstock.config.schema import described
from penstock.loop.gateway.holding import Holder
from penstock.loop.gateway.sources import SourceRecord
from penstock.loop.gateway.trajectory import TrajectoryFacts
from penstock.loop.policies import PIECE_BYTES, PieceFacts
from penstock.loop.prometheus import FLOW
from penstock.loop.registry import RunRecord
from penstock.model.codec import ALIGNMENT, ColumnHeader, Schema
from penstock.model.commands import Command
from penstock.model.history import Claim, Update
from penstock.model.policy import PolicyFacts
from penstock.model.rollout import Hello, RolloutFacts
from penstock.model.version import Version
from penstock.stream.base import Flow
from penstock.stream.records import DeadLetter

Json = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"


class TrainingReport(msgspec.Struct):
    """The learner, at most ten times a second."""

    run: str
    time: float
    steps: int
    """Environment steps learned from."""
    seconds: float
    """Seconds of training, over all resumptions."""
    episodes: int
    """Finished episodes."""
    updates: int
    """Updates so far."""
    version: str
    """EPOCH.STEP of the newest policy."""
    weights_sha256: str
    roster: list[int]
    """Slots that the next update expects."""
    checkpoint: str
    """EPOCH.STEP of the newest checkpoint; empty while there is none."""
    final: bool
    """Whether the learner ended with this report."""
    reason: str | None
    """Which stop condition held; null while it goes on, or when somebody stopped it."""
    values: dict[str, float | None]
    """Metrics by name: charts/, losses/, pace/, seconds/, accounting/, stream/; null is not a number."""


class ActorReport(msgspec.Struct):
    """One actor, at most once a second; episodes, returns and speed since its last report."""

    run: str
    slot: int
    round: int
    incarnation: str
    version: Version
    lag: int
    """Updates the actor is ahead of the policy it uses."""
    episodes: int
    """Episodes that ended."""
    mean_return: float | None
    """Of those; null where none ended."""
    steps_per_second: float
    """Environment steps."""
    loaded_after: float
    """Seconds from the publishing of the newest version to its loading."""
    host: str
    stream: Flow
    """What passed through this process since it started."""
    time: float


class GatewayReport(ActorReport):
    """The gateway, as the one actor of a client's policy."""

    gateway: dict[str, float]
    """How clients and the gateway are doing, by name: gateway/, clients/."""
    served_by: Holder
    """The gateway, so that another on the same log leaves the policy to it."""


class Event(msgspec.Struct):
    """Something that a person may want to know; docs/runs.md lists the names."""

    run: str
    time: float
    process: str
    """learner, or actor-SLOT."""
    event: str
    """Its name."""
    fields: dict[str, Any]
    """What belongs to it, by name."""


class EpochClaim(msgspec.Struct):
    """A proposal for an epoch: it holds iff it follows the newest one of its name that holds."""

    name: str
    """A run's id, or RUN/guests for the slots of guests."""
    epoch: int
    """1, 2, …"""
    token: str
    """Drawn by whoever proposes; who finds its own has the epoch."""


class Column(NamedTuple):
    """One column, or all whose names begin so."""

    name: str
    types: str
    axes: str
    text: str
    required: bool = True


class Kind(NamedTuple):
    """A kind of record; its words have one of the types `facts`."""

    facts: tuple[type, ...]
    topic: str
    key: str
    text: str
    columns: tuple[Column, ...] = ()


_SEEN = "one column for all vectors, side by side; one for each image, as observations/PATH"
ROLLOUT = (
    Column("observations…", "", "T B …", f"What the policy saw: {_SEEN}."),
    Column("actions", "<i4 <f4", "T B …", "What it chose, before clipping; categories count from 0."),
    Column("log_probs", "<f4", "T B", "Of the choice, under the version that made it."),
    Column("rewards", "<f4", "T B", "What the environment gave."),
    Column("terminated", "|b1", "T B", "The task ended: nothing follows."),
    Column("truncated", "|b1", "T B", "A limit ended the episode: bootstrap from the final observation."),
    Column("last/observations…", "", "B …", "What comes after the last step: the next rollout's first."),
    Column("final/index", "<i4", "K 2", "(t, b) of each truncated end."),
    Column("final/observations…", "", "K …", "What the environment showed last there."),
    Column("masks", "|b1", "T B A", "Allowed actions, where the environment tells.", False),
    Column("last/masks", "|b1", "B A", "Allowed actions after the last step, likewise.", False),
    Column("final/masks", "|b1", "K A", "Allowed actions at each truncated end, likewise.", False),
)
TRAJECTORY = (
    Column("observations…", "", "L …", f"What the policy saw: {_SEEN}."),
    Column("actions", "<i4 <f4", "L …", "What was done, before clipping; categories count from 0."),
    Column("log_probs", "<f4", "L", "Of that, under the version that decided."),
    Column("rewards", "<f4", "L", "What the client's system gave."),
    Column("masks", "|b1", "L A", "Allowed actions, where the client tells.", False),
    Column("foreign", "|b1", "L", "Rows that a fallback or a person decided, where any were.", False),
    Column(
        "final/observations…", "", "…", "What came after the last row, where it was cut off there.", False
    ),
    Column("final/masks", "|b1", "A", "Allowed actions there, likewise.", False),
)
POLICY = (Column("safetensors", "|u1", "bytes", "The weights: a safetensors file, tensors sorted by name."),)
PIECE = (
    Column(
        "content",
        "|u1",
        "bytes",
        f"Bytes from index × {PIECE_BYTES:,} on of a frame of schema 3; all pieces of a version, joined, are one.",
    ),
)

KINDS: dict[Schema, Kind] = {
    Schema.ROLLOUT: Kind(
        (RolloutFacts,),
        "experiences.<run>",
        "the actor's slot",
        "T steps of B environments, with K truncated ends and A categories of actions.",
        ROLLOUT,
    ),
    Schema.HELLO: Kind(
        (Hello,),
        "experiences.<run>",
        "the actor's slot",
        "An actor says what its environment looks like, that it lives, or goodbye.",
    ),
    Schema.POLICY: Kind(
        (PolicyFacts,), "model_updates.<run>", "EPOCH/0", "One policy version, where it fits one record.", POLICY
    ),
    Schema.HISTORY: Kind(
        (Claim, Update),
        "history.<run>",
        "the run's id",
        "What each update used and what came out, and where each learner went on.",
    ),
    Schema.COMMAND: Kind((Command,), "commands.control", "the run's id", "What somebody wants of a run."),
    Schema.REPORT: Kind(
        (TrainingReport, ActorReport, GatewayReport, Event),
        "metrics.training and metrics.actors",
        "the run's id",
        "Numbers of the learner, of an actor or of the gateway, or an event of the former.",
    ),
    Schema.RUN: Kind(
        (RunRecord,), "runs", "the run's id", "All that a process on another host needs to join a run."
    ),
    Schema.DEAD_LETTER: Kind(
        (DeadLetter,), "dead_letters", "the topic it was found in", "A record that could not be read."
    ),
    Schema.PIECE: Kind(
        (PieceFacts,), "model_updates.<run>", "EPOCH/INDEX", "A part of a policy version too large for one record.",
        PIECE,
    ),
    Schema.TRAJECTORY: Kind(
        (TrajectoryFacts,), "trajectories.<run>", "the source",
        "L steps of a client's system, acknowledged and to be packed into rollouts.", TRAJECTORY,
    ),
    Schema.SOURCE: Kind(
        (SourceRecord,), "sources.<run>", "the source; empty for the position",
        "Which numbers a source of trajectories has used up.",
    ),
}  # fmt: skip
CLAIM = Kind(
    (EpochClaim,),
    "claims",
    "the name",
    "Kafka only: who took which epoch of a run or of a policy, or which guest's slot.",
)

WORDS = {
    **{f"Flow.{name}": text.removesuffix(".") for name, text in FLOW.items()},
    "run": "The run's id",
    "slot": "The actor's numbered place; guests begin at 1000",
    "round": "Counts the rollouts of a slot, over all restarts; round s makes update s + 1",
    "incarnation": "Drawn anew whenever the actor starts",
    "version": "The policy version: (epoch, step)",
    "epoch": "A learner that starts takes the next one",
    "step": "Updates up to here",
    "base": "The step it went on from",
    "at": "Seconds since 1970",
    "time": "Seconds since 1970",
    "written_at": "Seconds since 1970",
    "created_at": "Seconds since 1970",
    "published_at": "Seconds since 1970",
    "steps": "T: steps of each environment",
    "environments": "B: environments side by side",
    "starts": "Where each environment stood before the first row, in order",
    "episodes": "Those that ended in this rollout",
    "Episode.environment": "Index of the environment",
    "Episode.index": "Which episode of it, counted from 0",
    "Episode.total_reward": "Sum of its rewards",
    "index": "Which one, counted from 0",
    "episode": "Which episode of this environment, counted from 0",
    "elapsed": "Steps it has taken in that episode",
    "total_reward": "Sum of its rewards so far",
    "length": "Steps it took",
    "PieceFacts.length": "Bytes of the whole",
    "TrajectoryFacts.length": "L: its rows",
    "TrajectoryFacts.earlier_reward": "Sum of the rewards of those rows",
    "received_at": "Seconds since 1970",
    "SourceRecord.source": "Its id; empty in the record of the position",
    "taken": "Numbers that are used up, as closed intervals in order",
    "floor": "What is not taken and not above it comes too late",
    "count": "How many there are",
    "used": "The rollouts learned from, in slot order",
    "dropped": "The rollouts that were not learned from",
    "reason": "Why",
    "weights_sha256": "Hash of the sorted tensors and nothing else",
    "environment_steps": "Environment steps learned from",
    "spaces": "What the environment shows and accepts",
    "pid": "Its process",
    "host": "Its host's name",
    "Holder.home": "Its PENSTOCK_HOME",
    "last_round": "The newest round it has written; -1 where there is none",
    "description": "All that is needed, beside the tensors, to act",
    "id": "Unique",
    "verb": "What to do",
    "arguments": "Of the verb, by name",
    "who": "The user's name on the host that gave it",
    "spec": "The whole description of the run",
    "name": "The column's",
    "dtype": "NumPy's word for the type of a number, such as <f4, |b1 or |u1; always little-endian",
    "ColumnHeader.shape": "Of the array, rows first (C order)",
    "ColumnHeader.offset": "Bytes from the beginning of the first column",
    "topic": "Where it was found, without the stream's prefix",
    "partition": "Of that topic",
    "offset": "In that partition",
    "key": "The record's",
}
"""What a field means, where its type does not say."""


def schemas() -> dict[str, Json]:
    """File name → JSON Schema (2020-12), one for each kind of record."""
    framed = {
        f"{schema.name.lower()}.json": _schema(schema.name.lower(), _told(schema, kind), kind)
        for schema, kind in KINDS.items()
    }
    claims = f"{CLAIM.text} Topic claims, key: {CLAIM.key}. JSON without a frame."
    return {**framed, "claims.json": _schema("claims", claims, CLAIM)}


def write(folder: Path) -> None:
    """Write them all, each as text that people can read."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, schema in schemas().items():
        (folder / name).write_bytes(text(schema))


def text(schema: Json) -> bytes:
    return msgspec.json.format(msgspec.json.encode(schema), indent=2) + b"\n"


def _told(schema: Schema, kind: Kind) -> str:
    payload = "columns; this is the JSON in front of them" if kind.columns else "JSON"
    return f"{kind.text} Schema {schema:d}, topic {kind.topic}, key: {kind.key}. Payload: {payload}."


def _schema(name: str, description: str, kind: Kind) -> Json:
    types = [*kind.facts, ColumnHeader] if kind.columns else kind.facts
    references, definitions = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    for found in {found for part in types for found in _types(type_info(part))}:
        _describe(definitions[found.__name__], found)
    facts = references[0] if len(kind.facts) == 1 else {"anyOf": list(references)}
    body = _in_front_of_columns(facts, references[-1], kind.columns) if kind.columns else facts
    return {"$schema": DIALECT, "title": name, "description": description, **body, "$defs": definitions}


def _in_front_of_columns(facts: Json, header: Json, columns: tuple[Column, ...]) -> Json:
    required = [{"contains": {"prefixItems": [_name(column)]}} for column in columns if column.required]
    table = {
        "description": f"Where each column lies. The first begins at the next multiple of {ALIGNMENT} bytes of the "
        "frame behind this JSON; offsets count from there.",
        "type": "array",
        "items": {**header, "anyOf": [_column(column) for column in columns]},
        "allOf": required,
    }
    properties = {"facts": facts, "columns": table}
    return {"type": "object", "properties": properties, "required": list(properties)}


def _column(column: Column) -> Json:
    """What is special about its line in the header."""
    axes = column.axes.split()
    shape = {"minItems": len(axes) - ("…" in axes)} | ({} if "…" in axes else {"maxItems": len(axes)})
    words = f"{column.text} Shape [{', '.join(axes)}]." + ("" if column.required else " May be missing.")
    types: Json = {"enum": column.types.split()} if column.types else {}
    return {"description": words, "prefixItems": [_name(column), types, shape]}


def _name(column: Column) -> Json:
    prefix, more, _ = column.name.partition("…")
    return {"pattern": f"^{prefix}(/.*)?$"} if more else {"const": column.name}


def _describe(definition: Json, kind: type) -> None:
    """Give every field its words; those of types that travel as lists are named by place."""
    said = described(kind)
    places: Any = definition.get("properties") or dict(
        zip(_fields(kind), definition.get("prefixItems", ()), strict=True)
    )
    for name, place in places.items():
        if "prefixItems" in definition:
            place["title"] = name
        words = WORDS.get(f"{kind.__name__}.{name}") or WORDS.get(name)
        if name in said or words:
            place["description"] = said.get(name) or f"{words}."


def _fields(kind: type) -> tuple[str, ...]:
    return tuple(getattr(kind, "__struct_fields__", ()) or getattr(kind, "_fields", ()))


def _types(info: Type | Field) -> Iterator[type]:
    """The structures in a type, and in those."""
    if isinstance(info, StructType | NamedTupleType | DataclassType):
        yield info.cls
    for name in info.__struct_fields__:
        value = getattr(info, name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Type | Field):
                yield from _types(part)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m penstock.schemas DIR")
    write(Path(sys.argv[1]))
