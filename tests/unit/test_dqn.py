"""Deep Q-learning: targets by hand on tables, signs, and a chain that is solved."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from penstock.algorithms import dqn, parts
from penstock.algorithms.base import Batch
from penstock.algorithms.dqn import DQN
from penstock.algorithms.replaying import Sample
from penstock.algorithms.settings import DQNSettings, live_values
from penstock.errors import ConfigError
from penstock.model.policy import NetworkSpec, PolicyDescription
from penstock.model.spaces import ActionLayout, Column, Leaf, ObservationLayout, Spaces
from penstock.policy import networks

STATES, ACTIONS = 3, 2


def spaces(states=STATES, actions=ACTIONS, masked=False):
    layout = ObservationLayout(
        {"observations": Column((states,), "<f4")},
        (Leaf((), "discrete", "observations", size=states, sizes=(states,)),),
    )
    return Spaces(layout, ActionLayout("discrete", sizes=(actions,), start=(0,), masked=masked))


TABLE = PolicyDescription("dqn", "q", spaces(), NetworkSpec(hidden=()))
"""Without hidden layers and with one-hot states the weights are the table of Q-values."""


def table(rows):
    return {
        "policy/output/weight": jnp.array(rows, jnp.float32),
        "policy/output/bias": jnp.zeros(len(rows[0])),
    }


def rows(states, actions, rewards, discounts, following, masks=None):
    hot = np.eye(STATES, dtype=np.float32)
    result = {
        "observations": jnp.array(hot[states]),
        "actions": jnp.array(actions, jnp.int32),
        "rewards": jnp.array(rewards, jnp.float32),
        "discounts": jnp.array(discounts, jnp.float32),
        "next/observations": jnp.array(hot[following]),
    }
    return result if masks is None else result | {"next/masks": jnp.array(masks)}


ONLINE = table([[0, 0], [1, 2], [3, 0]])
TARGET = table([[0, 0], [20, 10], [5, 7]])


def test_double_chooses_online_and_judges_with_the_target():
    sample = rows([0, 0], [0, 1], [1, 1], [0.5, 0.5], [1, 2])
    assert dqn.targets(TABLE, ONLINE, TARGET, sample, double=True).tolist() == [1 + 5, 1 + 2.5]


def test_plain_takes_the_greatest_of_the_target():
    sample = rows([0, 0], [0, 1], [1, 1], [0.5, 0.5], [1, 2])
    assert dqn.targets(TABLE, ONLINE, TARGET, sample, double=False).tolist() == [1 + 10, 1 + 3.5]


@pytest.mark.parametrize("double", [True, False])
def test_forbidden_next_actions_are_never_chosen(double):
    sample = rows([0, 0], [0, 1], [0, 0], [1, 1], [1, 2], masks=[[False, True], [True, False]])
    assert dqn.targets(TABLE, ONLINE, TARGET, sample, double).tolist() == [10, 5]


@pytest.mark.parametrize("double", [True, False])
def test_nothing_follows_a_termination_even_where_nothing_is_allowed(double):
    sample = rows([0], [0], [3], [0], [1], masks=[[False, False]])
    assert dqn.targets(TABLE, ONLINE, TARGET, sample, double).tolist() == [3]


def test_the_loss_is_huber_and_weighted():
    sample = rows([1, 2], [1, 0], [0, 0], [0, 0], [0, 0])
    total, (errors, value) = dqn.loss(TABLE, ONLINE, sample, jnp.array([1.5, 6.0]), jnp.array([1.0, 0.5]))
    assert errors.tolist() == [0.5, -3.0]
    assert float(total) == pytest.approx((0.5 * 0.5**2 + 0.5 * (3 - 0.5)) / 2)
    assert float(value) == 2.5


def step(sample, rate=1e-2, target_rate=0.25):
    nets = {"online": ONLINE, "target": TARGET, "adam": parts.adam(ONLINE)}
    live = {"learning_rate": rate, "max_grad_norm": 10.0, "target_rate": target_rate}
    one = Sample(sample, jnp.ones(len(sample["rewards"])), jnp.zeros(0), {}, live)
    return jax.jit(partial(dqn.step, TABLE, True))(nets, one)


def test_a_step_moves_only_the_chosen_values_towards_their_targets():
    sample = rows([1, 2], [0, 1], [9, -9], [0, 0], [0, 0])
    nets, errors, _ = step(sample)
    moved = nets["online"]["policy/output/weight"] - ONLINE["policy/output/weight"]
    assert errors.tolist() == [1 - 9, 0 + 9]
    assert moved[1, 0] > 0 > moved[2, 1]
    assert moved[0].tolist() == [0, 0]
    assert moved[1, 1] == moved[2, 0] == 0


def test_the_target_follows_at_its_rate():
    nets, _, _ = step(rows([1], [0], [9], [0], [0]))
    for name, old in TARGET.items():
        np.testing.assert_allclose(nets["target"][name], old + 0.25 * (nets["online"][name] - old), rtol=1e-6)
    assert not np.array_equal(nets["target"]["policy/output/weight"], TARGET["policy/output/weight"])


def test_the_gradient_is_that_of_finite_differences():
    sample, wanted, weights = rows([1, 2], [1, 0], [0, 0], [0, 0], [0, 0]), jnp.array([1.5, 6.0]), jnp.ones(2)

    @jax.jit
    def total(weight):
        return dqn.loss(TABLE, ONLINE | {"policy/output/weight": weight}, sample, wanted, weights)[0]

    weight = ONLINE["policy/output/weight"]
    slope = jax.grad(total)(weight)
    for place in np.ndindex(weight.shape):
        ahead, behind = total(weight.at[place].add(1e-2)), total(weight.at[place].add(-1e-2))
        assert float(slope[place]) == pytest.approx(float(ahead - behind) / 2e-2, abs=1e-3)


def test_duelling_values_have_the_state_value_as_their_mean():
    description = PolicyDescription("dqn", "q", spaces(), NetworkSpec(hidden=(8,)), duelling=True)
    tensors = networks.initial(description, np.random.default_rng(1))
    seen = {"observations": np.eye(STATES, dtype=np.float32)}
    values = networks.outputs(description, tensors, seen, np)
    shifted = tensors | {"policy/output/bias": tensors["policy/output/bias"] + 5}
    np.testing.assert_allclose(networks.outputs(description, shifted, seen, np), values, atol=1e-5)
    raised = tensors | {"policy/state/bias": tensors["policy/state/bias"] + 5}
    np.testing.assert_allclose(networks.outputs(description, raised, seen, np), values + 5, atol=1e-5)


def test_epsilon_falls_linearly_and_stays():
    settings = DQNSettings(epsilon_start=1.0, epsilon_end=0.1, epsilon_steps=100, epsilon_spread=7.0)
    learner = DQN.learner(DQN.describe(spaces(), NetworkSpec(), settings), settings, 1)
    live = live_values(settings, 0)
    shares = [learner.acting(steps, live)["epsilon"] for steps in (0, 50, 100, 1_000)]
    assert shares == pytest.approx([1.0, 0.55, 0.1, 0.1])
    assert learner.acting(0, live)["epsilon_spread"] == 7.0
    assert learner.acting(1_000, live | {"epsilon_end": 0.0})["epsilon"] == 0.0


def test_other_actions_are_refused_with_advice():
    box = Spaces(spaces().observation, ActionLayout("box", shape=(1,), low=(-1.0,), high=(1.0,)))
    with pytest.raises(
        ConfigError, match="dqn needs Discrete actions; this environment has Box: use ppo or sac"
    ):
        DQN.describe(box, NetworkSpec(), DQNSettings())
    several = Spaces(spaces().observation, ActionLayout("multi_discrete", sizes=(2, 2), start=(0, 0)))
    with pytest.raises(ConfigError, match="MultiDiscrete: use ppo"):
        DQN.describe(several, NetworkSpec(), DQNSettings())


LENGTH, GAMMA = 4, 0.8


def chain(rng, position, steps=32):
    """Random walks on states 0 … 3; going right (1) from the last ends with reward 1. Left of 0 is 0."""
    environments = len(position)
    hot = np.eye(LENGTH, dtype=np.float32)
    seen = np.zeros((steps + 1, environments, LENGTH), np.float32)
    actions = rng.integers(0, 2, (steps, environments)).astype(np.int32)
    ended = np.zeros((steps, environments), bool)
    seen[0] = hot[position]
    for t in range(steps):
        position = np.where(actions[t] == 1, position + 1, np.maximum(position - 1, 0))
        ended[t] = position == LENGTH
        position = np.where(ended[t], 0, position)
        seen[t + 1] = hot[position]
    columns = {
        "observations": seen[:-1],
        "last/observations": seen[-1],
        "final/observations": np.zeros((0, LENGTH), np.float32),
        "final/index": np.zeros((0, 2), np.int32),
        "actions": actions,
        "rewards": ended.astype(np.float32),
        "terminated": ended,
        "truncated": np.zeros_like(ended),
    }
    streams = np.stack([np.zeros(environments, int), np.arange(environments)], axis=1)
    return Batch(columns, np.zeros(environments), streams), position


def learned_chain(rate, **changes):
    settings = DQNSettings(
        learning_rate=1e-2, gamma=GAMMA, buffer=2_000, batch=32, gradient_steps=16, learning_starts=100,
        target_rate=0.05, **changes,
    )  # fmt: skip
    description = DQN.describe(spaces(LENGTH), NetworkSpec(hidden=(16,)), settings)
    learner = DQN.learner(description, settings, 1)
    rng, position = np.random.default_rng(0), np.zeros(4, int)
    for _ in range(40):
        batch, position = chain(rng, position)
        learner.learn(batch, live_values(settings, 0) | {"learning_rate": rate})
    seen = {"observations": np.eye(LENGTH, dtype=np.float32)}
    return networks.outputs(description, learner.policy(), seen, np)


# With one step Q-learning is exact off-policy: Q(s, right) = γ^(3−s), Q(s, left) = γ · max Q(s−1).
EXACT = np.array([[GAMMA * GAMMA**3, GAMMA**3], [GAMMA**4, GAMMA**2], [GAMMA**3, GAMMA], [GAMMA**2, 1.0]])


@pytest.mark.parametrize("prioritised", [True, False])
@pytest.mark.parametrize("duelling", [True, False])
def test_a_chain_is_solved_to_its_exact_values(prioritised, duelling):
    values = learned_chain(1e-2, n_step=1, prioritised=prioritised, duelling=duelling)
    np.testing.assert_allclose(values, EXACT, atol=0.05)


def test_several_steps_still_find_the_way():
    values = learned_chain(1e-2, n_step=3)
    assert values.argmax(axis=1).tolist() == [1, 1, 1, 1]


def test_the_chain_is_not_solved_uphill():
    """The same program with the sign of its steps turned: a test that would pass then proves nothing."""
    values = learned_chain(-1e-2, n_step=1)
    assert not np.allclose(values, EXACT, atol=0.3)
