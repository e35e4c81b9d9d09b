"""One version of a policy, ready to decide for one observation at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from time import perf_counter
from typing import Any, cast

import numpy as np

from penstock.client.description import Description
from penstock.client.layout import OBSERVATIONS
from penstock.client.trajectory import Trajectory
from penstock.errors import Damaged
from penstock.model.tensors import Array
from penstock.model.version import Version
from penstock.policy import heads
from penstock.policy.acting import ActingAlone
from penstock.policy.networks import width

MOST_DRAWN, LEAST_DRAWN, NUMBERS_DRAWN = 256, 8, 2048
"""Decisions whose noise is drawn at once, by one of them: fewer where each needs more numbers, lest it be late."""

TRIALS = 5


class Decider:
    """Decides in the caller's thread and writes down what bulk arithmetic needs later. Not thread-safe.

    `seed` must be nobody else's: it decides the noise.
    """

    def __init__(
        self,
        description: Description,
        tensors: Mapping[str, Array],
        version: Version,
        acting: Mapping[str, float],
        seed: int,
    ) -> None:
        self.description, self.version = description, version
        self._acting = ActingAlone(cast(Any, description))
        self._acting.epsilon = float(acting.get("epsilon", 0.0))
        try:
            self._acting.load(tensors)
        except (KeyError, ValueError) as error:
            raise Damaged(f"the tensors of version {version} do not fit its description: {error}") from error
        self._seed, self._block = seed, 0
        self._rows: Iterator[Array] = iter(())
        self._drawn = min(MOST_DRAWN, max(LEAST_DRAWN, NUMBERS_DRAWN // output_width(description)))
        self._discrete = description.spaces.action.kind == "discrete"
        action = description.spaces.action
        self._low, self._high = np.array(action.low, np.float32), np.array(action.high, np.float32)

    def decide(self, trajectory: Trajectory, row: int) -> Any:
        """Choose for the observation in `row`, write the choice there and return what to do."""
        noise = next(self._rows, None)
        if noise is None:
            self._block += 1
            self._rows = iter(self._acting.noise((self._seed, 0, self._block), self._drawn, 1))
            noise = next(self._rows)
        masks = trajectory.masks
        actions, outputs = self._acting.decide(
            {OBSERVATIONS: trajectory.observations[row : row + 1]},
            None if masks is None else masks[row : row + 1],
            noise,
        )
        trajectory.outputs[row] = outputs
        if trajectory.decider is not self:
            trajectory.decided_by(self, self.version)
        if self._discrete:
            choice = actions.item()
            # the greatest wins, and NaN wins over all: where one output is not finite the chosen one tells
            chosen = outputs.item(choice)
            if chosen - chosen:  # 0 for a finite number, else NaN; the cheapest way to ask
                raise self._not_finite()
            trajectory.actions[row] = choice
            return choice
        trajectory.actions[row] = actions
        act = np.clip(actions[0], self._low, self._high)
        if not np.isfinite(act).all():
            raise self._not_finite()
        return act

    def _not_finite(self) -> Damaged:
        return Damaged(f"version {self.version} gave numbers that are not finite")

    def reseed(self, seed: int) -> None:
        """Other noise from the next decision on: a forked child must not repeat its parent."""
        self._seed, self._block, self._rows = seed, 0, iter(())

    def log_probs(self, outputs: Array, actions: Array, masks: Array | None) -> Array:
        """[T] log-probabilities of what `decide` wrote down; may run in any thread."""
        result = heads.log_prob(cast(Any, self.description), outputs, actions, masks, np)
        return np.asarray(result, np.float32)

    def trial(self, trajectory: Trajectory) -> float:
        """Seconds of the fastest of a few decisions on an empty observation: the first ones are slower."""
        best = float("inf")
        for _ in range(TRIALS):
            started = perf_counter()
            self.decide(trajectory, 0)
            best = min(best, perf_counter() - started)
        return best


def output_width(description: Description) -> int:
    return width(cast(Any, description))


Heuristic = Callable[[Array, Array | None], Any]
"""A user's own rule: observation and mask → action."""
