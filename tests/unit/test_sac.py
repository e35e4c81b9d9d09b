"""Soft actor-critic: targets and losses by hand, signs, and a bandit that is solved."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from penstock.algorithms import parts, sac
from penstock.algorithms.base import Batch
from penstock.algorithms.replaying import Sample
from penstock.algorithms.sac import SAC
from penstock.algorithms.settings import SACSettings, live_values
from penstock.errors import ConfigError
from penstock.model.policy import NetworkSpec, PolicyDescription
from penstock.model.spaces import ActionLayout, Column, Leaf, ObservationLayout, Spaces
from penstock.policy import heads, networks


def spaces(low=(-2.0,), high=(4.0,)):
    layout = ObservationLayout(
        {"observations": Column((1,), "<f4")}, (Leaf((), "box", "observations", size=1),)
    )
    return Spaces(layout, ActionLayout("box", shape=(len(low),), low=low, high=high))


LINEAR = PolicyDescription("sac", "squashed_gaussian", spaces(), NetworkSpec(hidden=()))
"""Without hidden layers: mean = m·s, log σ = l·s, Q = q·s + p·a, a in [−1, 1]."""

POLICY = {
    "policy/output/weight": jnp.array([[0.5, -2.0]]),
    "policy/output/bias": jnp.zeros(2),
}


def critics(first, second):
    return {
        f"critic/{i}/output/{part}": jnp.array(value, jnp.float32)
        for i, weights in enumerate((first, second))
        for part, value in (("weight", [[weights[0]], [weights[1]]]), ("bias", [0.0]))
    }


def rows(states, actions, rewards, discounts, following):
    return {
        "observations": jnp.array(states, jnp.float32)[:, None],
        "actions": jnp.array(actions, jnp.float32)[:, None],
        "rewards": jnp.array(rewards, jnp.float32),
        "discounts": jnp.array(discounts, jnp.float32),
        "next/observations": jnp.array(following, jnp.float32)[:, None],
    }


def by_hand(state, noise):
    """The action scaled to [−1, 1], and the log-density of it."""
    mean, deviation = 0.5 * state, np.exp(-2.0 * state)
    raw = mean + deviation * noise
    density = -0.5 * noise**2 - np.log(deviation) - 0.5 * np.log(2 * np.pi)
    return np.tanh(raw), density - np.log(1 - np.tanh(raw) ** 2)


def test_actions_fill_their_bounds_and_densities_are_those_of_scaled_actions():
    noise = np.array([[-1.0], [0.0], [2.0]], np.float32)
    actions, log_probs = sac.act(LINEAR, POLICY, {"observations": jnp.ones((3, 1))}, jnp.array(noise))
    scaled, density = by_hand(1.0, noise[:, 0])
    np.testing.assert_allclose(actions[:, 0], 1 + 3 * scaled, rtol=1e-5)
    np.testing.assert_allclose(log_probs, density, rtol=1e-5)


def test_the_target_is_the_lower_critic_less_the_price_of_certainty():
    sample = rows([0, 0], [0, 0], [1, 1], [0.5, 0], [1, 1])
    noise = np.array([[0.3], [0.3]], np.float32)
    said = critics((2.0, 1.0), (3.0, -1.0))
    wanted = sac.targets(LINEAR, POLICY, said, sample, jnp.float32(0.2), jnp.array(noise))
    action, density = by_hand(1.0, 0.3)
    lowest = min(2 + action, 3 - action)
    assert wanted.tolist() == pytest.approx([1 + 0.5 * (lowest - 0.2 * density), 1.0], rel=1e-5)


def test_the_critic_loss_is_half_the_squares_of_both():
    sample = rows([1], [4], [0], [0], [0])  # action 4 is +1 when scaled
    total, said = sac.critic_loss(
        LINEAR, critics((2.0, 1.0), (3.0, -1.0)), sample, jnp.array([1.0]), jnp.array([0.5])
    )
    assert said.ravel().tolist() == [3, 2]
    assert float(total) == pytest.approx(0.5 * 0.5 * ((3 - 1) ** 2 + (2 - 1) ** 2))


def test_the_actor_loss_weighs_density_against_the_lower_critic():
    noise = jnp.array([[0.3]])
    total, entropy = sac.actor_loss(
        LINEAR,
        POLICY,
        critics((2.0, 1.0), (3.0, -1.0)),
        rows([1], [0], [0], [0], [0]),
        jnp.float32(0.2),
        noise,
    )
    action, density = by_hand(1.0, 0.3)
    assert float(total) == pytest.approx(0.2 * density - min(2 + action, 3 - action), rel=1e-5)
    assert float(entropy) == pytest.approx(-density, rel=1e-5)


def stepped(automatic=True, scale=1.0, target_rate=0.25, critic=((0.0, 2.0), (0.0, 2.0))):
    said = critics(*critic)
    log_alpha = jnp.zeros(())
    nets = {
        "policy": POLICY,
        "critics": said,
        "targets": critics((1.0, 0.0), (1.0, 0.0)),
        "log_alpha": log_alpha,
        "adam": {
            "policy": parts.adam(POLICY),
            "critics": parts.adam(said),
            "log_alpha": parts.adam(log_alpha),
        },
    }
    live = {
        "learning_rate": 1e-2,
        "max_grad_norm": 10.0,
        "target_rate": target_rate,
        "target_entropy_scale": scale,
    }
    noise = jnp.array(np.random.default_rng(0).standard_normal((2, 64, 1)), jnp.float32)
    sample = rows([1] * 64, [1] * 64, [5] * 64, [0] * 64, [0] * 64)
    return nets, jax.jit(partial(sac.step, LINEAR, automatic))(
        nets, Sample(sample, jnp.ones(64), noise, {}, live)
    )


def test_one_step_moves_everything_the_right_way():
    before, (after, errors, _) = stepped()
    # Reward 5 at action 0 (scaled): the critics say 0, so both must rise with the state.
    assert errors.tolist() == pytest.approx([-5.0] * 64)
    for i in (0, 1):
        name = f"critic/{i}/output/weight"
        assert after["critics"][name][0, 0] > before["critics"][name][0, 0]
        expected = before["targets"][name] + 0.25 * (after["critics"][name] - before["targets"][name])
        np.testing.assert_allclose(after["targets"][name], expected, rtol=1e-6)
    # The critics like large actions: the mean rises.
    assert after["policy"]["policy/output/weight"][0, 0] > POLICY["policy/output/weight"][0, 0]


def test_the_temperature_rises_below_the_wanted_entropy_and_falls_above():
    _, (low, _, metrics) = stepped(scale=0.01)
    _, (high, _, _) = stepped(scale=5.0)
    assert -5 < float(metrics["losses/entropy"]) < -0.01
    assert float(low["log_alpha"]) > 0 > float(high["log_alpha"])
    _, (fixed, _, _) = stepped(automatic=False, scale=5.0)
    assert float(fixed["log_alpha"]) == 0


def test_other_actions_are_refused_with_advice():
    discrete = Spaces(spaces().observation, ActionLayout("discrete", sizes=(2,), start=(0,)))
    with pytest.raises(
        ConfigError, match="sac needs Box actions; this environment has Discrete: use ppo or dqn"
    ):
        SAC.describe(discrete, NetworkSpec(), SACSettings())
    with pytest.raises(ConfigError, match="finite bounds"):
        SAC.describe(spaces(low=(-3.4e38,)), NetworkSpec(), SACSettings())
    with pytest.raises(ConfigError, match="low < high"):
        SAC.describe(spaces(low=(1.0,), high=(1.0,)), NetworkSpec(), SACSettings())


def bandit(rate):
    """Reward −(a − 2)² with actions in [−2, 4]; every step ends its episode. Returns the greedy action."""
    settings = SACSettings(
        learning_rate=1e-2, buffer=2_000, batch=64, gradient_steps=16, learning_starts=64,
        initial_temperature=0.1, target_entropy_scale=2.0,
    )  # fmt: skip
    description = SAC.describe(spaces(), NetworkSpec(hidden=(16,)), settings)
    learner = SAC.learner(description, settings, 1)
    rng = np.random.default_rng(0)
    seen = np.ones((16, 4, 1), np.float32)
    for _ in range(100):  # at 40 it is still on its way; from 80 on it stays within 0.1 for any seed tried
        policy = learner.policy()
        outputs = networks.outputs(description, policy, {"observations": seen.reshape(-1, 1)}, np)
        noise = rng.standard_normal((64, 1), np.float32)
        actions = heads.sample(description, outputs, None, noise, np).reshape(16, 4, 1)
        ended = np.ones((16, 4), bool)
        columns = {
            "observations": seen,
            "last/observations": seen[0],
            "final/observations": seen[0, :0],
            "final/index": np.zeros((0, 2), np.int32),
            "actions": actions,
            "rewards": -np.square(actions[..., 0] - 2),
            "terminated": ended,
            "truncated": ~ended,
        }
        batch = Batch(columns, np.zeros(4), np.stack([np.zeros(4, int), np.arange(4)], axis=1))
        learner.learn(batch, live_values(settings, 0) | {"learning_rate": rate})
    outputs = networks.outputs(description, learner.policy(), {"observations": seen[0, :1]}, np)
    return heads.greedy(description, outputs, None, np).item()


def test_the_best_action_of_a_bandit_is_found():
    assert bandit(1e-2) == pytest.approx(2.0, abs=0.25)


def test_it_is_not_found_uphill():
    assert not abs(bandit(-1e-2) - 2.0) <= 0.5  # also where it has become no number at all
