"""IMPALA: the importance-weighted actor-learner (Espeholt et al., 2018).

Actors may be behind the learner; V-trace corrects for it. One update makes `epochs` passes over the batch,
each in `minibatches` pieces along the environments, so that every piece keeps whole columns of time.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from penstock.algorithms import onpolicy, parts
from penstock.algorithms.onpolicy import Inputs, Learned, OnPolicyLearner, Update
from penstock.algorithms.returns import vtrace
from penstock.algorithms.settings import IMPALASettings, Settings
from penstock.errors import ConfigError
from penstock.model.policy import NetworkSpec, PolicyDescription
from penstock.model.spaces import Spaces
from penstock.policy import heads, networks

METRICS = (
    "losses/policy_loss", "losses/value_loss", "losses/entropy", "losses/approx_kl", "losses/mean_rho",
    "losses/explained_variance", "losses/grad_norm", "losses/corrected",
)  # fmt: skip


def loss(
    description: PolicyDescription, tensors: networks.Tensors, inputs: Inputs, live: Mapping[str, Any]
) -> tuple[Any, Any]:
    """§4.2 of the paper, to be minimised: policy gradient, value error and entropy bonus; and metrics."""
    block, seen = inputs.rewards.shape, onpolicy.flat(inputs.observations)
    outputs = networks.outputs(description, tensors, seen, jnp).reshape(*block, -1)
    values = networks.value(description, tensors, seen, jnp).reshape(block)
    last_values = networks.value(description, tensors, inputs.last, jnp)
    log_probs = heads.log_prob(description, outputs, inputs.actions, inputs.masks, jnp)
    log_ratios = jax.lax.stop_gradient(log_probs) - inputs.log_probs
    ratios = jnp.exp(log_ratios)
    fixed_values, fixed_last = jax.lax.stop_gradient((values, last_values))
    targets, advantages = vtrace(
        inputs.rewards, fixed_values, fixed_last, inputs.ends, ratios, live["gamma"], live["vtrace_lambda"],
        live["rho_clip"], live["trace_clip"], jnp,
    )  # fmt: skip
    policy_loss = -(log_probs * advantages).mean()
    value_loss = jnp.square(targets - values).mean()
    entropy = heads.entropy(description, outputs, inputs.masks, jnp).mean()
    told = jnp.stack((
        policy_loss,
        value_loss,
        entropy,
        (ratios - 1 - log_ratios).mean(),  # KL(μ‖π) (Schulman, 2020)
        jnp.minimum(ratios, live["rho_clip"]).mean(),
        parts.explained_variance(values, targets),
    ))  # fmt: skip
    total = policy_loss + live["value_coefficient"] * value_loss - live["entropy"] * entropy
    return total, jax.lax.stop_gradient(told)


def piece(inputs: Inputs, index: Any) -> Inputs:
    """The columns of these environments."""

    def along(axis: int) -> Any:
        return lambda block: jnp.take(block, index, axis=axis, mode="clip")

    blocks = inputs._replace(last={}, lags=None)
    taken: Inputs = jax.tree.map(along(1), blocks)
    return taken._replace(last=jax.tree.map(along(0), inputs.last), lags=inputs.lags[index])


def make_update(description: PolicyDescription, settings: IMPALASettings) -> Update:
    """The compiled part of IMPALA for one policy and its settings."""

    def apply(
        learned: Learned, fixed: dict[str, Any], inputs: Inputs, order: Any, live: dict[str, Any]
    ) -> tuple[Learned, Any]:
        def objective(parameters: dict[str, Any], part: Inputs) -> tuple[Any, Any]:
            return loss(description, parameters | fixed, part, live)

        def step(learned: Learned, index: Any) -> tuple[Learned, Any]:
            gradients, told = jax.grad(objective, has_aux=True)(learned.parameters, piece(inputs, index))
            parameters, adam, norm = parts.adam_step(
                learned.parameters, gradients, learned.adam, live["learning_rate"], live["max_grad_norm"]
            )
            return Learned(parameters, adam), jnp.append(told, norm)

        learned, told = jax.lax.scan(step, learned, order)
        return learned, jnp.append(told.mean(axis=0), (inputs.lags > 0).mean())

    def order(rng: np.random.Generator, steps: int, environments: int) -> Any:
        pieces = min(settings.minibatches, environments)
        size = environments // pieces
        shuffled = [rng.permutation(environments)[: pieces * size] for _ in range(settings.epochs)]
        return np.concatenate(shuffled).reshape(-1, size).astype(np.int32)

    return Update(apply, order, METRICS)


class IMPALA:
    """The plugin."""

    name: ClassVar[str] = "impala"

    @staticmethod
    def describe(spaces: Spaces, network: NetworkSpec, settings: Settings) -> PolicyDescription:
        """The policy IMPALA would train; raise ConfigError where it cannot."""
        return onpolicy.describe("impala", spaces, network)

    @staticmethod
    def learner(description: PolicyDescription, settings: Settings, seed: int) -> OnPolicyLearner:
        """A fresh learner; the same arguments give the same bits."""
        if not isinstance(settings, IMPALASettings):
            raise ConfigError(f"impala needs IMPALASettings, not {type(settings).__name__}")
        return OnPolicyLearner(description, settings, seed, make_update(description, settings))
