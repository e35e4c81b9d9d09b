"""What learners with a replay memory share: one compiled call inserts a batch and makes the gradient steps.

Such an algorithm is a pure function, its `Step`: networks and a sample of rows in, new networks,
errors and metrics out. Everything around it is here: the ring, priorities, statistics, counters, saving.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from penstock.algorithms import memory, parts, priorities
from penstock.algorithms.base import Batch, State
from penstock.algorithms.memory import Memory, Rows
from penstock.model.codec import Array
from penstock.model.policy import PolicyDescription

Nets = dict[str, Any]
"""All that gradient steps change: named tensors, targets, states of Adam."""

SMALLEST_ERROR = 1e-6
"""Added to every error before it becomes a priority, so that no row is forgotten."""


class Sample(NamedTuple):
    """What one gradient step is given."""

    rows: Rows
    weights: jax.Array
    """[N] they correct for preferred rows."""
    noise: jax.Array
    """Normal noise, in the shape the plan asks for."""
    normalizer: dict[str, Any]
    """Tensors that belong to every network and are not learned."""
    live: Mapping[str, Any]


class Step(Protocol):
    """One gradient step: new networks, the error of each row [N], and metrics."""

    def __call__(self, nets: Nets, sample: Sample) -> tuple[Nets, jax.Array, dict[str, jax.Array]]: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """How an algorithm uses its memory."""

    buffer: int
    batch: int
    gradient_steps: int
    learning_starts: int
    n_step: int = 1
    alpha: float = 0.0
    """Exponent of priorities; 0 samples all rows alike, and keeps no tree."""
    noise: tuple[int, ...] = (0,)
    """Shape of the normal noise of one gradient step."""
    normalize_rewards: bool = False


class Kept(NamedTuple):
    """What an update changes; its arrays are donated, so that the memory is written in place."""

    nets: Nets
    rows: Rows
    tree: priorities.Tree
    greatest: jax.Array
    """The greatest priority ever seen."""


class Inputs(NamedTuple):
    """What is new in an update."""

    rows: Mapping[str, Any]
    place: Any
    """Where the first of them goes."""
    size: Any
    """How many rows there are with them."""
    steps: Any
    """Gradient steps: a traced number, so that the program before `learning_starts` is the same."""
    chosen: Array
    """[steps, N] indices of rows; with priorities, shares of their sum."""
    noise: Array
    normalizer: dict[str, Array]
    live: dict[str, Any]


def update(step: Step, plan: Plan, kept: Kept, inputs: Inputs) -> tuple[Kept, dict[str, jax.Array]]:
    """Insert the new rows, make the gradient steps; beside the new state, the sums of their metrics."""
    at = memory.places(inputs.place, len(inputs.rows["rewards"]), plan.buffer)
    rows = memory.insert(kept.rows, inputs.rows, at)
    tree = kept.tree
    if plan.alpha:
        # New rows get the greatest priority: each is learned from soon (Schaul et al., 2016, algorithm 1).
        tree = priorities.put(tree, at, jnp.broadcast_to(kept.greatest, at.shape))
    chosen, noise, size = jnp.asarray(inputs.chosen), jnp.asarray(inputs.noise), inputs.size

    def draw(i: Any, tree: priorities.Tree) -> tuple[jax.Array, Sample]:
        index, weights = chosen[i], jnp.ones(plan.batch)
        if plan.alpha:
            index = jnp.minimum(priorities.draw(tree, index), size - 1)
            beta = inputs.live["priority_beta"]
            weights = priorities.weights(priorities.get(tree, index), priorities.total(tree), size, beta)
        return index, Sample(memory.pick(rows, index), weights, noise[i], inputs.normalizer, inputs.live)

    def gradient_step(i: Any, carry: Any) -> Any:
        nets, tree, greatest, sums = carry
        index, sample = draw(i, tree)
        nets, errors, metrics = step(nets, sample)
        if plan.alpha:
            values = (jnp.abs(errors) + SMALLEST_ERROR) ** plan.alpha
            tree, greatest = priorities.put(tree, index, values), jnp.maximum(greatest, values.max())
        return nets, tree, greatest, jax.tree.map(jnp.add, sums, metrics)

    shapes = jax.eval_shape(lambda: step(kept.nets, draw(0, tree)[1])[2])
    sums = {name: jnp.zeros(shape.shape, shape.dtype) for name, shape in shapes.items()}
    carry = (kept.nets, tree, kept.greatest, sums)
    nets, tree, greatest, sums = jax.lax.fori_loop(0, inputs.steps, gradient_step, carry)
    return Kept(nets, rows, tree, greatest), sums


def learned(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Those of fresh acting tensors that gradient steps change: all but the normaliser."""
    return {name: tensor for name, tensor in tensors.items() if not name.startswith("normalizer/")}


def follow(target: Any, online: Any, rate: Any) -> Any:
    """θ⁻ ← θ⁻ + rate (θ − θ⁻)   (Polyak; Lillicrap et al., 2016)."""
    return jax.tree.map(lambda old, new: old + rate * (new - old), target, online)


class ReplayLearner:
    """A `Learner` around one algorithm's `Step`."""

    def __init__(
        self,
        description: PolicyDescription,
        plan: Plan,
        step: Step,
        nets: Nets,
        seed: int,
        acts: str,
        acting: Callable[[int, Mapping[str, float]], dict[str, float]],
    ) -> None:
        """`nets[acts]` are the tensors that act; `acting` is what actors need to know beside them."""
        self._plan, self._seed, self._acts, self._acting = plan, seed, acts, acting
        self._memory = Memory(memory.row_columns(description.spaces), plan.buffer)
        self._nets: Nets = jax.tree.map(jnp.array, nets)  # copies: what is donated must not be shared
        self._tree = priorities.empty(plan.buffer) if plan.alpha else ()
        self._greatest = jnp.ones(())
        self._updates = 0
        self._observations = parts.ObservationStatistics(description)
        self._rewards = parts.RewardStatistics() if plan.normalize_rewards else None
        self._update = jax.jit(partial(update, step, plan), donate_argnums=0)

    def learn(self, batch: Batch, live: Mapping[str, float]) -> dict[str, float]:
        """Insert the batch and, once there are `learning_starts` rows, make the gradient steps."""
        inputs = self._inputs(batch, live)
        kept = Kept(self._nets, self._memory.rows, self._tree, self._greatest)
        kept, sums = self._update(kept, inputs)
        self._nets, self._memory.rows, self._tree, self._greatest = kept
        self._memory.added += len(inputs.rows["rewards"])
        self._updates += 1
        # After the update, as on-policy learners do: what acted and what learns normalise alike.
        self._observations.update(batch.columns)
        steps = int(inputs.steps)
        means = {name: float(total) / steps for name, total in sums.items()} if steps else {}
        return means | {"memory/rows": float(self._memory.size)}

    def policy(self) -> dict[str, Array]:
        """The acting tensors, as copies."""
        acting = {name: np.array(tensor) for name, tensor in self._nets[self._acts].items()}
        return acting | self._observations.normalizer()

    def acting(self, environment_steps: int, live: Mapping[str, float]) -> dict[str, float]:
        """What the algorithm tells its actors."""
        return self._acting(environment_steps, live)

    def save(self, since: int = 0) -> State:
        """A copy of all state; of the memory, what was added after the first `since` rows."""
        tensors = parts.flatten(self._fixed()) | self._observations.save()
        if self._rewards is not None:
            tensors |= self._rewards.save()
        numbers: dict[str, int | float | str] = {"updates": self._updates, "seed": self._seed}
        return State(tensors, numbers, self._memory.since(since), self._memory.added)

    def restore(self, state: State) -> None:
        """Go on where `state` was saved."""
        fixed = parts.unflatten(self._fixed(), state.tensors)
        self._nets, self._tree, self._greatest = fixed["nets"], fixed["tree"], fixed["greatest"]
        self._updates, self._seed = int(state.numbers["updates"]), int(state.numbers["seed"])
        self._observations.restore(state.tensors)
        if self._rewards is not None:
            self._rewards.restore(state.tensors)
        self._memory.restore(state.rows, state.rows_added)

    @property
    def memory_rows(self) -> int:
        """All rows that are kept."""
        return self._memory.size

    def _fixed(self) -> dict[str, Any]:
        """State of fixed size; the whole tree, because sums made again could differ in their last bits."""
        return {"nets": self._nets, "tree": self._tree, "greatest": self._greatest}

    def _inputs(self, batch: Batch, live: Mapping[str, float]) -> Inputs:
        plan, columns = self._plan, batch.columns
        if self._rewards is not None:
            columns = columns | {"rewards": self._rewards.scale(columns, batch.streams, live["gamma"])}
        rows = memory.transitions(columns, live["gamma"], plan.n_step)
        added = self._memory.added + len(rows["rewards"])
        size = min(added, plan.buffer)
        # Randomness comes from the host: NumPy makes it faster than XLA on a CPU, and it need not compile.
        generator = np.random.Generator(
            np.random.Philox(counter=[0, 0, 0, self._updates], key=[self._seed & 0xFFFFFFFFFFFFFFFF, 2])
        )
        shape = (plan.gradient_steps, plan.batch)
        if plan.alpha:
            chosen: Array = priorities.strata(generator.random(shape, np.float32))
        else:
            chosen = generator.integers(0, size, shape, np.int32)
        return Inputs(
            rows,
            np.int32(self._memory.place),
            np.int32(size),
            np.int32(plan.gradient_steps if added >= plan.learning_starts else 0),
            chosen,
            generator.standard_normal((plan.gradient_steps, *plan.noise), np.float32),
            self._observations.normalizer(),
            {name: np.float32(value) for name, value in live.items()},
        )
