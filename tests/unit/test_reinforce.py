"""REINFORCE's loss against an independent formula."""

import jax
import numpy as np
import pytest

from penstock.algorithms.onpolicy import Inputs
from penstock.algorithms.reinforce import loss
from penstock.algorithms.returns import Ends
from penstock.model.spaces import ActionLayout
from penstock.policy import networks
from penstock.testing.policies import VECTOR, describe, shaken

TINY = describe(VECTOR, "categorical", ActionLayout("discrete", (3,), (0,)), hidden=(4,))
LIVE = {"gamma": 0.5, "entropy": 0.1, "value_coefficient": 0.5}


def case(lag: int) -> tuple[Inputs, dict[str, np.ndarray]]:
    """One column of four steps: terminated after the second, cut by the rollout's edge after the fourth."""
    rng = np.random.default_rng(0)
    tensors = shaken(networks.initial(TINY, rng) | networks.initial_value(TINY, rng))
    none = np.zeros((4, 1))
    inputs = Inputs(
        {"observations": rng.standard_normal((4, 1, 5))},
        rng.integers(0, 3, (4, 1)),
        None,
        np.log(rng.uniform(0.2, 0.6, (4, 1))),
        np.array([[1.0], [2.0], [4.0], [8.0]]),
        Ends(np.array([[0], [1], [0], [0]], bool), none.astype(bool), none),
        {"observations": rng.standard_normal((1, 5))},
        np.array([lag]),
    )
    return inputs, {name: tensor.astype(np.float64) for name, tensor in tensors.items()}


@pytest.mark.parametrize("lag", [0, 1])
def test_the_loss_and_its_gradient_are_those_of_the_formula(lag: int) -> None:
    inputs, tensors = case(lag)
    seen = {"observations": inputs.observations["observations"].reshape(-1, 5)}
    beyond = networks.value(TINY, tensors, inputs.last, np)[0]
    # G₃ = 8 + γ V(last), G₂ = 4 + γ G₃; the episode before ended: G₁ = 2, G₀ = 1 + γ · 2
    returns = np.array([2.0, 2.0, 4 + 0.5 * (8 + 0.5 * beyond), 8 + 0.5 * beyond])
    baseline = networks.value(TINY, tensors, seen, np)
    actions, behaviour = inputs.actions[:, 0], inputs.log_probs[:, 0]

    def log_probs(of: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        outputs = networks.outputs(TINY, of, seen, np)
        every = outputs - np.log(np.exp(outputs).sum(-1, keepdims=True))
        return every[np.arange(4), actions], every

    weights = np.minimum(np.exp(log_probs(tensors)[0] - behaviour), 1) if lag else np.ones(4)

    def formula(of: dict[str, np.ndarray]) -> float:
        chosen, every = log_probs(of)
        error = ((returns - networks.value(TINY, of, seen, np)) ** 2).mean()
        entropy = -(np.exp(every) * every).sum(-1).mean()
        return float(-(weights * chosen * (returns - baseline)).mean() + 0.5 * error - 0.1 * entropy)

    with jax.enable_x64(True):
        got, _ = loss(TINY, tensors, inputs, LIVE, normalize=False)
        gradient = jax.grad(lambda t: loss(TINY, t, inputs, LIVE, False)[0])(tensors)
    assert float(got) == pytest.approx(formula(tensors), abs=1e-8)
    for name in ("policy/body/0/weight", "policy/output/bias", "value/output/weight"):
        for place in list(np.ndindex(tensors[name].shape))[:4]:
            sides = []
            for shift in (1e-6, -1e-6):
                moved = tensors | {name: tensors[name].copy()}
                moved[name][place] += shift
                sides.append(formula(moved))
            assert float(gradient[name][place]) == pytest.approx((sides[0] - sides[1]) / 2e-6, abs=1e-6)


def test_normalised_advantages_do_not_depend_on_the_scale_of_rewards() -> None:
    inputs, tensors = case(0)
    tensors = {name: tensor * (0 if name.startswith("value/") else 1) for name, tensor in tensors.items()}
    with jax.enable_x64(True):
        told = [
            loss(TINY, tensors, inputs._replace(rewards=factor * inputs.rewards), LIVE, True)[1]
            for factor in (1, 100)
        ]
    assert float(told[0][0]) == pytest.approx(float(told[1][0]), rel=1e-6)
