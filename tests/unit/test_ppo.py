"""PPO's own parts: its loss by an independent formula, its correction, its KL stop, its two optimisers."""

from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

from penstock.algorithms.onpolicy import Inputs, OnPolicyLearner, Packing
from penstock.algorithms.ppo import PPO, advantages_of, policy_loss, value_loss
from penstock.algorithms.returns import Ends, gae
from penstock.algorithms.settings import PPOSettings, live_values
from penstock.model.policy import PolicyDescription
from penstock.model.spaces import ActionLayout
from penstock.policy import networks
from penstock.testing.learning import play
from penstock.testing.policies import VECTOR, describe, shaken

THREE = ActionLayout("discrete", (3,), (0,))
TINY = describe(VECTOR, "categorical", THREE, hidden=(4,))


def tensors_of(description: PolicyDescription) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return shaken(networks.initial(description, rng) | networks.initial_value(description, rng))


def rows_of(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "observations": rng.standard_normal((count, 5)),
        "actions": rng.integers(0, 3, count),
        "log_probs": np.log(rng.uniform(0.2, 0.5, count)),
        "advantages": rng.standard_normal(count),
        "targets": rng.standard_normal(count),
    }


def by_hand(tensors: dict[str, np.ndarray], rows: dict[str, np.ndarray], clip: float, bonus: float) -> float:
    """The surrogate with its cases written out, and the entropy, one sample at a time."""
    total = 0.0
    for i in range(len(rows["actions"])):
        hidden = np.tanh(
            rows["observations"][i] @ tensors["policy/body/0/weight"] + tensors["policy/body/0/bias"]
        )
        logits = hidden @ tensors["policy/output/weight"] + tensors["policy/output/bias"]
        probabilities = np.exp(logits) / np.exp(logits).sum()
        ratio = probabilities[rows["actions"][i]] / np.exp(rows["log_probs"][i])
        advantage = rows["advantages"][i]
        allowed = min(ratio, 1 + clip) if advantage > 0 else max(ratio, 1 - clip)
        total += allowed * advantage - bonus * (probabilities * np.log(probabilities)).sum()
    return -total / len(rows["actions"])


def test_the_loss_and_its_gradient_are_those_of_the_formula() -> None:
    live = {"clip_range": 0.2, "entropy": 0.05}
    rows = rows_of(12)
    tensors = {name: tensor.astype(np.float64) for name, tensor in tensors_of(TINY).items()}
    with jax.enable_x64(True):
        loss, told = policy_loss(TINY, tensors, rows, live, normalize=False)
        gradient = jax.grad(lambda t: policy_loss(TINY, t, rows, live, False)[0])(tensors)
    assert float(loss) == pytest.approx(by_hand(tensors, rows, 0.2, 0.05), abs=1e-9)
    assert 0 < float(told[3]) < 1  # some are clipped, some are not
    for name in ("policy/body/0/weight", "policy/output/weight", "policy/output/bias"):
        for place in list(np.ndindex(tensors[name].shape))[:6]:
            slopes = []
            for shift in (1e-6, -1e-6):
                moved = tensors | {name: tensors[name].copy()}
                moved[name][place] += shift
                slopes.append(by_hand(moved, rows, 0.2, 0.05))
            assert float(gradient[name][place]) == pytest.approx((slopes[0] - slopes[1]) / 2e-6, abs=1e-6)


def test_the_value_loss_is_the_mean_squared_error() -> None:
    tensors, rows = tensors_of(TINY), rows_of(9)
    values = networks.value(TINY, tensors, {"observations": rows["observations"]}, np)
    assert float(value_loss(TINY, tensors, rows)) == pytest.approx(
        float(np.mean((values - rows["targets"]) ** 2)), rel=1e-5
    )


def inputs_of(lags: list[int]) -> tuple[Inputs, dict[str, np.ndarray]]:
    tensors = tensors_of(TINY)
    rng = np.random.default_rng(3)
    shape = (6, len(lags))
    observations = rng.standard_normal((*shape, 5)).astype(np.float32)
    terminated, truncated = rng.random(shape) < 0.2, rng.random(shape) < 0.2
    final = np.where(truncated, rng.standard_normal(shape), 0).astype(np.float32)
    return Inputs(
        {"observations": observations},
        rng.integers(0, 3, shape),
        None,
        np.log(rng.uniform(0.2, 0.6, shape)).astype(np.float32),
        rng.standard_normal(shape).astype(np.float32),
        Ends(terminated, truncated, final),
        {"observations": rng.standard_normal((len(lags), 5)).astype(np.float32)},
        np.array(lags),
    ), tensors


def test_fresh_columns_get_plain_gae_and_only_old_ones_are_corrected() -> None:
    live = {"gamma": 0.9, "gae_lambda": 0.8}
    inputs, tensors = inputs_of([0, 2, 0])
    values, advantages, targets = advantages_of(TINY, tensors, inputs, live)
    last = networks.value(TINY, tensors, inputs.last, np)
    plain = gae(inputs.rewards, np.asarray(values), last, inputs.ends, 0.9, 0.8, np)
    np.testing.assert_allclose(advantages[:, [0, 2]], plain[:, [0, 2]], atol=1e-6)
    np.testing.assert_allclose(targets[:, [0, 2]], (plain + values)[:, [0, 2]], atol=1e-6)
    assert np.abs(advantages[:, 1] - plain[:, 1]).max() > 1e-3
    fresh, _ = inputs_of([0, 0, 0])
    np.testing.assert_allclose(advantages_of(TINY, tensors, fresh, live)[1], plain, atol=1e-6)


def learner_of(**settings: Any) -> tuple[OnPolicyLearner, dict[str, float]]:
    chosen = PPOSettings(**settings)
    return PPO.learner(TINY, chosen, 1), live_values(chosen, 0)


def moved(learner: OnPolicyLearner, batch: Any, live: dict[str, float]) -> np.ndarray:
    before = learner.policy()
    learner.learn(batch, live)
    return np.concatenate([(tensor - before[name]).ravel() for name, tensor in learner.policy().items()])


def test_advantages_of_the_other_sign_move_the_policy_the_other_way() -> None:
    steps = []
    for sign in (1, -1):
        learner, live = learner_of(epochs=1, minibatch=10_000, max_grad_norm=1e9)
        live |= {"gamma": 0.0, "value_coefficient": 0.0}
        batch = play(TINY, learner.policy(), 0)
        # with γ = 0 the advantage is r − V; without its constant part only its sign differs
        rewards = np.random.default_rng(0).standard_normal(batch.shape).astype(np.float32)
        seen = batch.columns["observations"].reshape(-1, 5)
        values = networks.value(TINY, learner._host, {"observations": seen}, np).reshape(batch.shape)
        batch.columns["rewards"] = values + sign * rewards
        steps.append(moved(learner, batch, live))
    assert np.abs(steps[0]).max() > 1e-5
    similarity = steps[0] @ steps[1] / np.linalg.norm(steps[0]) / np.linalg.norm(steps[1])
    assert similarity < -0.99


def test_a_rewarded_choice_becomes_more_likely() -> None:
    learner, live = learner_of(epochs=4, minibatch=64, learning_rate=1e-2)
    batch = play(TINY, learner.policy(), 0)
    batch.columns["rewards"] = (batch.columns["actions"] == 2).astype(np.float32)
    learner.learn(batch, live | {"gamma": 0.0})
    logits = networks.outputs(
        TINY, learner.policy(), {"observations": batch.columns["observations"].reshape(-1, 5)}, np
    )
    assert (logits.argmax(1) == 2).mean() > 0.9


def test_the_kl_stop_turns_the_rest_of_the_update_into_nothing() -> None:
    long, live = learner_of(epochs=8, minibatch=10_000, learning_rate=0.05, target_kl=1e-3)
    once, once_live = learner_of(epochs=1, minibatch=10_000, learning_rate=0.05)
    free, free_live = learner_of(epochs=8, minibatch=10_000, learning_rate=0.05)
    batch = play(TINY, long.policy(), 0)
    metrics = long.learn(batch, live)
    once.learn(batch, once_live)
    free.learn(batch, free_live)
    stopped, single, whole = (learner.save().tensors for learner in (long, once, free))
    for name, tensor in stopped.items():
        np.testing.assert_allclose(tensor, single[name], atol=1e-6, err_msg=name)
    assert int(stopped["adam.count"]) == 1
    assert int(whole["adam.count"]) == 8
    assert metrics["losses/approx_kl"] > 1e-3 * 0.75
    assert all(np.isfinite(number) for number in metrics.values())


def test_separate_rates_and_passes_move_policy_and_value_apart() -> None:
    learner, live = learner_of(separate=True, epochs=2, value_epochs=3, minibatch=32)
    before = learner.save().tensors
    learner.learn(play(TINY, learner.policy(), 0), live | {"learning_rate": 0.0})
    after = learner.save().tensors
    for name in before:
        if name.startswith("parameters.policy"):
            np.testing.assert_array_equal(before[name], after[name])
    assert (before["parameters.value/output/weight"] != after["parameters.value/output/weight"]).any()
    assert int(after["adam.policy.count"]) == 2 * 4
    assert int(after["adam.value.count"]) == 3 * 4


@pytest.mark.parametrize(("minibatch", "steps"), [(10_000, 1), (128, 1), (50, 2), (33, 3)])
def test_minibatches_are_whole_and_the_remainder_waits_for_another_shuffle(
    minibatch: int, steps: int
) -> None:
    learner, _ = learner_of(epochs=3, minibatch=minibatch)
    order = learner._update.order(np.random.default_rng(0), 16, 8)["policy"]
    assert order.shape == (3 * steps, min(minibatch, 128))
    for epoch in order.reshape(3, -1):
        assert len(set(epoch.tolist())) == epoch.size


def test_packing_gives_every_block_back() -> None:
    rng = np.random.default_rng(0)
    blocks = {
        "observations": rng.standard_normal((20, 3)).astype(np.float32),
        "observations/camera": rng.integers(0, 255, (20, 4, 4, 1), np.uint8),
        "actions": rng.integers(0, 1000, 20).astype(np.int32),
        "masks": rng.random((20, 5)) < 0.5,
    }
    packing = Packing(blocks)
    index = jnp.array([4, 4, 19, 0])
    taken = packing.unpack(
        packing.pack({name: jnp.array(block) for name, block in blocks.items()}).take(index)
    )
    for name, block in blocks.items():
        assert taken[name].dtype == block.dtype
        np.testing.assert_array_equal(taken[name], block[index])


def test_clip_range_is_live() -> None:
    settings = PPOSettings(clip_range="lin_0.4", schedule_steps=100)
    assert live_values(settings, 50)["clip_range"] == pytest.approx(0.2)
    assert live_values(msgspec.structs.replace(settings, target_kl=None), 0)["target_kl"] == float("inf")


def test_gradient_steps_are_as_many_as_asked_for_whatever_the_length_of_a_rollout() -> None:
    from penstock.algorithms.ppo import make_update

    settings = PPOSettings(minibatch=8, gradient_steps=5, separate=True, value_gradient_steps=3)
    update = make_update(TINY, settings)
    for steps in (4, 20, 64, 100):
        order = update.order(np.random.default_rng(1), steps, 1)
        size = min(8, steps)
        assert order["policy"].shape == (5, size)
        assert order["value"].shape == (3, size)
        assert all(len(set(step)) == size for step in order["policy"].tolist())
    usual = make_update(TINY, PPOSettings(minibatch=8, epochs=2)).order(np.random.default_rng(1), 32, 1)
    assert usual["policy"].shape == (8, 8)
