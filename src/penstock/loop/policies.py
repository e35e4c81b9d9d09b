"""Policy versions: the learner publishes them, actors load the greatest that holds.

Writes to and reads from: the topic `model_updates.<run>`.
"""

import time

from penstock.errors import Conflict
from penstock.model import topics
from penstock.model.policy import Policy
from penstock.model.version import NONE, Version
from penstock.stream.base import Stream
from penstock.stream.records import RecordReader


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
        self._writer.write(f"{self._epoch}/0", policy.encode())


class Subscriber:
    """Follows the versions of a run and keeps the greatest."""

    def __init__(self, stream: Stream, run: str) -> None:
        self._reader = RecordReader(stream, topics.model_updates(run), Policy.decode)
        self.newest: Policy | None = None
        self.loaded_after = 0.0
        """Seconds from publishing to loading of the newest version."""

    @property
    def version(self) -> Version:
        return self.newest.facts.version if self.newest else NONE

    def poll(self, timeout: float) -> bool:
        """Read what is new, waiting up to `timeout` for it; whether a greater version came."""
        before = self.version
        for _, policy in self._reader.read(64, timeout):
            if policy.facts.version > self.version:
                self.newest = policy
                self.loaded_after = time.time() - policy.facts.published_at
        return self.version > before

    def close(self) -> None:
        self._reader.close()
