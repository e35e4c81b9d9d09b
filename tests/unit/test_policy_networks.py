"""One network, two namespaces: NumPy and JAX agree on every body and head."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from penstock.errors import ConfigError
from penstock.model.policy import Head
from penstock.model.spaces import ActionLayout, Column
from penstock.policy import bodies, networks
from penstock.testing.policies import (
    BOX,
    IMAGE,
    ITEMS,
    ITEMS_AND_VECTOR,
    MANY,
    MIXED,
    SIX,
    VECTOR,
    describe,
    observations_of,
    shaken,
)

BODIES = [
    ("mlp", VECTOR), ("auto", IMAGE), ("cnn", MIXED), ("mlp", IMAGE), ("mlp", ITEMS), ("items", ITEMS),
    ("items", ITEMS_AND_VECTOR),
]  # fmt: skip
HEADS: list[tuple[Head, ActionLayout, bool]] = [
    ("categorical", SIX, False), ("multi_categorical", MANY, False), ("gaussian", BOX, False),
    ("squashed_gaussian", BOX, False), ("q", SIX, False), ("q", SIX, True),
]  # fmt: skip


CASES = [(*body, *head) for body in BODIES for head in HEADS if body[0] != "items" or head[1] is SIX]


@pytest.mark.parametrize("richer", [False, True])
@pytest.mark.parametrize(("body", "columns", "head", "action", "duelling"), CASES)
def test_numpy_and_jax_give_the_same_outputs_and_values(body, columns, head, action, duelling, richer):  # type: ignore[no-untyped-def]
    description = describe(
        columns, head, action, duelling, body=body, shared=richer, normalize_observations=richer,
        activation="relu" if richer else "tanh", hidden=(32, 16),
    )  # fmt: skip
    rng = np.random.default_rng(0)
    tensors = shaken(networks.initial(description, rng) | networks.initial_value(description, rng))
    seen = observations_of(description, 7)
    on_numpy = networks.outputs(description, tensors, seen, np)
    on_jax = jax.jit(lambda t, o: networks.outputs(description, t, o, jnp))(tensors, seen)
    assert on_numpy.dtype == np.float32
    assert on_numpy.shape == (7, networks.width(description))
    np.testing.assert_allclose(on_numpy, on_jax, atol=1e-5, rtol=2e-5)
    value_numpy = networks.value(description, tensors, seen, np)
    value_jax = jax.jit(lambda t, o: networks.value(description, t, o, jnp))(tensors, seen)
    assert value_numpy.dtype == np.float32
    assert value_numpy.shape == (7,)
    np.testing.assert_allclose(value_numpy, value_jax, atol=1e-5, rtol=2e-5)


@pytest.mark.parametrize("columns", [VECTOR, MIXED])
def test_critics_agree_and_see_actions_as_unit_numbers(columns: dict[str, Column]) -> None:
    description = describe(columns, "squashed_gaussian", BOX)
    tensors = shaken(networks.initial_q(description, np.random.default_rng(0), "critic/0"))
    assert all(name.startswith("critic/0/") for name in tensors)
    seen = observations_of(description, 4)
    actions = np.array([[-2, -1], [2, 3], [0, 1], [1, 0]], np.float32)
    got = networks.q_value(description, tensors, seen, actions, np, "critic/0")
    np.testing.assert_allclose(
        got, networks.q_value(description, tensors, seen, jnp.array(actions), jnp, "critic/0"), atol=1e-5
    )
    unit = describe(columns, "squashed_gaussian", ActionLayout("box", shape=(2,), low=(-1, -1), high=(1, 1)))
    same = np.array([[-1, -1], [1, 1], [0, 0], [0.5, -0.5]], np.float32)
    np.testing.assert_allclose(got, networks.q_value(unit, tensors, seen, same, np, "critic/0"), atol=1e-5)


@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (3, 1), (3, 2), (4, 3), (8, 4)])
def test_im2col_is_a_convolution(kernel: int, stride: int) -> None:
    rng = np.random.default_rng(0)
    image = rng.standard_normal((2, 21, 17, 3)).astype(np.float32)
    tensors = {
        "c/weight": rng.standard_normal((kernel, kernel, 3, 5)).astype(np.float32),
        "c/bias": rng.standard_normal(5).astype(np.float32),
    }
    want = jax.lax.conv_general_dilated(
        image, tensors["c/weight"], (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"),
        precision=jax.lax.Precision.HIGHEST,
    )  # fmt: skip
    got = bodies.convolve(tensors, "c", image, stride, np)
    np.testing.assert_allclose(got, want + tensors["c/bias"], atol=2e-4)


def test_weights_are_orthogonal_with_the_gain_of_their_place() -> None:
    description = describe(VECTOR, "categorical", SIX)
    tensors = networks.initial(description, np.random.default_rng(0))
    hidden = tensors["policy/body/1/weight"]
    np.testing.assert_allclose(hidden.T @ hidden, 2 * np.eye(64), atol=1e-5)
    output = tensors["policy/output/weight"]
    np.testing.assert_allclose(output.T @ output, 1e-4 * np.eye(6), atol=1e-8)
    assert not tensors["policy/output/bias"].any()
    again = networks.initial(description, np.random.default_rng(0))
    assert all((again[name] == tensors[name]).all() for name in tensors)


def test_items_do_not_depend_on_their_order_and_empty_rows_do_not_count() -> None:
    description = describe(ITEMS, "categorical", SIX, body="items")
    rng = np.random.default_rng(0)
    tensors = shaken(networks.initial(description, rng) | networks.initial_value(description, rng))
    rows = observations_of(description, 1)["observations"]
    order = np.array([3, 0, 5, 1, 2, 4])
    logits = networks.outputs(description, tensors, {"observations": rows}, np)
    shuffled = networks.outputs(description, tensors, {"observations": rows[:, order]}, np)
    np.testing.assert_allclose(logits[:, order], shuffled, atol=1e-6)
    rows[:, 3:] = 0
    few = describe(
        {"observations": Column((3, 4), "<f4")},
        "categorical",
        ActionLayout("discrete", (3,), (0,)),
        body="items",
    )
    np.testing.assert_allclose(
        networks.value(description, tensors, {"observations": rows}, np),
        networks.value(few, tensors, {"observations": rows[:, :3]}, np),
        atol=1e-6,
    )


def test_a_shared_body_leaves_only_a_head_to_the_value() -> None:
    description = describe(VECTOR, "categorical", SIX, shared=True)
    assert set(networks.initial_value(description, np.random.default_rng(0))) == {
        "value/output/weight", "value/output/bias",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "head", "action", "network", "words"),
    [
        (VECTOR, "categorical", SIX, {"body": "cnn"}, "needs an image"),
        (VECTOR, "categorical", SIX, {"body": "items"}, "exactly one"),
        (ITEMS, "categorical", ActionLayout("discrete", (5,), (0,)), {"body": "items"}, r"Discrete\(6\)"),
        (ITEMS, "gaussian", BOX, {"body": "items"}, r"Discrete\(6\)"),
        (IMAGE, "categorical", SIX, {"convolutions": ((8, 8, 4), (8, 8, 1))}, "too small"),
        (VECTOR, "categorical", BOX, {}, "cannot choose box"),
        (VECTOR, "q", MANY, {}, "cannot choose multi_discrete"),
        (
            VECTOR,
            "squashed_gaussian",
            ActionLayout("box", shape=(1,), low=(-3.4e38,), high=(1,)),
            {},
            "finite",
        ),
    ],
)
def test_what_does_not_fit_is_refused(columns, head, action, network, words) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError, match=words):
        networks.initial(describe(columns, head, action, **network), np.random.default_rng(0))
