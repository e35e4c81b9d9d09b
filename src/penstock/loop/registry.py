"""The topic `runs`: all that a process needs to join a run, and the topics a run lives in."""

import time

import msgspec

from penstock.errors import Damaged, NotFound, nearest
from penstock.model import topics
from penstock.model.clients import is_client
from penstock.model.codec import Schema, decode, encode, open_frame
from penstock.model.spec import Spec
from penstock.stream.base import Position, Record, Stream, TopicPolicy
from penstock.stream.shared import CLAIMS, SHARED

FIRST_GUEST = 1000
"""Slots from here on are filled by actors that nobody of the run started (`penstock actor RUN`)."""
HISTORY_BYTES = 64 << 20
"""Some hundred thousand updates: far more than lies behind any kept checkpoint."""


class RunRecord(msgspec.Struct, frozen=True):
    """What an actor or a learner is told about its run."""

    run: str
    spec: Spec
    commands: Position
    """Commands for this run stand behind this position."""
    created_at: float
    removed: bool = False
    """Whether its topics were deleted; the name is free again."""


def topics_of(run: str, spec: Spec) -> dict[str, TopicPolicy]:
    """Every topic a run needs, and how it is kept."""
    stream = spec.stream
    experiences = TopicPolicy(
        stream.retention_bytes, stream.retention_seconds, partitions=stream.kafka.partitions
    )
    claims = {} if stream.url == "embedded" else {topics.CLAIMS: CLAIMS}
    clients = {}
    if is_client(spec.environment.id):
        # one partition: trajectories have one order, and what is packed of them is one position
        clients = {
            topics.trajectories(run): TopicPolicy(stream.retention_bytes),
            topics.sources(run): TopicPolicy(compact=True),
        }
    return {
        **SHARED,
        **claims,
        **clients,
        topics.experiences(run): experiences,
        topics.model_updates(run): TopicPolicy(compact=True),
        topics.history(run): TopicPolicy(retention_bytes=HISTORY_BYTES),
    }


def register(stream: Stream, run: str, spec: Spec, commands: Position | None = None) -> RunRecord:
    """Make the run's topics and tell everybody about it; its commands start at `commands`, or now."""
    for topic, policy in topics_of(run, spec).items():
        stream.ensure(topic, policy)
    start = stream.end(topics.COMMANDS) if commands is None else commands
    record = RunRecord(run, spec, start, time.time())
    _tell(stream, record)
    return record


def registered(stream: Stream) -> dict[str, Record]:
    """The records of all runs that were not removed, still to be read, by name."""
    known = {record.key: record for record in stream.newest(topics.RUNS)}
    return {run: record for run, record in known.items() if not _is_removed(record)}


def find(stream: Stream, run: str) -> RunRecord:
    """The record of a run; raise NotFound with the nearest name."""
    known = registered(stream)
    if run not in known:
        raise NotFound(f"no run {run!r} in this stream{nearest(run, known)}")
    try:
        return decode(open_frame(known[run].value), RunRecord)
    except Damaged as error:
        raise Damaged(f"the record of run {run} cannot be read: {error}") from error


def unregister(stream: Stream, run: str, keep_topics: bool = False) -> None:
    """Free a run's name and delete its topics, unless somebody else made them."""
    if not keep_topics:
        stream.remove_run(run)
    if run in registered(stream):
        record = msgspec.structs.replace(find(stream, run), removed=True)
        _tell(stream, record)


def guest_slot(stream: Stream, run: str) -> int:
    """A slot for an actor that nobody of the run started; no two get the same."""
    return FIRST_GUEST + stream.claim(f"{run}/guests") - 1


def _tell(stream: Stream, record: RunRecord) -> None:
    writer = stream.writer(topics.RUNS)
    writer.write(record.run, encode(Schema.RUN, record))
    writer.close()


def _is_removed(record: Record) -> bool:
    """One that cannot be read is still there: its name is not free."""
    try:
        return decode(open_frame(record.value), RunRecord).removed
    except Damaged:
        return False
