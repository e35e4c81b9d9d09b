"""Policy versions: the learner publishes them, actors load the greatest that holds.

Writes to and reads from: the topic `model_updates.<run>`. A version larger than a record of a Kafka
cluster with default settings travels in pieces, `<epoch>/0`, `<epoch>/1` …: compaction keeps the newest
of each, and a version counts once all its pieces are there.
"""

import time
from dataclasses import dataclass, field

import msgspec
import numpy as np

from penstock.errors import Conflict, Damaged
from penstock.logs import Log
from penstock.model import topics
from penstock.model.codec import (
    HEADER,
    MAX_PAYLOAD,
    Frame,
    Schema,
    decode_columns,
    encode_columns,
    open_frame,
)
from penstock.model.policy import Policy
from penstock.model.version import NONE, Version
from penstock.stream.base import Stream
from penstock.stream.records import RecordReader

PIECE_BYTES = 900_000
"""Kafka's default limit is 1,048,588 bytes, of which the frame, key and headers take some hundred."""


class PieceFacts(msgspec.Struct, frozen=True):
    """Which part of which version a piece is."""

    run: str
    version: Version
    index: int
    count: int
    length: int
    """Bytes of the whole."""


@dataclass(frozen=True, slots=True)
class Piece:
    facts: PieceFacts
    content: bytes

    @classmethod
    def decode(cls, frame: Frame) -> "Piece":
        facts, columns = decode_columns(frame, PieceFacts)
        content = columns.get("content")
        if content is None or content.dtype != np.uint8 or not 0 <= facts.index < facts.count:
            raise Damaged(f"a piece of version {facts.version} has no content or no place")
        if facts.length > MAX_PAYLOAD + HEADER.size or facts.count != pieces_of(facts.length):
            raise Damaged(f"version {facts.version} claims {facts.length} bytes in {facts.count} pieces")
        if content.size != min(PIECE_BYTES, facts.length - facts.index * PIECE_BYTES):
            raise Damaged(f"piece {facts.index} of version {facts.version} has {content.size} bytes")
        return cls(facts, content.tobytes())


def pieces_of(length: int) -> int:
    return -(-length // PIECE_BYTES)


class Publisher:
    """Publishes the versions of one epoch; refuses once another learner has claimed the run."""

    def __init__(self, stream: Stream, run: str, epoch: int) -> None:
        self._stream, self._run, self._epoch = stream, run, epoch
        self._writer = stream.writer(topics.model_updates(run))

    def check(self) -> None:
        """Raise Conflict when this learner's epoch is no longer current."""
        newest = self._stream.claimed(self._run)
        if newest != self._epoch:
            raise Conflict(
                f"run {self._run} was taken over by the learner of epoch {newest}; this is {self._epoch}"
            )

    def publish(self, policy: Policy) -> None:
        """Write the version, whole or in pieces; it counts for others once this returns."""
        whole = policy.encode()
        count = pieces_of(len(whole))
        if count == 1:
            self._writer.write(f"{self._epoch}/0", whole)
            return
        for index in range(count):
            facts = PieceFacts(self._run, policy.facts.version, index, count, len(whole))
            content = np.frombuffer(whole, np.uint8)[index * PIECE_BYTES : (index + 1) * PIECE_BYTES]
            self._writer.write(
                f"{self._epoch}/{index}", encode_columns(Schema.PIECE, facts, {"content": content})
            )


@dataclass(slots=True)
class Assembly:
    """The pieces of the greatest version that is on its way; others are let go."""

    version: Version = NONE
    pieces: dict[int, bytes] = field(default_factory=dict)

    def add(self, piece: Piece) -> Policy | None:
        """The policy once it is whole; raise Damaged where the whole does not hold."""
        if piece.facts.version > self.version:
            self.version, self.pieces = piece.facts.version, {}
        if piece.facts.version != self.version:
            return None
        self.pieces[piece.facts.index] = piece.content
        if len(self.pieces) < piece.facts.count:
            return None
        whole = b"".join(self.pieces[index] for index in range(piece.facts.count))
        self.pieces = {}
        return Policy.decode(open_frame(whole))


class Subscriber:
    """Follows the versions of a run and keeps the greatest."""

    def __init__(self, stream: Stream, run: str) -> None:
        self._reader = RecordReader(stream, topics.model_updates(run), _decode)
        self._run, self._assembly = run, Assembly()
        self._log = Log(process="policies", run=run)
        self.newest: Policy | None = None
        self.loaded_after = 0.0
        """Seconds from publishing to loading of the newest version."""

    @property
    def version(self) -> Version:
        return self.newest.facts.version if self.newest else NONE

    def poll(self, timeout: float) -> bool:
        """Read what is new, waiting up to `timeout` for it; whether a greater version came."""
        before = self.version
        for _, value in self._reader.read(64, timeout):
            self._take(value)
        return self.version > before

    def catch_up(self) -> None:
        """Read everything published so far; raise Unavailable where it cannot be had."""
        for batch in self._reader.drain(64):
            for _, value in batch:
                self._take(value)

    def close(self) -> None:
        self._reader.close()

    def _take(self, value: Policy | Piece) -> None:
        policy = self._assembled(value) if isinstance(value, Piece) else value
        if policy is not None and policy.facts.run == self._run and policy.facts.version > self.version:
            self.newest = policy
            self.loaded_after = time.time() - policy.facts.published_at

    def _assembled(self, piece: Piece) -> Policy | None:
        if piece.facts.version <= self.version:
            return None
        try:
            return self._assembly.add(piece)
        except Damaged as error:
            self._log.warning("version_refused", version=str(piece.facts.version), reason=str(error))
            return None


def _decode(frame: Frame) -> Policy | Piece:
    return Piece.decode(frame) if frame.schema is Schema.PIECE else Policy.decode(frame)
