"""Advantages and targets: by hand, against their definitions as sums, and on both namespaces."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.algorithms.returns import Ends, corrected_gae, discounted, gae, vtrace


def column(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float64)[:, None]


def ends(
    terminated: np.ndarray, truncated: np.ndarray | None = None, values: np.ndarray | None = None
) -> Ends:
    none = np.zeros(terminated.shape)
    cut = none if truncated is None else truncated
    return Ends(terminated.astype(bool), cut.astype(bool), none if values is None else values)


NOWHERE = ends(column(0, 0, 0))


def test_gae_by_hand() -> None:
    # δ = (1 + .5·2 − 1, 2 + .5·4 − 2, 3 + .5·8 − 4) = (1, 2, 3);  Â₂ = 3, Â₁ = 2 + .25·3, Â₀ = 1 + .25·2.75
    got = gae(column(1, 2, 3), column(1, 2, 4), np.array([8.0]), NOWHERE, 0.5, 0.5, np)
    assert got.ravel().tolist() == [1.6875, 2.75, 3.0]


def test_no_credit_crosses_a_termination_and_nothing_is_expected_after_it() -> None:
    got = gae(column(1, 0, 5), column(0, 0, 7), np.array([100.0]), ends(column(0, 1, 0)), 0.5, 1.0, np)
    assert got.ravel().tolist() == [1.0, 0.0, 5 + 50 - 7]


def test_a_truncation_ends_credit_but_expects_the_value_of_the_final_observation() -> None:
    cut = ends(column(0, 0, 0), column(0, 1, 0), column(0, 6, 0))
    got = gae(column(1, 0, 5), column(0, 0, 7), np.array([100.0]), cut, 0.5, 1.0, np)
    assert got.ravel().tolist() == [1 + 0.5 * 3, 0 + 0.5 * 6, 5 + 50 - 7]
    returns = discounted(column(1, 0, 5), np.array([100.0]), cut, 0.5, np)
    assert returns.ravel().tolist() == [1 + 0.5 * 3, 0.5 * 6, 5 + 50]


def test_where_both_are_told_the_termination_counts() -> None:
    both = ends(column(0, 1, 0), column(0, 1, 0), column(0, 6, 0))
    got = gae(column(1, 2, 5), column(0, 0, 0), np.array([0.0]), both, 0.5, 1.0, np)
    assert got.ravel().tolist() == [2.0, 2.0, 5.0]


def test_vtrace_by_hand() -> None:
    # ρ = (1, .5), δ = (1 + .5·2 − 0, 3 + .5·4 − 2) = (2, 3);  v₁ = 2 + .5·3, v₀ = 0 + 2 + .5·1·(3.5 − 2)
    targets, advantages = vtrace(
        column(1, 3),
        column(0, 2),
        np.array([4.0]),
        ends(column(0, 0)),
        column(2, 0.5),
        0.5,
        1.0,
        1.0,
        1.0,
        np,
    )
    assert targets.ravel().tolist() == [2.75, 3.5]
    assert advantages.ravel().tolist() == [1 + 0.5 * 3.5, 0.5 * (3 + 0.5 * 4 - 2)]


@st.composite
def blocks(draw: st.DrawFn) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (draw(st.integers(1, 9)), draw(st.integers(1, 3)))
    kind = rng.choice(4, shape, p=[0.6, 0.2, 0.15, 0.05])
    return {
        "rewards": rng.normal(0, 2, shape),
        "values": rng.normal(0, 2, shape),
        "last": rng.normal(0, 2, shape[1]),
        "terminated": (kind == 1) | (kind == 3),
        "truncated": (kind == 2) | (kind == 3),
        "final": rng.normal(0, 2, shape),
        "ratios": np.exp(rng.normal(0, 1, shape)),
    }


def naive(
    block: dict[str, np.ndarray], gamma: float, trace: float, rho_clip: float, trace_clip: float
) -> tuple[np.ndarray, np.ndarray]:
    """V-trace from its definition: v_s = V_s + Σ_t γ^{t−s} (Π_{i<t} c_i) ρ_t δ_t, episode by episode."""
    steps, environments = block["rewards"].shape
    targets = block["values"].copy()

    def after(source: np.ndarray, t: int, b: int) -> float:
        if block["terminated"][t, b]:
            return 0.0
        if block["truncated"][t, b]:
            return float(block["final"][t, b])
        return float(block["last"][b] if t == steps - 1 else source[t + 1, b])

    for b in range(environments):
        for s in range(steps):
            for t in range(s, steps):
                weight = gamma ** (t - s) * np.prod(trace * np.minimum(trace_clip, block["ratios"][s:t, b]))
                delta = block["rewards"][t, b] + gamma * after(block["values"], t, b) - block["values"][t, b]
                targets[s, b] += weight * min(rho_clip, block["ratios"][t, b]) * delta
                if block["terminated"][t, b] or block["truncated"][t, b]:
                    break
    advantages = np.array([
        [
            min(rho_clip, block["ratios"][t, b])
            * (block["rewards"][t, b] + gamma * after(targets, t, b) - block["values"][t, b])
            for b in range(environments)
        ]
        for t in range(steps)
    ])  # fmt: skip
    return targets, advantages


def ends_of(block: dict[str, np.ndarray]) -> Ends:
    final = np.where(block["truncated"], block["final"], 0)
    return Ends(block["terminated"], block["truncated"], final)


@given(blocks(), st.floats(0, 1), st.floats(0, 1), st.floats(0.5, 2), st.floats(0.5, 2))
@settings(max_examples=150, deadline=None)
def test_vtrace_is_its_definition(block, gamma, trace, rho_clip, trace_clip) -> None:  # type: ignore[no-untyped-def]
    rewards, values, last, ratios = (block[name] for name in ("rewards", "values", "last", "ratios"))
    got = vtrace(rewards, values, last, ends_of(block), ratios, gamma, trace, rho_clip, trace_clip, np)
    want = naive(block, gamma, trace, rho_clip, trace_clip)
    np.testing.assert_allclose(got[0], want[0], atol=1e-7)
    np.testing.assert_allclose(got[1], want[1], atol=1e-7)


@given(blocks(), st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=100, deadline=None)
def test_gae_and_monte_carlo_are_special_cases(block, gamma, trace) -> None:  # type: ignore[no-untyped-def]
    rewards, values, last, how = block["rewards"], block["values"], block["last"], ends_of(block)
    plain = gae(rewards, values, last, how, gamma, trace, np)
    ones = block | {"ratios": np.ones_like(rewards)}
    np.testing.assert_allclose(plain, naive(ones, gamma, trace, 1, 1)[0] - values, atol=1e-7)
    advantages, targets = corrected_gae(rewards, values, last, how, ones["ratios"], gamma, trace, np)
    np.testing.assert_allclose(advantages, plain, atol=1e-10)
    np.testing.assert_allclose(targets, plain + values, atol=1e-10)
    returns = discounted(rewards, last, how, gamma, np)
    np.testing.assert_allclose(returns, gae(rewards, values, last, how, gamma, 1.0, np) + values, atol=1e-7)


@given(blocks(), st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=50, deadline=None)
def test_corrected_targets_are_vtrace_and_an_advantage_leaves_out_its_own_weight(block, gamma, trace) -> None:  # type: ignore[no-untyped-def]
    rewards, values, last, how = block["rewards"], block["values"], block["last"], ends_of(block)
    advantages, targets = corrected_gae(rewards, values, last, how, block["ratios"], gamma, trace, np)
    np.testing.assert_allclose(targets, naive(block, gamma, trace, 1, 1)[0], atol=1e-7)
    for t in range(len(rewards)):
        mine = block["ratios"].copy()
        mine[t] = 1
        want = naive(block | {"ratios": mine}, gamma, trace, 1, 1)[0] - values
        np.testing.assert_allclose(advantages[t], want[t], atol=1e-7)


@pytest.mark.parametrize("seed", range(3))
def test_both_namespaces_agree(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (20, 4)
    rewards, values, final = (rng.normal(size=shape).astype(np.float32) for _ in range(3))
    ratios = np.exp(rng.normal(size=shape)).astype(np.float32)
    last = rng.normal(size=4).astype(np.float32)
    terminated, truncated = rng.random(shape) < 0.1, rng.random(shape) < 0.1
    how = Ends(terminated, truncated, np.where(truncated, final, 0))

    def all_of(xp):  # type: ignore[no-untyped-def]
        return (
            gae(rewards, values, last, how, 0.99, 0.95, xp),
            discounted(rewards, last, how, 0.99, xp),
            *corrected_gae(rewards, values, last, how, ratios, 0.99, 0.95, xp),
            *vtrace(rewards, values, last, how, ratios, 0.99, 0.9, 1.0, 1.2, xp),
        )

    for plain, compiled in zip(all_of(np), jax.jit(lambda: all_of(jnp))(), strict=True):
        assert plain.dtype == np.float32
        np.testing.assert_allclose(plain, compiled, atol=2e-5)
