"""Acting on NumPy: the hot path of an actor.

acting = Acting(description)
acting.load(tensors)
noise = acting.noise((seed, slot, round), steps, environments)
actions, outputs = acting.decide(observations, masks, noise[t])     # once a step
log_probs = acting.log_probs(all_outputs, all_actions, all_masks)   # once a rollout
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.model.tensors import Array
from penstock.policy import bodies, heads, networks
from penstock.policy.preprocessing import columns_of, environment_actions

if TYPE_CHECKING:
    from penstock.model.policy import PolicyDescription


class Acting:
    """A policy that decides. Not thread-safe: it works in buffers of its own."""

    epsilon: float = 0.0
    """Share of random actions, for the q head."""

    def __init__(self, description: PolicyDescription) -> None:
        networks.check(description)
        self.description = description
        self.width = networks.width(description)
        columns = description.spaces.observation.columns
        self._categorical = description.head == "categorical"
        # the fast path: one flat float32 column through dense layers, nothing else
        name, column = next(iter(columns.items()))
        self._column: str | None = None
        if len(columns) == 1 and len(column.shape) == 1 and column.dtype.endswith("f4"):
            self._column = name
        if networks.body(description) != "mlp" or description.duelling:
            self._column = None
        self._tensors: dict[str, Array] = {}
        self._hidden: list[tuple[Array, Array, Array]] = []
        self._output: tuple[Array, Array] = (np.empty((0, 0)), np.empty(0))
        self._normalizer: tuple[Array, Array, Array] | None = None
        self._environments = 1
        self._activation: Any = np.tanh if description.network.activation == "tanh" else _relu

    def load(self, tensors: Mapping[str, Array]) -> None:
        """Take these tensors from the next decision on; they must not change afterwards."""
        self._tensors = dict(tensors)
        if self._column is not None:
            self._prepare(self._environments)

    def decide(
        self, observations: Mapping[str, Array], masks: Array | None, noise: Array
    ) -> tuple[Array, Array]:
        """Actions of a row of environments, before clipping and counted from 0, and the outputs behind them.

        `noise` is one row of what `noise()` gave.
        """
        outputs = self.outputs(observations)
        if self._categorical:
            scores = outputs + noise
            if masks is not None:
                scores[~masks] = heads.MASKED
            return scores.argmax(1), outputs
        description = self.description
        if description.head == "q":
            return heads.epsilon_greedy(description, outputs, masks, noise, self.epsilon, np), outputs
        if description.head == "multi_categorical":
            return heads.greedy(description, outputs + noise, masks, np), outputs
        return heads.sample(description, outputs, masks, noise, np), outputs

    def outputs(self, observations: Mapping[str, Array]) -> Array:
        """[B, width] network outputs, in an array of their own."""
        if self._column is None:
            return np.asarray(networks.outputs(self.description, self._tensors, observations, np))
        x = observations[self._column]
        if x.shape[0] != self._environments:
            self._prepare(x.shape[0])
        if self._normalizer is not None:
            x = self._normalized(x)
        activation = self._activation
        for weight, bias, buffer in self._hidden:
            np.dot(x, weight, buffer)  # the same bits as matmul, in half the time for so few rows
            buffer += bias
            activation(buffer, buffer)
            x = buffer
        weight, bias = self._output
        result: Array = np.dot(x, weight)
        result += bias
        return self._bounded(result)

    def log_probs(self, outputs: Array, actions: Array, masks: Array | None) -> Array:
        """[T, B] log-probabilities of what `decide` chose; call it once a rollout."""
        result: Array = heads.log_prob(self.description, outputs, actions, masks, np)
        return result.astype(np.float32, copy=False)

    def greedy(self, observations: Mapping[str, Array], masks: Array | None = None) -> Array:
        """[B, …] the most likely actions, before clipping and counted from 0."""
        result: Array = heads.greedy(self.description, self.outputs(observations), masks, np)
        return result

    def act_one(self, observation: Any, mask: Array | None = None) -> Any:
        """The most likely action for one observation as the environment gives it, ready for `step`."""
        spaces = self.description.spaces
        columns = {name: row[None] for name, row in columns_of(spaces.observation, observation).items()}
        masks = None if mask is None else np.asarray(mask, np.bool_)[None]
        action = environment_actions(spaces.action, self.greedy(columns, masks))[0]
        return int(action) if spaces.action.kind == "discrete" else action

    def noise(self, key: tuple[int, int, int], steps: int, environments: int) -> Array:
        """[T, B, …] noise of one rollout; `key` is (run seed, slot, round), and nothing else decides it.

        It is ready for `decide`: Gumbel for choices, normal for gaussians, uniform for `q`.
        """
        seed, slot, round_ = key
        # counter-based (Salmon et al., 2011): slot and round are the upper words of the counter,
        # so that the streams of two rollouts can never overlap
        generator = np.random.Generator(np.random.Philox(counter=[0, 0, round_, slot], key=[seed % 2**64, 0]))
        shape = (steps, environments, *heads.noise_shape(self.description))
        if self.description.spaces.action.kind == "box":
            return generator.standard_normal(shape, np.float32)
        uniform = generator.random(shape, np.float32)
        return uniform if self.description.head == "q" else np.asarray(heads.gumbel(uniform, np))

    def _normalized(self, x: Array) -> Array:
        assert self._normalizer is not None
        mean, factor, buffer = self._normalizer
        np.subtract(x, mean, buffer)
        buffer *= factor
        np.minimum(buffer, bodies.CLIP, out=buffer)
        return np.maximum(buffer, -bodies.CLIP, out=buffer)

    def _bounded(self, outputs: Array) -> Array:
        if self.description.head == "squashed_gaussian":
            log_std = outputs[:, self.width // 2 :]
            log_std.clip(*networks.LOG_STD_RANGE, out=log_std)
        return outputs

    def _prepare(self, environments: int) -> None:
        """Lay out weights and buffers for this many environments."""
        tensors, self._environments = self._tensors, environments
        self._hidden = []
        for i, size in enumerate(self.description.network.hidden):
            weight, bias = (
                np.ascontiguousarray(tensors[f"policy/body/{i}/{part}"]) for part in ("weight", "bias")
            )
            self._hidden.append((weight, bias, np.empty((environments, size), np.float32)))
        weight, bias = tensors["policy/output/weight"], tensors["policy/output/bias"]
        if self.description.head == "gaussian":  # the deviations ride along as a bias of zero weights
            weight = np.concatenate((weight, np.zeros_like(weight)), 1)
            bias = np.concatenate((bias, tensors["policy/log_std"]))
        self._output = (np.ascontiguousarray(weight), bias)
        self._normalizer = None
        if self._column in networks.normalized_columns(self.description):
            mean = tensors[f"normalizer/{self._column}/mean"]
            variance = tensors[f"normalizer/{self._column}/variance"]
            factor = 1 / np.sqrt(variance + np.float32(bodies.EPSILON))
            self._normalizer = (mean, factor, np.empty((environments, *mean.shape), np.float32))


class ActingAlone(Acting):
    """For one observation at a time: biases are a last row of the weights, so that a layer is one call less.

    Outputs may differ from those of `Acting` in the last bits.
    """

    _layers: list[tuple[Array, Array, Array]]
    """Weights with bias, where the result goes, and the same with a 1 behind it: what the next layer takes."""

    def load(self, tensors: Mapping[str, Array]) -> None:
        super().load(tensors)
        if self._column is None:
            return
        self._layers = [
            (_with_bias(weight, bias), *_before_a_one(bias.size)) for weight, bias, _ in self._hidden
        ]
        weight, bias = self._output
        self._last = _with_bias(weight, bias)
        self._seen, self._first = _before_a_one(
            self._layers[0][0].shape[0] - 1 if self._layers else weight.shape[0]
        )

    def outputs(self, observations: Mapping[str, Array]) -> Array:
        if self._column is None or observations[self._column].shape[0] != 1:
            return super().outputs(observations)
        if self._environments != 1:
            self._prepare(1)
        x = observations[self._column]
        self._seen[...] = x if self._normalizer is None else self._normalized(x)
        x, activation = self._first, self._activation
        for weight, result, with_one in self._layers:
            np.dot(x, weight, result)
            activation(result, result)
            x = with_one
        return self._bounded(np.dot(x, self._last))


def _with_bias(weight: Array, bias: Array) -> Array:
    return np.ascontiguousarray(np.concatenate((weight, bias[None])), np.float32)


def _before_a_one(size: int) -> tuple[Array, Array]:
    """Room for a row of this size, and the same room with a 1 behind it."""
    row = np.ones((1, size + 1), np.float32)
    return row[:, :size], row


def _relu(x: Array, out: Array) -> None:
    np.maximum(x, 0, out=out)
