"""The seam between an algorithm and the loop.

An algorithm is a class registered under the entry-point group `penstock.algorithms`; its settings
are registered under the same name in `penstock.settings`, so that they can be read without JAX.
It knows nothing of streams, files or processes. All randomness follows from the seed it is given,
and all state leaves through `save` and comes back through `restore`: after that the next `learn`
returns the same bits as if nothing had happened.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np

from penstock.algorithms.settings import Settings
from penstock.model.codec import Array
from penstock.model.policy import NetworkSpec, PolicyDescription
from penstock.model.spaces import Spaces


@dataclass(frozen=True, slots=True)
class Batch:
    """The rollouts of one update, side by side: columns as in `model.rollout`, joined over slots."""

    columns: dict[str, Array]
    lags: Array
    """[B] updates between the version that acted in each environment and the one that learns."""
    streams: Array
    """[B, 2] (slot, environment) of each column: whose running return a reward belongs to."""

    @property
    def shape(self) -> tuple[int, int]:
        steps, environments = self.columns["rewards"].shape
        return steps, environments


@dataclass(frozen=True, slots=True)
class State:
    """All that a learner needs to go on exactly."""

    tensors: dict[str, Array]
    numbers: dict[str, int | float | str] = field(default_factory=dict)
    rows: dict[str, Array] = field(default_factory=dict)
    """Replay rows, oldest first (empty for on-policy algorithms). `save(since)` gives only those added
    after the first `since` rows ever added; `restore` is given all that still matter."""
    rows_added: int = 0
    """How many rows were ever added."""


class Learner(Protocol):
    """Rollouts in, weights out."""

    def learn(self, batch: Batch, live: Mapping[str, float]) -> dict[str, float]:
        """Make one update, in one compiled call; `live` are the settings that may change between updates.

        Returns metrics under the names CleanRL users know (`losses/policy_loss` …).
        """

    def policy(self) -> dict[str, Array]:
        """The tensors that act: what is published, without value networks."""

    def acting(self, environment_steps: int, live: Mapping[str, float]) -> dict[str, float]:
        """What actors need to know beside the tensors, such as `epsilon`; empty for most."""

    def save(self, since: int = 0) -> State:
        """A copy of all state; later updates do not change it."""

    def restore(self, state: State) -> None:
        """Take the place of the learner that saved `state`."""

    @property
    def memory_rows(self) -> int:
        """How many of the newest replay rows `restore` needs; 0 for on-policy algorithms."""


class Algorithm(Protocol):
    """The plugin: says what it can handle and builds a learner."""

    name: ClassVar[str]

    @staticmethod
    def describe(spaces: Spaces, network: NetworkSpec, settings: Settings) -> PolicyDescription:
        """The policy this algorithm would train; raise ConfigError where it cannot handle the spaces."""

    @staticmethod
    def learner(description: PolicyDescription, settings: Settings, seed: int) -> Learner:
        """A fresh learner; the same arguments give the same bits."""


def truncation_values(columns: Mapping[str, Array], values: Array) -> Array:
    """Spread one value per truncated end over a [T, B] block of zeros."""
    spread = np.zeros(columns["rewards"].shape, np.float32)
    index = columns["final/index"]
    spread[index[:, 0], index[:, 1]] = values
    return spread
