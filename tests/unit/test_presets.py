"""Every preset names real settings and becomes a spec that holds together."""

import gymnasium
import pytest

from penstock import config, plugins
from penstock.config.presets import ANY, presets

PAIRS = [(environment, algorithm) for environment, found in presets().items() for algorithm in found]


@pytest.mark.parametrize(("environment", "algorithm"), PAIRS)
def test_a_preset_resolves_and_says_when_to_stop(environment, algorithm):
    overrides = {} if algorithm == ANY else {"algorithm": algorithm}
    spec = config.resolve(environment, overrides)
    assert spec.stop.target is not None
    assert spec.stop.steps is not None
    for group, values in presets()[environment][algorithm].items():
        if group == algorithm:
            assert all(spec.settings[name] == value for name, value in values.items())


@pytest.mark.parametrize(("environment", "algorithm"), PAIRS)
def test_a_preset_leaves_the_environment_and_the_count_of_actors_to_people(environment, algorithm):
    found = presets()[environment][algorithm]
    assert "environment" not in found
    assert "count" not in found.get("actors", {})
    assert algorithm == ANY or algorithm in plugins.installed("settings")


def test_presets_name_registered_environments():
    assert set(presets()) - set(gymnasium.registry) == set()
    classic = {"CartPole-v0", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1"}
    box2d = {"LunarLander-v3", "LunarLanderContinuous-v3", "BipedalWalker-v3", "BipedalWalkerHardcore-v3"}
    assert set(presets()) >= classic | box2d | {"Pendulum-v1", "CarRacing-v3"}


def test_an_id_with_its_package_finds_the_same_preset():
    assert config.resolve("gymnasium:CartPole-v1").stop == config.resolve("CartPole-v1").stop


def test_changing_what_preset_gave_changes_nothing_for_others():
    config.preset("CartPole-v1", "ppo")["stop"]["target"] = -1
    assert config.resolve("CartPole-v1").stop.target == 475


def test_an_unknown_environment_has_the_defaults():
    spec = config.resolve("Nobody-v7")
    assert (spec.stop.target, spec.actors.environments) == (None, 8)
