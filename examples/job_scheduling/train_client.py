"""The same training, with the simulator as an application of its own that asks Penstock for decisions.

    penstock gateway &
    python examples/job_scheduling/train_client.py localhost:50051 --episodes 2000

Penstock never sees the simulator. While no gateway answers, the client names the shortest job, and goes on.
"""

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster import VISIBLE
from environment import FEATURES, Scheduling
from penstock.client import Agent

LOADS = (0.6, 0.7, 0.8, 0.9)
PARAMETERS: dict[str, Any] = {
    "traj_per_epoch": 16,
    "batch_size": 256,
    "gamma": 1.0,
    "lam": 0.95,
    "pi_lr": 0.003,
    "train_pi_iters": 48,  # two passes over 16 episodes of about 400 decisions
}
NETWORK = {"body": "items", "hidden": [32, 16], "activation": "relu"}


def shortest(observation: NDArray[Any], mask: NDArray[Any] | None) -> int:
    """What a client does by itself: the least requested time among the places that hold a job."""
    rows = observation.reshape(VISIBLE, FEATURES)
    filled = rows.any(axis=1) if mask is None else mask
    return int(np.where(filled, rows[:, 0], np.inf).argmin())


def episode(agent: Agent, world: Scheduling, seed: int) -> float:
    """Schedule one draw of jobs; return the average bounded slowdown."""
    rows, info = world.reset(seed=seed)
    over = False
    while not over:
        action = agent.act(rows, mask=info["action_mask"])
        rows, reward, over, _, info = world.step(action)
        agent.reward(reward)
    agent.end()
    return float(info["bounded_slowdown"])


def has_learned(agent: Agent, updates: int) -> bool:
    return agent.version is not None and agent.version.step >= updates


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("address", nargs="?", default="localhost:50051")
    parser.add_argument("--policy", default="job-scheduling")
    parser.add_argument("--episodes", type=int, default=2000)
    parser.add_argument("--updates", type=int, help="end once a version of this many updates decides")
    parser.add_argument("--jobs", type=int, default=256)
    arguments = parser.parse_args()
    world = Scheduling(loads=LOADS, jobs=arguments.jobs)
    with Agent(
        arguments.address,
        policy=arguments.policy,
        observation=(VISIBLE, FEATURES),
        actions=VISIBLE,
        algorithm="PPO",
        parameters=PARAMETERS,
        network=NETWORK,
        masked=True,
        heuristic=shortest,
    ) as agent:
        recent: list[float] = []
        for number in range(arguments.episodes):
            recent.append(episode(agent, world, number))
            learned = arguments.updates is not None and has_learned(agent, arguments.updates)
            if len(recent) == 16 or learned or number + 1 == arguments.episodes:
                print(
                    f"episode {number + 1}: slowdown {np.mean(recent):,.1f}, version {agent.version}",
                    flush=True,
                )
                recent = []
            if learned:
                break


if __name__ == "__main__":
    main()
