"""Training from a recorded log alone: no actors, no environment, no code of users.

With the origin's algorithm and settings every update must give the weights that were recorded, so the
end is the same to the bit. With others the same rollouts are learned in the same order.
"""

import time
from contextlib import closing
from pathlib import Path

from penstock.errors import ConfigError, Damaged, NotFound, PenstockError
from penstock.loop.origin import Descendant, learns_alike, overrides_for
from penstock.loop.recorded import missing_steps
from penstock.loop.rehearsal import NotAgain, RecordedRollouts, rehearse
from penstock.loop.trainer import Trainer
from penstock.model.history import Update
from penstock.model.policy import Policy
from penstock.model.version import Version

BEGINNING = "the beginning"


class Replay:
    """Learns one recorded line of updates, from its first to a given one."""

    def __init__(self, child: Descendant) -> None:
        self._child, self._origin = child, child.origin
        self._trainer = Trainer(child.run, child.spec)
        self._exact = learns_alike(child.spec, child.origin.spec)
        self._saved_at = time.monotonic()

    def run(self) -> str | None:
        """Learn; return how it ended, or None when told to stop. Either way all is saved."""
        child, trainer, origin = self._child, self._trainer, self._origin
        updates = origin.past.between(0, child.until.step)
        gone = missing_steps(origin.stream, origin.run, updates, None)
        began = self._stand(updates, gone)
        trainer.version = Version(child.stream.claim(child.run), trainer.version.step)
        there = [update for update in updates if update.version.step not in gone]
        finished = self._learn([update for update in there if update.version.step > trainer.version.step])
        path = self._save()
        if not finished:
            return None
        missing = child.until.step - trainer.progress.updates
        child.tell(
            "replayed", origin=origin.run, version=str(child.until), began_at=began, missing=missing,
            equal=self._exact or "other settings: nothing to compare with",
        )  # fmt: skip
        reason = self._summary(began, missing)
        child.conclude(trainer, self._policy(), path, reason)
        return reason

    def _stand(self, updates: list[Update], gone: set[int]) -> str:
        """Stand where an earlier life of this replay was, or as early as the log allows; returns where."""
        if self._resumed():
            return str(self._trainer.version)
        if self._exact:
            return self._oldest_start(gone)
        if len(gone) == len(updates):
            raise NotFound(f"the log of {self._origin.run} holds none of its rollouts any more")
        self._origin.begin(self._trainer)
        self._child.become_foreign(self._trainer)
        return BEGINNING

    def _resumed(self) -> bool:
        for version in self._child.store.versions():
            try:
                self._trainer.restore(*self._child.store.load(version))
            except (PenstockError, KeyError, ValueError) as error:
                self._child.tell("checkpoint_refused", version=str(version), reason=str(error))
                continue
            self._trainer.foreign = not self._exact
            return True
        return False

    def _oldest_start(self, gone: set[int]) -> str:
        """The beginning, or the oldest checkpoint from which nothing is missing."""
        latest_gone = max(gone, default=0)
        for start in reversed(self._origin.past.starts(self._child.until.step)):
            if (start.step if start else 0) < latest_gone:
                continue
            try:
                self._origin.restore(self._trainer, start)
            except Damaged as error:
                self._child.tell("checkpoint_refused", version=str(start), reason=str(error))
                continue
            return str(start or BEGINNING)
        raise NotFound(
            f"the log of {self._origin.run} lacks rollouts up to update {latest_gone}, and no checkpoint behind it "
            f"leads to {self._child.until}; {self._origin.can_be_had()}"
        )

    def _learn(self, updates: list[Update]) -> bool:
        """Make these updates, saving now and then; False when told to stop."""
        child, origin = self._child, self._origin
        overrides = overrides_for(child.spec, origin.spec)
        with closing(RecordedRollouts(origin.stream, origin.run, updates, None)) as rollouts:
            try:
                for made in rehearse(rollouts, updates, self._trainer, overrides, self._exact):
                    child.follow(made, self._trainer)
                    if child.stopping():
                        return False
                    if time.monotonic() - self._saved_at > child.spec.checkpoint.every_seconds:
                        self._save()
            except NotAgain as error:
                raise ConfigError(
                    f"this replay is not equal to {origin.run}: {error}; "
                    "learn from the log all the same with another seed: --set seed=…"
                ) from error
        return True

    def _save(self) -> Path:
        self._saved_at = time.monotonic()
        return self._child.save(self._trainer, self._policy(), self._trainer.head({}))

    def _policy(self) -> Policy:
        return self._trainer.policy({}, final=False)

    def _summary(self, began: str, missing: int) -> str:
        origin, until = self._origin.run, self._child.until
        if self._exact:
            since = "" if began == BEGINNING else f", from {began} on"
            return (
                f"the recorded updates of {origin} up to {until} were learned again{since}: equal to the bit"
            )
        words = (
            f"{self._trainer.progress.updates:,} recorded updates of {origin}, up to {until}, were learned"
        )
        return words + (f"; {missing:,} are missing in the log" if missing else "")
