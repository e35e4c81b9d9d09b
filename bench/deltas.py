"""How large a delta is, beside the policy it changes: default PPO on LunarLander, by learning rate.

The policy travels without its value network; `raw` are the bytes of its numbers.
"""

import statistics
from typing import Any

import numpy as np

from penstock.algorithms.base import Batch
from penstock.algorithms.ppo import PPO
from penstock.algorithms.settings import PPOSettings, live_values
from penstock.envs.make import make_group
from penstock.model import delta
from penstock.model.policy import NetworkSpec
from penstock.model.rollout import Block
from penstock.model.spec import EnvironmentSpec
from penstock.policy.acting import Acting

STEPS, ENVIRONMENTS = 256, 8
RATES = (3e-4, 1e-4, 3e-5)
PROMISED = {3e-4: 0.8, 1e-4: 0.6, 3e-5: 0.6}


def measure(updates: int = 30, seeds: int = 3) -> dict[str, Any]:
    """Learning rate → shares of the raw bytes, of every update of every seed."""
    found: dict[str, Any] = {}
    for rate in RATES:
        shares = [share for seed in range(1, seeds + 1) for share in _shares(rate, seed, updates)]
        found[f"{rate:g}"] = {
            "median": round(statistics.median(shares), 3),
            "largest": round(max(shares), 3),
            "updates": len(shares),
            "promised": PROMISED[rate],
        }
    return found


def verdicts(facts: dict[str, Any] | None) -> list[tuple[str, str, str, str]]:
    """A row for each learning rate: what, promised, measured, whether it holds."""
    return [
        (
            f"a delta at learning rate {rate}, share of the policy's raw bytes, median (largest)",
            f"≤ {row['promised']:.0%}",
            f"{row['median']:.0%} ({row['largest']:.0%})",
            "yes"
            if row["largest"] <= row["promised"]
            else "median"
            if row["median"] <= row["promised"]
            else "NO",
        )
        for rate, row in (facts or {}).items()
    ]


def _shares(rate: float, seed: int, updates: int) -> list[float]:
    group = make_group(EnvironmentSpec(id="LunarLander-v3"), ENVIRONMENTS, seed, 0)
    block = Block.allocate(group.spaces, STEPS, ENVIRONMENTS)
    group.start(block)
    settings = PPOSettings(learning_rate=rate)
    description = PPO.describe(group.spaces, NetworkSpec(), settings)
    learner, acting = PPO.learner(description, settings, seed), Acting(description)
    streams = np.stack([np.zeros(ENVIRONMENTS, np.int64), np.arange(ENVIRONMENTS)], 1)
    shares = []
    before = learner.policy()
    for update in range(updates):
        acting.load(before)
        noise = acting.noise((seed, 0, update), STEPS, ENVIRONMENTS)
        outputs = np.empty((STEPS, ENVIRONMENTS, acting.width), np.float32)
        for t in range(STEPS):
            row = {name: rows[t] for name, rows in block.observations.items()}
            block.actions[t], outputs[t] = acting.decide(row, None, noise[t])
            group.step(t, block.actions[t], block)
        block.log_probs[:] = acting.log_probs(outputs, block.actions, None)
        columns = {name: column.copy() for name, column in block.columns().items()}
        learner.learn(Batch(columns, np.zeros(ENVIRONMENTS, np.int64), streams), live_values(settings, 0))
        block.next_round()
        after = learner.policy()
        raw = sum(tensor.nbytes for tensor in after.values())
        shares.append(len(delta.encode(before, after)) / raw)
        before = after
    group.close()
    return shares
