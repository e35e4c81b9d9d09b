"""Every supported space becomes columns exactly; every other one is refused by name."""

import gymnasium
import msgspec
import numpy as np
import pytest
from gymnasium import spaces

from penstock.envs.encode import Encoder, Misfit
from penstock.envs.group import EnvironmentGroup
from penstock.envs.layout import action_layout, observation_layout
from penstock.errors import ConfigError
from penstock.model.rollout import Block
from penstock.model.spaces import Column, Spaces
from penstock.model.spec import EnvironmentSpec

HERE = "penstock.testing.environments"


def encode(space, observation):
    layout = observation_layout(space, "Test-v0")
    rows = {name: np.full((2, *c.shape), 77, c.dtype) for name, c in layout.columns.items()}
    Encoder(layout).write(observation, rows, 1)
    for column in rows.values():
        assert (column[0] == 77).all()  # the neighbour's row is untouched
    return {name: column[1] for name, column in rows.items()}


def test_a_float64_vector_becomes_float32():
    got = encode(spaces.Box(-1, 1, (2,), np.float64), np.array([0.1, 0.2]))["observations"]
    assert got.dtype == np.float32
    assert got.tolist() == np.float32([0.1, 0.2]).tolist()


def test_whole_numbers_and_lone_numbers_become_float32():
    assert encode(spaces.Box(0, 9, (2,), np.int64), np.array([3, 4]))["observations"].tolist() == [3.0, 4.0]
    assert encode(spaces.Box(0, 9, (), np.float32), np.float32(2.5))["observations"].tolist() == [2.5]
    assert (
        encode(spaces.Box(0, 255, (3,), np.uint8), np.uint8([1, 2, 255]))["observations"].dtype == np.float32
    )


def test_categories_become_one_hot_and_switches_stay():
    assert encode(spaces.Discrete(3, start=-1), np.int64(1))["observations"].tolist() == [0, 0, 1]
    multi = spaces.MultiDiscrete([2, 3], start=[5, 0])
    assert encode(multi, np.array([6, 0]))["observations"].tolist() == [0, 1, 1, 0, 0]
    assert encode(spaces.MultiBinary(3), np.array([1, 0, 1], np.int8))["observations"].tolist() == [1, 0, 1]


def test_a_set_of_items_stays_a_matrix():
    items = np.arange(6, dtype=np.float32).reshape(3, 2)
    layout = observation_layout(spaces.Box(0, 9, (3, 2)), "Test-v0")
    assert layout.columns == {"observations": Column((3, 2), "<f4")}
    assert encode(spaces.Box(0, 9, (3, 2)), items)["observations"].tolist() == items.tolist()


def test_images_stay_bytes_and_channels_come_last():
    picture = np.arange(90, dtype=np.uint8).reshape(6, 5, 3)
    last = encode(spaces.Box(0, 255, (6, 5, 3), np.uint8), picture)["observations"]
    first = encode(spaces.Box(0, 255, (3, 6, 5), np.uint8), picture.transpose(2, 0, 1))["observations"]
    assert last.dtype == np.uint8
    assert (last == picture).all()
    assert (first == picture).all()
    stacked = observation_layout(spaces.Box(0, 255, (4, 84, 84), np.uint8), "Test-v0")
    assert stacked.columns["observations"] == Column((84, 84, 4), "|u1")
    assert stacked.images == ("observations",)
    grey = np.arange(36 * 40, dtype=np.uint8).reshape(36, 40)
    assert (encode(spaces.Box(0, 255, (36, 40), np.uint8), grey)["observations"][:, :, 0] == grey).all()
    assert encode(spaces.Box(0, 1, (6, 5, 3)), picture / 90)["observations"].dtype == np.float32


def test_a_tree_is_laid_side_by_side_and_images_keep_columns_of_their_own():
    space = spaces.Dict(
        {
            "a": spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 1, (2,)))),
            "b": spaces.Dict({"view": spaces.Box(0, 255, (4, 4, 3), np.uint8)}),
            "c": spaces.MultiBinary(1),
            "d": spaces.Box(0, 1, (2, 3)),
        }
    )
    view = np.full((4, 4, 3), 9, np.uint8)
    got = encode(
        space, {"a": (1, [0.5, 0.25]), "b": {"view": view}, "c": np.array([1]), "d": np.ones((2, 3))}
    )
    assert list(got) == ["observations", "observations/b/view", "observations/d"]
    assert got["observations"].tolist() == [0, 1, 0.5, 0.25, 1]
    assert (got["observations/b/view"] == view).all()


def test_layouts_survive_json():
    layout = observation_layout(spaces.Dict({"a": spaces.Tuple((spaces.Discrete(2),))}), "Test-v0")
    both = Spaces(layout, action_layout(spaces.Box(-np.inf, 1, (2,)), "Test-v0"))
    assert msgspec.json.decode(msgspec.json.encode(both), type=Spaces) == both
    assert both.action.low == (-3.4e38, -3.4e38)
    assert both.action.high == (1.0, 1.0)


def test_actions_are_described():
    assert action_layout(spaces.Discrete(3, start=10), "T").start == (10,)
    multi = action_layout(spaces.MultiDiscrete([3, 2], start=[1, 1]), "T")
    assert (multi.sizes, multi.start, multi.choices) == ((3, 2), (1, 1), 5)
    assert action_layout(spaces.Box(-2, 2, (2, 2)), "T").column == Column((2, 2), "<f4")


@pytest.mark.parametrize(
    ("space", "word"),
    [
        (spaces.Text(5), "Text"),
        (spaces.Sequence(spaces.Discrete(2)), "Sequence"),
        (spaces.Graph(spaces.Box(0, 1, (2,)), None), "Graph"),
        (spaces.OneOf([spaces.Discrete(2)]), "OneOf"),
        (spaces.Discrete(10**6), "too many categories"),
        (spaces.Dict({}), "shows nothing"),
    ],
)
def test_observations_that_cannot_be_columns_are_refused_by_name(space, word):
    with pytest.raises(ConfigError, match=word):
        observation_layout(space, "Test-v0")
    if word in ("Text", "Graph"):
        with pytest.raises(ConfigError, match=r"at 'note'.*FilterObservation"):
            observation_layout(spaces.Dict({"note": space}), "Test-v0")


@pytest.mark.parametrize(
    ("space", "advice"),
    [
        (spaces.MultiBinary(4), r"use MultiDiscrete\(\[2\] \* 4\)"),
        (spaces.Dict({"a": spaces.Discrete(2)}), "flatten it"),
        (spaces.Tuple((spaces.Discrete(2),)), "flatten it"),
        (spaces.Text(4), "flatten it"),
    ],
)
def test_actions_that_are_not_supported_come_with_advice(space, advice):
    with pytest.raises(ConfigError, match=advice):
        action_layout(space, "Test-v0")


@pytest.mark.parametrize(
    ("space", "observation", "sentence"),
    [
        (spaces.Box(0, 1, (3,)), np.zeros(1), r"shape \(1,\), but its space says \(3,\)"),
        (spaces.Box(0, 1, (3,)), np.zeros((1, 3)), r"shape \(1, 3\)"),
        (spaces.Box(0, 1, (3,)), 0.5, r"shape \(\)"),
        (spaces.Box(0, 1, (3,)), ["a", "b", "c"], "no array of numbers"),
        (spaces.Box(0, 1, (2,)), [[1, 2], [3]], "no array"),
        (spaces.Box(0, 255, (4, 4, 3), np.uint8), np.zeros((4, 4, 3)), "float64, but its space says uint8"),
        (spaces.Box(0, 255, (4, 4, 3), np.uint8), np.zeros((4, 4, 1), np.uint8), "shape"),
        (spaces.Discrete(3), 3, "the observation 3"),
        (spaces.Discrete(3), -1, "the observation -1"),
        (spaces.Discrete(3), 1.5, "no whole number"),
        (spaces.MultiDiscrete([2, 2]), np.array([0, 2]), "outside its space"),
        (spaces.MultiDiscrete([2, 2]), np.array([0.0, 1.0]), "outside its space"),
        (spaces.Dict({"a": spaces.Discrete(2)}), {"b": 1}, "without 'a'"),
        (spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2))), (1,), "without 1"),
    ],
)
def test_what_does_not_fit_its_space_is_never_broadcast(space, observation, sentence):
    with pytest.raises(Misfit, match=sentence):
        encode(space, observation)


@pytest.mark.parametrize("place", ["info", "observation", "method"])
def test_masks_are_found_in_all_three_places(place):
    group = EnvironmentGroup(EnvironmentSpec(id=f"{HERE}:Masked", kwargs={"place": place}), 2, 1, 0)
    assert group.spaces.action.masked
    assert group.spaces.observation.columns == {"observations": Column((2,), "<f4")}
    block = Block.allocate(group.spaces, 3, 2)
    group.start(block)
    for t in range(3):
        group.step(t, np.array([0, 0], np.int32), block)
    assert block.masks is not None
    allowed = block.masks.argmax(2)
    assert block.masks.sum(2).tolist() == [[1, 1]] * 4
    assert allowed[:, 0].tolist() == [0, 1, 2, 0]
    final = block.finals[0]
    assert final[0] == 2
    assert final[3] is not None
    assert final[3].tolist() == [True, False, False]  # the count is 3 there
    assert final[2]["observations"].tolist() == [3, 0]


def test_taxi_tells_its_masks_in_info():
    group = EnvironmentGroup(EnvironmentSpec(id="Taxi"), 1, 1, 0)
    assert group.spaces.action.masked
    assert group.spaces.observation.columns["observations"].shape == (500,)


def test_a_mask_that_does_not_fit_the_actions_is_refused():
    class Wrong(gymnasium.Env):
        observation_space = spaces.Dict({"action_mask": spaces.MultiBinary(2), "x": spaces.Discrete(2)})
        action_space = spaces.Discrete(3)

    from penstock.envs.layout import describe

    with pytest.raises(ConfigError, match="has 3 actions, but its observed action_mask has 2 entries"):
        describe(Wrong(), {}, "Wrong")
