"""What PPO, IMPALA and REINFORCE share: everything around their one compiled update.

An algorithm gives an `Update`: its compiled function, the order in which it wants samples, and the names
of its metrics. The learner here owns the state: parameters, Adam, counters and running statistics.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from penstock.algorithms import parts
from penstock.algorithms.base import Batch, State, truncation_values
from penstock.algorithms.returns import Ends
from penstock.algorithms.settings import Settings
from penstock.model.codec import Array
from penstock.model.policy import Head, NetworkSpec, PolicyDescription
from penstock.model.spaces import OBSERVATIONS, Spaces
from penstock.policy import networks

HEADS: dict[str, Head] = {"discrete": "categorical", "multi_discrete": "multi_categorical", "box": "gaussian"}


class Inputs(NamedTuple):
    """One batch as the compiled update sees it; all blocks are [T, B, …], and shapes never vary."""

    observations: dict[str, Any]
    actions: Any
    masks: Any
    """None where the environment does not tell."""
    log_probs: Any
    rewards: Any
    ends: Ends
    last: dict[str, Any]
    """[B, …] the observations after the last row."""
    lags: Any
    """[B] updates since the acting policy was current."""


class Learned(NamedTuple):
    """What an update changes."""

    parameters: dict[str, Any]
    adam: Any


class Update(NamedTuple):
    """One algorithm's part."""

    apply: Callable[[Learned, dict[str, Any], Inputs, Any, dict[str, Any]], tuple[Learned, Any]]
    """(learned, fixed tensors, inputs, order, live) → (learned, metrics as one vector)."""
    order: Callable[[np.random.Generator, int, int], Any]
    """The order of samples of one update of T × B."""
    metrics: tuple[str, ...]
    adam: Callable[[dict[str, Any]], Any] = parts.adam


def describe(algorithm: str, spaces: Spaces, network: NetworkSpec) -> PolicyDescription:
    """A stochastic policy for any action space; raise ConfigError where body and spaces do not fit."""
    description = PolicyDescription(algorithm, HEADS[spaces.action.kind], spaces, network)
    networks.check(description)
    return description


class OnPolicyLearner:
    """A `Learner` around one algorithm's `Update`."""

    memory_rows = 0

    def __init__(self, description: PolicyDescription, settings: Settings, seed: int, update: Update) -> None:
        self.description, self._seed, self._update = description, seed, update
        rng = np.random.default_rng(seed)
        tensors = networks.initial(description, rng) | networks.initial_value(description, rng)
        parameters = {
            name: jnp.array(tensor) for name, tensor in tensors.items() if not name.startswith("normalizer/")
        }
        self._learned = Learned(parameters, update.adam(parameters))
        self._host = parts.flatten(parameters)
        self._updates = 0
        self._observations = parts.ObservationStatistics(description)
        self._rewards = parts.RewardStatistics() if settings.normalize_rewards else None
        self._apply = jax.jit(update.apply, donate_argnums=0)

    def learn(self, batch: Batch, live: Mapping[str, float]) -> dict[str, float]:
        """Make one update, in one compiled call."""
        # permutations come from the host: XLA would sort to shuffle, and NumPy's generator is part of the promise
        generator = np.random.Generator(
            np.random.Philox(counter=[0, 0, 0, self._updates], key=[self._seed % 2**64, 1])
        )
        order = self._update.order(generator, *batch.shape)
        numbers = {name: np.float32(number) for name, number in live.items()}
        fixed = self._observations.normalizer()
        self._learned, metrics = self._apply(self._learned, fixed, self._inputs(batch, live), order, numbers)
        self._host = parts.flatten(self._learned.parameters)
        # after the update: what acted and what learns from it normalise alike
        self._observations.update(batch.columns)
        self._updates += 1
        return dict(zip(self._update.metrics, np.asarray(metrics).tolist(), strict=True))

    def policy(self) -> dict[str, Array]:
        """The acting tensors, as copies."""
        acting = {name: tensor.copy() for name, tensor in self._host.items() if name.startswith("policy/")}
        return acting | self._observations.normalizer()

    def acting(self, environment_steps: int, live: Mapping[str, float]) -> dict[str, float]:
        """Nothing beside the tensors."""
        return {}

    def save(self, since: int = 0) -> State:
        """A copy of all state."""
        tensors = parts.flatten(self._learned) | self._observations.save()
        if self._rewards is not None:
            tensors |= self._rewards.save()
        return State(tensors, {"updates": self._updates, "seed": self._seed})

    def restore(self, state: State) -> None:
        """Go on where `state` was saved."""
        self._learned = parts.unflatten(self._learned, state.tensors)
        self._host = parts.flatten(self._learned.parameters)
        self._updates, self._seed = int(state.numbers["updates"]), int(state.numbers["seed"])
        self._observations.restore(state.tensors)
        if self._rewards is not None:
            self._rewards.restore(state.tensors)

    def _inputs(self, batch: Batch, live: Mapping[str, float]) -> Inputs:
        columns = batch.columns
        names = self.description.spaces.observation.columns
        rewards = columns["rewards"]
        if self._rewards is not None:
            rewards = self._rewards.scale(columns, batch.streams, live["gamma"])
        return Inputs(
            {name: columns[name] for name in names},
            columns["actions"],
            columns.get("masks"),
            columns["log_probs"],
            rewards,
            Ends(columns["terminated"], columns["truncated"], self._truncation_values(columns)),
            {name: columns[f"last/{name}"] for name in names},
            batch.lags.astype(np.int32),
        )

    def _truncation_values(self, columns: Mapping[str, Array]) -> Array:
        # on NumPy, because the number of truncations varies and compiled shapes must not
        if not len(columns["final/index"]):
            return np.zeros(columns["rewards"].shape, np.float32)
        final = {name: columns[f"final/{name}"] for name in self.description.spaces.observation.columns}
        tensors = self._host | self._observations.normalizer()
        return truncation_values(columns, networks.value(self.description, tensors, final, np))


def flat(blocks: Mapping[str, Any]) -> dict[str, Any]:
    """[T, B, …] → [T · B, …]."""
    return {name: block.reshape(-1, *block.shape[2:]) for name, block in blocks.items()}


class Rows(NamedTuple):
    """Samples of an update: [N, …] in few arrays, so that a minibatch is few gathers."""

    packed: Any
    """[N, D] float32: every number that is not an image, side by side."""
    images: dict[str, Any]

    def take(self, index: Any) -> "Rows":
        """The rows at `index`, which must be valid."""

        def pick(block: Any) -> Any:
            return block.at[index].get(mode="promise_in_bounds")

        return Rows(pick(self.packed), {name: pick(image) for name, image in self.images.items()})


class Packing:
    """Lays named blocks [N, …] side by side in `Rows` and reads them back."""

    def __init__(self, blocks: Mapping[str, Any]) -> None:
        self._shapes = {name: (block.shape[1:], block.dtype) for name, block in blocks.items()}

    def pack(self, blocks: Mapping[str, Any]) -> Rows:
        images = {name: block for name, block in blocks.items() if _is_image(block.shape[1:])}
        numbers = [
            block.reshape(block.shape[0], -1).astype(jnp.float32)
            for name, block in blocks.items()
            if name not in images
        ]
        return Rows(jnp.concatenate(numbers, axis=1), images)

    def unpack(self, rows: Rows) -> dict[str, Any]:
        blocks, at = dict(rows.images), 0
        for name, (shape, dtype) in self._shapes.items():
            if name not in rows.images:
                size = int(np.prod(shape))
                part = rows.packed[:, at : at + size].reshape(-1, *shape)
                # integers below 2²⁴ and truth values survive float32 exactly
                blocks[name] = part.astype(dtype)
                at += size
        return blocks


def observations(blocks: Mapping[str, Any]) -> dict[str, Any]:
    """The observation columns among named blocks."""
    return {name: block for name, block in blocks.items() if name.split("/")[0] == OBSERVATIONS}


def _is_image(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3
