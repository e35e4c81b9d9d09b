"""Soft actor-critic: a squashed gaussian policy, twin critics, automatic temperature.

Haarnoja et al., 2018 (1801.01290 and 1812.05905); Fujimoto et al., 2018, for the twin critics.
Entropies are those of actions scaled to [−1, 1], so that settings mean the same in every environment.
"""

from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from penstock.algorithms import memory, parts
from penstock.algorithms.fitting import check_actions
from penstock.algorithms.memory import Rows
from penstock.algorithms.replaying import Nets, Plan, ReplayLearner, Sample, follow, learned
from penstock.algorithms.settings import SACSettings, Settings
from penstock.errors import ConfigError
from penstock.model.policy import NetworkSpec, PolicyDescription
from penstock.model.spaces import Spaces
from penstock.policy import heads, networks
from penstock.policy.bodies import UNBOUNDED

CRITICS = ("critic/0", "critic/1")


def act(
    description: PolicyDescription, policy: networks.Tensors, observations: Rows, noise: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Actions and their log-densities [N], differentiable through both."""
    outputs = networks.outputs(description, policy, observations, jnp)
    actions, log_probs = heads.sample_with_log_prob(description, outputs, noise, jnp)
    _, half = heads.scale(description)
    return actions, log_probs + np.log(half).sum()  # the density of the action scaled to [−1, 1]


def values(
    description: PolicyDescription, critics: networks.Tensors, observations: Rows, actions: jax.Array
) -> jax.Array:
    """[2, N] what both critics say."""
    return jnp.stack(
        [networks.q_value(description, critics, observations, actions, jnp, prefix) for prefix in CRITICS]
    )


def targets(
    description: PolicyDescription,
    policy: networks.Tensors,
    critics: networks.Tensors,
    rows: Rows,
    alpha: jax.Array,
    noise: jax.Array,
) -> jax.Array:
    """[N] y = R + γᵏ (min Q⁻(s', a') − α log π(a'|s')), a' ~ π(s')."""
    following = memory.observations(rows, "next/")
    actions, log_probs = act(description, policy, following, noise)
    lowest = values(description, critics, following, actions).min(axis=0)
    return jax.lax.stop_gradient(rows["rewards"] + rows["discounts"] * (lowest - alpha * log_probs))


def critic_loss(
    description: PolicyDescription,
    critics: networks.Tensors,
    rows: Rows,
    wanted: jax.Array,
    weights: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """½ Σ (Q − y)² over both critics, beside it the values [2, N]."""
    said = values(description, critics, memory.observations(rows), rows["actions"])
    return 0.5 * (weights * (said - wanted) ** 2).sum(axis=0).mean(), said


def actor_loss(
    description: PolicyDescription,
    policy: networks.Tensors,
    critics: networks.Tensors,
    rows: Rows,
    alpha: jax.Array,
    noise: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """E[α log π(a|s) − min Q(s, a)], beside it the entropy."""
    seen = memory.observations(rows)
    actions, log_probs = act(description, policy, seen, noise)
    lowest = values(description, critics, seen, actions).min(axis=0)
    return (alpha * log_probs - lowest).mean(), -log_probs.mean()


def temperature_loss(log_alpha: jax.Array, entropy: jax.Array, wanted: jax.Array) -> jax.Array:
    """α rises where the entropy is below what is wanted, and falls where it is above."""
    return log_alpha * (entropy - wanted)


def step(
    description: PolicyDescription, automatic: bool, nets: Nets, sample: Sample
) -> tuple[Nets, jax.Array, dict[str, jax.Array]]:
    """One step of Adam each for critics, policy and temperature; the target critics follow."""
    rows, live, normalizer = sample.rows, sample.live, sample.normalizer

    def descend(name: str, gradients: Any) -> tuple[Any, Any]:
        rate, max_norm = live["learning_rate"], live["max_grad_norm"]
        moved, adam, _ = parts.adam_step(nets[name], gradients, nets["adam"][name], rate, max_norm)
        return moved, adam

    alpha = jnp.exp(nets["log_alpha"])
    policy, target_critics = nets["policy"] | normalizer, nets["targets"] | normalizer
    wanted = targets(description, policy, target_critics, rows, alpha, sample.noise[0])

    def of_critics(critics: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
        return critic_loss(description, critics | normalizer, rows, wanted, sample.weights)

    (td_loss, said), gradients = jax.value_and_grad(of_critics, has_aux=True)(nets["critics"])
    critics, critics_adam = descend("critics", gradients)

    def of_policy(policy: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
        return actor_loss(
            description, policy | normalizer, critics | normalizer, rows, alpha, sample.noise[1]
        )

    (policy_loss, entropy), gradients = jax.value_and_grad(of_policy, has_aux=True)(nets["policy"])
    policy, policy_adam = descend("policy", gradients)
    log_alpha, alpha_adam = nets["log_alpha"], nets["adam"]["log_alpha"]
    if automatic:
        goal = -live["target_entropy_scale"] * sample.noise.shape[-1]
        log_alpha, alpha_adam = descend("log_alpha", jax.grad(temperature_loss)(log_alpha, entropy, goal))
    moved = {
        "policy": policy,
        "critics": critics,
        "targets": follow(nets["targets"], critics, live["target_rate"]),
        "log_alpha": log_alpha,
        "adam": {"policy": policy_adam, "critics": critics_adam, "log_alpha": alpha_adam},
    }
    metrics = {
        "losses/td_loss": td_loss,
        "losses/q_values": said.mean(),
        "losses/actor_loss": policy_loss,
        "losses/alpha": alpha,
        "losses/entropy": entropy,
    }
    return moved, (said - wanted).mean(axis=0), metrics


class SAC:
    """Soft actor-critic for a bounded Box of actions."""

    name: ClassVar[str] = "sac"

    @staticmethod
    def describe(spaces: Spaces, network: NetworkSpec, settings: Settings) -> PolicyDescription:
        action = spaces.action
        check_actions("sac", SACSettings, action)
        if any(abs(bound) >= UNBOUNDED for bound in (*action.low, *action.high)):
            raise ConfigError(
                "sac needs a Box of actions with finite bounds; wrap the environment, or use ppo"
            )
        if any(low >= high for low, high in zip(action.low, action.high, strict=True)):
            raise ConfigError("sac needs low < high in every entry of the Box of actions")
        description = PolicyDescription("sac", "squashed_gaussian", spaces, network)
        networks.check(description)
        return description

    @staticmethod
    def learner(description: PolicyDescription, settings: Settings, seed: int) -> ReplayLearner:
        assert isinstance(settings, SACSettings)
        rng = np.random.default_rng(seed)
        policy = learned(networks.initial(description, rng))
        critics = {
            name: tensor
            for prefix in CRITICS
            for name, tensor in networks.initial_q(description, rng, prefix).items()
        }
        log_alpha = np.float32(np.log(settings.initial_temperature))
        dimensions = int(np.prod(description.spaces.action.shape))
        return ReplayLearner(
            description,
            Plan(
                settings.buffer,
                settings.batch,
                settings.gradient_steps,
                settings.learning_starts,
                noise=(2, settings.batch, dimensions),
                normalize_rewards=settings.normalize_rewards,
            ),
            partial(step, description, settings.automatic_temperature),
            {
                "policy": policy,
                "critics": critics,
                "targets": critics,
                "log_alpha": log_alpha,
                "adam": {
                    "policy": parts.adam(policy),
                    "critics": parts.adam(critics),
                    "log_alpha": parts.adam(log_alpha),
                },
            },
            seed,
            "policy",
            lambda steps, live: {},
        )
