"""Probabilities, entropies and samples against SciPy, by hand, and by counting."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from penstock.errors import ConfigError
from penstock.model.policy import Head, NetworkSpec, PolicyDescription
from penstock.model.spaces import ActionLayout, Column, ObservationLayout, Spaces
from penstock.policy import heads

FOUR = ActionLayout("discrete", (4,), (0,))
MANY = ActionLayout("multi_discrete", (3, 2), (0, 0))
BOX = ActionLayout("box", shape=(2,), low=(-2.0, -1.0), high=(2.0, 3.0))
RNG = np.random.default_rng(0)


def describe(head: Head, action: ActionLayout) -> PolicyDescription:
    layout = ObservationLayout({"observations": Column((3,), "<f4")}, ())
    return PolicyDescription("test", head, Spaces(layout, action), NetworkSpec())


CATEGORICAL, MULTI = describe("categorical", FOUR), describe("multi_categorical", MANY)
GAUSSIAN, SQUASHED, Q = describe("gaussian", BOX), describe("squashed_gaussian", BOX), describe("q", FOUR)


def test_categorical_by_hand() -> None:
    logits = np.log(np.array([[0.1, 0.2, 0.3, 0.4]], np.float32)) + 7
    for action, probability in enumerate((0.1, 0.2, 0.3, 0.4)):
        got = heads.log_prob(CATEGORICAL, logits, np.array([action]), None, np)
        assert got == pytest.approx([np.log(probability)], abs=1e-6)
    entropy = heads.entropy(CATEGORICAL, logits, None, np)
    assert entropy == pytest.approx([stats.entropy([0.1, 0.2, 0.3, 0.4])], abs=1e-6)


def test_a_mask_renormalises_and_adds_no_entropy() -> None:
    logits = np.log(np.array([[0.1, 0.2, 0.3, 0.4]], np.float32))
    masks = np.array([[True, False, True, False]])
    got = heads.log_prob(CATEGORICAL, logits, np.array([2]), masks, np)
    assert got == pytest.approx([np.log(0.75)], abs=1e-6)
    assert heads.entropy(CATEGORICAL, logits, masks, np) == pytest.approx(
        [stats.entropy([0.25, 0.75])], abs=1e-6
    )
    only = np.array([[False, True, False, False]])
    assert heads.entropy(CATEGORICAL, logits, only, np) == pytest.approx([0.0])


def test_multi_categorical_is_a_product() -> None:
    logits = RNG.standard_normal((6, 5)).astype(np.float32)
    actions = np.stack([RNG.integers(0, 3, 6), RNG.integers(0, 2, 6)], 1)
    got = heads.log_prob(MULTI, logits, actions, None, np)
    for row in range(6):
        first, second = (np.exp(part) / np.exp(part).sum() for part in (logits[row, :3], logits[row, 3:]))
        assert got[row] == pytest.approx(np.log(first[actions[row, 0]] * second[actions[row, 1]]), abs=1e-5)
        want = stats.entropy(first) + stats.entropy(second)
        assert heads.entropy(MULTI, logits[row], None, np) == pytest.approx(want, abs=1e-5)


def test_gaussian_against_scipy() -> None:
    outputs = RNG.standard_normal((5, 4)).astype(np.float32)
    actions = RNG.standard_normal((5, 2)).astype(np.float32)
    normal = stats.norm(outputs[:, :2], np.exp(outputs[:, 2:]))
    np.testing.assert_allclose(
        heads.log_prob(GAUSSIAN, outputs, actions, None, np), normal.logpdf(actions).sum(1), rtol=1e-4
    )
    np.testing.assert_allclose(heads.entropy(GAUSSIAN, outputs, None, np), normal.entropy().sum(1), rtol=1e-5)


def test_squashed_density_integrates_to_one_and_follows_the_change_of_variables() -> None:
    one = describe("squashed_gaussian", ActionLayout("box", shape=(1,), low=(-2.0,), high=(4.0,)))
    outputs = np.array([0.4, -0.3])

    def density(action: float) -> float:
        return float(np.exp(heads.log_prob(one, outputs[None], np.array([[action]]), None, np)[0]))

    assert integrate.quad(density, -2, 4)[0] == pytest.approx(1, abs=1e-3)
    # P(a ≤ x) = Φ(atanh((x − 1) / 3)): its numerical slope is the density
    normal = stats.norm(0.4, np.exp(-0.3))
    for action in (-1.5, 0.0, 1.0, 3.9):
        below, above = (normal.cdf(np.arctanh((action + shift - 1) / 3)) for shift in (-1e-5, 1e-5))
        assert density(action) == pytest.approx((above - below) / 2e-5, rel=1e-4)


def test_squashed_samples_stay_in_bounds_and_their_density_is_stable() -> None:
    outputs = np.concatenate([RNG.normal(0, 8, (500, 2)), RNG.uniform(-1, 1, (500, 2))], 1).astype(np.float32)
    noise = RNG.standard_normal((500, 2)).astype(np.float32)
    actions, density = heads.sample_with_log_prob(SQUASHED, outputs, noise, np)
    assert (actions >= [-2, -1]).all()
    assert (actions <= [2, 3]).all()
    assert np.isfinite(density).all()
    inside = (np.abs((actions - [0, 1]) / 2) < 0.99).all(1)
    again = heads.log_prob(SQUASHED, outputs, actions, None, np)
    np.testing.assert_allclose(density[inside], again[inside], atol=1e-3)
    assert np.isfinite(again).all()
    np.testing.assert_array_equal(actions, heads.sample(SQUASHED, outputs, None, noise, np))


def test_gumbel_sampling_has_the_frequencies_of_the_softmax() -> None:
    probabilities = np.array([0.05, 0.15, 0.3, 0.5])
    logits = np.broadcast_to(np.log(probabilities).astype(np.float32), (40_000, 4))
    uniform = np.random.default_rng(5).random((40_000, 4), np.float32)
    counts = np.bincount(heads.sample(CATEGORICAL, logits, None, uniform, np), minlength=4)
    assert stats.chisquare(counts, probabilities * 40_000).pvalue > 0.001


@pytest.mark.parametrize(("description", "choices"), [(CATEGORICAL, 4), (MULTI, 5), (Q, 4)])
def test_what_is_masked_is_never_chosen(description: PolicyDescription, choices: int) -> None:
    rng = np.random.default_rng(3)
    rows = 20_000
    masks = rng.random((rows, choices)) < 0.5
    masks[:, 0] |= ~masks[:, : choices if choices == 4 else 3].any(1)
    if choices == 5:
        masks[:, 3] |= ~masks[:, 3:].any(1)
    outputs = (20 * rng.standard_normal((rows, choices))).astype(np.float32)
    uniform = rng.random((rows, *heads.noise_shape(description)), np.float32)
    uniform[:500] = 0  # the smallest number a generator gives
    if description is Q:
        chosen = [heads.greedy(description, outputs, masks, np)]
        chosen.append(heads.epsilon_greedy(description, outputs, masks, uniform, 1.0, np))
    else:
        chosen = [
            heads.greedy(description, outputs, masks, np),
            heads.sample(description, outputs, masks, uniform, np),
        ]
    for actions in chosen:
        for part, offset in zip(actions.reshape(rows, -1).T, (0, 3), strict=False):
            assert masks[np.arange(rows), offset + part].all()


def test_epsilon_decides_how_often_a_random_allowed_action_is_taken() -> None:
    rng = np.random.default_rng(0)
    values = np.broadcast_to(np.array([9.0, 1, 2, 3], np.float32), (40_000, 4))
    masks = np.broadcast_to(np.array([True, True, True, False]), (40_000, 4))
    uniform = rng.random((40_000, 5), np.float32)
    actions = heads.epsilon_greedy(Q, values, masks, uniform, 0.3, np)
    counts = np.bincount(actions, minlength=4)[:3]
    assert stats.chisquare(counts, np.array([0.8, 0.1, 0.1]) * 40_000).pvalue > 0.001
    assert (heads.epsilon_greedy(Q, values, masks, uniform, 0.0, np) == 0).all()


@pytest.mark.parametrize("description", [CATEGORICAL, MULTI, GAUSSIAN, SQUASHED, Q])
def test_both_namespaces_agree(description: PolicyDescription) -> None:
    rng = np.random.default_rng(2)
    width = 4 if description is not MULTI else 5
    outputs = rng.standard_normal((3, 7, width)).astype(np.float32)
    masks = None
    if description.spaces.action.kind != "box":
        masks = rng.random((3, 7, width)) < 0.7
        masks[..., [0, 3]] = True
    noise = rng.random((3, 7, *heads.noise_shape(description)), np.float32)
    if description is Q:
        actions = heads.greedy(Q, outputs, masks, np)
        assert (heads.log_prob(Q, outputs, actions, masks, np) == 0).all()
    else:
        actions = heads.sample(description, outputs, masks, noise, np)
        np.testing.assert_allclose(actions, heads.sample(description, outputs, masks, noise, jnp), atol=1e-5)
        np.testing.assert_allclose(
            heads.log_prob(description, outputs, actions, masks, np),
            heads.log_prob(description, jnp.array(outputs), jnp.array(actions), masks, jnp),
            atol=1e-4 if description is SQUASHED else 1e-5,
        )
    assert actions.shape == (3, 7, *description.spaces.action.column.shape)
    np.testing.assert_allclose(
        heads.greedy(description, outputs, masks, np),
        heads.greedy(description, outputs, masks, jnp),
        atol=1e-5,
    )
    if description in (CATEGORICAL, MULTI, GAUSSIAN):
        np.testing.assert_allclose(
            heads.entropy(description, outputs, masks, np),
            heads.entropy(description, jnp.array(outputs), masks, jnp),
            atol=1e-5,
        )
    else:
        with pytest.raises(ConfigError, match="closed form"):
            heads.entropy(description, outputs, masks, np)
