"""Rollouts in, policy versions out.

Reads from: `experiences.<run>`, `commands.control`. Writes to: `history.<run>`, `model_updates.<run>`,
`metrics.training` and checkpoints. One update at a time: gather one rollout of each rostered slot,
learn, write down what was used and what came out, publish.
"""

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from penstock import plugins
from penstock.algorithms.base import Algorithm, Batch, Learner
from penstock.algorithms.settings import Settings, live_values, read
from penstock.errors import Diverged, PenstockError
from penstock.logs import Log
from penstock.loop.checkpoint import Checkpoint, CheckpointStore, Progress
from penstock.loop.commands import CommandReader, actors_of
from penstock.loop.intake import Intake, Ledger, open_intake, pending_count
from penstock.loop.policies import Publisher
from penstock.loop.registry import RunRecord
from penstock.loop.reports import Reporter
from penstock.loop.saving import Saver
from penstock.model import topics
from penstock.model.codec import Array
from penstock.model.history import Claim, Entry, Update, Used, decode_entry, encode_entry, lineage
from penstock.model.policy import Policy, PolicyDescription, PolicyFacts, weights_sha256
from penstock.model.rollout import Block, Rollout, join
from penstock.model.version import Version
from penstock.stream.base import Stream
from penstock.stream.records import RecordReader

WAIT_SECONDS = 0.25


class LearnerLoop:
    """Learns one run until a stop condition holds or it is told to stop."""

    def __init__(self, record: RunRecord, folder: Path, stream: Stream, stopping: Callable[[], bool]) -> None:
        self._run, self._spec, self._stream, self._stopping = record.run, record.spec, stream, stopping
        self._log = Log(process="learner", run=record.run)
        self._algorithm: type[Algorithm] = plugins.load("algorithms", record.spec.algorithm)
        self._kind: type[Settings] = plugins.load("settings", record.spec.algorithm)
        self._store = CheckpointStore(folder, record.spec.checkpoint.keep)
        self._saver = Saver(self._store)
        self._history = stream.writer(topics.history(record.run))
        self._reporter = Reporter(stream, record.run)
        self._commands = CommandReader(stream, record.run, record.commands)
        self._progress = Progress()
        self._roster = dict.fromkeys(range(record.spec.actors.count), 0)
        self._overrides: dict[str, Any] = {}
        self._recipes: deque[Update] = deque()
        self._intake: Intake
        self._learner: Learner
        self._description: PolicyDescription
        self._version: Version
        self._publisher: Publisher
        self._policy: Policy
        self._heard: dict[int, float] = {}

    # -- the main path ---------------------------------------------------------------------------

    def run(self) -> str | None:
        """Learn; return why the run is done, or None when told to stop. Either way all is saved."""
        if not self._claim_and_restore():
            return None
        self._intake.expect(
            self._description.spaces, self._spec.actors.rollout, self._spec.actors.environments
        )
        self._publish(self._done())
        self._compile_ahead()
        while (reason := self._done()) is None and not self._stopping():
            rollouts = self._gather()
            if rollouts is not None:
                self._update(rollouts)
                self._save_if_due()
        self._save()
        self._saver.wait()
        if error := self._after_save():
            raise error
        self._report(final=True, reason=reason)
        return reason

    def _gather(self) -> list[Rollout] | None:
        """One rollout of each rostered slot, in slot order; None when told to stop while waiting."""
        if self._recipes:
            return self._gather_recorded()
        step, began = self._version.step, time.monotonic()
        while not self._stopping():
            self._obey_commands()
            self._welcome()
            self._set_aside_stale()
            expected = [slot for slot, joined in sorted(self._roster.items()) if joined <= step]
            missing = [slot for slot in expected if not self._answered(slot)]
            if not missing and (expected or self._newcomers()):
                self._reporter.spent("waiting", time.monotonic() - began)
                return [self._intake.take(slot, step) for slot in expected if self._intake.has(slot, step)]
            self._give_up_silent(missing, began)
            if not self._intake.read(WAIT_SECONDS) and self._reporter.waiting:
                self._report()
        return None

    def _update(self, rollouts: list[Rollout]) -> None:
        """Learn from the rollouts, write down the update, publish the version."""
        began = time.perf_counter()
        settings = self._settings()
        live = live_values(settings, self._progress.environment_steps)
        metrics = self._learner.learn(self._batch(rollouts), live) if rollouts else {}
        self._reporter.spent("learning", time.perf_counter() - began)
        self._version = Version(self._version.epoch, self._version.step + 1)
        self._count(rollouts)
        self._roster = {slot: joined for slot, joined in self._roster.items() if slot < self._actor_count()}
        self._describe_version(self._done(), live)
        recipe = self._recipes.popleft() if self._recipes else None
        if recipe is not None:
            self._compare(recipe)
        self._history.write(self._run, encode_entry(self._entry(rollouts)))
        self._intake.dropped.clear()
        self._publisher.check()
        self._publisher.publish(self._policy)
        self._reporter.rollouts(rollouts, self._version.step - 1)
        self._reporter.metrics(metrics | {f"charts/{name}": value for name, value in live.items()})
        self._report()

    # -- starting --------------------------------------------------------------------------------

    def _claim_and_restore(self) -> bool:
        """Take the next epoch and stand where the newest sound checkpoint of this run's line ends.

        False when told to stop before there was anything to stand on.
        """
        epoch = self._stream.claim(self._run)
        self._publisher = Publisher(self._stream, self._run, epoch)
        line = lineage(self._read_history())
        for version in self._store.versions():
            if not line.holds(version):
                continue
            try:
                head, state, policy = self._store.load(version)
                self._restore_head(head, policy)
                self._learner = self._algorithm.learner(self._description, self._settings(), self._spec.seed)
                self._learner.restore(state)
            except (PenstockError, KeyError, ValueError) as error:
                self._event("checkpoint_refused", version=str(version), reason=str(error))
                continue
            break
        else:
            self._forget_head()
            if not self._start_fresh():
                return False
        base = self._version.step
        self._version = Version(epoch, base)
        self._recipes.extend(line.after(base))
        self._history.write(self._run, encode_entry(Claim(epoch, base, time.time())))
        self._log.info("learner_started", version=str(self._version), recorded=len(self._recipes))
        return True

    def _restore_head(self, head: Checkpoint, policy: Policy) -> None:
        self._description, self._version = policy.facts.description, head.version
        self._roster, self._overrides, self._progress = dict(head.roster), dict(head.overrides), head.progress
        self._commands.seek(head.commands)
        ledger = head.ledger
        end = self._stream.end(topics.experiences(self._run))
        if any(end.get(partition, 0) < offset for partition, offset in ledger.position.items()):
            self._event("log_lost", position=ledger.position, end=end)
            ledger = Ledger(marks=ledger.marks, counts=ledger.counts)
        self._intake = open_intake(self._stream, self._run, ledger)

    def _forget_head(self) -> None:
        """As a new run begins, whatever a refused checkpoint said."""
        self._roster = dict.fromkeys(range(self._spec.actors.count), 0)
        self._overrides, self._progress = {}, Progress()

    def _start_fresh(self) -> bool:
        """Wait for the first actor to say what its environment looks like, then begin at step 0."""
        topic = topics.experiences(self._run)
        self._stream.protect(topic, dict.fromkeys(self._stream.end(topic), 0))  # until there is a checkpoint
        self._intake = open_intake(self._stream, self._run, Ledger())
        while not self._intake.hellos:
            self._intake.read(WAIT_SECONDS)
            if self._stopping():
                return False
        spaces = next(iter(self._intake.hellos.values())).spaces
        settings = self._settings()
        self._description = self._algorithm.describe(spaces, self._spec.network, settings)
        self._learner = self._algorithm.learner(self._description, settings, self._spec.seed)
        self._version = Version(0, 0)
        return True

    def _read_history(self) -> list[Entry]:
        reader = RecordReader(self._stream, topics.history(self._run), decode_entry)
        entries: list[Entry] = []
        while found := reader.read(1024, 0):
            entries.extend(entry for _, entry in found)
        reader.close()
        return entries

    def _compile_ahead(self) -> None:
        """Compile while the actors make their first rollouts; the learner is left as it was."""
        if self._learner.memory_rows and self._version.step:
            return  # its state is large, and copying it costs more than the wait
        environments = self._spec.actors.environments * max(1, len(self._roster))
        block = Block.allocate(self._description.spaces, self._spec.actors.rollout, environments)
        streams = np.zeros((environments, 2), np.int32)
        batch = Batch(block.columns(), np.zeros(environments, np.int32), streams)
        began = time.perf_counter()
        state = self._learner.save()
        self._learner.learn(batch, live_values(self._settings(), 0))
        self._learner.restore(state)
        self._reporter.spent("learning", time.perf_counter() - began)
        self._log.info("compiled", seconds=round(time.perf_counter() - began, 3))

    # -- gathering -------------------------------------------------------------------------------

    def _gather_recorded(self) -> list[Rollout] | None:
        """The rollouts that an earlier learner recorded for this update, from the log."""
        recipe = self._recipes[0]
        wanted = [(used.slot, used.round) for used in recipe.used]
        while any(not self._intake.has(*place) for place in wanted):
            if not self._intake.read(0):
                self._event(
                    "resume_not_exact",
                    version=str(recipe.version),
                    reason="the log no longer holds its rollouts",
                )
                self._recipes.clear()
                return self._gather()
        self._overrides, self._roster = dict(recipe.overrides), dict(recipe.roster)
        self._commands.seek(recipe.commands)
        rollouts = [self._intake.take(*place) for place in wanted]
        for dropped in recipe.dropped:
            if dropped.reason != "duplicate" and self._intake.has(dropped.slot, dropped.round):
                self._intake.drop(dropped.slot, dropped.round, dropped.reason)
        return rollouts

    def _answered(self, slot: int) -> bool:
        """Whether this slot's part of the update is there, or was set aside."""
        step = self._version.step
        return self._intake.has(slot, step) or self._intake.marks.get(slot, -1) >= step

    def _set_aside_stale(self) -> None:
        for slot, rounds in self._intake.pending.items():
            for round in [round for round in sorted(rounds) if round <= self._version.step]:
                lag = self._version.step - self._intake.peek(slot, round).facts.version.step
                if slot not in self._roster or round < self._roster[slot]:
                    self._intake.drop(slot, round, "not_rostered")
                elif lag > self._spec.pace.max_lag:
                    self._intake.drop(slot, round, "stale")

    def _welcome(self) -> None:
        """Put slots that said hello into the roster, from the next update on."""
        for slot in sorted(self._intake.hellos):
            hello = self._intake.hellos.pop(slot)
            self._heard[slot] = time.monotonic()
            if hello.spaces != self._description.spaces:
                self._event(
                    "spaces_differ", slot=slot, reason="its environment does not look like the run's; ignored"
                )
            elif slot not in self._roster and slot < self._actor_count():
                self._roster[slot] = max(self._version.step, hello.last_round) + 1
                self._event("actor_joined", slot=slot, step=self._roster[slot])
            elif hello.last_round >= self._version.step and not self._answered(slot):
                self._pass_over_lost(slot, hello.last_round)

    def _pass_over_lost(self, slot: int, last_round: int) -> None:
        """An actor never makes a round again that it has written: where the log lost it, go on behind it."""
        if slot in self._roster:
            pending = [round for round in self._intake.pending.get(slot, {}) if round > self._version.step]
            self._roster[slot] = min(pending, default=last_round + 1)
            self._event("rounds_lost", slot=slot, step=self._version.step, goes_on=self._roster[slot])

    def _newcomers(self) -> bool:
        return any(joined > self._version.step for joined in self._roster.values())

    def _give_up_silent(self, missing: list[int], began: float) -> None:
        """A slot that stays silent past its deadline leaves the roster; it may say hello again."""
        now = time.monotonic()
        for slot in missing:
            if now - max(began, self._heard.get(slot, 0.0)) > self._spec.pace.actor_deadline:
                del self._roster[slot]
                self._intake.forget([slot])
                self._event(
                    "actor_left", slot=slot, reason=f"silent for {self._spec.pace.actor_deadline:g} s"
                )

    def _obey_commands(self) -> None:
        for command in self._commands.read():
            if command.verb == "set":
                self._change_settings(command.arguments)
            elif command.verb == "scale" and (count := actors_of(command)):
                self._overrides["actors.count"] = count
                gone = [slot for slot in self._roster if slot >= self._actor_count()]
                for slot in gone:
                    del self._roster[slot]
                self._intake.forget(gone)
                self._event("scaled", actors=self._actor_count())
            elif command.verb == "checkpoint":
                self._save()

    def _change_settings(self, changes: dict[str, Any]) -> None:
        before = self._overrides
        try:
            self._overrides = before | changes
            self._settings()
        except PenstockError as error:
            self._overrides = before
            self._event("settings_refused", reason=str(error))
        else:
            self._event("settings_changed", **changes)

    # -- one update ------------------------------------------------------------------------------

    def _settings(self) -> Settings:
        changed = {name: value for name, value in self._overrides.items() if name != "actors.count"}
        return read(self._kind, {**self._spec.settings, **changed}, self._spec.algorithm)

    def _actor_count(self) -> int:
        return int(self._overrides.get("actors.count", self._spec.actors.count))

    def _batch(self, rollouts: list[Rollout]) -> Batch:
        step = self._version.step
        counts = [rollout.facts.environments for rollout in rollouts]
        lags = np.repeat([max(0, step - item.facts.version.step) for item in rollouts], counts).astype(
            np.int32
        )
        slots = np.repeat([rollout.facts.slot for rollout in rollouts], counts)
        environments = np.concatenate([np.arange(count) for count in counts])
        return Batch(join(rollouts), lags, np.stack([slots, environments], 1).astype(np.int32))

    def _count(self, rollouts: list[Rollout]) -> None:
        progress, window = self._progress, self._spec.stop.window
        progress.updates += 1
        for rollout in rollouts:
            progress.environment_steps += rollout.facts.steps * rollout.facts.environments
            progress.episodes += len(rollout.facts.episodes)
            progress.returns.extend(episode.total_reward for episode in rollout.facts.episodes)
            progress.lengths.extend(episode.length for episode in rollout.facts.episodes)
            self._heard[rollout.facts.slot] = time.monotonic()
        del progress.returns[:-window], progress.lengths[:-window]
        progress.seconds += self._reporter.lap()

    def _describe_version(self, final: str | None, live: dict[str, float]) -> None:
        tensors = self._learner.policy()
        _refuse_nonfinite(tensors, self._version)
        steps = self._progress.environment_steps
        facts = PolicyFacts(
            self._run, self._version, weights_sha256(tensors), self._description, dict(self._roster), steps,
            self._learner.acting(steps, live), final is not None, time.time(),
        )  # fmt: skip
        self._policy = Policy(facts, tensors)

    def _publish(self, final: str | None) -> None:
        """Publish the version as it stands, without an update."""
        self._describe_version(final, live_values(self._settings(), self._progress.environment_steps))
        self._publisher.check()
        self._publisher.publish(self._policy)

    def _entry(self, rollouts: list[Rollout]) -> Update:
        used = tuple(Used(item.facts.slot, item.facts.round, item.facts.version) for item in rollouts)
        return Update(
            self._version, used, tuple(self._intake.dropped), dict(self._roster), dict(self._overrides),
            self._policy.facts.weights_sha256, self._progress.environment_steps, self._commands.position(),
            time.time(),
        )  # fmt: skip

    def _compare(self, recipe: Update) -> None:
        if self._policy.facts.weights_sha256 != recipe.weights_sha256:
            self._event(
                "resume_not_exact",
                version=str(recipe.version),
                reason="the update made again gave other weights",
            )
            self._recipes.clear()

    def _done(self) -> str | None:
        """Which stop condition holds, in words."""
        stop, progress = self._spec.stop, self._progress
        if stop.target is not None and len(progress.returns) >= stop.window:
            mean = float(np.mean(progress.returns))
            if mean >= stop.target:
                return (
                    f"mean return {mean:.1f} over {stop.window} episodes reached the target {stop.target:g}"
                )
        if stop.steps is not None and progress.environment_steps >= stop.steps:
            return f"{progress.environment_steps:,} environment steps reached the limit {stop.steps:,}"
        if stop.updates is not None and progress.updates >= stop.updates:
            return f"{progress.updates:,} updates reached the limit {stop.updates:,}"
        if stop.seconds is not None and progress.seconds >= stop.seconds:
            return f"{progress.seconds:.0f} seconds reached the limit {stop.seconds:g}"
        return None

    # -- saving and telling ----------------------------------------------------------------------

    def _save_if_due(self) -> None:
        spec = self._spec.checkpoint
        by_count = spec.every_updates is not None and self._progress.updates % spec.every_updates == 0
        # what no checkpoint covers may not be dropped: near the disk's budget checkpoints come sooner
        by_bytes = self._intake.bytes_read >= self._spec.stream.budget_bytes // (2 * (spec.keep + 2))
        if by_count or by_bytes or self._saver.seconds_since() >= spec.every_seconds:
            self._save()
        if self._saver.finished():
            self._after_save()

    def _save(self) -> None:
        """Store a checkpoint in the background, after the one before it is done."""
        self._saver.wait()
        self._after_save()
        self._publisher.check()
        state = self._learner.save(since=self._store.rows_saved)
        head = Checkpoint(
            self._version, self._intake.ledger(), dict(self._roster), dict(self._overrides),
            self._commands.position(), msgspec.structs.replace(self._progress), {}, 0, (), {}, time.time(),
        )  # fmt: skip
        self._saver.start(
            msgspec.convert(msgspec.to_builtins(head), Checkpoint),
            state,
            self._policy,
            self._learner.memory_rows,
        )

    def _after_save(self) -> PenstockError | None:
        error = self._saver.take_error()
        if error:
            self._event("checkpoint_failed", reason=str(error))
        elif position := self._store.oldest_position():
            self._stream.protect(topics.experiences(self._run), position)
        return error

    def _report(self, final: bool = False, reason: str | None = None) -> None:
        intake, facts = self._intake, self._policy.facts
        accounts = {f"accounting/{name}": count for name, count in intake.counts.items()}
        accounts |= {
            "accounting/pending": pending_count(intake),
            "accounting/dead_letters": intake.dead_letters,
        }
        self._reporter.report(
            self._progress,
            facts,
            accounts,
            checkpoint=str(self._saver.newest or ""),
            final=final,
            reason=reason,
        )

    def _event(self, event: str, **fields: Any) -> None:
        self._log.warning(event, **fields)
        self._reporter.event(event, **fields)


def _refuse_nonfinite(tensors: dict[str, Array], version: Version) -> None:
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise Diverged(
                f"the weights {name} are not finite after version {version}; lower the learning rate"
            )
