"""Running statistics, Adam and exact saving."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from penstock.algorithms import parts
from penstock.errors import Damaged
from penstock.testing.policies import ITEMS_AND_VECTOR, SIX, describe


def test_running_statistics_are_those_of_all_rows_together() -> None:
    rng = np.random.default_rng(0)
    rows = 1e4 + rng.standard_normal((1000, 3)).astype(np.float32)
    running = parts.Running((3,))
    assert (running.variance == 1).all()
    for piece in np.split(rows, [1, 50, 300]):
        running.update(piece)
    np.testing.assert_allclose(running.mean, rows.mean(0, np.float64), rtol=1e-12)
    np.testing.assert_allclose(running.variance, rows.astype(np.float64).var(0), rtol=1e-9)
    assert running.count == 1000


def test_observation_statistics_are_per_entry_and_per_feature_of_an_item() -> None:
    description = describe(ITEMS_AND_VECTOR, "categorical", SIX, body="items", normalize_observations=True)
    statistics = parts.ObservationStatistics(description)
    rng = np.random.default_rng(0)
    columns = {
        "observations": rng.standard_normal((7, 2, 3)).astype(np.float32),
        "observations/jobs": rng.standard_normal((7, 2, 6, 4)).astype(np.float32),
    }
    statistics.update(columns)
    tensors = statistics.normalizer()
    np.testing.assert_allclose(
        tensors["normalizer/observations/mean"], columns["observations"].mean((0, 1)), atol=1e-6
    )
    jobs = tensors["normalizer/observations/jobs/variance"]
    np.testing.assert_allclose(jobs, columns["observations/jobs"].var((0, 1, 2)), atol=1e-6)
    other = parts.ObservationStatistics(description)
    other.restore(statistics.save())
    assert all((other.normalizer()[name] == tensor).all() for name, tensor in tensors.items())


def test_rewards_are_divided_by_the_deviation_of_each_streams_discounted_return() -> None:
    rng = np.random.default_rng(0)
    statistics, seen, carried = parts.RewardStatistics(), [], {(0, 0): 0.0, (4, 1): 0.0}
    for order in ([(0, 0), (4, 1)], [(4, 1), (0, 0)], [(4, 1)]):
        shape = (6, len(order))
        columns = {
            "rewards": rng.standard_normal(shape).astype(np.float32),
            "terminated": rng.random(shape) < 0.2,
            "truncated": rng.random(shape) < 0.2,
        }
        for b, stream in enumerate(order):
            for t in range(6):
                carried[stream] = 0.9 * carried[stream] + float(columns["rewards"][t, b])
                seen.append(carried[stream])
                if columns["terminated"][t, b] or columns["truncated"][t, b]:
                    carried[stream] = 0.0
        scaled = statistics.scale(columns, np.array(order), 0.9)
        np.testing.assert_allclose(scaled, columns["rewards"] / np.std(seen), rtol=1e-5)
        restored = parts.RewardStatistics()
        restored.restore(statistics.save())
        statistics = restored


def test_adam_is_adam_with_clipped_gradients() -> None:
    parameters = {"a": jnp.array([1.0, 2.0]), "b": jnp.array([[3.0]])}
    reference = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-2, eps=parts.ADAM_EPSILON))
    ours, theirs = parameters, parameters
    state, their_state = parts.adam(parameters), reference.init(parameters)
    for step in range(5):
        gradients = {"a": jnp.array([3.0, -4.0]) * (step - 2), "b": jnp.array([[0.1]])}
        ours, state, norm = parts.adam_step(ours, gradients, state, 1e-2, 0.5)
        updates, their_state = reference.update(gradients, their_state)
        theirs = optax.apply_updates(theirs, updates)
        assert float(norm) == pytest.approx(np.sqrt((5 * (step - 2)) ** 2 + 0.01), rel=1e-5)
    for name in parameters:
        np.testing.assert_allclose(ours[name], theirs[name], atol=1e-6)


def test_a_tree_comes_back_as_it_was_and_a_wrong_one_is_refused() -> None:
    tree = {"w": jnp.arange(6.0).reshape(2, 3), "adam": parts.adam({"w": jnp.ones(2)})}
    tensors = parts.flatten(tree)
    back = parts.flatten(parts.unflatten(tree, tensors))
    assert all((back[name] == tensors[name]).all() for name in tensors)
    with pytest.raises(Damaged, match="no w of shape"):
        parts.unflatten(tree, tensors | {"w": np.zeros((3, 3), np.float32)})


def test_explained_variance() -> None:
    targets = jnp.array([1.0, 2.0, 4.0])
    assert float(parts.explained_variance(targets, targets)) == 1
    assert float(parts.explained_variance(jnp.zeros(3), targets)) == pytest.approx(0, abs=1e-6)
    assert np.isfinite(parts.explained_variance(jnp.zeros(3), jnp.zeros(3)))
