"""Proximal policy optimisation (Schulman et al., 2017), with advantages corrected where experience is old.

One update, in the paper's order: values of all rows, advantages, then `epochs` passes of minibatches over
the clipped surrogate, all in one compiled call.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from penstock.algorithms import onpolicy, parts
from penstock.algorithms.onpolicy import Inputs, Learned, OnPolicyLearner, Packing, Update
from penstock.algorithms.returns import corrected_gae
from penstock.algorithms.settings import PPOSettings, Settings
from penstock.errors import ConfigError
from penstock.model.policy import NetworkSpec, PolicyDescription
from penstock.model.spaces import Spaces
from penstock.policy import heads, networks

METRICS = (
    "losses/policy_loss", "losses/entropy", "losses/approx_kl", "losses/clipfrac", "losses/grad_norm",
    "losses/value_loss", "losses/explained_variance", "losses/corrected",
)  # fmt: skip

Live = Mapping[str, Any]


def policy_loss(
    description: PolicyDescription,
    tensors: networks.Tensors,
    rows: Mapping[str, Any],
    live: Live,
    normalize: bool,
) -> tuple[Any, Any]:
    """The clipped surrogate (eq. 7) and entropy bonus, to be minimised; and what is told of it.

    Told are [surrogate loss, entropy, divergence, clipped share].
    """
    outputs = networks.outputs(description, tensors, onpolicy.observations(rows), jnp)
    masks = rows.get("masks")
    log_ratio = heads.log_prob(description, outputs, rows["actions"], masks, jnp) - rows["log_probs"]
    ratio = jnp.exp(log_ratio)
    advantages = parts.standardized(rows["advantages"]) if normalize else rows["advantages"]
    clipped = jnp.clip(ratio, 1 - live["clip_range"], 1 + live["clip_range"])
    surrogate = jnp.minimum(ratio * advantages, clipped * advantages).mean()
    entropy = heads.entropy(description, outputs, masks, jnp).mean()
    # KL(μ‖π) ≈ E[(r − 1) − log r], never negative (Schulman, 2020)
    divergence = (ratio - 1 - log_ratio).mean()
    clip_share = (jnp.abs(ratio - 1) > live["clip_range"]).mean()
    told = jax.lax.stop_gradient(jnp.stack((-surrogate, entropy, divergence, clip_share)))
    return -surrogate - live["entropy"] * entropy, told


def value_loss(description: PolicyDescription, tensors: networks.Tensors, rows: Mapping[str, Any]) -> Any:
    """The mean squared error of the values."""
    values = networks.value(description, tensors, onpolicy.observations(rows), jnp)
    return jnp.square(values - rows["targets"]).mean()


def advantages_of(
    description: PolicyDescription, tensors: networks.Tensors, inputs: Inputs, live: Live
) -> tuple[Any, Any, Any]:
    """[T, B] values, advantages and value targets: GAE, corrected in columns with lag > 0."""
    seen = onpolicy.flat(inputs.observations)
    values = networks.value(description, tensors, seen, jnp).reshape(inputs.rewards.shape)
    last_values = networks.value(description, tensors, inputs.last, jnp)

    def ratios() -> Any:
        outputs = networks.outputs(description, tensors, seen, jnp)
        outputs = outputs.reshape(*inputs.rewards.shape, -1)
        now = heads.log_prob(description, outputs, inputs.actions, inputs.masks, jnp)
        return jnp.where(inputs.lags > 0, jnp.exp(now - inputs.log_probs), 1.0)

    ratio = jax.lax.cond((inputs.lags > 0).any(), ratios, lambda: jnp.ones_like(inputs.rewards))
    advantages, targets = corrected_gae(
        inputs.rewards, values, last_values, inputs.ends, ratio, live["gamma"], live["gae_lambda"], jnp
    )
    return values, advantages, targets


def make_update(description: PolicyDescription, settings: PPOSettings) -> Update:
    """The compiled part of PPO for one policy and its settings."""

    def joint(parameters: Any, fixed: Any, rows: Any, live: Live) -> tuple[Any, Any]:
        tensors = parameters | fixed
        loss, told = policy_loss(description, tensors, rows, live, settings.normalize_advantages)
        error = value_loss(description, tensors, rows)
        return loss + live["value_coefficient"] * error, jnp.append(told, jax.lax.stop_gradient(error))

    def policy_only(parameters: Any, fixed: Any, rows: Any, live: Live) -> tuple[Any, Any]:
        loss, told = policy_loss(description, parameters | fixed, rows, live, settings.normalize_advantages)
        return loss, jnp.append(told, 0.0)

    def value_only(parameters: Any, fixed: Any, rows: Any, live: Live) -> tuple[Any, Any]:
        error = value_loss(description, parameters | fixed, rows)
        return error, jnp.zeros(5).at[4].set(jax.lax.stop_gradient(error))

    def descend(
        loss: Any,
        learned: Learned,
        fixed: Any,
        packing: Packing,
        rows: Any,
        order: Any,
        rate: Any,
        live: Live,
    ) -> Any:
        """Gradient steps over the minibatches `order` [steps, size]; none after the KL stop."""

        def step(carry: tuple[Learned, Any], index: Any) -> tuple[tuple[Learned, Any], Any]:
            learned, going = carry

            def go() -> Any:
                minibatch = packing.unpack(rows.take(index))
                gradients, told = jax.grad(loss, has_aux=True)(learned.parameters, fixed, minibatch, live)
                near = told[2] <= 1.5 * live["target_kl"]

                def move() -> Any:
                    return parts.adam_step(
                        learned.parameters, gradients, learned.adam, rate, live["max_grad_norm"]
                    )

                parameters, adam, norm = jax.lax.cond(near, move, lambda: (*learned, jnp.nan))
                return (Learned(parameters, adam), near), jnp.append(told, norm)

            result: tuple[tuple[Learned, Any], Any] = jax.lax.cond(
                going, go, lambda: (carry, jnp.full(6, jnp.nan))
            )
            return result

        (learned, _), told = jax.lax.scan(step, (learned, jnp.array(True)), order)
        return learned, jnp.nanmean(told, axis=0)

    def apply(
        learned: Learned, fixed: dict[str, Any], inputs: Inputs, order: Any, live: dict[str, Any]
    ) -> tuple[Learned, Any]:
        values, advantages, targets = advantages_of(description, learned.parameters | fixed, inputs, live)
        blocks = inputs.observations | {
            "actions": inputs.actions,
            "log_probs": inputs.log_probs,
            "advantages": advantages,
            "targets": targets,
        }
        if inputs.masks is not None:
            blocks["masks"] = inputs.masks
        blocks = onpolicy.flat(blocks)
        packing = Packing(blocks)
        rows, rate = packing.pack(blocks), live["learning_rate"]
        if settings.separate:
            policy, value = (
                Learned(
                    {k: v for k, v in learned.parameters.items() if k.startswith(part)}, learned.adam[part]
                )
                for part in ("policy", "value")
            )
            policy, told = descend(policy_only, policy, fixed, packing, rows, order["policy"], rate, live)
            patient = live | {"target_kl": jnp.inf}
            value_rate = live["value_learning_rate"]
            value, value_told = descend(
                value_only, value, fixed, packing, rows, order["value"], value_rate, patient
            )
            learned = Learned(
                policy.parameters | value.parameters, {"policy": policy.adam, "value": value.adam}
            )
            told = told.at[4].set(value_told[4])
        else:
            learned, told = descend(joint, learned, fixed, packing, rows, order["policy"], rate, live)
        loss, entropy, divergence, clip_share, error, norm = told
        fit = parts.explained_variance(values, targets)
        corrected = (inputs.lags > 0).mean()
        return learned, jnp.stack((loss, entropy, divergence, clip_share, norm, error, fit, corrected))

    def order(rng: np.random.Generator, steps: int, environments: int) -> dict[str, Any]:
        total = steps * environments
        size = min(settings.minibatch, total)

        def passes(epochs: int, gradient_steps: int | None) -> Any:
            if gradient_steps is not None:
                epochs = -(-gradient_steps // (total // size))
            shuffled = [
                rng.permutation(total)[: total // size * size].reshape(-1, size) for _ in range(epochs)
            ]
            return np.concatenate(shuffled).astype(np.int32)[:gradient_steps]

        policy = passes(settings.epochs, settings.gradient_steps)
        if not settings.separate:
            return {"policy": policy}
        return {"policy": policy, "value": passes(settings.value_epochs, settings.value_gradient_steps)}

    def adam(parameters: dict[str, Any]) -> Any:
        if not settings.separate:
            return parts.adam(parameters)
        return {
            part: parts.adam({k: v for k, v in parameters.items() if k.startswith(part)})
            for part in ("policy", "value")
        }

    return Update(apply, order, METRICS, adam)


class PPO:
    """The plugin."""

    name: ClassVar[str] = "ppo"

    @staticmethod
    def describe(spaces: Spaces, network: NetworkSpec, settings: Settings) -> PolicyDescription:
        """The policy PPO would train; raise ConfigError where it cannot."""
        if isinstance(settings, PPOSettings) and settings.separate and network.shared:
            raise ConfigError("ppo.separate needs two networks; set network.shared to false")
        return onpolicy.describe("ppo", spaces, network)

    @staticmethod
    def learner(description: PolicyDescription, settings: Settings, seed: int) -> OnPolicyLearner:
        """A fresh learner; the same arguments give the same bits."""
        if not isinstance(settings, PPOSettings):
            raise ConfigError(f"ppo needs PPOSettings, not {type(settings).__name__}")
        return OnPolicyLearner(description, settings, seed, make_update(description, settings))
