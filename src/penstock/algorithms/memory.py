"""Replay memory: rollouts become flat n-step rows, rows live in a ring of device arrays.

A row needs nothing beside itself:

    observations…       what the policy saw at t
    actions             what it chose
    rewards             R = Σ_{j<k} γ^j r_{t+j}
    discounts           γ^k, or 0 where the task ended within the window
    next/observations…  what it saw at t+k: the bootstrap point
    next/masks          allowed actions there, only where the environment tells

k is n, or less where an episode or the rollout ends first: such rows bootstrap sooner, which is as
right, so no state is carried from one rollout to the next. γ is part of the row: a new γ acts on rows
made from then on. Reads from: batches. Writes to: the arrays that `dqn` and `sac` learn from.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from penstock.errors import Damaged
from penstock.model.codec import Array
from penstock.model.spaces import Column, Spaces

Rows = dict[str, jax.Array]


def row_columns(spaces: Spaces) -> dict[str, Column]:
    """Name, shape and type of what a row holds."""
    columns = dict(spaces.observation.columns)
    columns |= {f"next/{name}": column for name, column in spaces.observation.columns.items()}
    columns |= {"actions": spaces.action.column, "rewards": Column((), "<f4"), "discounts": Column((), "<f4")}
    if spaces.action.masked:
        columns["next/masks"] = Column((spaces.action.choices,), "|b1")
    return columns


def transitions(columns: Mapping[str, Array], gamma: float, n: int) -> dict[str, Array]:
    """The T·B rows of a joined batch, in the order of time, then environment."""
    steps, environments = columns["rewards"].shape
    rewards, lengths = _windows(columns, gamma, n)
    # The last step of each window, and who follows it.
    last = np.arange(steps)[:, None] + lengths - 1
    which = np.broadcast_to(np.arange(environments), last.shape)
    ended = columns["terminated"][last, which].astype(np.bool_)
    follows = (last + 1) * environments + which  # rows T·B … T·B+B−1 are `last/…`
    finals = np.full((steps, environments), -1, np.int64)
    index = columns["final/index"]
    finals[index[:, 0], index[:, 1]] = np.arange(len(index))
    final = finals[last, which]
    follows = np.where((final >= 0) & ~ended, (steps + 1) * environments + final, follows).ravel()

    def flat(name: str) -> Array:
        return columns[name].reshape(steps * environments, *columns[name].shape[2:])

    discounts = np.where(ended, 0.0, np.float64(gamma) ** lengths)
    rows = {
        "actions": flat("actions"),
        "rewards": rewards.astype(np.float32).ravel(),
        "discounts": discounts.astype(np.float32).ravel(),
    }
    for name in columns:
        if name.startswith("last/"):
            seen = name.removeprefix("last/")
            everything = np.concatenate([flat(seen), columns[name], columns[f"final/{seen}"]])
            rows[f"next/{seen}"] = everything[follows]
            if seen != "masks":
                rows[seen] = flat(seen)
    return rows


def _windows(columns: Mapping[str, Array], gamma: float, n: int) -> tuple[Array, Array]:
    """Discounted reward [T, B] and length [T, B] of the window that begins at each step."""
    rewards = columns["rewards"]
    steps = len(rewards)
    ends = columns["terminated"].astype(np.bool_) | columns["truncated"].astype(np.bool_)
    returns = np.zeros(rewards.shape, np.float64)
    lengths = np.zeros(rewards.shape, np.int64)
    open_ = np.ones(rewards.shape, np.bool_)
    for k in range(min(n, steps)):
        begun = steps - k  # windows that begin later have met the rollout's edge
        returns[:begun] += np.where(open_[:begun], np.float64(gamma) ** k * rewards[k:], 0.0)
        lengths[:begun] += open_[:begun]
        open_[:begun] &= ~ends[k:]
    return returns, lengths


class Memory:
    """A ring of rows on the device; row number i (from the first ever added) lies in place i mod capacity.

    The compiled update is given `rows` and gives them back (`rows` must be donated, or each update
    copies the whole memory); counters stay on the host, where they cannot overflow.
    """

    def __init__(self, columns: Mapping[str, Column], capacity: int) -> None:
        self.capacity = capacity
        self.added = 0
        self.rows: Rows = {
            name: jnp.zeros((capacity, *column.shape), np.dtype(column.dtype))
            for name, column in columns.items()
        }

    @property
    def size(self) -> int:
        """How many rows are there."""
        return min(self.capacity, self.added)

    @property
    def place(self) -> int:
        """Where the next row goes."""
        return self.added % self.capacity

    def since(self, count: int) -> dict[str, Array]:
        """Copies of the rows added after the first `count` ever, oldest first, as far as they are kept."""
        places = np.arange(max(count, self.added - self.size), self.added) % self.capacity
        return {name: np.asarray(column)[places] for name, column in self.rows.items()}

    def restore(self, rows: Mapping[str, Array], added: int) -> None:
        """Put the newest rows back where they were; raise Damaged if some are missing."""
        needed = min(self.capacity, added)
        self.added = added
        for name, column in self.rows.items():
            if name not in rows or len(rows[name]) < needed or rows[name].shape[1:] != column.shape[1:]:
                raise Damaged(
                    f"the checkpoint lacks rows of replay memory: {needed} of {name} {column.shape[1:]}"
                )
            filled = np.zeros(column.shape, column.dtype)
            if needed:
                filled[np.arange(added - needed, added) % self.capacity] = rows[name][-needed:]
            self.rows[name] = jnp.array(filled)  # a copy: donated memory must not be NumPy's


def places(place: jax.Array, count: int, capacity: int) -> jax.Array:
    """Where `count` new rows go, the first at `place`; of more than fit, the newest."""
    kept = min(count, capacity)
    return (place + (count - kept) + jnp.arange(kept, dtype=jnp.int32)) % capacity


def insert(rows: Rows, new: Mapping[str, Any], at: jax.Array) -> Rows:
    """Write the newest of `new` over the places `at`; for the inside of a compiled update."""
    return {name: column.at[at].set(new[name][-len(at) :]) for name, column in rows.items()}


def pick(rows: Rows, index: jax.Array) -> Rows:
    """The rows `index` of every column."""
    return {name: column[index] for name, column in rows.items()}


def observations(rows: Rows, prefix: str = "") -> Rows:
    """The observation columns of rows: of step t, or with `next/` of the bootstrap point."""
    start = f"{prefix}observations"
    return {name.removeprefix(prefix): column for name, column in rows.items() if name.startswith(start)}
