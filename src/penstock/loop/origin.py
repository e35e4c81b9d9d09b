"""A run that comes from another: the origin, only read, and what a fork and a replay of it share.

Reads from: the origin's checkpoints, `history.<origin>` and `experiences.<origin>`; never writes there.
Writes to: `metrics.training` and the checkpoints of the new run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from penstock.errors import ConfigError, Damaged, NotFound, PenstockError
from penstock.logs import Log
from penstock.loop.checkpoint import INDEX, Checkpoint, CheckpointStore, load_policy
from penstock.loop.files import read_json
from penstock.loop.recorded import Past, missing_steps, read_past, told
from penstock.loop.registry import RunRecord
from penstock.loop.rehearsal import Made, Overrides, first_spaces
from penstock.loop.reports import Reporter
from penstock.loop.runs import RunFolder
from penstock.loop.trainer import Trainer
from penstock.model.policy import Policy, PolicyDescription
from penstock.model.spec import Spec
from penstock.model.version import Version
from penstock.stream.base import Position, Stream


@dataclass(frozen=True)
class Origin:
    """The run that another comes from."""

    folder: RunFolder
    stream: Stream

    @property
    def run(self) -> str:
        return self.folder.run

    @cached_property
    def spec(self) -> Spec:
        return self.folder.spec()

    @cached_property
    def past(self) -> Past:
        return read_past(self.stream, self.folder)

    @cached_property
    def description(self) -> PolicyDescription | None:
        """Of its policies, as a checkpoint tells; None where none can be read."""
        for version in reversed(self.past.checkpoints):
            try:
                return load_policy(self.folder.checkpoint_path(version)).facts.description
            except PenstockError:
                continue
        return None

    def find(self, text: str) -> Version:
        """A version of its line; raise NotFound with those that can be had."""
        newest = self.past.newest
        try:
            return self.past.find(text, self.folder.best()) if text != "newest" else newest
        except NotFound as error:
            raise NotFound(f"{error}; {self.can_be_had()}") from error

    def overrides(self, version: Version) -> dict[str, Any]:
        """The settings that were changed while it ran, as they hold in this version."""
        update = self.past.update(version.step)
        if update is not None:
            return dict(update.overrides)
        if version not in self.past.checkpoints:
            return {}
        return dict(read_json(self.folder.checkpoint_path(version) / INDEX, Checkpoint).overrides)

    def can_be_had(self, broken: frozenset[int] = frozenset()) -> str:
        """Which versions can, in words, where these steps cannot be made again; reads the whole log."""
        gone = missing_steps(self.stream, self.run, self.past.updates, None)
        return told(self.past.had(gone | broken))

    def begin(self, trainer: Trainer) -> None:
        """Stand at step 0, as the origin did or as another algorithm would have."""
        known = self.description
        trainer.begin(known.spaces if known is not None else first_spaces(self.stream, self.run))

    def restore(self, trainer: Trainer, start: Version | None) -> Position | None:
        """Stand at a checkpoint, or for None at the beginning; returns where its log goes on. Raises Damaged."""
        if start is None:
            self.begin(trainer)
            return None
        store = CheckpointStore(self.folder.path, self.spec.checkpoint.keep, reading=True)
        try:
            head, state, policy = store.load(start)
            trainer.restore(head, state, policy)
        except (KeyError, ValueError) as error:
            raise Damaged(f"checkpoint {start} of {self.run} cannot be read: {error}") from error
        return head.ledger.position


@dataclass
class Descendant:
    """A run with an origin, as its learner sees it."""

    record: RunRecord
    folder: Path
    stream: Stream
    origin: Origin
    stopping: Callable[[], bool]

    def __post_init__(self) -> None:
        assert self.record.spec.origin is not None
        self.run, self.spec = self.record.run, self.record.spec
        self.until = Version.parse(self.record.spec.origin.version)
        self.store = CheckpointStore(self.folder, self.spec.checkpoint.keep)
        self._reporter, self._log = Reporter(self.stream, self.run), Log(process="learner", run=self.run)

    def tell(self, event: str, **fields: object) -> None:
        """An event of the new run."""
        self._log.info(event, **fields)
        self._reporter.event(event, **fields)

    def follow(self, made: Made, trainer: Trainer) -> None:
        """Report an update that was made again."""
        self._reporter.spent("learning", made.seconds)
        self._reporter.metrics(made.measured)
        self._report(trainer, made.policy, "", None)

    def conclude(self, trainer: Trainer, policy: Policy, checkpoint: Path, reason: str) -> None:
        """Report how it ended."""
        self._report(trainer, policy, str(checkpoint), reason)

    def save(self, trainer: Trainer, policy: Policy, head: Checkpoint) -> Path:
        """Write a checkpoint of the new run."""
        state = trainer.learner.save(since=self.store.rows_saved)
        head = msgspec.structs.replace(head, commands=self.record.commands)
        return self.store.write(head, state, policy, trainer.learner.memory_rows)

    def become_foreign(self, trainer: Trainer) -> None:
        """Learn from what other policies did; refuse where the log lacks what that needs."""
        trainer.foreign = True
        known, there = self.origin.description, self.origin.spec.algorithm
        if known is not None and known.head == "q" and trainer.description.head != "q":
            raise ConfigError(
                f"{self.spec.algorithm} learns from the probabilities of actions, and the log of "
                f"{self.origin.run} has none, because {there} made it; use {there}"
            )

    def _report(self, trainer: Trainer, policy: Policy, checkpoint: str, reason: str | None) -> None:
        self._reporter.report(
            trainer.progress, policy.facts, {}, checkpoint=checkpoint, final=reason is not None, reason=reason
        )


def learns_alike(spec: Spec, origin: Spec) -> bool:
    """Whether the same rollouts must give the same weights."""
    return (spec.algorithm, spec.settings, spec.network, spec.seed) == (
        origin.algorithm, origin.settings, origin.network, origin.seed
    )  # fmt: skip


def overrides_for(spec: Spec, origin: Spec) -> Overrides:
    """The settings that were changed in the origin, as far as they mean something here and were not chosen anew."""
    if spec.algorithm != origin.algorithm:
        return lambda update: {}
    chosen = {name for name, value in spec.settings.items() if origin.settings.get(name) != value}
    return lambda update: {name: value for name, value in update.overrides.items() if name not in chosen}
