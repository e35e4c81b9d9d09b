"""Networks, written once against the array namespace `xp`: NumPy in an actor, `jax.numpy` in the learner.

Tensors are flat and named. A network under a prefix (`policy`, `value`, `critic/0`) consists of

    <prefix>/conv/<column>/<i>/weight  [k, k, in, out]   only for body cnn
    <prefix>/body/<i>/weight           [in, out]         hidden layers (over each row, for body items)
    <prefix>/output/weight             [in, width]       every weight has a `bias` beside it

    policy/log_std                     [A]               gaussian: one deviation for all states
    policy/state/…                                       duelling: the value stream, `output` being the other
    value/pooled/…                                       items: the layer after the mean over rows
    normalizer/<column>/mean, variance                   with network.normalize_observations
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.model.tensors import Array
from penstock.policy import bodies
from penstock.policy.bodies import body, check, dense, item_columns, normalized_columns

if TYPE_CHECKING:
    from penstock.model.policy import PolicyDescription

Tensors = Mapping[str, Any]
"""Named arrays of either namespace."""

LOG_STD_RANGE = (-20.0, 2.0)
"""Bounds of a squashed gaussian's log deviation (Haarnoja et al., 2018)."""

__all__ = [
    "Tensors", "body", "check", "initial", "initial_q", "initial_value", "normalized_columns", "outputs",
    "q_value", "value", "width",
]  # fmt: skip


def width(description: PolicyDescription) -> int:
    """Numbers the policy network gives for one observation: logits, Q-values, or means and log deviations."""
    action = description.spaces.action
    return 2 * int(np.prod(action.shape)) if action.kind == "box" else action.choices


def initial(description: PolicyDescription, rng: np.random.Generator) -> dict[str, Array]:
    """Fresh acting tensors: orthogonal weights, zero biases; raise ConfigError where the parts do not fit."""
    check(description)
    tensors = bodies.initial(description, "policy", rng)
    features = bodies.features_width(description)
    gain = 1.0 if description.head == "q" else 0.01
    outputs_width = width(description)
    if body(description) == "items":
        outputs_width = 1
    elif description.head == "gaussian":
        outputs_width //= 2
        tensors["policy/log_std"] = np.zeros(outputs_width, np.float32)
    tensors |= bodies.initial_dense("policy/output", features, outputs_width, gain, rng)
    if description.duelling:
        tensors |= bodies.initial_dense("policy/state", features, 1, 1.0, rng)
    for name, shape in normalized_columns(description).items():
        tensors[f"normalizer/{name}/mean"] = np.zeros(shape, np.float32)
        tensors[f"normalizer/{name}/variance"] = np.ones(shape, np.float32)
    return tensors


def initial_value(description: PolicyDescription, rng: np.random.Generator) -> dict[str, Array]:
    """A fresh value network; only what stands on the policy's body where `network.shared`."""
    check(description)
    tensors = {} if description.network.shared else bodies.initial(description, "value", rng)
    features = bodies.features_width(description)
    if body(description) == "items":
        tensors |= bodies.initial_dense("value/pooled", features, features, 2.0**0.5, rng)
    return tensors | bodies.initial_dense("value/output", features, 1, 1.0, rng)


def initial_q(description: PolicyDescription, rng: np.random.Generator, prefix: str) -> dict[str, Array]:
    """A fresh critic of (observation, action) pairs, for continuous actions."""
    check(description)
    actions = int(np.prod(description.spaces.action.shape))
    tensors = bodies.initial(description, prefix, rng, extra=actions)
    features = bodies.features_width(description, extra=actions)
    return tensors | bodies.initial_dense(f"{prefix}/output", features, 1, 1.0, rng)


def outputs(description: PolicyDescription, tensors: Tensors, observations: Tensors, xp: Any) -> Any:
    """[N, width] of observations with one leading axis: logits side by side | mean, log_std | Q-values."""
    features = bodies.features(description, tensors, observations, "policy", xp)
    result = dense(tensors, "policy/output", features)
    if body(description) == "items":
        result = result[..., 0]
    if description.head == "gaussian":
        log_std = xp.broadcast_to(tensors["policy/log_std"], result.shape)
        return xp.concatenate((result, log_std), axis=-1)
    if description.head == "squashed_gaussian":
        mean, log_std = xp.split(result, 2, axis=-1)
        return xp.concatenate((mean, xp.clip(log_std, *LOG_STD_RANGE)), axis=-1)
    if description.duelling:
        # Q = V + A − mean(A)   (Wang et al., 2016, eq. 9)
        pooled = _pooled(description, features, observations, xp)
        return dense(tensors, "policy/state", pooled) + result - result.mean(axis=-1, keepdims=True)
    return result


def value(description: PolicyDescription, tensors: Tensors, observations: Tensors, xp: Any) -> Any:
    """[N] state values; `tensors` holds the value network and, where shared, the policy's body."""
    prefix = "policy" if description.network.shared else "value"
    features = bodies.features(description, tensors, observations, prefix, xp)
    if body(description) == "items":
        pooled = _pooled(description, features, observations, xp)
        features = bodies.activate(description, dense(tensors, "value/pooled", pooled), xp)
    return dense(tensors, "value/output", features)[..., 0]


def q_value(
    description: PolicyDescription,
    tensors: Tensors,
    observations: Tensors,
    actions: Any,
    xp: Any,
    prefix: str,
) -> Any:
    """[N] values of (observation, action) pairs; bounded actions are seen as numbers in [−1, 1]."""
    action = description.spaces.action
    flat = actions.reshape(actions.shape[0], -1)
    low, high = np.array(action.low, np.float32), np.array(action.high, np.float32)
    if np.all(np.abs(low) < bodies.UNBOUNDED) and np.all(np.abs(high) < bodies.UNBOUNDED):
        flat = (flat - (low + high) / 2) / ((high - low) / 2)
    features = bodies.features(description, tensors, observations, prefix, xp, extra=flat)
    return dense(tensors, f"{prefix}/output", features)[..., 0]


def _pooled(description: PolicyDescription, features: Any, observations: Tensors, xp: Any) -> Any:
    """The mean over rows for body items (rows of zeros are empty places and do not count)."""
    if body(description) != "items":
        return features
    rows = observations[item_columns(description)[0]]
    filled = xp.any(rows != 0, axis=-1, keepdims=True).astype(np.float32)
    return (features * filled).sum(axis=-2) / xp.maximum(filled.sum(axis=-2), 1.0)
