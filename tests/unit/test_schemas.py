"""The files in schemas/: fresh, complete, true of real records, and able to say no."""

import re
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from penstock import config, proto
from penstock.loop.actor import Actor
from penstock.loop.beat import Beat
from penstock.loop.checkpoint import Progress
from penstock.loop.gateway.receiving import Expected
from penstock.loop.gateway.sources import SourceRecord
from penstock.loop.gateway.trajectory import Trajectory
from penstock.loop.policies import PIECE_BYTES, Publisher
from penstock.loop.registry import find, register
from penstock.loop.reports import Reporter
from penstock.model import codec, topics
from penstock.model.codec import Schema, encode, open_frame
from penstock.model.commands import command
from penstock.model.history import Claim, Dropped, Update, Used, encode_entry
from penstock.model.policy import NetworkSpec, Policy, PolicyDescription, PolicyFacts
from penstock.model.rollout import Block, Episode, Hello, Rollout, RolloutFacts, Start
from penstock.model.spaces import ActionLayout, Column, Leaf, ObservationLayout, Spaces
from penstock.model.tensors import weights_sha256
from penstock.model.version import Version
from penstock.schemas import schemas, text, write
from penstock.stream.base import Stream
from penstock.stream.embedded import EmbeddedStream
from penstock.stream.records import set_aside

FOLDER = Path(__file__).parents[2] / "schemas"
SCHEMAS = schemas()
RUN = "hand-b2c3"
COLUMNS = ("rollout", "policy", "piece", "trajectory")
VECTOR = Spaces(
    ObservationLayout({"observations": Column((4,), "<f4")}, (Leaf((), "box", "observations", size=4),)),
    ActionLayout("discrete", (2,), (0,)),
)
RICH = Spaces(
    ObservationLayout(
        {"observations": Column((3,), "<f4"), "observations/eye": Column((8, 8, 3), "|u1")},
        (Leaf(("at",), "box", "observations", size=3), Leaf(("eye",), "box", "observations/eye")),
    ),
    ActionLayout("multi_discrete", (2, 3), (0, 0), masked=True),
)
TYPES: dict[str, Any] = {
    "object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool,
    "null": type(None),
}  # fmt: skip
KNOWN = {
    "type", "enum", "const", "pattern", "minimum", "maximum", "exclusiveMinimum", "minItems", "maxItems",
    "properties", "required", "additionalProperties", "prefixItems", "items", "contains", "anyOf", "allOf",
    "$ref", "$defs", "$schema", "title", "description", "default", "contentEncoding",
}  # fmt: skip


def violations(value: Any, schema: Any, root: dict[str, Any], place: str = "$") -> Iterator[str]:
    """Where a value breaks a schema; knows the keywords that ours use, and refuses others."""
    assert schema.keys() <= KNOWN, f"{place}: this test does not know {schema.keys() - KNOWN}"
    if "$ref" in schema:
        yield from violations(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, place)
    kind = schema.get("type")
    if kind and (not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        yield f"{place} is {value!r}, not {kind}"
        return
    yield from _plain(value, schema, place)
    for part in schema.get("allOf", ()):
        yield from violations(value, part, root, place)
    options = schema.get("anyOf", ())
    if options and all(any(violations(value, option, root, place)) for option in options):
        yield f"{place} is {value!r}, which is none of what it may be"
    if isinstance(value, dict):
        yield from (f"{place} has no {name}" for name in schema.get("required", ()) if name not in value)
        others, known = schema.get("additionalProperties", True), schema.get("properties", {})
        for name, item in value.items():
            if name in known or isinstance(others, dict):
                yield from violations(item, known.get(name, others), root, f"{place}.{name}")
            elif others is False:
                yield f"{place} has {name}, which is not described"
    if isinstance(value, list):
        named = schema.get("prefixItems", [])
        for index, item in enumerate(value):
            part = named[index] if index < len(named) else schema.get("items", {})
            yield from violations(item, part, root, f"{place}[{index}]")
        wanted = schema.get("contains")
        if wanted is not None and all(any(violations(item, wanted, root, place)) for item in value):
            yield f"{place} lacks one that fits {wanted}"


def _plain(value: Any, schema: Any, place: str) -> Iterator[str]:
    wrong = {
        "enum": lambda rule: value not in rule,
        "const": lambda rule: value != rule,
        "pattern": lambda rule: isinstance(value, str) and not re.search(rule, value),
        "minimum": lambda rule: isinstance(value, int | float) and value < rule,
        "maximum": lambda rule: isinstance(value, int | float) and value > rule,
        "exclusiveMinimum": lambda rule: isinstance(value, int | float) and value <= rule,
        "minItems": lambda rule: isinstance(value, list) and len(value) < rule,
        "maxItems": lambda rule: isinstance(value, list) and len(value) > rule,
    }
    for word, is_wrong in wrong.items():
        if word in schema and is_wrong(schema[word]):
            yield f"{place} is {value!r}; {word} is {schema[word]!r}"


def words_of(value: bytes) -> tuple[str, Any]:
    """The kind of a record and the JSON that its schema is about."""
    frame = open_frame(value)
    kind, payload = frame.schema.name.lower(), bytes(frame.payload)
    if kind in COLUMNS:
        (length,) = struct.unpack_from("<I", payload)
        payload = payload[4 : 4 + length]
    return kind, msgspec.json.decode(payload)


def check(value: bytes) -> str:
    """Hold a record against the schema of its kind, and return the kind."""
    kind, words = words_of(value)
    schema = SCHEMAS[f"{kind}.json"]
    assert list(violations(words, schema, schema)) == []
    return kind


# -- records, each made by the code that makes them in a run ---------------------------------------


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[Stream]:
    opened = EmbeddedStream(tmp_path / "stream")
    register(opened, RUN, config.resolve("CartPole-v1", {}))
    yield opened
    opened.close()


def values(stream: Stream, topic: str) -> list[bytes]:
    return [record.value for record in stream.reader(topic).read(100, 0)]


def rollout(spaces: Spaces) -> Rollout:
    block = Block.allocate(spaces, 5, 2)
    shown = {name: rows[0, 0] for name, rows in block.observations.items()}
    block.finals.append((3, 1, shown, None if block.masks is None else block.masks[0, 0]))
    facts = RolloutFacts(
        RUN, 0, 7, "i", Version(1, 6), 5, 2, (Start(0, 3, 1.5),) * 2, (Episode(1, 0, 9.0, 4, 3),),
        {"environment": 0.5}, time.time(),
    )  # fmt: skip
    return Rollout(facts, block.columns())


def trajectory() -> Trajectory:
    expected = Expected(RUN, RICH, off_policy=False)
    seen = {"observations": bytes(2 * 12), "observations/eye": bytes(2 * 192)}
    message = proto.Trajectory(
        sequence=1, length=2, observations=seen, actions=bytes(16), log_probs=bytes(8), rewards=bytes(8),
        masks=b"\1" * 10, foreign=b"\0\1",
        final_observations={name: column[: len(column) // 2] for name, column in seen.items()},
    )  # fmt: skip
    return expected.read(message, "0" * 32, Version(0, 0))


def policy(width: int) -> Policy:
    tensors = {"policy/0/weight": np.zeros((width, 4), np.float32)}
    description = PolicyDescription("ppo", "categorical", VECTOR, NetworkSpec())
    facts = PolicyFacts(
        RUN, Version(2, 7), weights_sha256(tensors), description, {0: 0, 1000: 3}, 640, {"epsilon": 0.1}
    )
    return Policy(facts, tensors)


def update() -> Update:
    used, dropped = (Used(0, 6, Version(1, 6)),), (Dropped(1, 5, "stale"),)
    return Update(
        Version(1, 7), used, dropped, {0: 0, 1000: 3}, {"learning_rate": 1e-4}, "ab", 64, {0: 3}, 1.0
    )


def records(stream: Stream, folder: Path) -> list[bytes]:
    """One of every kind at least."""
    damaged = stream.reader(topics.RUNS).read(1, 0)[0]
    set_aside(stream, topics.RUNS, damaged, "the checksum does not match")
    publisher = Publisher(stream, RUN, 2)
    publisher.publish(policy(16))
    small = values(stream, topics.model_updates(RUN))
    publisher.publish(policy(PIECE_BYTES // 8))  # compaction keeps the newest of each key
    return [
        bytes(rollout(VECTOR).encode()),
        bytes(rollout(RICH).encode()),
        encode(Schema.HELLO, Hello(RUN, 0, "i", RICH, 1, "here", 6, leaving=True)),
        encode_entry(Claim(1, 0, 1.0)),
        encode_entry(update()),
        command(RUN, "scale", {"actors": 3}).encode(),
        *values(stream, topics.RUNS),
        *values(stream, topics.DEAD_LETTERS),
        *small,
        *values(stream, topics.model_updates(RUN)),
        *reports(stream, folder),
        bytes(trajectory().encode()),
        encode(Schema.SOURCE, SourceRecord("0" * 32, [(1, 3), (5, 5)], 0, {0: 3})),
    ]


def reports(stream: Stream, folder: Path) -> list[bytes]:
    reporter = Reporter(stream, RUN)
    reporter.metrics({"losses/policy_loss": float("nan")})
    reporter.rollouts([rollout(VECTOR)], 7)
    about = policy(16).facts
    reporter.report(Progress(), about, {"accounting/used": 1}, checkpoint="", final=False, reason=None)
    reporter.report(Progress(), about, {}, checkpoint="2.7", final=True, reason="because")
    reporter.event("scaled", actors=3)
    actor = Actor(find(stream, RUN), 0, stream, Beat(folder / "beat"), lambda: False)
    actor._reported_at -= 60
    actor._report(rollout(VECTOR).facts)
    actor._event("resume_not_exact", environments=[0], reason="it rained")
    return values(stream, topics.METRICS_TRAINING) + values(stream, topics.METRICS_ACTORS)


def facts_of(words: Any, kind: str) -> dict[str, Any]:
    """The object that every record has: of columns, its facts."""
    return dict(words["facts"] if kind in COLUMNS else words)


def with_facts(words: Any, kind: str, facts: dict[str, Any]) -> Any:
    return {**words, "facts": facts} if kind in COLUMNS else facts


def is_right(words: Any, kind: str) -> bool:
    schema = SCHEMAS[f"{kind}.json"]
    return not any(violations(words, schema, schema))


# -- what is promised ------------------------------------------------------------------------------


def test_the_files_are_what_the_code_says():
    made = {name: text(schema) for name, schema in SCHEMAS.items()}
    kept = {path.name: path.read_bytes() for path in FOLDER.glob("*.json")}
    assert kept == made, "stale; make them anew: python -m penstock.schemas schemas"


def test_they_are_written_where_one_says(tmp_path: Path):
    write(tmp_path / "new")
    assert {path.name for path in (tmp_path / "new").iterdir()} == SCHEMAS.keys()


def test_records_of_every_kind_fit_their_schemas(stream: Stream, tmp_path: Path):
    kinds = {check(value) for value in records(stream, tmp_path)}
    assert kinds == {schema.name.lower() for schema in Schema}


OPTIONAL = ("removed", "leaving", "last_round", "acting", "final", "published_at", "request", "undoes", "packed",
            "taken", "floor", "position")  # fmt: skip
"""What newer records have and older ones lack."""


def test_a_fact_that_is_missing_or_of_another_type_does_not_fit(stream: Stream, tmp_path: Path):
    for kind, words in map(words_of, records(stream, tmp_path)):
        facts = facts_of(words, kind)
        for name, value in facts.items():
            other: Any = "no such thing" if isinstance(value, dict | list) else {"no": ["such", "thing"]}
            assert not is_right(with_facts(words, kind, {**facts, name: other}), kind), (kind, name)
            if name not in OPTIONAL or kind == "report":
                less = {key: item for key, item in facts.items() if key != name}
                assert not is_right(with_facts(words, kind, less), kind), (kind, name)


def test_every_field_of_a_record_is_described(stream: Stream, tmp_path: Path):
    for kind, words in map(words_of, records(stream, tmp_path)):
        facts = facts_of(words, kind)
        definitions = SCHEMAS[f"{kind}.json"]["$defs"].values()
        assert any(item.get("properties", {}).keys() == facts.keys() for item in definitions), (kind, facts)


@pytest.mark.parametrize(
    "change",
    [
        lambda columns: [column for column in columns if column[0] != "rewards"],
        lambda columns: [column for column in columns if not column[0].startswith("last/observations")],
        lambda columns: [*columns, ["thoughts", "<f4", [5, 2], 0]],
        lambda columns: [[name, "<f8", *rest] if name == "rewards" else [name, _, *rest] for name, _, *rest in columns],
        lambda columns: [[name, dtype, [*shape, 1], at] if name == "log_probs" else [name, dtype, shape, at]
                         for name, dtype, shape, at in columns],
        lambda columns: [column[:3] for column in columns],
    ],
    ids=["none of a name", "none of a group", "unknown", "another type", "another shape", "no place"],
)  # fmt: skip
def test_columns_that_no_rollout_has_do_not_fit(change: Any):
    for spaces in (VECTOR, RICH):
        kind, words = words_of(bytes(rollout(spaces).encode()))
        assert is_right(words, kind)
        assert not is_right({**words, "columns": change(words["columns"])}, kind)


def test_a_claim_on_kafka_fits_its_schema():
    from penstock.stream.kafka_claims import Proposal

    words = msgspec.json.decode(msgspec.json.encode(Proposal(RUN, 1, "token")))
    assert is_right(words, "claims")
    assert not is_right({**words, "epoch": "1"}, "claims")
    assert words.keys() == SCHEMAS["claims.json"]["$defs"]["EpochClaim"]["properties"].keys()


def test_the_frame_is_described_as_it_is():
    page = (FOLDER / "README.md").read_text()
    for schema in Schema:
        assert re.search(rf"^\| {schema:d} \| \[{schema.name.lower()}\.json\]", page, re.MULTILINE)
    for cap in (codec.MAX_PAYLOAD, codec.MAX_HEADER):
        assert f"{cap:,}" in page
    assert codec.COLUMN_TYPE.pattern in page
    assert f"at most {codec.MAX_DIMENSIONS} dimensions" in page
    assert (codec.MAGIC, codec.HEADER.format, codec.MAJOR, codec.MINOR) == (b"PNST", "<4sHBBIII", 1, 0)
    assert codec.ALIGNMENT == 64


def test_every_schema_says_where_its_records_are():
    for name, schema in SCHEMAS.items():
        assert schema["title"] == name.removesuffix(".json")
        assert "topic" in schema["description"].lower()
        assert "key: " in schema["description"]
