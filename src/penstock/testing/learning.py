"""A small task every on-policy learner must master, without streams, processes or Gymnasium.

Each step shows a context (one of `KINDS`, in the first entries of every vector row); the right action earns
1. Episodes end by chance, terminated or truncated, so batches hold every kind of end.
"""

import numpy as np

from penstock.algorithms.base import Batch
from penstock.model.codec import Array
from penstock.model.policy import PolicyDescription
from penstock.policy.acting import Acting

KINDS = 2


def play(
    description: PolicyDescription,
    tensors: dict[str, Array],
    seed: int,
    steps: int = 16,
    environments: int = 8,
    lag: int = 0,
) -> Batch:
    """One batch of experience, decided by `seed` and the tensors alone."""
    acting, rng = Acting(description), np.random.default_rng(seed)
    acting.load(tensors)
    noise = acting.noise((seed, 0, 0), steps, environments)
    action, block = description.spaces.action, (steps, environments)
    seen, context = _observations(description, (steps + 1) * environments, rng)
    seen = {name: column.reshape(steps + 1, environments, *column.shape[1:]) for name, column in seen.items()}
    context = context.reshape(steps + 1, environments)
    masks = None
    if action.masked:
        masks = rng.random((steps + 1, environments, action.choices)) < 0.8
        masks[..., : 0 if action.kind == "multi_discrete" else 2] = True
        masks[..., np.cumsum((0, *action.sizes[:-1]))] = True  # the first choice of each part
    actions = np.zeros((*block, *action.column.shape), action.column.dtype)
    outputs = np.zeros((*block, acting.width), np.float32)
    for t in range(steps):
        now = {name: column[t] for name, column in seen.items()}
        actions[t], outputs[t] = acting.decide(now, None if masks is None else masks[t], noise[t])
    chance = rng.random(block)
    terminated, truncated = chance < 0.2, chance > 0.9
    index = np.argwhere(truncated).astype(np.int32)
    columns = {name: column[:-1] for name, column in seen.items()}
    columns |= {f"last/{name}": column[-1] for name, column in seen.items()}
    final, _ = _observations(description, len(index), rng)
    columns |= {f"final/{name}": column for name, column in final.items()}
    if masks is not None:
        columns |= {"masks": masks[:-1], "last/masks": masks[-1], "final/masks": masks[0, index[:, 1]]}
    columns |= {
        "actions": actions,
        "log_probs": acting.log_probs(outputs, actions, None if masks is None else masks[:-1]),
        "rewards": rewards_of(description, actions, context[:-1]),
        "terminated": terminated,
        "truncated": truncated,
        "final/index": index,
    }
    streams = np.stack([np.zeros(environments, np.int64), np.arange(environments)], 1)
    return Batch(columns, np.full(environments, lag, np.int64), streams)


def rewards_of(description: PolicyDescription, actions: Array, context: Array) -> Array:
    """1 for the right choice; for a Box, the nearer to ±1 the better."""
    if description.spaces.action.kind == "box":
        wanted = np.where(context == 0, -1.0, 1.0)[..., None]
        distance = np.square(actions.reshape(*context.shape, -1) - wanted).mean(-1)
        return np.asarray(np.maximum(1 - distance, -1), np.float32)
    chosen = actions if actions.ndim == context.ndim else actions[..., -1]
    return np.asarray(chosen == context, np.float32)


def _observations(
    description: PolicyDescription, rows: int, rng: np.random.Generator
) -> tuple[dict[str, Array], Array]:
    context = rng.integers(0, KINDS, rows)
    hot = np.eye(KINDS, dtype=np.float32)[context]
    result: dict[str, Array] = {}
    for name, column in description.spaces.observation.columns.items():
        shape = (rows, *column.shape)
        if column.dtype.endswith("u1"):
            result[name] = np.broadcast_to(100 * (1 + context[:, None, None, None]), shape).astype(np.uint8)
        else:
            result[name] = (0.1 * rng.standard_normal(shape)).astype(np.float32)
            place = result[name] if len(shape) == 2 else result[name].transpose(0, 2, 1)[:, 0]
            place[:, :KINDS] = hot
    return result, context
