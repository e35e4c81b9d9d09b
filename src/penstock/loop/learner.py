"""Rollouts in, policy versions out.

Reads from: `experiences.<run>`, `commands.control`. Writes to: `history.<run>`, `model_updates.<run>`,
`metrics.training` and checkpoints. One update at a time: gather one rollout of each rostered slot
(`loop.gathering`), learn (`loop.trainer`), write down what was used and what came out, publish.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from penstock.errors import ConfigError, PenstockError
from penstock.logs import Log
from penstock.loop.checkpoint import Checkpoint, CheckpointStore
from penstock.loop.commands import CommandReader
from penstock.loop.gathering import Gathering
from penstock.loop.intake import Ledger, open_intake, pending_count
from penstock.loop.policies import Publisher
from penstock.loop.recorded import read_history
from penstock.loop.registry import RunRecord
from penstock.loop.reports import Reporter
from penstock.loop.saving import Saver
from penstock.loop.trainer import ACTORS, Trainer
from penstock.model import topics
from penstock.model.clients import is_client
from penstock.model.commands import actors_of
from penstock.model.history import Claim, Lineage, Update, Used, encode_entry, lineage
from penstock.model.policy import Policy
from penstock.model.rollout import Rollout
from penstock.model.version import Version
from penstock.stream.base import Stream

WAIT_SECONDS = 0.25
REST_SECONDS = 0.05


class LearnerLoop:
    """Learns one run until a stop condition holds or it is told to stop."""

    def __init__(self, record: RunRecord, folder: Path, stream: Stream, stopping: Callable[[], bool]) -> None:
        self._run, self._spec, self._stream, self._stopping = record.run, record.spec, stream, stopping
        self._log = Log(process="learner", run=record.run)
        self._trainer = Trainer(record.run, record.spec)
        self._store = CheckpointStore(folder, record.spec.checkpoint.keep)
        self._saver = Saver(self._store)
        self._history = stream.writer(topics.history(record.run))
        self._reporter = Reporter(stream, record.run)
        self._commands = CommandReader(stream, record.run, record.commands, record.spec.actors.count)
        self._commands.catch_up()
        self._commands.seek(record.commands)
        self._resting = False
        self._intake = open_intake(stream, record.run, Ledger())
        self._recipes: deque[Update] = deque()
        """Updates that an earlier learner recorded behind our checkpoint: they are made again."""
        self._gathering: Gathering
        self._publisher: Publisher
        self._policy: Policy

    # -- the main path ---------------------------------------------------------------------------

    def run(self) -> str | None:
        """Learn; return why the run is done, or None when told to stop. Either way all is saved."""
        if not self._claim_and_restore():
            return None
        trainer = self._trainer
        self._publish(trainer.policy(self._gathering.roster, trainer.done() is not None))
        self._compile_ahead()
        while (reason := trainer.done()) is None and not self._stopping():
            rollouts = self._gather()
            if rollouts is not None:
                self._update(rollouts)
                self._save_if_due()
        self._save(ask=False)
        self._saver.wait()
        if error := self._after_save():
            raise error
        self._report(final=True, reason=reason)
        return reason

    def _gather(self) -> list[Rollout] | None:
        """One rollout of each rostered slot, in slot order; None when told to stop while waiting."""
        if self._recipes:
            return self._gather_recorded()
        step, began = self._trainer.version.step, time.monotonic()
        while not self._stopping():
            self._obey_commands()
            if self._rests():
                began = time.monotonic()
                continue
            slots = self._gathering.look(step)
            if slots is not None:
                self._reporter.spent("waiting", time.monotonic() - began)
                return self._gathering.take(slots, step)
            self._gathering.give_up_silent(step, began)
            if not self._intake.read(WAIT_SECONDS) and self._reporter.waiting:
                self._report()
            self._mind_the_gap()
        return None

    def _update(self, rollouts: list[Rollout]) -> None:
        """Learn from the rollouts, write down the update, publish the version."""
        trainer, began = self._trainer, time.perf_counter()
        measured = trainer.learn(rollouts)
        self._reporter.spent("learning", time.perf_counter() - began)
        trainer.progress.seconds += self._reporter.lap()
        policy = trainer.policy(self._gathering.roster, trainer.done() is not None)
        if self._recipes:
            self._compare(self._recipes.popleft(), policy)
        self._history.write(self._run, encode_entry(self._entry(rollouts, policy)))
        self._intake.dropped.clear()
        self._publish(policy)
        self._reporter.rollouts(rollouts, trainer.version.step - 1)
        self._reporter.metrics(measured)
        self._report()

    # -- starting --------------------------------------------------------------------------------

    def _claim_and_restore(self) -> bool:
        """Take the next epoch and stand where the newest sound checkpoint of this run's line ends.

        False when told to stop before there was anything to stand on.
        """
        epoch = self._stream.claim(self._run)
        self._publisher = Publisher(self._stream, self._run, epoch)
        line = lineage(read_history(self._stream, self._run))
        if not self._restore_newest(line) and not self._start_fresh():
            return False
        spec, trainer = self._spec.actors, self._trainer
        steps = None if is_client(self._spec.environment.id) else spec.rollout
        self._intake.expect(trainer.description.spaces, steps, spec.environments)
        base = trainer.version.step
        trainer.version = Version(epoch, base)
        self._recipes.extend(line.after(base))
        self._history.write(self._run, encode_entry(Claim(epoch, base, time.time())))
        self._log.info("learner_started", version=str(trainer.version), recorded=len(self._recipes))
        return True

    def _restore_newest(self, line: Lineage) -> bool:
        for version in self._store.versions():
            if not line.holds(version):
                continue
            try:
                head, state, policy = self._store.load(version)
                self._trainer.restore(head, state, policy)
            except (PenstockError, KeyError, ValueError) as error:
                self._event("checkpoint_refused", version=str(version), reason=str(error))
                continue
            self._restore_place(head)
            return True
        return False

    def _restore_place(self, head: Checkpoint) -> None:
        """Go on reading where the checkpoint stood."""
        self._commands.seek(head.commands)
        ledger = head.ledger
        end = self._stream.end(topics.experiences(self._run))
        if any(end.get(partition, 0) < offset for partition, offset in ledger.position.items()):
            self._event("log_lost", position=ledger.position, end=end)
            ledger = Ledger(marks=ledger.marks, counts=ledger.counts)
        self._intake.close()
        self._intake = open_intake(self._stream, self._run, ledger)
        self._gathering = self._gather_with(dict(head.roster))

    def _start_fresh(self) -> bool:
        """Wait for the first actor to say what its environment looks like, then begin at step 0."""
        if self._spec.origin is not None:  # it would go on, under the fork's name, as another run
            raise ConfigError(
                f"no checkpoint of {self._run} can be read, and a fork cannot begin anew; fork again: penstock "
                f"fork {self._spec.origin.run} --at {self._spec.origin.version}"
            )
        topic = topics.experiences(self._run)
        self._stream.protect(topic, dict.fromkeys(self._stream.end(topic), 0))  # until there is a checkpoint
        while not self._intake.hellos:
            self._intake.read(WAIT_SECONDS)
            if self._stopping():
                return False
        self._trainer.begin(next(iter(self._intake.hellos.values())).spaces)
        self._gathering = self._gather_with(dict.fromkeys(range(self._spec.actors.count), 0))
        return True

    def _gather_with(self, roster: dict[int, int]) -> Gathering:
        spaces = self._trainer.description.spaces
        return Gathering(self._intake, self._spec.pace, spaces, self._event, roster, self._actor_count())

    def _compile_ahead(self) -> None:
        """Compile while the actors make their first rollouts, where it is known how long these will be."""
        if self._spec.actors.trajectories is not None:
            return
        seconds = self._trainer.compile(self._spec.actors.environments * max(1, len(self._gathering.roster)))
        self._reporter.spent("learning", seconds)
        self._log.info("compiled", seconds=round(seconds, 3))

    # -- gathering -------------------------------------------------------------------------------

    def _gather_recorded(self) -> list[Rollout] | None:
        """The rollouts that an earlier learner recorded for this update, from the log."""
        recipe = self._recipes[0]
        wanted = [(used.slot, used.round) for used in recipe.used]
        if not self._intake.read_until(wanted):
            reason = (
                f"the log no longer holds its rollouts; {len(self._recipes)} recorded updates are given up"
            )
            self._event("resume_not_exact", version=str(recipe.version), reason=reason)
            self._mind_the_gap()
            self._recipes.clear()
            return self._gather()
        self._trainer.overrides = dict(recipe.overrides)
        self._gathering.roster, self._gathering.actors = dict(recipe.roster), self._actor_count()
        self._commands.seek(recipe.commands)
        rollouts = [self._intake.take(*place) for place in wanted]
        for dropped in recipe.dropped:
            if dropped.reason != "duplicate" and self._intake.has(dropped.slot, dropped.round):
                self._intake.drop(dropped.slot, dropped.round, dropped.reason)
        return rollouts

    def _mind_the_gap(self) -> None:
        """Retention may have dropped what nobody has learned from: told with its count, and a choice."""
        missed = self._intake.newly_missed()
        if not missed:
            return
        self._event("experience_lost", records=missed, on_gap=self._spec.stream.on_gap)
        if self._spec.stream.on_gap == "stop":
            raise ConfigError(
                f"retention dropped {missed} records of {topics.experiences(self._run)} that run {self._run} "
                "still needed; raise stream.retention_bytes or checkpoint more often, and go on without them by "
                f"penstock resume {self._run} --set stream.on_gap=go_on"
            )

    def _rests(self) -> bool:
        """While paused, wait a moment; what was learned is saved first. A pause is no time of training."""
        pause = self._commands.desired.state == "paused"
        if pause and not self._resting:
            self._trainer.progress.seconds += self._reporter.lap()
            self._save()
            self._event("paused", version=str(self._trainer.version))
        elif self._resting and not pause:
            self._reporter.lap()
            self._event("unpaused", version=str(self._trainer.version))
        self._resting = pause
        if pause:
            time.sleep(REST_SECONDS)
        return pause

    def _obey_commands(self) -> None:
        for command in self._commands.read():
            if command.verb == "set":
                self._change_settings(command.arguments)
            elif command.verb == "scale" and (count := actors_of(command)) is not None:
                self._trainer.overrides = self._trainer.overrides | {ACTORS: count}
                self._gathering.scale(count)
                self._event("scaled", actors=count)
            elif command.verb == "checkpoint":
                self._save()

    def _change_settings(self, changes: dict[str, Any]) -> None:
        try:
            self._trainer.change(changes)
        except PenstockError as error:
            self._event("settings_refused", reason=str(error))
        else:
            self._event("settings_changed", **changes)

    def _actor_count(self) -> int:
        return int(self._trainer.overrides.get(ACTORS, self._spec.actors.count))

    # -- one update ------------------------------------------------------------------------------

    def _publish(self, policy: Policy) -> None:
        self._policy = policy
        self._publisher.check()
        self._publisher.publish(policy)

    def _entry(self, rollouts: list[Rollout], policy: Policy) -> Update:
        used = tuple(Used(item.facts.slot, item.facts.round, item.facts.version) for item in rollouts)
        return Update(
            policy.facts.version, used, tuple(self._intake.dropped), dict(self._gathering.roster),
            dict(self._trainer.overrides), policy.facts.weights_sha256, policy.facts.environment_steps,
            self._commands.position(), time.time(),
        )  # fmt: skip

    def _compare(self, recipe: Update, policy: Policy) -> None:
        if policy.facts.weights_sha256 != recipe.weights_sha256:
            reason = "the update made again gave other weights"
            self._event("resume_not_exact", version=str(recipe.version), reason=reason)
            self._recipes.clear()

    # -- saving and telling ----------------------------------------------------------------------

    def _save_if_due(self) -> None:
        spec = self._spec.checkpoint
        updates = self._trainer.progress.updates
        by_count = spec.every_updates is not None and updates % spec.every_updates == 0
        # what no checkpoint covers may not be dropped: near the disk's budget checkpoints come sooner
        by_bytes = self._intake.bytes_read >= self._spec.stream.budget_bytes // (2 * (spec.keep + 2))
        if by_count or by_bytes or self._saver.seconds_since() >= spec.every_seconds:
            self._save()
        if self._saver.finished():
            self._after_save()

    def _save(self, ask: bool = True) -> None:
        """Store a checkpoint in the background, after the one before it is done.

        The last one does not ask whether this learner still leads: it must be saved also while brokers are
        away, and one of a learner that was replaced is off the line.
        """
        self._saver.wait()
        self._after_save()
        if ask:
            self._publisher.check()
        learner = self._trainer.learner
        state = learner.save(since=self._store.rows_saved)
        head = msgspec.structs.replace(
            self._trainer.head(self._gathering.roster),
            ledger=self._intake.ledger(),
            commands=self._commands.position(),
        )
        self._saver.start(head, state, self._policy, learner.memory_rows)

    def _after_save(self) -> PenstockError | None:
        error = self._saver.take_error()
        if error:
            self._event("checkpoint_failed", reason=str(error))
        elif position := self._store.oldest_position():
            self._stream.protect(topics.experiences(self._run), position)
        return error

    def _report(self, final: bool = False, reason: str | None = None) -> None:
        intake, flow = self._intake, self._stream.flow
        numbers = {f"accounting/{name}": count for name, count in intake.counts.items()}
        numbers |= {
            "accounting/pending": pending_count(intake),
            "accounting/dead_letters": intake.dead_letters,
            "accounting/missed": intake.missed,
            "stream/lag": intake.reader.lag(),
            **{f"stream/{name}": value for name, value in asdict(flow).items()},
        }
        checkpoint = str(self._saver.newest or "")
        self._reporter.report(
            self._trainer.progress, self._policy.facts, numbers, checkpoint=checkpoint, final=final, reason=reason
        )  # fmt: skip

    def _event(self, event: str, **fields: Any) -> None:
        self._log.warning(event, **fields)
        self._reporter.event(event, **fields)
