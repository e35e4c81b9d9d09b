"""Which gateway serves a policy: one of all that share a log.

A gateway that takes a policy claims the next epoch of its name, as a learner does with its run. Whoever has an
older one has lost the policy and ends. Nobody takes one whose gateway is heard of: it reports every second.

Reads from: `metrics.actors`. Writes to: the claims of the log.
"""

import contextlib
import os
import socket
import threading
import time
from pathlib import Path

import msgspec

from penstock.errors import Conflict, Damaged
from penstock.loop.files import read_json, write_atomically
from penstock.model import topics
from penstock.model.codec import Frame, decode
from penstock.stream.base import Stream
from penstock.stream.records import RecordReader

FILE = "gateway_policies.json"
SILENT_SECONDS = 10.0
"""A gateway that reports nothing for so long is gone; it tells of itself every second."""
REFUSED_SECONDS = 5.0
"""For so long a refusal is repeated without listening again: clients come back often."""


class Holder(msgspec.Struct, frozen=True):
    """A gateway as others hear of it: where a person finds it."""

    home: str
    host: str
    pid: int


class Held(msgspec.Struct, frozen=True):
    """What a home remembers of a policy it took: so it goes on at once when it starts again."""

    epoch: int
    run: str


class _Report(msgspec.Struct, frozen=True):
    """What is looked at of a gateway's report; actors that play themselves have no holder."""

    run: str
    served_by: Holder | None = None


class Lost(Conflict):
    """Another gateway has taken the policy."""


class Holding:
    """One policy that this gateway has taken."""

    def __init__(self, stream: Stream, policy: str, epoch: int, holder: Holder) -> None:
        self._stream, self._policy = stream, policy
        self.epoch, self.holder = epoch, holder

    def check(self) -> None:
        """Raise Lost where another gateway has taken it since."""
        if self._stream.claimed(_name(self._policy)) != self.epoch:
            raise Lost(
                f"another gateway on this log has taken policy {self._policy}; send its clients there, or end that one"
            )


class Holdings:
    """Takes policies for the gateway of one home. Any thread; one at a time for each policy."""

    def __init__(self, home: Path, stream: Stream) -> None:
        self._file, self._stream = home / FILE, stream
        self._holder = Holder(str(home), socket.gethostname(), os.getpid())
        self._lock = threading.Lock()
        self._held: dict[str, Held] = {}
        with contextlib.suppress(Damaged):  # without it a start only waits a little longer
            self._held = read_json(self._file, dict[str, Held])
        self._refused: dict[str, tuple[float, Conflict]] = {}

    def served(self, policy: str) -> str | None:
        """The run that this home served the policy by when it last did."""
        held = self._held.get(policy)
        return None if held is None else held.run

    def is_ours(self, policy: str, run: str) -> bool:
        """Whether nobody has served the policy since this home did; so on a log of its own."""
        held = Held(self._stream.claimed(_name(policy)), run)
        return not self._stream.shared or self._held.get(policy) == held

    def take(self, policy: str, run: str | None) -> Holding:
        """The policy, learned by `run` where it has one; raise Conflict where a living gateway serves it."""
        epoch = self._stream.claimed(_name(policy))
        # a gateway holds the lock of its home: who had this epoch from here is no more
        if run is None or self._held.get(policy) != Held(epoch, run):
            if run is not None and epoch and self._stream.shared:
                self._refuse_if_served(policy, run)
            epoch = self._stream.claim(_name(policy))
        return Holding(self._stream, policy, epoch, self._holder)

    def remember(self, policy: str, run: str, holding: Holding) -> None:
        """Write down that this home serves it."""
        held = Held(holding.epoch, run)
        with self._lock:
            if self._held.get(policy) != held:
                self._held[policy] = held
                write_atomically(self._file, msgspec.json.encode(self._held))

    def _refuse_if_served(self, policy: str, run: str) -> None:
        until, refusal = self._refused.pop(policy, (0.0, None))
        if refusal is None or time.monotonic() > until:
            other = _heard_of(self._stream, run)
            if other is None:
                return
            refusal = Conflict(
                f"policy {policy} is served by the gateway of {other.home} on {other.host} (pid {other.pid}), which "
                "shares this log; send its clients there, end that gateway, or choose another client_id"
            )
            until = time.monotonic() + REFUSED_SECONDS
        self._refused[policy] = (until, refusal)
        raise refusal


def _heard_of(stream: Stream, run: str) -> Holder | None:
    """The gateway that reports of this run now; None once it was silent for a while."""
    reader = RecordReader(stream, topics.METRICS_ACTORS, _report, stream.end(topics.METRICS_ACTORS))
    until = time.monotonic() + SILENT_SECONDS
    try:
        while (left := until - time.monotonic()) > 0:
            for _, report in reader.read(256, min(left, 1.0)):
                if report.run == run and report.served_by is not None:
                    return report.served_by
    finally:
        reader.close()
    return None


def _report(frame: Frame) -> _Report:
    return decode(frame, _Report)


def _name(policy: str) -> str:
    return f"gateway/{policy}"
