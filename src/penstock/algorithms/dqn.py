"""Deep Q-learning with the parts of Rainbow that pay: double, duelling, n-step, prioritised.

Mnih et al., 2015; van Hasselt et al., 2016; Wang et al., 2016; Schaul et al., 2016; Hessel et al., 2018.
One update inserts the rows of a batch and makes `gradient_steps` steps, in one compiled call.
"""

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

from penstock.algorithms import memory, parts
from penstock.algorithms.fitting import check_actions
from penstock.algorithms.memory import Rows
from penstock.algorithms.replaying import Nets, Plan, ReplayLearner, Sample, follow, learned
from penstock.algorithms.settings import DQNSettings, Settings
from penstock.model.policy import NetworkSpec, PolicyDescription
from penstock.model.spaces import Spaces
from penstock.policy import heads, networks


def targets(
    description: PolicyDescription,
    online: networks.Tensors,
    target: networks.Tensors,
    rows: Rows,
    double: bool,
) -> jax.Array:
    """[N] y = R + γᵏ Q⁻(s', a*), a* = argmax over allowed actions of Q (double) or Q⁻ (plain)."""
    following = memory.observations(rows, "next/")
    judged = networks.outputs(description, target, following, jnp)
    chosen_by = networks.outputs(description, online, following, jnp) if double else judged
    best = heads.greedy(description, chosen_by, rows.get("next/masks"), jnp)
    return jax.lax.stop_gradient(rows["rewards"] + rows["discounts"] * _at(judged, best))


def loss(
    description: PolicyDescription,
    online: networks.Tensors,
    rows: Rows,
    wanted: jax.Array,
    weights: jax.Array,
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """The weighted Huber loss, beside it the errors [N] and the mean Q-value."""
    values = _at(networks.outputs(description, online, memory.observations(rows), jnp), rows["actions"])
    errors = values - wanted
    return (weights * optax.huber_loss(errors)).mean(), (errors, values.mean())


def _at(values: jax.Array, actions: jax.Array) -> jax.Array:
    # A product with one-hot rows: its gradient is a product too, where indexing would scatter.
    return jnp.where(jnp.arange(values.shape[-1]) == actions[:, None], values, 0.0).sum(axis=-1)


def step(
    description: PolicyDescription, double: bool, nets: Nets, sample: Sample
) -> tuple[Nets, jax.Array, dict[str, jax.Array]]:
    """One step of Adam on the online network; the target follows it at `target_rate`."""
    rows, live, normalizer = sample.rows, sample.live, sample.normalizer
    online, target = nets["online"], nets["target"]
    wanted = targets(description, online | normalizer, target | normalizer, rows, double)

    def weighted(tensors: dict[str, jax.Array]) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        return loss(description, tensors | normalizer, rows, wanted, sample.weights)

    (total, (errors, value)), gradients = jax.value_and_grad(weighted, has_aux=True)(online)
    online, adam, norm = parts.adam_step(
        online, gradients, nets["adam"], live["learning_rate"], live["max_grad_norm"]
    )
    target = follow(target, online, live["target_rate"])
    metrics = {"losses/td_loss": total, "losses/q_values": value, "losses/grad_norm": norm}
    return {"online": online, "target": target, "adam": adam}, errors, metrics


def epsilon(settings: DQNSettings, environment_steps: int, live: Mapping[str, float]) -> dict[str, float]:
    """The share of random actions, which falls linearly over `epsilon_steps` environment steps."""
    left = max(0.0, 1.0 - environment_steps / live["epsilon_steps"])
    share = live["epsilon_end"] + left * (live["epsilon_start"] - live["epsilon_end"])
    return {"epsilon": share, "epsilon_spread": settings.epsilon_spread}


class DQN:
    """Q-learning for Discrete actions."""

    name: ClassVar[str] = "dqn"

    @staticmethod
    def describe(spaces: Spaces, network: NetworkSpec, settings: Settings) -> PolicyDescription:
        check_actions("dqn", DQNSettings, spaces.action)
        assert isinstance(settings, DQNSettings)
        description = PolicyDescription("dqn", "q", spaces, network, duelling=settings.duelling)
        networks.check(description)
        return description

    @staticmethod
    def learner(description: PolicyDescription, settings: Settings, seed: int) -> ReplayLearner:
        assert isinstance(settings, DQNSettings)
        online = learned(networks.initial(description, np.random.default_rng(seed)))
        plan = Plan(
            settings.buffer,
            settings.batch,
            settings.gradient_steps,
            settings.learning_starts,
            settings.n_step,
            settings.priority_alpha if settings.prioritised else 0.0,
            normalize_rewards=settings.normalize_rewards,
        )
        return ReplayLearner(
            description,
            plan,
            partial(step, description, settings.double),
            {"online": online, "target": online, "adam": parts.adam(online)},
            seed,
            "online",
            partial(epsilon, settings),
        )
