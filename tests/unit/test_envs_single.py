"""One environment, for evaluation and for watching."""

import numpy as np
import pytest

from penstock.envs.group import EnvironmentGroup
from penstock.envs.single import SingleEnvironment
from penstock.errors import ConfigError, EnvironmentFault
from penstock.model.spec import EnvironmentSpec

HERE = "penstock.testing.environments"


def test_an_episode_has_the_return_its_steps_add_up_to():
    with SingleEnvironment(EnvironmentSpec(id=f"{HERE}:Counter", max_episode_steps=2), seed=1) as single:
        first = single.reset(seed=1)
        assert first["observations"].tolist() == [[0, -1]]
        assert single.mask is None
        assert single.step(np.array(2))[1:] == (1.0, False, False)
        columns, *rest = single.step(np.array(2))
        assert columns["observations"].tolist() == [[2, 2]]
        assert rest == [2.0, False, True]


def test_actions_and_spaces_are_those_of_a_group():
    for id in ("Pair", "Category", "Force", "Named", "Picture", "Masked", "Jobs"):
        spec = EnvironmentSpec(id=f"{HERE}:{id}")
        single = SingleEnvironment(spec, seed=1)
        assert single.spaces == EnvironmentGroup(spec, 1, 1, 0).spaces
        columns = single.reset(seed=3)
        assert {name: rows.shape for name, rows in columns.items()} == {
            name: (1, *column.shape) for name, column in single.spaces.observation.columns.items()
        }
        single.step(np.zeros(single.spaces.action.column.shape, single.spaces.action.column.dtype))


@pytest.mark.parametrize("place", ["info", "observation", "method"])
def test_the_mask_follows_the_episode(place):
    single = SingleEnvironment(EnvironmentSpec(id=f"{HERE}:Masked", kwargs={"place": place}), seed=1)
    single.reset(seed=1)
    assert single.mask is not None
    assert single.mask.tolist() == [[True, False, False]]
    single.step(np.array(0))
    assert single.mask.tolist() == [[False, True, False]]


def test_pictures_are_drawn():
    pytest.importorskip("pygame")
    with SingleEnvironment(EnvironmentSpec(id="CartPole-v1"), seed=1, render=True) as single:
        single.reset(seed=1)
        picture = single.render()
        assert picture.shape == (400, 600, 3)
        assert picture.dtype == np.uint8
        assert single.frames_per_second == 50


def test_an_environment_that_cannot_draw_itself_says_so():
    with pytest.raises(ConfigError, match="cannot draw itself: it takes no argument 'render_mode'"):
        SingleEnvironment(EnvironmentSpec(id=f"{HERE}:Counter"), seed=1, render=True)
    with pytest.raises(ConfigError, match=r"no render mode 'rgb_array' \(it has none\)"):
        SingleEnvironment(EnvironmentSpec(id=f"{HERE}:Blind"), seed=1, render=True)


def test_faults_are_named_as_everywhere():
    single = SingleEnvironment(
        EnvironmentSpec(id=f"{HERE}:Faulty", kwargs={"fault": "four", "at": 1}), seed=1
    )
    single.reset(seed=1)
    with pytest.raises(EnvironmentFault, match="four values from step"):
        single.step(np.array(0))
    with pytest.raises(EnvironmentFault, match="takes no seed"):
        SingleEnvironment(EnvironmentSpec(id=f"{HERE}:OldApi"), seed=1)
