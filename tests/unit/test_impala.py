"""IMPALA's loss against an independent formula, and its pieces along the environments."""

import jax
import numpy as np
import pytest

from penstock.algorithms.impala import IMPALA, loss, piece
from penstock.algorithms.onpolicy import Inputs
from penstock.algorithms.returns import Ends, vtrace
from penstock.algorithms.settings import IMPALASettings
from penstock.model.spaces import ActionLayout
from penstock.policy import heads, networks
from penstock.testing.policies import VECTOR, describe, shaken

THREE = ActionLayout("discrete", (3,), (0,))
TINY = describe(VECTOR, "categorical", THREE, hidden=(4,))
LIVE = {
    "gamma": 0.9,
    "vtrace_lambda": 0.9,
    "rho_clip": 1.0,
    "trace_clip": 1.0,
    "entropy": 0.05,
    "value_coefficient": 0.5,
}


def case() -> tuple[Inputs, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    tensors = shaken(networks.initial(TINY, rng) | networks.initial_value(TINY, rng))
    shape = (5, 4)
    terminated, truncated = rng.random(shape) < 0.2, rng.random(shape) < 0.2
    inputs = Inputs(
        {"observations": rng.standard_normal((*shape, 5))},
        rng.integers(0, 3, shape),
        None,
        np.log(rng.uniform(0.2, 0.6, shape)),
        rng.standard_normal(shape),
        Ends(terminated, truncated, np.where(truncated, rng.standard_normal(shape), 0)),
        {"observations": rng.standard_normal((4, 5))},
        np.array([0, 1, 0, 2]),
    )
    return inputs, {name: tensor.astype(np.float64) for name, tensor in tensors.items()}


def formula(tensors: dict[str, np.ndarray], inputs: Inputs, fixed: tuple[np.ndarray, np.ndarray]) -> float:
    """The loss with targets and advantages held still."""
    seen = {"observations": inputs.observations["observations"].reshape(-1, 5)}
    outputs = networks.outputs(TINY, tensors, seen, np).reshape(5, 4, 3)
    values = networks.value(TINY, tensors, seen, np).reshape(5, 4)
    targets, advantages = fixed
    probabilities = np.exp(outputs) / np.exp(outputs).sum(-1, keepdims=True)
    chosen = np.take_along_axis(probabilities, inputs.actions[..., None], -1)[..., 0]
    entropy = -(probabilities * np.log(probabilities)).sum(-1).mean()
    gain = (np.log(chosen) * advantages).mean()
    return float(-gain + 0.5 * ((targets - values) ** 2).mean() - 0.05 * entropy)


def test_the_loss_and_its_gradient_are_those_of_the_formula() -> None:
    inputs, tensors = case()
    seen = {"observations": inputs.observations["observations"].reshape(-1, 5)}
    outputs = networks.outputs(TINY, tensors, seen, np).reshape(5, 4, 3)
    values = networks.value(TINY, tensors, seen, np).reshape(5, 4)
    ratios = np.exp(heads.log_prob(TINY, outputs, inputs.actions, None, np) - inputs.log_probs)
    last = networks.value(TINY, tensors, inputs.last, np)
    fixed = vtrace(inputs.rewards, values, last, inputs.ends, ratios, 0.9, 0.9, 1.0, 1.0, np)
    with jax.enable_x64(True):
        got, told = loss(TINY, tensors, inputs, LIVE)
        gradient = jax.grad(lambda t: loss(TINY, t, inputs, LIVE)[0])(tensors)
    assert float(got) == pytest.approx(formula(tensors, inputs, fixed), abs=1e-8)
    assert float(told[4]) == pytest.approx(np.minimum(ratios, 1).mean(), abs=1e-8)
    for name in ("policy/body/0/weight", "policy/output/bias", "value/output/weight", "value/body/0/bias"):
        for place in list(np.ndindex(tensors[name].shape))[:4]:
            sides = []
            for shift in (1e-6, -1e-6):
                moved = tensors | {name: tensors[name].copy()}
                moved[name][place] += shift
                sides.append(formula(moved, inputs, fixed))
            assert float(gradient[name][place]) == pytest.approx((sides[0] - sides[1]) / 2e-6, abs=1e-6)


def test_a_piece_keeps_whole_columns_of_its_environments() -> None:
    inputs, _ = case()
    index = np.array([3, 1])
    part = piece(inputs, index)
    np.testing.assert_allclose(part.rewards, inputs.rewards[:, index], rtol=1e-6)
    np.testing.assert_allclose(part.last["observations"], inputs.last["observations"][index], rtol=1e-6)
    np.testing.assert_array_equal(part.ends.terminated, inputs.ends.terminated[:, index])
    np.testing.assert_array_equal(part.lags, [2, 1])
    assert part.masks is None


@pytest.mark.parametrize(("minibatches", "rows", "size"), [(1, 2, 6), (2, 4, 3), (4, 8, 1), (100, 12, 1)])
def test_pieces_are_disjoint_within_a_pass(minibatches: int, rows: int, size: int) -> None:
    learner = IMPALA.learner(TINY, IMPALASettings(epochs=2, minibatches=minibatches), 1)
    order = learner._update.order(np.random.default_rng(0), 16, 6)
    assert order.shape == (rows, size)
    for epoch in order.reshape(2, -1):
        assert len(set(epoch.tolist())) == epoch.size
