"""The gateway as the one actor of a run: it fills slot 1000 with rollouts, at the pace the learner sets.

Writes to: `experiences.<run>`. The learner cannot tell it from an actor that plays itself.
"""

import os
import socket
import time
import uuid

from penstock.loop.gateway.packing import Pack
from penstock.loop.registry import FIRST_GUEST, RunRecord
from penstock.model import topics
from penstock.model.codec import Schema, encode
from penstock.model.policy import Policy
from penstock.model.rollout import Hello, Packed, Rollout, RolloutFacts, decode_experience
from penstock.model.spaces import Spaces
from penstock.stream.base import Stream
from penstock.stream.records import backwards

SLOT = FIRST_GUEST
HELLO_AGAIN_SECONDS = 5.0


def last_rollout(stream: Stream, run: str) -> RolloutFacts | None:
    """The newest rollout that a gateway wrote."""
    for found in backwards(stream, topics.experiences(run), str(SLOT), decode_experience):
        if isinstance(found, Rollout):
            return found.facts
    return None


class Rounds:
    def __init__(self, stream: Stream, record: RunRecord, spaces: Spaces) -> None:
        self._record, self._spaces = record, spaces
        self.incarnation = uuid.uuid4().hex[:12]
        self._writer = stream.writer(topics.experiences(record.run))
        self._said_at = float("-inf")
        self._waited_since = time.monotonic()
        self.last_round = -1
        self.packed: Packed | None = None
        """How far the newest rollout of the slot had packed."""
        if (last := last_rollout(stream, record.run)) is not None:
            self.last_round, self.packed = last.round, last.packed

    def turn(self, policy: Policy | None) -> int | None:
        """The round that may be written now; None while the pace forbids one."""
        if policy is None or policy.facts.final or SLOT not in policy.facts.roster:
            return None
        step = policy.facts.version.step
        # a rostered slot is never behind the newest step, unless it lost its part of the log
        round = max(self.last_round + 1, policy.facts.roster[SLOT], step)
        return round if step >= round - self._record.spec.pace.lead else None

    def write(self, round: int, pack: Pack) -> RolloutFacts:
        """Append one rollout; once it is in the log, what it packed is accounted for."""
        now = time.monotonic()
        facts = RolloutFacts(
            self._record.run, SLOT, round, self.incarnation, pack.version, pack.steps, 1, (pack.start,),
            pack.episodes, {"waiting": now - self._waited_since}, time.time(), pack.packed,
        )  # fmt: skip
        self._writer.write(str(SLOT), Rollout(facts, pack.columns).encode())
        self.last_round, self.packed, self._waited_since = round, pack.packed, now
        return facts

    def say_hello(self, *, leaving: bool = False) -> None:
        """A sign of life, now and then: whoever learns waits for this slot no longer than it lives."""
        if not leaving and time.monotonic() - self._said_at < HELLO_AGAIN_SECONDS:
            return
        hello = Hello(
            self._record.run, SLOT, self.incarnation, self._spaces, os.getpid(), socket.gethostname(),
            self.last_round, leaving,
        )  # fmt: skip
        self._writer.write(str(SLOT), encode(Schema.HELLO, hello))
        self._said_at = time.monotonic()
