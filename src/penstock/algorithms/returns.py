"""From rewards and values to advantages and targets: pure, on NumPy or JAX alike.

All blocks are [T, B]. `values` are V(x_t), `last_values` [B] is V of what comes after the last row, and
`truncation_values` holds V(final observation) where an episode was truncated. An end stops all credit:
after a terminated step nothing follows; after a truncated one, the value of its final observation does.
"""

from typing import Any, NamedTuple

import jax
import numpy as np


class Ends(NamedTuple):
    """How each step of a block ended."""

    terminated: Any
    truncated: Any
    truncation_values: Any


def discounted(rewards: Any, last_values: Any, ends: Ends, gamma: Any, xp: Any) -> Any:
    """G_t = r_t + γ G_{t+1}: Monte-Carlo returns; the piece cut by the block's edge ends in `last_values`."""
    alive = _alive(rewards, ends, xp)
    following = _following(xp.zeros_like(rewards), xp.zeros_like(last_values), ends, xp)
    # G_T is last_values: enter it as part of the last row
    first = rewards + gamma * following
    edge = gamma * alive[-1] * last_values
    first = xp.concatenate((first[:-1], (first[-1] + edge)[None]))
    return _backward(first, gamma * alive, xp)


def gae(rewards: Any, values: Any, last_values: Any, ends: Ends, gamma: Any, trace: Any, xp: Any) -> Any:
    """Generalised advantage estimates (Schulman et al., 2016, eq. 16): Â_t = δ_t + γλ Â_{t+1}."""
    errors = _errors(rewards, values, last_values, ends, gamma, xp)
    return _backward(errors, gamma * trace * _alive(rewards, ends, xp), xp)


def corrected_gae(
    rewards: Any, values: Any, last_values: Any, ends: Ends, ratios: Any, gamma: Any, trace: Any, xp: Any
) -> tuple[Any, Any]:
    """GAE of experience an older policy made: (advantages, value targets); `ratios` are π/μ.

    The targets are V-trace with ρ = min(1, π/μ) and c = λ min(1, π/μ). The advantage of step t leaves
    out its own ρ_t, because PPO's surrogate multiplies by π/μ itself. Ratios of 1 give plain GAE.
    """
    errors = _errors(rewards, values, last_values, ends, gamma, xp)
    clipped = xp.minimum(ratios, 1.0)
    decay = gamma * trace * _alive(rewards, ends, xp)
    corrections = _backward(clipped * errors, decay * clipped, xp)
    later = xp.concatenate((corrections[1:], xp.zeros_like(corrections[:1])))
    return errors + decay * later, values + corrections


def vtrace(
    rewards: Any,
    values: Any,
    last_values: Any,
    ends: Ends,
    ratios: Any,
    gamma: Any,
    trace: Any,
    rho_clip: Any,
    trace_clip: Any,
    xp: Any,
) -> tuple[Any, Any]:
    """V-trace (Espeholt et al., 2018): (targets v_t, policy-gradient advantages).

    v_t = V(x_t) + ρ_t δ_t + γ c_t (v_{t+1} − V(x_{t+1})),  ρ = min(ρ̄, π/μ), c = λ min(c̄, π/μ)   (eq. 1)
    advantage_t = ρ_t (r_t + γ v_{t+1} − V(x_t))                                                    (§4.2)
    """
    rhos = xp.minimum(ratios, rho_clip)
    errors = rhos * _errors(rewards, values, last_values, ends, gamma, xp)
    decay = gamma * trace * xp.minimum(ratios, trace_clip) * _alive(rewards, ends, xp)
    targets = values + _backward(errors, decay, xp)
    return targets, rhos * _errors(rewards, values, last_values, ends, gamma, xp, targets)


def _errors(
    rewards: Any, values: Any, last_values: Any, ends: Ends, gamma: Any, xp: Any, judged: Any = None
) -> Any:
    """δ_t = r_t + γ V(x_{t+1}) − V(x_t); V(x_{t+1}) is taken from `judged` where given."""
    ahead = values if judged is None else judged
    return rewards + gamma * _following(ahead, last_values, ends, xp) - values


def _following(values: Any, last_values: Any, ends: Ends, xp: Any) -> Any:
    """V after each step: 0 after a termination, the final observation's value after a truncation."""
    ahead = xp.concatenate((values[1:], last_values[None]))
    ahead = xp.where(ends.truncated, ends.truncation_values, ahead)
    return xp.where(ends.terminated, 0.0, ahead)


def _alive(rewards: Any, ends: Ends, xp: Any) -> Any:
    """1 where the episode goes on after the step, in the type of `rewards`."""
    return 1 - xp.logical_or(ends.terminated, ends.truncated).astype(rewards.dtype)


def _backward(terms: Any, factors: Any, xp: Any) -> Any:
    """y_t = terms_t + factors_t · y_{t+1}, from the last row to the first."""
    if xp is np:
        result, following = np.empty_like(terms), np.zeros_like(terms[0])
        for t in reversed(range(len(terms))):
            following = result[t] = terms[t] + factors[t] * following
        return result

    def step(following: Any, row: tuple[Any, Any]) -> tuple[Any, Any]:
        following = row[0] + row[1] * following
        return following, following

    return jax.lax.scan(step, xp.zeros_like(terms[0]), (terms, factors), reverse=True)[1]
