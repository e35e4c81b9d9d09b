"""The hot path decides as the plain functions do, and as its key says."""

import numpy as np
import pytest

from penstock.errors import EnvironmentFault
from penstock.model.policy import PolicyDescription
from penstock.model.spaces import ActionLayout, Column, Leaf, ObservationLayout, Spaces
from penstock.policy import heads, networks
from penstock.policy.acting import Acting, ActingAlone
from penstock.testing.policies import (
    BOX,
    IMAGE,
    ITEMS,
    MANY,
    MIXED,
    SIX,
    VECTOR,
    describe,
    observations_of,
    shaken,
)

CASES = [
    describe(VECTOR, "categorical", SIX),
    describe(VECTOR, "categorical", SIX, normalize_observations=True, activation="relu"),
    describe(VECTOR, "multi_categorical", MANY),
    describe(VECTOR, "gaussian", BOX, normalize_observations=True),
    describe(VECTOR, "squashed_gaussian", BOX),
    describe(VECTOR, "q", SIX),
    describe(VECTOR, "q", SIX, True),
    describe(MIXED, "categorical", SIX),
    describe(IMAGE, "categorical", SIX),
    describe(ITEMS, "categorical", SIX, body="items"),
]


def acting_of(
    description: PolicyDescription, kind: type[Acting] = Acting
) -> tuple[Acting, dict[str, np.ndarray]]:
    tensors = shaken(networks.initial(description, np.random.default_rng(0)))
    acting = kind(description)
    acting.load(tensors)
    return acting, tensors


@pytest.mark.parametrize("description", CASES)
@pytest.mark.parametrize(
    ("kind", "environments"), [(Acting, 1), (Acting, 8), (ActingAlone, 1), (ActingAlone, 8)]
)
def test_a_decision_is_what_the_plain_functions_give(
    description: PolicyDescription, kind: type[Acting], environments: int
) -> None:
    acting, tensors = acting_of(description, kind)
    acting.epsilon = 0.5
    noise = acting.noise((3, 1, 4), 5, environments)
    generator = np.random.Generator(np.random.Philox(counter=[0, 0, 4, 1], key=[3, 0]))
    shape = (5, environments, *heads.noise_shape(description))
    box = description.spaces.action.kind == "box"
    drawn = generator.standard_normal(shape, np.float32) if box else generator.random(shape, np.float32)
    for t in range(5):
        seen = observations_of(description, environments, seed=t)
        before = {name: column.copy() for name, column in seen.items()}
        actions, outputs = acting.decide(seen, None, noise[t])
        plain = networks.outputs(description, tensors, seen, np)
        np.testing.assert_allclose(outputs, plain, atol=1e-6, rtol=1e-6)
        if description.head == "q":
            want = heads.epsilon_greedy(description, plain, None, drawn[t], 0.5, np)
        else:
            want = heads.sample(description, plain, None, drawn[t], np)
        np.testing.assert_allclose(actions, want, atol=1e-5)
        assert all((seen[name] == before[name]).all() for name in seen)
        np.testing.assert_allclose(acting.greedy(seen), heads.greedy(description, plain, None, np), atol=1e-5)


@pytest.mark.parametrize("description", [CASES[0], CASES[1]])
def test_one_who_acts_alone_may_be_asked_for_several_in_between(description: PolicyDescription) -> None:
    alone, tensors = acting_of(description, ActingAlone)
    for count in (1, 8, 1, 3, 1):
        seen = observations_of(description, count, seed=count)
        plain = networks.outputs(description, tensors, seen, np)
        np.testing.assert_allclose(alone.outputs(seen), plain, atol=1e-6, rtol=1e-6)


def test_outputs_of_an_earlier_decision_stay() -> None:
    acting, _ = acting_of(CASES[0])
    noise = acting.noise((0, 0, 0), 2, 8)
    _, first = acting.decide(observations_of(CASES[0], 8, 0), None, noise[0])
    kept = first.copy()
    acting.decide(observations_of(CASES[0], 8, 1), None, noise[1])
    np.testing.assert_array_equal(first, kept)


def test_masks_hold_in_the_hot_path_and_in_the_log_probs() -> None:
    acting, _ = acting_of(CASES[0])
    noise = acting.noise((0, 0, 0), 200, 8)
    masks = np.random.default_rng(0).random((200, 8, 6)) < 0.4
    masks[..., 2] |= ~masks.any(-1)
    outputs, actions = np.empty((200, 8, 6), np.float32), np.empty((200, 8), np.int32)
    for t in range(200):
        actions[t], outputs[t] = acting.decide(observations_of(CASES[0], 8, t), masks[t], noise[t])
    assert np.take_along_axis(masks, actions[..., None], -1).all()
    log_probs = acting.log_probs(outputs, actions, masks)
    assert log_probs.shape == (200, 8)
    assert log_probs.dtype == np.float32
    assert (log_probs > -50).all()


def test_noise_follows_from_its_key_alone() -> None:
    acting, _ = acting_of(CASES[0])
    first = acting.noise((7, 2, 3), 16, 4)
    np.testing.assert_array_equal(first, acting.noise((7, 2, 3), 16, 4))
    for other in ((8, 2, 3), (7, 3, 3), (7, 2, 4)):
        assert not np.isin(first, acting.noise(other, 16, 4)).mean() > 0.01
    assert np.isfinite(acting.noise((0, 0, 0), 1000, 64)).all()


def test_new_tensors_and_another_row_count_take_effect_at_once() -> None:
    description = CASES[0]
    acting, tensors = acting_of(description)
    seen = observations_of(description, 3)
    acting.decide(seen, None, acting.noise((0, 0, 0), 1, 3)[0])
    changed = {name: tensor + 1 for name, tensor in tensors.items()}
    acting.load(changed)
    for rows in (3, 5):
        seen = observations_of(description, rows)
        np.testing.assert_allclose(
            acting.outputs(seen), networks.outputs(description, changed, seen, np), rtol=1e-5
        )


def test_one_raw_observation_gives_an_action_the_environment_takes() -> None:
    layout = ObservationLayout(
        {"observations": Column((5,), "<f4")},
        (
            Leaf(("place",), "discrete", "observations", 0, 3, (3,), (1,)),
            Leaf(("speed",), "box", "observations", 3, 2),
        ),
    )
    description = PolicyDescription(
        "test", "categorical", Spaces(layout, ActionLayout("discrete", (6,), (10,))), CASES[0].network
    )
    acting, _ = acting_of(description)
    action = acting.act_one({"place": 2, "speed": np.array([0.5, -1])})
    columns = {"observations": np.array([[0, 1, 0, 0.5, -1]], np.float32)}
    assert action == 10 + acting.greedy(columns)[0]
    assert isinstance(action, int)
    mask = np.arange(6) == 4
    assert acting.act_one({"place": 2, "speed": [0.5, -1]}, mask) == 14
    with pytest.raises(EnvironmentFault, match="place"):
        acting.act_one({"place": 4, "speed": [0.0, 0.0]})
    with pytest.raises(EnvironmentFault, match="speed"):
        acting.act_one({"place": 1})


def test_box_actions_are_clipped_for_the_environment() -> None:
    layout = ObservationLayout(
        {"observations": Column((5,), "<f4")}, (Leaf((), "box", "observations", 0, 5),)
    )
    description = PolicyDescription("test", "gaussian", Spaces(layout, BOX), CASES[0].network)
    acting, tensors = acting_of(description)
    acting.load(tensors | {"policy/output/bias": np.array([100, -100], np.float32)})
    assert acting.act_one(np.zeros(5)).tolist() == [2.0, -1.0]
