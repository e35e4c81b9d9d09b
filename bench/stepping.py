"""How much of a bare loop's speed is left once observations are recorded, seeded and checked.

    python -m bench.stepping [environment …]

The loops take turns, a rollout each, and the fastest rollouts of each are compared, so that a
busy machine disturbs all of them alike. `bare` steps unwrapped environments, throws the observations
away and resets without a seed; `seeded` is the same, but resets every episode with a seed of its own,
as exact resumption needs (making the generator costs some 25 µs); `vector` is Gymnasium's SyncVectorEnv;
`group` is ours.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from penstock.envs.base import episode_seed
from penstock.envs.make import make_group
from penstock.model.codec import Array
from penstock.model.rollout import Block
from penstock.model.spec import EnvironmentSpec

STEPS, COPIES, TURNS = 128, 8, 60


def measure(environments: tuple[str, ...] = ("CartPole-v1", "LunarLander-v3")) -> dict[str, Any]:
    """Steps a second of each loop, and our share of the others, by environment."""
    return {name: compare(name) for name in environments}


def compare(name: str) -> dict[str, float]:
    loops = {
        "bare": bare(name, seeded=False),
        "seeded": bare(name, seeded=True),
        "vector": vector(name),
        "group": group(name),
    }
    seconds: dict[str, list[float]] = {loop: [] for loop in loops}
    for _ in range(TURNS):
        for loop, rollouts in loops.items():
            before = time.process_time()
            next(rollouts)
            seconds[loop].append(time.process_time() - before)
    speed = {loop: STEPS * COPIES / float(np.percentile(taken, 20)) for loop, taken in seconds.items()}
    return {
        **{f"{loop}_steps_per_second": round(value) for loop, value in speed.items()},
        "share_of_bare": round(speed["group"] / speed["bare"], 3),
        "share_of_vector": round(speed["group"] / speed["vector"], 3),
        "share_of_seeded": round(speed["group"] / speed["seeded"], 3),
    }


def bare(name: str, seeded: bool) -> Iterator[None]:
    """Rollouts of the plainest loop there is."""
    copies = [gymnasium.make(name, disable_env_checker=True).unwrapped for _ in range(COPIES)]
    for b, copy in enumerate(copies):
        copy.reset(seed=episode_seed(0, 0, b, 0))
    choose, episodes = chooser(copies[0].action_space), [0] * COPIES
    while True:
        for row in choose():
            actions = row.tolist() if row.ndim == 1 else list(row)
            for b, copy in enumerate(copies):
                _, _, terminated, truncated, _ = copy.step(actions[b])
                if terminated or truncated:
                    episodes[b] += 1
                    copy.reset(seed=episode_seed(0, 0, b, episodes[b]) if seeded else None)
        yield


def group(name: str) -> Iterator[None]:
    """Rollouts of ours, with the check at the end and the carry to the next."""
    ours = make_group(EnvironmentSpec(id=name), COPIES, seed=0, slot=0)
    block = Block.allocate(ours.spaces, STEPS, COPIES)
    ours.start(block)
    choose = chooser(gymnasium.make(name).action_space)
    while True:
        for t, row in enumerate(choose()):
            ours.step(t, row, block)
        ours.check(block)
        block.next_round()
        yield


def vector(name: str) -> Iterator[None]:
    """Rollouts of Gymnasium's own vector environment, which seeds only the first episode."""
    copies = SyncVectorEnv(
        [lambda: gymnasium.make(name, disable_env_checker=True)] * COPIES,
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    copies.reset(seed=0)
    choose = chooser(copies.single_action_space)
    while True:
        for row in choose():
            copies.step(row)
        yield


def chooser(space: gymnasium.Space[Any]) -> Callable[[], Array]:
    """Random actions [STEPS, COPIES, …], the same for every loop."""
    generator = np.random.default_rng(0)
    if isinstance(space, gymnasium.spaces.Discrete):
        return lambda: generator.integers(0, space.n, (STEPS, COPIES), np.int32)
    shape = (STEPS, COPIES, *(space.shape or ()))
    return lambda: generator.uniform(-1, 1, shape).astype(np.float32)


if __name__ == "__main__":
    print(json.dumps(measure(tuple(sys.argv[1:])) if sys.argv[1:] else measure(), indent=2))
