"""From network outputs to actions and their probabilities: pure functions on either array namespace.

`outputs` is [..., width] as `networks.outputs` gives it, `actions` is [..., *action shape], `masks` is
[..., choices] or None. Noise is drawn by the caller and has the shape [..., *noise_shape]: uniform on
[0, 1) for choices and Q-values, standard normal for gaussians.
"""

from __future__ import annotations

from math import log, pi
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.model.policy import PolicyDescription

MASKED = -1e9
"""Logit of an action that is not allowed: its probability is exactly 0 in float32."""

SMALLEST = 2.0**-25
"""Uniform numbers are at least this, because log 0 is not finite."""


def noise_shape(description: PolicyDescription) -> tuple[int, ...]:
    """Numbers one decision uses up. For `q` the first decides whether to explore, the rest choose."""
    action = description.spaces.action
    if action.kind == "box":
        return (int(np.prod(action.shape)),)
    return (1 + action.choices,) if description.head == "q" else (action.choices,)


def log_prob(description: PolicyDescription, outputs: Any, actions: Any, masks: Any, xp: Any) -> Any:
    """[...] log-probability (density, for Box) of `actions`; 0 for `q`, whose policy is greedy."""
    if description.head == "q":
        return xp.zeros(outputs.shape[:-1], np.float32)
    if description.spaces.action.kind == "box":
        return _box_log_prob(description, outputs, actions, xp)
    total = 0.0
    for part, (logits, mask) in enumerate(_parts(description, outputs, masks)):
        chosen = actions if description.head == "categorical" else actions[..., part]
        # a product with one-hot rows: its gradient is a product too, where indexing would scatter
        hot = xp.arange(logits.shape[-1]) == chosen[..., None]
        total = total + xp.where(hot, _log_softmax(logits, mask, xp), 0.0).sum(axis=-1)
    return total


def entropy(description: PolicyDescription, outputs: Any, masks: Any, xp: Any) -> Any:
    """[...] entropy in nats; masked actions add nothing."""
    if description.head == "gaussian":
        _, log_std = _mean_log_std(outputs)
        return (log_std + 0.5 * (1 + log(2 * pi))).sum(axis=-1)
    if description.head not in ("categorical", "multi_categorical"):
        raise ConfigError(f"a {description.head} head has no entropy in closed form")
    total = 0.0
    for logits, mask in _parts(description, outputs, masks):
        log_probs = _log_softmax(logits, mask, xp)
        terms = xp.exp(log_probs) * log_probs
        total = total - (terms if mask is None else xp.where(mask, terms, 0.0)).sum(axis=-1)
    return total


def sample(description: PolicyDescription, outputs: Any, masks: Any, noise: Any, xp: Any) -> Any:
    """Actions of the policy that `outputs` describes; the same noise gives the same actions."""
    if description.head == "q":
        raise ConfigError("a q head does not sample; use epsilon_greedy")
    if description.spaces.action.kind != "box":
        return _choose(description, outputs + gumbel(noise, xp), masks, xp)
    return _box_actions(description, _draw(outputs, noise, xp), xp)


def greedy(description: PolicyDescription, outputs: Any, masks: Any, xp: Any) -> Any:
    """The most likely action: the best allowed logit or Q-value, or the mean."""
    if description.spaces.action.kind != "box":
        return _choose(description, outputs, masks, xp)
    return _box_actions(description, _mean_log_std(outputs)[0], xp)


def epsilon_greedy(
    description: PolicyDescription, outputs: Any, masks: Any, noise: Any, epsilon: Any, xp: Any
) -> Any:
    """The best allowed Q-value, or with probability `epsilon` any allowed action, all alike."""
    best = _choose(description, outputs, masks, xp)
    # the argmax of independent uniform numbers is uniform
    other = _choose(description, noise[..., 1:], masks, xp)
    return xp.where(noise[..., 0] < epsilon, other, best)


def sample_with_log_prob(
    description: PolicyDescription, outputs: Any, noise: Any, xp: Any
) -> tuple[Any, Any]:
    """Box actions and their log-densities, differentiable through both (the reparameterisation of SAC)."""
    raw = _draw(outputs, noise, xp)
    _, log_std = _mean_log_std(outputs)
    density = (-0.5 * noise**2 - log_std - 0.5 * log(2 * pi)).sum(axis=-1)
    if description.head == "squashed_gaussian":
        density = density - _log_slope(description, raw, xp)
    return _box_actions(description, raw, xp), density


def gumbel(uniform: Any, xp: Any) -> Any:
    """Gumbel noise: argmax(logits + gumbel) is a sample of softmax(logits) (Gumbel, 1954)."""
    return -xp.log(-xp.log(xp.maximum(uniform, np.float32(SMALLEST))))


def scale(description: PolicyDescription) -> tuple[Any, Any]:
    """Centre and half width of each entry of a bounded Box."""
    action = description.spaces.action
    low, high = np.array(action.low, np.float32), np.array(action.high, np.float32)
    return (low + high) / 2, (high - low) / 2


def _parts(description: PolicyDescription, outputs: Any, masks: Any) -> list[tuple[Any, Any]]:
    sizes = description.spaces.action.sizes
    if len(sizes) == 1:
        return [(outputs, masks)]
    parts, at = [], 0
    for size in sizes:
        parts.append((outputs[..., at : at + size], None if masks is None else masks[..., at : at + size]))
        at += size
    return parts


def _choose(description: PolicyDescription, scores: Any, masks: Any, xp: Any) -> Any:
    chosen = [
        (part if mask is None else xp.where(mask, part, MASKED)).argmax(axis=-1)
        for part, mask in _parts(description, scores, masks)
    ]
    return xp.stack(chosen, axis=-1) if description.spaces.action.kind == "multi_discrete" else chosen[0]


def _log_softmax(logits: Any, mask: Any, xp: Any) -> Any:
    if mask is not None:
        logits = xp.where(mask, logits, MASKED)
    logits = logits - logits.max(axis=-1, keepdims=True)
    return logits - xp.log(xp.exp(logits).sum(axis=-1, keepdims=True))


def _mean_log_std(outputs: Any) -> tuple[Any, Any]:
    half = outputs.shape[-1] // 2
    return outputs[..., :half], outputs[..., half:]


def _draw(outputs: Any, noise: Any, xp: Any) -> Any:
    mean, log_std = _mean_log_std(outputs)
    return mean + xp.exp(log_std) * noise


def _box_actions(description: PolicyDescription, raw: Any, xp: Any) -> Any:
    if description.head == "squashed_gaussian":
        centre, half = scale(description)
        raw = xp.tanh(raw) * half + centre
    return raw.reshape(*raw.shape[:-1], *description.spaces.action.shape)


def _box_log_prob(description: PolicyDescription, outputs: Any, actions: Any, xp: Any) -> Any:
    mean, log_std = _mean_log_std(outputs)
    raw = actions.reshape(mean.shape)
    if description.head == "squashed_gaussian":
        centre, half = scale(description)
        raw = xp.arctanh(xp.clip((raw - centre) / half, -1 + 1e-6, 1 - 1e-6))
    density = (-0.5 * ((raw - mean) * xp.exp(-log_std)) ** 2 - log_std - 0.5 * log(2 * pi)).sum(axis=-1)
    if description.head == "squashed_gaussian":
        density = density - _log_slope(description, raw, xp)
    return density


def _log_slope(description: PolicyDescription, raw: Any, xp: Any) -> Any:
    """log |da/du| of a = half · tanh(u) + centre, summed: log(1 − tanh²u) = 2 (log 2 − u − softplus(−2u))."""
    _, half = scale(description)
    return (2 * (log(2) - raw - xp.logaddexp(-2 * raw, 0.0)) + np.log(half)).sum(axis=-1)
