"""The physical limit: random actions in plain loops, one process a core, nothing learned, nothing sent.

The loop is what a user writes: `gymnasium.make(id)`, `step`, `reset` at the end of an episode. Actions are
drawn beforehand, so that only the environment is paid for. `unwrapped` leaves out Gymnasium's own wrappers
(order check, time limit) and is for comparison only.
"""

import multiprocessing
import os
import time
from multiprocessing.synchronize import Barrier
from typing import Any


def measure(environment: str, seconds: float = 10.0) -> dict[str, float]:
    """Steps per second of all cores together, wrapped (the limit) and unwrapped."""
    return {
        "cores": cores(),
        "steps_per_second": round(_all_cores(environment, seconds, unwrapped=False)),
        "unwrapped_steps_per_second": round(_all_cores(environment, seconds / 2, unwrapped=True)),
    }


def wrapped(environment: str, seconds: float) -> float:
    """Steps per second of all cores together, in the plain loop."""
    return _all_cores(environment, seconds, unwrapped=False)


def cores() -> int:
    return len(os.sched_getaffinity(0))


def _all_cores(environment: str, seconds: float, unwrapped: bool) -> float:
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(cores()), context.Queue()
    arguments = (environment, seconds, unwrapped, start, results)
    workers = [context.Process(target=_loop, args=(index, *arguments)) for index in range(cores())]
    for worker in workers:
        worker.start()
    total = sum(results.get(timeout=seconds + 120) for _ in workers)
    for worker in workers:
        worker.join()
    return total


def _loop(
    index: int, environment: str, seconds: float, unwrapped: bool, start: Barrier, results: Any
) -> None:
    import gymnasium

    env = gymnasium.make(environment)
    if unwrapped:
        env = env.unwrapped
    env.action_space.seed(index)
    actions = [env.action_space.sample() for _ in range(4096)]
    env.reset(seed=index)
    steps = 0
    start.wait()
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        steps += len(actions)
    results.put(steps / (time.perf_counter() - started))
