"""Small parts that learners share: Adam, running statistics, exact saving."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from penstock.errors import Damaged
from penstock.model.codec import Array
from penstock.model.policy import PolicyDescription
from penstock.policy import networks

ADAM_EPSILON = 1e-5
"""As in the reference implementations of PPO; steadier than Adam's own 1e-8."""

REWARD_CLIP = 10.0
"""Normalised rewards are cut at this size."""

Parameters = Any
"""A tree of JAX arrays, most often a flat dict."""

_adam = optax.scale_by_adam(eps=ADAM_EPSILON)


def adam(parameters: Parameters) -> Any:
    """A fresh state of Adam for these parameters."""
    return _adam.init(parameters)


def adam_step(
    parameters: Parameters, gradients: Parameters, state: Any, learning_rate: Any, max_norm: Any
) -> tuple[Parameters, Any, Any]:
    """One step of Adam with gradients scaled down to `max_norm`: (parameters, state, norm before).

    Both numbers may be traced, so that changing them does not recompile.
    """
    norm = jnp.sqrt(sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(gradients)))
    shrink = jnp.minimum(1.0, max_norm / (norm + 1e-6))
    updates, state = _adam.update(jax.tree.map(lambda g: g * shrink, gradients), state)
    return jax.tree.map(lambda p, u: p - learning_rate * u, parameters, updates), state, norm


def explained_variance(values: Any, targets: Any) -> Any:
    """1 − Var(targets − values) / Var(targets): 1 is a perfect value network, 0 no better than a constant."""
    return 1 - jnp.var(targets - values) / jnp.maximum(jnp.var(targets), 1e-8)


def standardized(x: Any) -> Any:
    """Mean 0 and deviation 1."""
    return (x - x.mean()) / (x.std() + 1e-8)


def flatten(tree: Any) -> dict[str, Array]:
    """A tree of arrays as named NumPy copies; `unflatten` is its inverse."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): np.array(leaf) for path, leaf in leaves}


def unflatten(like: Any, tensors: Mapping[str, Array]) -> Any:
    """The tree `flatten` was given, in the form of `like`; raise Damaged where a tensor does not fit."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    found = []
    for path, leaf in leaves:
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        tensor = tensors.get(name)
        if tensor is None or tensor.shape != leaf.shape or tensor.dtype != leaf.dtype:
            raise Damaged(f"the saved state has no {name} of shape {leaf.shape} and type {leaf.dtype}")
        found.append(jnp.array(tensor))
    return jax.tree_util.tree_unflatten(structure, found)


class Running:
    """Running mean and variance in float64 (the parallel form of Chan et al., 1979)."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.count, self.mean, self.squares = np.zeros(()), np.zeros(shape), np.zeros(shape)

    def update(self, rows: Array) -> None:
        """Take in rows with one leading axis."""
        count, mean = rows.shape[0], rows.mean(0, np.float64)
        squares = np.square(rows - mean).sum(0)
        total, shift = self.count + count, mean - self.mean
        self.squares = self.squares + squares + shift**2 * (self.count * count / total)
        self.mean = self.mean + shift * (count / total)
        self.count = np.asarray(total)

    @property
    def variance(self) -> Array:
        """1 before anything was seen."""
        return np.asarray(self.squares / self.count if self.count else np.ones_like(self.squares))

    def tensors(self) -> dict[str, Array]:
        # np.array: arithmetic on arrays without axes gives NumPy scalars, which safetensors refuses
        return {"count": np.array(self.count), "mean": np.array(self.mean), "squares": np.array(self.squares)}

    def load(self, tensors: Mapping[str, Array]) -> None:
        self.count, self.mean, self.squares = (
            np.array(tensors[name], np.float64) for name in ("count", "mean", "squares")
        )


class ObservationStatistics:
    """What `network.normalize_observations` needs; only a learner changes it, once an update."""

    def __init__(self, description: PolicyDescription) -> None:
        self.running = {
            name: Running(shape) for name, shape in networks.normalized_columns(description).items()
        }

    def update(self, columns: Mapping[str, Array]) -> None:
        """Take in the observations of a batch."""
        for name, running in self.running.items():
            running.update(columns[name].reshape(-1, *running.mean.shape))

    def normalizer(self) -> dict[str, Array]:
        """The tensors `networks` reads."""
        tensors = {}
        for name, running in self.running.items():
            tensors[f"normalizer/{name}/mean"] = running.mean.astype(np.float32)
            tensors[f"normalizer/{name}/variance"] = running.variance.astype(np.float32)
        return tensors

    def save(self) -> dict[str, Array]:
        return {
            f"statistics/{name}/{part}": tensor
            for name, running in self.running.items()
            for part, tensor in running.tensors().items()
        }

    def restore(self, tensors: Mapping[str, Array]) -> None:
        for name, running in self.running.items():
            running.load(
                {part: tensors[f"statistics/{name}/{part}"] for part in ("count", "mean", "squares")}
            )


class RewardStatistics:
    """Divides rewards by the running deviation of each stream's discounted return."""

    def __init__(self) -> None:
        self.running = Running(())
        self.returns: dict[tuple[int, int], float] = {}

    def scale(self, columns: Mapping[str, Array], streams: Array, gamma: float) -> Array:
        """Take in the rewards of a batch and give them scaled, as [T, B] float32."""
        rewards = columns["rewards"]
        places = [(int(slot), int(environment)) for slot, environment in streams]
        running = np.array([self.returns.get(place, 0.0) for place in places])
        alive = 1.0 - (columns["terminated"] | columns["truncated"])
        returns = np.empty(rewards.shape)
        for t in range(len(rewards)):
            running = returns[t] = gamma * running + rewards[t]
            running = running * alive[t]
        self.returns |= dict(zip(places, running.tolist(), strict=True))
        self.running.update(returns.reshape(-1))
        scaled = rewards / np.sqrt(self.running.variance + 1e-8)
        return np.clip(scaled, -REWARD_CLIP, REWARD_CLIP).astype(np.float32)

    def save(self) -> dict[str, Array]:
        places = sorted(self.returns)
        return {
            **{f"rewards/{part}": tensor for part, tensor in self.running.tensors().items()},
            "rewards/streams": np.array(places, np.int64).reshape(-1, 2),
            "rewards/returns": np.array([self.returns[place] for place in places], np.float64),
        }

    def restore(self, tensors: Mapping[str, Array]) -> None:
        self.running.load({part: tensors[f"rewards/{part}"] for part in ("count", "mean", "squares")})
        places = [(int(slot), int(environment)) for slot, environment in tensors["rewards/streams"]]
        self.returns = dict(zip(places, tensors["rewards/returns"].tolist(), strict=True))
