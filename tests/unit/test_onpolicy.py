"""What every on-policy learner promises: it learns, repeats to the bit, goes on exactly, never recompiles."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
import pytest

from penstock.algorithms.base import Algorithm, Learner, State
from penstock.algorithms.impala import IMPALA
from penstock.algorithms.ppo import PPO
from penstock.algorithms.reinforce import REINFORCE
from penstock.algorithms.settings import (
    IMPALASettings,
    PPOSettings,
    REINFORCESettings,
    Settings,
    live_values,
)
from penstock.errors import ConfigError, Damaged
from penstock.model.policy import NetworkSpec, PolicyDescription
from penstock.model.spaces import ActionLayout, Column, ObservationLayout, Spaces
from penstock.model.tensors import weights_sha256
from penstock.policy.acting import Acting
from penstock.testing.learning import play
from penstock.testing.policies import BOX, IMAGE, ITEMS, ITEMS_AND_VECTOR, MANY, MIXED, SIX, VECTOR

TWO = ActionLayout("discrete", (2,), (0,))
ALGORITHMS: dict[str, tuple[type[Algorithm], Settings]] = {
    "ppo": (PPO, PPOSettings(epochs=2, minibatch=32, learning_rate=3e-3)),
    "ppo-separate": (
        PPO,
        PPOSettings(epochs=2, value_epochs=3, minibatch=32, separate=True, learning_rate=3e-3),
    ),
    "impala": (IMPALA, IMPALASettings(epochs=2, minibatches=2, learning_rate=3e-3)),
    "reinforce": (REINFORCE, REINFORCESettings(learning_rate=1e-2)),
}
EACH = pytest.mark.parametrize("name", ALGORITHMS)


def make(
    name: str, columns: dict[str, Column] = VECTOR, action: ActionLayout = TWO, seed: int = 1, **network: Any
) -> tuple[Learner, PolicyDescription, dict[str, float]]:
    algorithm, settings = ALGORITHMS[name]
    if network.pop("normalize_rewards", False):
        settings = msgspec.structs.replace(settings, normalize_rewards=True)
    spec = NetworkSpec(**{"convolutions": ((8, 4, 2), (16, 3, 1)), "hidden": (32, 32), **network})
    description = algorithm.describe(Spaces(ObservationLayout(columns, ()), action), spec, settings)
    return algorithm.learner(description, settings, seed), description, live_values(settings, 0)


@pytest.fixture(scope="module", autouse=True)
def _compilations_kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Learners of one shape compile once, as in a run that is resumed."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = [getattr(jax.config, name) for name in names]
    jax.config.update(names[0], str(tmp_path_factory.mktemp("compiled")))
    jax.config.update(names[1], 0.0)
    yield
    for name, value in zip(names, before, strict=True):
        jax.config.update(name, value)


@pytest.mark.parametrize(
    ("name", "action", "lag"),
    [
        ("ppo", TWO, 0),
        ("ppo-separate", TWO, 0),
        ("impala", TWO, 1),
        ("reinforce", TWO, 1),
        ("ppo", MANY, 1),
        ("impala", MANY, 0),
        ("ppo", BOX, 1),
        ("reinforce", BOX, 0),
    ],
)
def test_it_masters_the_small_task(name: str, action: ActionLayout, lag: int) -> None:
    learner, description, live = make(name, action=action)
    older = learner.policy()
    earned = []
    for update in range(80):
        acts = older if lag else learner.policy()
        batch = play(description, acts, update, steps=16, environments=16, lag=lag)
        older = learner.policy()
        metrics = learner.learn(batch, live)
        assert all(np.isfinite(number) for number in metrics.values())
        assert metrics["losses/corrected"] == float(lag > 0)
        earned.append(batch.columns["rewards"].mean())
    before, after = earned[0], np.mean(earned[-5:])
    assert after > before + 0.3 if action is BOX else after > 0.9
    assert learner.acting(0, live) == {}
    assert learner.memory_rows == 0


MASKED_ITEMS = ActionLayout("discrete", (6,), (0,), masked=True)
MASKED_MANY = ActionLayout("multi_discrete", (3, 2), (0, 0), masked=True)


@pytest.mark.parametrize(
    ("name", "columns", "action", "network"),
    [
        ("ppo", IMAGE, TWO, {}),
        ("ppo", MIXED, BOX, {"normalize_observations": True}),
        ("ppo", ITEMS, MASKED_ITEMS, {"body": "items"}),
        ("ppo-separate", ITEMS_AND_VECTOR, SIX, {"body": "items", "normalize_observations": True}),
        ("impala", MIXED, MASKED_MANY, {"activation": "relu"}),
        ("impala", VECTOR, TWO, {"shared": True, "normalize_rewards": True}),
        ("reinforce", ITEMS_AND_VECTOR, MASKED_ITEMS, {"body": "items", "shared": True}),
    ],
)
def test_every_kind_of_policy_makes_an_update(name: str, columns: Any, action: Any, network: Any) -> None:
    learner, description, live = make(name, columns, action, **network)
    before = learner.policy()
    for update in range(2):
        metrics = learner.learn(play(description, learner.policy(), update, lag=update), live)
        assert all(np.isfinite(number) for number in metrics.values())
    after = learner.policy()
    assert set(after) == set(before)
    assert not any(key.startswith("value/") for key in after)
    assert any((after[key] != before[key]).any() for key in after)
    assert all(tensor.dtype == np.float32 and np.isfinite(tensor).all() for tensor in after.values())
    Acting(description).load(after)


def test_separate_optimisation_needs_separate_networks() -> None:
    with pytest.raises(ConfigError, match="shared"):
        make("ppo-separate", shared=True)


@EACH
def test_the_same_seed_gives_the_same_bits_and_another_does_not(name: str) -> None:
    hashes = []
    for seed in (1, 1, 2):
        learner, description, live = make(name, seed=seed)
        for update in range(2):
            learner.learn(play(description, learner.policy(), update), live)
        hashes.append(weights_sha256(learner.policy()))
    assert hashes[0] == hashes[1] != hashes[2]


@EACH
def test_changed_settings_do_not_recompile(name: str) -> None:
    learner, description, live = make(name)
    for update in range(4):
        batch = play(description, learner.policy(), update, lag=update % 2)
        learner.learn(batch, {key: number * (1 - 0.1 * update) for key, number in live.items()})
    assert learner._apply._cache_size() == 1  # type: ignore[attr-defined]


def rich(name: str) -> tuple[Learner, PolicyDescription, dict[str, float]]:
    return make(name, normalize_observations=True, normalize_rewards=True)


@EACH
def test_a_restored_learner_goes_on_to_the_same_bits(name: str) -> None:
    learner, description, live = rich(name)
    for update in range(3):
        learner.learn(play(description, learner.policy(), update), live)
    state = learner.save()
    other, _, _ = rich(name)
    other.learn(play(description, other.policy(), 77), live)  # whatever it did before is forgotten
    other.restore(state)
    assert weights_sha256(other.policy()) == weights_sha256(learner.policy())
    for update in range(3, 6):
        batch = play(description, learner.policy(), update)
        assert learner.learn(batch, live) == other.learn(batch, live)
        assert weights_sha256(other.policy()) == weights_sha256(learner.policy())
    assert weights_sha256(other.save().tensors) == weights_sha256(learner.save().tensors)
    assert weights_sha256(state.tensors) != weights_sha256(learner.save().tensors)


CONTINUE = """
import sys, numpy as np
sys.path.insert(0, sys.argv[1])
from test_onpolicy import rich, play, State, weights_sha256
learner, description, live = rich(sys.argv[3])
with np.load(sys.argv[2]) as saved:
    learner.restore(State(dict(saved), {"updates": 2, "seed": 1}))
learner.learn(play(description, learner.policy(), 9), live)
print(weights_sha256(learner.save().tensors))
"""


@pytest.mark.parametrize("name", ["ppo", "impala"])
def test_another_process_goes_on_to_the_same_bits(name: str, tmp_path: Path) -> None:
    learner, description, live = rich(name)
    for update in range(2):
        learner.learn(play(description, learner.policy(), update), live)
    state = learner.save()
    assert state.numbers == {"updates": 2, "seed": 1}
    np.savez(tmp_path / "state.npz", **state.tensors)
    learner.learn(play(description, learner.policy(), 9), live)
    command = [sys.executable, "-c", CONTINUE, str(Path(__file__).parent), str(tmp_path / "state.npz"), name]
    result = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=True)
    assert result.stdout.strip() == weights_sha256(learner.save().tensors)


def test_a_state_that_does_not_fit_is_refused() -> None:
    learner, _, _ = make("ppo")
    state = learner.save()
    wider, _, _ = make("ppo", hidden=(16,))
    with pytest.raises(Damaged, match="no parameters"):
        wider.restore(State(state.tensors, state.numbers))


def test_a_policy_that_was_handed_out_never_changes() -> None:
    learner, description, live = make("ppo", normalize_observations=True)
    learner.learn(play(description, learner.policy(), 0), live)
    handed, saved = learner.policy(), learner.save()
    before = weights_sha256(handed), weights_sha256(saved.tensors)
    for update in range(3):
        learner.learn(play(description, learner.policy(), update), live)
    assert (weights_sha256(handed), weights_sha256(saved.tensors)) == before


@EACH
def test_a_truncated_end_is_judged_by_its_final_observation_and_a_terminated_one_is_not(name: str) -> None:
    def after(change: str) -> str:
        learner, description, live = make(name)
        batch = play(description, learner.policy(), 0)
        columns = {key: column.copy() for key, column in batch.columns.items()}
        columns["terminated"][-1] = True  # so that nothing follows the last row
        columns["truncated"][-1] = False
        keep = columns["final/index"][:, 0] < 15
        for key in [key for key in columns if key.startswith("final/")]:
            columns[key] = columns[key][keep]
        if change:
            columns[change] += 1
        learner.learn(type(batch)(columns, batch.lags, batch.streams), live)
        return weights_sha256(learner.policy())

    assert after("") == after("last/observations")
    assert after("") != after("final/observations")


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [(PPO, IMPALASettings()), (IMPALA, PPOSettings()), (REINFORCE, PPOSettings())],
)
def test_settings_of_another_algorithm_are_refused(algorithm: type[Algorithm], settings: Settings) -> None:
    description = PPO.describe(Spaces(ObservationLayout(VECTOR, ()), TWO), NetworkSpec(), PPOSettings())
    with pytest.raises(ConfigError, match="Settings"):
        algorithm.learner(description, settings, 1)


@pytest.mark.parametrize("algorithm", [PPO, IMPALA, REINFORCE])
def test_a_body_that_does_not_fit_is_refused_before_anything_starts(algorithm: type[Algorithm]) -> None:
    with pytest.raises(ConfigError, match="needs an image"):
        algorithm.describe(Spaces(ObservationLayout(VECTOR, ()), TWO), NetworkSpec(body="cnn"), PPOSettings())
