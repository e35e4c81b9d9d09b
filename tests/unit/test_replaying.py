"""Around the gradient steps: when they begin, what is kept, and going on to the bit."""

import json
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from penstock.algorithms import priorities
from penstock.algorithms.base import Batch, State
from penstock.algorithms.dqn import DQN
from penstock.algorithms.replaying import Plan, ReplayLearner
from penstock.algorithms.sac import SAC
from penstock.algorithms.settings import DQNSettings, SACSettings, live_values
from penstock.errors import Damaged
from penstock.model.policy import NetworkSpec, PolicyDescription
from penstock.model.spaces import ActionLayout, Column, Leaf, ObservationLayout, Spaces
from penstock.model.tensors import weights_sha256

LAYOUT = ObservationLayout({"observations": Column((3,), "<f4")}, (Leaf((), "box", "observations", size=3),))
SMALL = {"buffer": 100, "batch": 8, "gradient_steps": 4, "learning_starts": 40, "normalize_rewards": True}
NETWORK = NetworkSpec(hidden=(8,), normalize_observations=True)


def made(name, seed=1, **changes):
    if name == "sac":
        action = ActionLayout("box", shape=(2,), low=(-1.0, 0.0), high=(1.0, 3.0))
        algorithm, settings = SAC, SACSettings(**SMALL | changes)
    else:
        action = ActionLayout("discrete", sizes=(2,), start=(0,), masked=True)
        algorithm, settings = DQN, DQNSettings(prioritised=name == "prioritised", **SMALL | changes)
    description = algorithm.describe(Spaces(LAYOUT, action), NETWORK, settings)
    return algorithm.learner(description, settings, seed), live_values(settings, 0)


def batch(name, number, steps=8, environments=4):
    rng = np.random.default_rng(number)
    block = (steps, environments)
    ends = rng.integers(0, 8, block)
    index = np.argwhere(ends == 1).astype(np.int32)
    columns = {
        "observations": rng.standard_normal((*block, 3), np.float32),
        "last/observations": rng.standard_normal((environments, 3), np.float32),
        "final/observations": rng.standard_normal((len(index), 3), np.float32),
        "final/index": index,
        "rewards": rng.standard_normal(block, np.float32),
        "terminated": ends == 0,
        "truncated": ends == 1,
    }
    if name == "sac":
        columns["actions"] = rng.random((*block, 2), np.float32)
    else:
        columns["actions"] = rng.integers(0, 2, block).astype(np.int32)
        columns |= {"masks": np.ones((*block, 2), bool), "last/masks": np.ones((environments, 2), bool)}
        columns["final/masks"] = np.ones((len(index), 2), bool)
    streams = np.stack([np.zeros(environments, int), np.arange(environments)], axis=1)
    return Batch(columns, np.zeros(environments), streams)


LEARNERS = pytest.mark.parametrize("name", ["prioritised", "plain", "sac"])


@LEARNERS
def test_steps_begin_with_enough_rows(name):
    learner, live = made(name)
    fresh = weights_sha256(learner.policy())
    assert learner.learn(batch(name, 0), live) == {"memory/rows": 32.0}
    tensors = learner.policy()
    learned = {key: tensor for key, tensor in tensors.items() if not key.startswith("normalizer/")}
    again, _ = made(name)
    assert all(np.array_equal(tensor, again.policy()[key]) for key, tensor in learned.items())
    metrics = learner.learn(batch(name, 1), live)
    assert {"losses/td_loss", "losses/q_values"} < set(metrics)
    assert all(np.isfinite(value) for value in metrics.values())
    assert weights_sha256(learner.policy()) != fresh


@LEARNERS
def test_the_same_seed_gives_the_same_bits_and_another_does_not(name):
    hashes = []
    for seed in (1, 1, 2):
        learner, live = made(name, seed)
        for number in range(3):
            learner.learn(batch(name, number), live)
        hashes.append(weights_sha256(learner.policy()))
    assert hashes[0] == hashes[1] != hashes[2]


@LEARNERS
def test_live_settings_do_not_recompile(name):
    learner, live = made(name)
    for number in range(3):
        learner.learn(batch(name, number), live)
        live = {key: value * 0.9 for key, value in live.items()}
    assert learner._update._cache_size() == 1


@LEARNERS
def test_published_tensors_do_not_change_with_the_learner(name):
    learner, live = made(name, learning_starts=0)
    learner.learn(batch(name, 0), live)
    tensors, state = learner.policy(), learner.save()
    before, saved = weights_sha256(tensors), weights_sha256(state.tensors | state.rows)
    learner.learn(batch(name, 1), live)
    assert weights_sha256(tensors) == before
    assert weights_sha256(state.tensors | state.rows) == saved


@LEARNERS
def test_the_memory_is_written_in_place(name):
    """Donation must hold, also for a program that comes from the cache on disk."""
    for _ in range(2):
        learner, live = made(name)
        learner.learn(batch(name, 0), live)
        before = [
            column.unsafe_buffer_pointer() for column in (*learner._memory.rows.values(), *learner._tree)
        ]
        learner.learn(batch(name, 1), live)
        after = [
            column.unsafe_buffer_pointer() for column in (*learner._memory.rows.values(), *learner._tree)
        ]
        assert before == after


def grown(name):
    """A learner whose ring has wrapped, its state as two increments joined, and the hash one update later."""
    learner, live = made(name)
    for number in range(3):
        learner.learn(batch(name, number), live)
    first = learner.save()
    learner.learn(batch(name, 3), live)
    second = learner.save(since=first.rows_added)
    assert [len(first.rows["rewards"]), len(second.rows["rewards"])] == [96, 32]
    assert learner.memory_rows == 100
    joined = {key: np.concatenate([first.rows[key], rows]) for key, rows in second.rows.items()}
    newest = {key: rows[-learner.memory_rows :] for key, rows in joined.items()}
    state = State(second.tensors, second.numbers, newest, second.rows_added)
    return state, continued(name, learner, live)


def continued(name, learner, live):
    """The hash of everything after two more updates."""
    for number in (4, 5):
        learner.learn(batch(name, number), live)
    state = learner.save()
    return weights_sha256(state.tensors | {f"rows/{key}": rows for key, rows in state.rows.items()})


@LEARNERS
def test_a_restored_learner_goes_on_to_the_bit(name):
    state, expected = grown(name)
    again, live = made(name, seed=7)
    again.learn(batch(name, 9), live)  # what it was before does not matter
    again.restore(state)
    assert continued(name, again, live) == expected


FRESH = """
import json, runpy, sys
test = runpy.run_path(sys.argv[1])
print(test["restored_elsewhere"](*sys.argv[2:]))
"""


def restored_elsewhere(name, tensors, rows, numbers):
    learner, live = made(name)
    facts = json.loads(numbers)
    learner.restore(State(load_file(tensors), facts, load_file(rows), facts["rows_added"]))
    return continued(name, learner, live)


@pytest.mark.parametrize("name", ["prioritised", "sac"])
def test_a_fresh_process_goes_on_to_the_bit(name, tmp_path):
    state, expected = grown(name)
    save_file(state.tensors, tmp_path / "tensors")
    save_file(state.rows, tmp_path / "rows")
    numbers = json.dumps(state.numbers | {"rows_added": state.rows_added})
    arguments = [__file__, name, str(tmp_path / "tensors"), str(tmp_path / "rows"), numbers]
    done = subprocess.run(
        [sys.executable, "-c", FRESH, *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected


def test_a_state_that_does_not_fit_is_damage():
    learner, live = made("plain")
    learner.learn(batch("plain", 0), live)
    state = learner.save()
    with pytest.raises(Damaged):
        made("plain")[0].restore(State({}, state.numbers, state.rows, state.rows_added))
    with pytest.raises(Damaged, match="lacks rows"):
        made("plain")[0].restore(State(state.tensors, state.numbers, {}, state.rows_added))


def test_a_new_gamma_acts_on_new_rows():
    learner, live = made("plain", n_step=1, learning_starts=1_000)
    learner.learn(batch("plain", 0), live)
    learner.learn(batch("plain", 1), live | {"gamma": 0.5})
    discounts = learner.save().rows["discounts"]
    assert set(discounts[:32].tolist()) == {0.0, float(np.float32(0.99))}
    assert set(discounts[32:].tolist()) == {0.0, 0.5}


def counting(nets, sample):
    """A step that counts how often it saw each row (by its reward), and calls errors the rewards."""
    seen = nets["seen"].at[sample.rows["rewards"].astype(jnp.int32)].add(1)
    return {"seen": seen}, sample.rows["rewards"], {"weight": sample.weights.min()}


def test_errors_become_priorities_and_frequencies():
    """Rows 0 … 15 with error equal to their number: drawn in proportion to error^α once all were seen."""
    alpha = 0.5
    description = PolicyDescription(
        "x", "q", Spaces(LAYOUT, ActionLayout("discrete", sizes=(2,), start=(0,))), NetworkSpec()
    )
    plan = Plan(buffer=16, batch=32, gradient_steps=400, learning_starts=0, alpha=alpha)
    learner = ReplayLearner(
        description, plan, counting, {"seen": np.zeros(16, np.int32)}, 1, "seen", lambda steps, live: {}
    )
    one = batch("x", 0, steps=16, environments=1)
    rewards = {"rewards": np.arange(16, dtype=np.float32)[:, None], "terminated": np.ones((16, 1), bool)}
    columns = {key: column for key, column in one.columns.items() if "masks" not in key} | rewards
    learner.learn(Batch(columns, one.lags, one.streams), {"gamma": 0.9, "priority_beta": 0.4})
    wanted = (np.arange(16) + 1e-6) ** alpha
    np.testing.assert_allclose(np.asarray(learner._tree[0]).ravel(), wanted, rtol=1e-3)
    assert float(learner._greatest) == pytest.approx(15**alpha)
    seen = np.asarray(learner._nets["seen"])
    np.testing.assert_allclose(seen / seen.sum(), wanted / wanted.sum(), atol=0.01)
    # New rows come with the greatest priority there was.
    tree = priorities.put(learner._tree, jnp.array([0]), learner._greatest[None])
    assert float(priorities.get(tree, jnp.array([0]))[0]) == pytest.approx(15**alpha)
