"""Makes recorded updates again: which rollouts, in which order and under which settings, the history says.

Reads from: `experiences.<origin>`. Works at any pace, because a recorded update names every rollout it
used; `fork` and `replay` are both made of this.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.errors import NotFound, PenstockError
from penstock.loop.recorded import BATCH
from penstock.loop.trainer import Trainer
from penstock.model import topics
from penstock.model.history import Update, Used
from penstock.model.policy import Policy
from penstock.model.rollout import Hello, Rollout, decode_experience
from penstock.model.spaces import Spaces
from penstock.model.version import Version
from penstock.stream.base import Position, Stream
from penstock.stream.records import RecordReader, behind


class NotAgain(PenstockError):
    """A recorded update that cannot be made again, and why."""

    def __init__(self, update: Update, reason: str) -> None:
        super().__init__(reason)
        self.step = update.version.step


@dataclass(frozen=True, slots=True)
class Made:
    """A recorded update, made again."""

    update: Update
    measured: dict[str, float]
    policy: Policy
    seconds: float
    """Of learning alone."""


class RecordedRollouts:
    """The rollouts of some updates, read once, in the order of the log; only what is still needed is held."""

    def __init__(self, stream: Stream, run: str, updates: Sequence[Update], start: Position | None) -> None:
        self._wanted = {(used.slot, used.round): used.version for update in updates for used in update.used}
        self._here: dict[tuple[int, int], Rollout] = {}
        if start is not None and behind(stream.end(topics.experiences(run)), start):
            start = None  # the log was lost and begun anew: offsets of the old one say nothing
        self._reader = RecordReader(stream, topics.experiences(run), decode_experience, start)
        self._batches = self._reader.drain(BATCH)

    def take(self, update: Update) -> list[Rollout]:
        """What this update used, in its order; raise NotAgain where the log no longer holds it."""
        while not all((used.slot, used.round) in self._here for used in update.used):
            batch = next(self._batches, None)
            if batch is None:
                gone = next(used for used in update.used if (used.slot, used.round) not in self._here)
                raise NotAgain(update, f"the log no longer holds {_named(gone)} of version {update.version}")
            for _, value in batch:
                if isinstance(value, Rollout):
                    self._keep(value)
        return [self._here.pop((used.slot, used.round)) for used in update.used]

    def close(self) -> None:
        self._reader.close()

    def _keep(self, rollout: Rollout) -> None:
        """The first record of a place counts, as it did for the learner; what nobody needs is let go."""
        place = (rollout.facts.slot, rollout.facts.round)
        if self._wanted.get(place) == rollout.facts.version:
            del self._wanted[place]
            self._here[place] = rollout


Overrides = Callable[[Update], dict[str, Any]]
"""Settings changed while the run went on, as they hold in the update made again."""


def recorded_overrides(update: Update) -> dict[str, Any]:
    return dict(update.overrides)


def rehearse(
    rollouts: RecordedRollouts, updates: Sequence[Update], trainer: Trainer, overrides: Overrides, exact: bool
) -> Iterator[Made]:
    """Make the updates again, one after the other.

    With `exact` each must give the weights it gave before; raises NotAgain where one cannot or does not.
    """
    for update in updates:
        used = rollouts.take(update)
        began = time.perf_counter()
        trainer.overrides = overrides(update)
        # steps are the origin's also where some are missing: how old a rollout is counts in them
        trainer.version = Version(trainer.version.epoch, update.version.step - 1)
        measured = trainer.learn(used)
        seconds = time.perf_counter() - began
        trainer.progress.seconds += seconds
        policy = trainer.policy({}, final=False)
        if exact and policy.facts.weights_sha256 != update.weights_sha256:
            raise NotAgain(update, difference(update, policy))
        yield Made(update, measured, policy, seconds)


def difference(update: Update, policy: Policy) -> str:
    """Why two results that should be equal may differ, in words."""
    return (
        f"version {update.version} made again has the weights {policy.facts.weights_sha256[:12]}…, and "
        f"{update.weights_sha256[:12]}… were recorded (other packages, another processor, or other "
        "learner.threads than then)"
    )


def first_spaces(stream: Stream, run: str) -> Spaces:
    """What the first actor said of its environment, as far as the log goes back; raise NotFound."""
    reader = RecordReader(stream, topics.experiences(run), decode_experience)
    try:
        for batch in reader.drain(BATCH):
            for _, value in batch:
                if isinstance(value, Hello):
                    return value.spaces
    finally:
        reader.close()
    raise NotFound(f"the log of {run} no longer says what its environment looks like, and no checkpoint does")


def _named(used: Used) -> str:
    return f"round {used.round} of slot {used.slot}"
