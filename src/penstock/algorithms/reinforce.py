"""REINFORCE: Monte-Carlo policy gradient with a learned baseline (Williams, 1992).

One gradient step a batch. Returns run to the end of each episode; a piece cut by the rollout's edge, and an
episode cut by a limit, end in the baseline's value of what came next.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from penstock.algorithms import onpolicy, parts
from penstock.algorithms.onpolicy import Inputs, Learned, OnPolicyLearner, Update
from penstock.algorithms.returns import discounted
from penstock.algorithms.settings import REINFORCESettings, Settings
from penstock.errors import ConfigError
from penstock.model.policy import NetworkSpec, PolicyDescription
from penstock.model.spaces import Spaces
from penstock.policy import heads, networks

METRICS = (
    "losses/policy_loss", "losses/value_loss", "losses/entropy", "losses/approx_kl",
    "losses/explained_variance", "losses/grad_norm", "losses/corrected",
)  # fmt: skip


def loss(
    description: PolicyDescription,
    tensors: networks.Tensors,
    inputs: Inputs,
    live: Mapping[str, Any],
    normalize: bool,
) -> tuple[Any, Any]:
    """−E[log π(a|s) (G − b(s))] with the baseline's squared error and an entropy bonus; and metrics."""
    block, seen = inputs.rewards.shape, onpolicy.flat(inputs.observations)
    outputs = networks.outputs(description, tensors, seen, jnp).reshape(*block, -1)
    values = networks.value(description, tensors, seen, jnp).reshape(block)
    last_values = jax.lax.stop_gradient(networks.value(description, tensors, inputs.last, jnp))
    returns = discounted(inputs.rewards, last_values, inputs.ends, live["gamma"], jnp)
    advantages = jax.lax.stop_gradient(returns - values)
    if normalize:
        advantages = parts.standardized(advantages)
    log_probs = heads.log_prob(description, outputs, inputs.actions, inputs.masks, jnp)
    log_ratios = jax.lax.stop_gradient(log_probs) - inputs.log_probs
    # an older policy's choices count by how likely they still are, never more than once
    weights = jnp.where(inputs.lags > 0, jnp.minimum(jnp.exp(log_ratios), 1.0), 1.0)
    policy_loss = -(weights * log_probs * advantages).mean()
    value_loss = jnp.square(returns - values).mean()
    entropy = heads.entropy(description, outputs, inputs.masks, jnp).mean()
    told = jnp.stack((
        policy_loss,
        value_loss,
        entropy,
        (jnp.exp(log_ratios) - 1 - log_ratios).mean(),
        parts.explained_variance(values, returns),
    ))  # fmt: skip
    total = policy_loss + live["value_coefficient"] * value_loss - live["entropy"] * entropy
    return total, jax.lax.stop_gradient(told)


def make_update(description: PolicyDescription, settings: REINFORCESettings) -> Update:
    """The compiled part of REINFORCE for one policy and its settings."""

    def apply(
        learned: Learned, fixed: dict[str, Any], inputs: Inputs, order: Any, live: dict[str, Any]
    ) -> tuple[Learned, Any]:
        def objective(parameters: dict[str, Any]) -> tuple[Any, Any]:
            return loss(description, parameters | fixed, inputs, live, settings.normalize_advantages)

        gradients, told = jax.grad(objective, has_aux=True)(learned.parameters)
        parameters, adam, norm = parts.adam_step(
            learned.parameters, gradients, learned.adam, live["learning_rate"], live["max_grad_norm"]
        )
        corrected = (inputs.lags > 0).mean()
        return Learned(parameters, adam), jnp.concatenate((told, jnp.stack((norm, corrected))))

    def order(rng: np.random.Generator, steps: int, environments: int) -> Any:
        return ()  # the whole batch at once

    return Update(apply, order, METRICS)


class REINFORCE:
    """The plugin."""

    name: ClassVar[str] = "reinforce"

    @staticmethod
    def describe(spaces: Spaces, network: NetworkSpec, settings: Settings) -> PolicyDescription:
        """The policy REINFORCE would train; raise ConfigError where it cannot."""
        return onpolicy.describe("reinforce", spaces, network)

    @staticmethod
    def learner(description: PolicyDescription, settings: Settings, seed: int) -> OnPolicyLearner:
        """A fresh learner; the same arguments give the same bits."""
        if not isinstance(settings, REINFORCESettings):
            raise ConfigError(f"reinforce needs REINFORCESettings, not {type(settings).__name__}")
        return OnPolicyLearner(description, settings, seed, make_update(description, settings))
