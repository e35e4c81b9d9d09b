"""Rollouts become n-step rows; rows live in a ring; priorities are drawn in proportion."""

import time
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.algorithms import memory, priorities
from penstock.errors import Damaged
from penstock.model.spaces import ActionLayout, Column, Leaf, ObservationLayout, Spaces


def columns(rewards, terminated=(), truncated=(), masked=False):
    """A batch that shows 100·b + t at (t, b), and −(100·b + t) − 1 at truncated ends; ends are (t, b)."""
    rewards = np.array(rewards, np.float32)
    if rewards.ndim == 1:
        rewards = rewards[:, None]
    steps, environments = rewards.shape
    seen = np.arange(steps + 1)[:, None] + 100.0 * np.arange(environments)
    seen = seen.astype(np.float32)[..., None]
    ends = {"terminated": np.zeros(rewards.shape, bool), "truncated": np.zeros(rewards.shape, bool)}
    for name, places in (("terminated", terminated), ("truncated", truncated)):
        for t, b in places:
            ends[name][t, b] = True
    index = np.array(list(truncated), np.int32).reshape(-1, 2)
    result = {
        "observations": seen[:-1],
        "last/observations": seen[-1],
        "actions": np.arange(steps * environments, dtype=np.int32).reshape(steps, environments),
        "log_probs": np.zeros_like(rewards),
        "rewards": rewards,
        "final/index": index,
        "final/observations": -seen[index[:, 0], index[:, 1]] - 1,
        **ends,
    }
    if masked:
        allowed = np.repeat(seen % 2 == 0, 2, axis=2)
        result |= {"masks": allowed[:-1], "last/masks": allowed[-1]}
        result["final/masks"] = np.ones((len(index), 2), bool)
    return result


def numbers(rows, *names):
    return [rows[name].ravel().tolist() for name in names]


def test_one_step_rows_are_the_plain_transitions():
    rows = memory.transitions(columns([1, 2, 3]), gamma=0.5, n=1)
    assert numbers(rows, "observations", "next/observations") == [[0, 1, 2], [1, 2, 3]]
    assert numbers(rows, "rewards", "discounts") == [[1, 2, 3], [0.5, 0.5, 0.5]]
    assert rows["actions"].tolist() == [0, 1, 2]


def test_windows_are_cut_at_the_edge_of_the_rollout():
    rows = memory.transitions(columns([1, 2, 4, 8]), gamma=0.5, n=3)
    assert numbers(rows, "rewards") == [[1 + 1 + 1, 2 + 2 + 2, 4 + 4, 8]]
    assert numbers(rows, "discounts", "next/observations") == [[0.125, 0.125, 0.25, 0.5], [3, 4, 4, 4]]


def test_nothing_is_bootstrapped_or_earned_past_a_termination():
    rows = memory.transitions(columns([1, 2, 4, 8], terminated=[(1, 0)]), gamma=0.5, n=3)
    assert numbers(rows, "rewards") == [[2, 2, 8, 8]]
    assert numbers(rows, "discounts") == [[0, 0, 0.25, 0.5]]


def test_a_truncation_within_the_window_bootstraps_from_the_final_observation():
    rows = memory.transitions(columns([1, 2, 4, 8], truncated=[(1, 0)]), gamma=0.5, n=3)
    assert numbers(rows, "rewards") == [[2, 2, 8, 8]]
    assert numbers(rows, "discounts") == [[0.25, 0.5, 0.25, 0.5]]
    assert numbers(rows, "next/observations") == [[-2, -2, 4, 4]]


def test_a_truncation_at_the_edge_wins_over_the_next_episode():
    rows = memory.transitions(columns([1, 2], truncated=[(1, 0)]), gamma=1.0, n=2)
    assert numbers(rows, "rewards", "next/observations") == [[3, 2], [-2, -2]]


def test_what_is_terminated_and_truncated_at_once_is_terminated():
    rows = memory.transitions(columns([1, 2], terminated=[(0, 0)], truncated=[(0, 0)]), gamma=0.9, n=2)
    assert rows["discounts"].tolist() == pytest.approx([0, 0.9])


def test_environments_do_not_mix():
    rows = memory.transitions(columns([[1, 10], [2, 20]], terminated=[(0, 1)]), gamma=1.0, n=2)
    assert numbers(rows, "observations", "next/observations") == [[0, 100, 1, 101], [2, 101, 2, 102]]
    assert numbers(rows, "rewards", "discounts") == [[3, 10, 2, 20], [1, 0, 1, 1]]


def test_masks_are_those_of_the_bootstrap_point():
    rows = memory.transitions(columns([1, 2, 3], truncated=[(0, 0)], masked=True), gamma=1.0, n=1)
    assert rows["next/masks"].tolist() == [[True, True], [True, True], [False, False]]
    assert "masks" not in rows


def naive(batch, gamma, n):
    """One row at a time, as one would explain it."""
    steps, environments = batch["rewards"].shape
    finals = {tuple(place): k for k, place in enumerate(batch["final/index"].tolist())}
    for t in range(steps):
        for b in range(environments):
            total, discount, u = 0.0, 1.0, t
            while True:
                total += discount * float(batch["rewards"][u, b])
                discount *= gamma
                follows = batch["observations"][u + 1, b] if u + 1 < steps else batch["last/observations"][b]
                if batch["terminated"][u, b]:
                    discount = 0.0
                    break
                if batch["truncated"][u, b]:
                    follows = batch["final/observations"][finals[u, b]]
                    break
                if u + 1 == steps or u + 1 == t + n:
                    break
                u += 1
            yield total, discount, float(follows[0])


@given(
    data=st.data(),
    steps=st.integers(1, 9),
    environments=st.integers(1, 3),
    n=st.integers(1, 12),
    gamma=st.sampled_from([0.0, 0.5, 0.9, 0.997, 1.0]),
)
@settings(max_examples=150, deadline=None)
def test_rows_agree_with_a_naive_reference(data, steps, environments, n, gamma):
    places = [(t, b) for t in range(steps) for b in range(environments)]
    fates = data.draw(st.lists(st.integers(0, 5), min_size=len(places), max_size=len(places)))
    rewards = data.draw(st.lists(st.integers(-4, 4), min_size=len(places), max_size=len(places)))
    batch = columns(
        np.array(rewards).reshape(steps, environments),
        terminated=[place for place, fate in zip(places, fates, strict=True) if fate == 1],
        truncated=[place for place, fate in zip(places, fates, strict=True) if fate == 2],
    )
    rows = memory.transitions(batch, gamma, n)
    expected = list(naive(batch, gamma, n))
    np.testing.assert_allclose(rows["rewards"], [row[0] for row in expected], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(rows["discounts"], [row[1] for row in expected], rtol=1e-5)
    going = rows["discounts"] > 0
    assert rows["next/observations"][going, 0].tolist() == [
        row[2] for row in expected if np.float32(row[1]) > 0
    ]


def test_a_row_has_the_columns_that_transitions_make():
    layout = ObservationLayout({"observations": Column((1,), "<f4")}, (Leaf((), "box", "observations"),))
    spaces = Spaces(layout, ActionLayout("discrete", sizes=(2,), start=(0,), masked=True))
    made = memory.transitions(columns([1, 2], masked=True), 0.9, 1)
    assert {name: (rows.shape[1:], rows.dtype) for name, rows in made.items()} == {
        name: (column.shape, np.dtype(column.dtype)) for name, column in memory.row_columns(spaces).items()
    }


def ring(capacity):
    return memory.Memory({"x": Column((2,), "<f4")}, capacity)


@partial(jax.jit, donate_argnums=0)
def written(rows, new, place):
    at = memory.places(place, len(new["x"]), len(rows["x"]))
    return memory.insert(rows, new, at)


def add(kept, count):
    """Rows that say which number they are, from the first ever added."""
    new = np.repeat(np.arange(kept.added, kept.added + count, dtype=np.float32)[:, None], 2, axis=1)
    kept.rows = written(kept.rows, {"x": new}, kept.place)
    kept.added += count


@given(
    capacity=st.sampled_from([1, 3, 5]),
    counts=st.lists(st.integers(1, 6), max_size=6),
    since=st.integers(0, 40),
)
@settings(max_examples=40, deadline=None)
def test_the_ring_keeps_the_newest_rows_in_order(capacity, counts, since):
    kept = ring(capacity)
    for count in counts:
        add(kept, count)
    assert kept.since(0)["x"][:, 0].tolist() == list(range(kept.added - kept.size, kept.added))
    expected = list(range(max(since, kept.added - kept.size), kept.added))
    assert kept.since(since)["x"][:, 0].tolist() == expected


def test_increments_restore_the_same_ring():
    kept = ring(5)
    add(kept, 3)
    first = kept.since(0)["x"]
    add(kept, 4)
    second = kept.since(3)["x"]
    again = ring(5)
    again.restore({"x": np.concatenate([first, second])}, kept.added)
    assert np.array_equal(again.rows["x"], kept.rows["x"])
    assert again.place == kept.place == 2


def test_rows_that_are_missing_are_damage():
    with pytest.raises(Damaged, match="lacks rows"):
        ring(5).restore({"x": np.zeros((3, 2), np.float32)}, 7)


def test_what_was_saved_does_not_change_with_the_ring():
    kept = ring(4)
    add(kept, 4)
    saved = kept.since(0)["x"]
    add(kept, 3)
    assert saved[:, 0].tolist() == [0, 1, 2, 3]


def test_an_update_does_not_copy_the_memory():
    """Donated rows stay where they are, and the time does not grow with the capacity."""

    def seconds(capacity):
        kept = ring(capacity)
        add(kept, 64)
        place = kept.rows["x"].unsafe_buffer_pointer()
        times = []
        for _ in range(10):
            start = time.perf_counter()
            add(kept, 64)
            jax.block_until_ready(kept.rows)
            times.append(time.perf_counter() - start)
        assert kept.rows["x"].unsafe_buffer_pointer() == place
        return min(times)

    # A copy of 4,000,000 rows (32 MB) takes several milliseconds.
    assert seconds(4_000_000) < seconds(1_000) + 0.002


@pytest.mark.parametrize("capacity", [1, 16, 17, 300, 5_000])
def test_rows_are_drawn_in_proportion_to_their_priority(capacity):
    rng = np.random.default_rng(capacity)
    wanted = rng.integers(1, 5, capacity).astype(np.float32)
    tree = priorities.put(priorities.empty(capacity), jnp.arange(capacity), jnp.array(wanted))
    assert float(priorities.total(tree)) == wanted.sum()
    # A point in the middle of each unit of priority: the count of draws is the priority itself.
    units = int(wanted.sum())
    drawn = np.asarray(priorities.draw(tree, (jnp.arange(units) + 0.5) / units))
    assert np.bincount(drawn, minlength=capacity).tolist() == wanted.tolist()


def test_random_points_give_the_same_frequencies():
    wanted = np.array([1, 0, 3, 0, 6], np.float32)
    tree = priorities.put(priorities.empty(40), jnp.arange(5), jnp.array(wanted))
    noise = jax.random.uniform(jax.random.key(0), (100, 256))
    drawn = np.asarray(jax.vmap(lambda row: priorities.draw(tree, priorities.strata(row)))(noise))
    np.testing.assert_allclose(np.bincount(drawn.ravel(), minlength=5) / drawn.size, wanted / 10, atol=0.003)


def test_changed_priorities_are_seen_at_every_level():
    tree = priorities.put(priorities.empty(1_000), jnp.arange(1_000), jnp.ones(1_000))
    tree = priorities.put(tree, jnp.array([7, 999, 7]), jnp.array([5.0, 0.0, 5.0]))
    assert float(priorities.total(tree)) == 1_000 + 4 - 1
    assert priorities.get(tree, jnp.array([7, 999, 8])).tolist() == [5, 0, 1]
    for below, above in pairwise(tree):
        np.testing.assert_array_equal(np.asarray(below.sum(axis=1)), np.asarray(above).ravel()[: len(below)])


def test_importance_weights_undo_the_preference_at_beta_one():
    chosen = jnp.array([1.0, 2.0, 4.0])
    full = priorities.weights(chosen, jnp.float32(10), jnp.int32(5), jnp.float32(1))
    assert full.tolist() == pytest.approx([1, 0.5, 0.25])
    none = priorities.weights(chosen, jnp.float32(10), jnp.int32(5), jnp.float32(0))
    assert none.tolist() == [1, 1, 1]
