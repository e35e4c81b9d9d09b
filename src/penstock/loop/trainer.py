"""An algorithm at work: rollouts in, the next version out. Knows no stream, no files and no other process.

The learner of a live run drives it, and so do `fork` and `replay`, which learn from a recorded log.
"""

import time
from typing import Any

import msgspec
import numpy as np

from penstock import plugins
from penstock.algorithms.base import Algorithm, Batch, Learner, State
from penstock.algorithms.settings import Settings, live_values, read
from penstock.errors import Diverged, PenstockError
from penstock.loop.checkpoint import Checkpoint, Progress
from penstock.model.codec import Array
from penstock.model.policy import Policy, PolicyDescription, PolicyFacts
from penstock.model.rollout import Block, Rollout, join
from penstock.model.spaces import Spaces
from penstock.model.spec import Spec
from penstock.model.tensors import weights_sha256
from penstock.model.version import Version

ACTORS = "actors.count"
"""The one override that is no hyperparameter."""


class Trainer:
    """One run's learning: its learner, settings, counters and version."""

    learner: Learner
    description: PolicyDescription
    version: Version

    def __init__(self, run: str, spec: Spec) -> None:
        self.run, self.spec = run, spec
        self.progress = Progress()
        self.overrides: dict[str, Any] = {}
        """Settings changed while running."""
        self.foreign = False
        """Whether the rollouts were made by other policies than this line's: none is taken for on-policy."""
        self._algorithm: type[Algorithm] = plugins.load("algorithms", spec.algorithm)
        self._kind: type[Settings] = plugins.load("settings", spec.algorithm)

    def begin(self, spaces: Spaces) -> None:
        """Stand at step 0 with fresh weights."""
        self.overrides, self.progress, self.version = {}, Progress(), Version(0, 0)
        self.description = self._algorithm.describe(spaces, self.spec.network, self.settings())
        self.learner = self._algorithm.learner(self.description, self.settings(), self.spec.seed)

    def restore(self, head: Checkpoint, state: State, policy: Policy) -> None:
        """Stand where a checkpoint was taken."""
        self.overrides, self.progress, self.version = dict(head.overrides), head.progress, head.version
        self.description = policy.facts.description
        self.learner = self._algorithm.learner(self.description, self.settings(), self.spec.seed)
        self.learner.restore(state)

    def settings(self) -> Settings:
        """The hyperparameters as they are now."""
        changed = {name: value for name, value in self.overrides.items() if name != ACTORS}
        return read(self._kind, {**self.spec.settings, **changed}, self.spec.algorithm)

    def change(self, changes: dict[str, Any]) -> None:
        """Change hyperparameters; raise, having changed nothing, where they make no sense."""
        before = self.overrides
        self.overrides = before | changes
        try:
            self.settings()
        except PenstockError:
            self.overrides = before
            raise

    def live(self) -> dict[str, float]:
        """Hyperparameters that may change from update to update, at this step."""
        return live_values(self.settings(), self.progress.environment_steps)

    def compile(self, environments: int) -> float:
        """Compile an update of this many environments, leave the learner as it was; returns the seconds."""
        if self.learner.memory_rows and self.version.step:
            return 0.0  # its state is large, and copying it costs more than the wait
        block = Block.allocate(self.description.spaces, self.spec.actors.rollout, environments)
        streams = np.zeros((environments, 2), np.int32)
        batch = Batch(block.columns(), np.zeros(environments, np.int32), streams)
        began = time.perf_counter()
        state = self.learner.save()
        self.learner.learn(batch, live_values(self.settings(), 0))
        self.learner.restore(state)
        return time.perf_counter() - began

    def learn(self, rollouts: list[Rollout]) -> dict[str, float]:
        """One update, the next step: learn, count, return what the algorithm measured."""
        live = self.live()
        measured = self.learner.learn(self._batch(rollouts), live) if rollouts else {}
        self.version = Version(self.version.epoch, self.version.step + 1)
        self._count(rollouts)
        return measured | {f"charts/{name}": value for name, value in live.items()}

    def policy(self, roster: dict[int, int], final: bool) -> Policy:
        """The version as it stands; raise Diverged where it is not finite."""
        tensors = self.learner.policy()
        _refuse_nonfinite(tensors, self.version)
        steps = self.progress.environment_steps
        facts = PolicyFacts(
            self.run, self.version, weights_sha256(tensors), self.description, dict(roster), steps,
            self.learner.acting(steps, self.live()), final, time.time(),
        )  # fmt: skip
        return Policy(facts, tensors)

    def done(self) -> str | None:
        """Which stop condition holds, in words."""
        stop, progress = self.spec.stop, self.progress
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

    def head(self, roster: dict[int, int]) -> Checkpoint:
        """A checkpoint of what is known here, copied; the caller adds what it knows of the log."""
        head = Checkpoint(version=self.version, roster=roster, overrides=self.overrides,
                          progress=self.progress, at=time.time())  # fmt: skip
        return msgspec.convert(msgspec.to_builtins(head), Checkpoint)

    def _batch(self, rollouts: list[Rollout]) -> Batch:
        step, least = self.version.step, int(self.foreign)
        counts = [rollout.facts.environments for rollout in rollouts]
        lags = np.repeat([max(least, step - item.facts.version.step) for item in rollouts], counts)
        slots = np.repeat([rollout.facts.slot for rollout in rollouts], counts)
        environments = np.concatenate([np.arange(count) for count in counts])
        streams = np.stack([slots, environments], 1).astype(np.int32)
        return Batch(join(rollouts), lags.astype(np.int32), streams)

    def _count(self, rollouts: list[Rollout]) -> None:
        progress, window = self.progress, self.spec.stop.window
        progress.updates += 1
        for rollout in rollouts:
            progress.environment_steps += rollout.facts.steps * rollout.facts.environments
            progress.episodes += len(rollout.facts.episodes)
            progress.returns.extend(episode.total_reward for episode in rollout.facts.episodes)
            progress.lengths.extend(episode.length for episode in rollout.facts.episodes)
        del progress.returns[:-window], progress.lengths[:-window]


def _refuse_nonfinite(tensors: dict[str, Array], version: Version) -> None:
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise Diverged(
                f"the weights {name} are not finite after version {version}; lower the learning rate"
            )
