"""LunarLander as a system that knows nothing of training: it asks for actions and reports rewards.

    penstock up                                       # or: penstock gateway
    python examples/lunar/train.py                    # PPO, the configuration that RL4Sys ships
    python examples/lunar/train.py --config examples/lunar/luna_dqn.json

The loop below is RL4Sys' own; only the import differs.
"""

import argparse
import json
import statistics
import time
from collections import deque
from pathlib import Path
from typing import Any

import gymnasium

from penstock.client import RL4SysAgent

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default=str(HERE / "luna_conf.json"), help="JSON or YAML")
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after this long")
    parser.add_argument("--target", type=float, default=200.0, help="end at this mean return of 100 episodes")
    parser.add_argument("--log", help="folder for TensorBoard (needs tensorboardX)")
    parser.add_argument("--seed", type=int, default=0, help="of the first landing")
    chosen = parser.parse_args()
    with RL4SysAgent(conf_path=chosen.config) as agent:
        result = play(agent, chosen)
    print(json.dumps(result | {"figures": agent.figures()}))
    print(verdict(result["mean_return"], chosen.target))


def play(agent: RL4SysAgent, chosen: argparse.Namespace) -> dict[str, Any]:
    """Land again and again; return how it went."""
    environment = gymnasium.make("LunarLander-v3")
    writer = board(chosen.log)
    recent: deque[float] = deque(maxlen=100)
    started, steps, episode = time.monotonic(), 0, 0
    for episode in range(1, chosen.episodes + 1):
        score, length = land(agent, environment, chosen.seed if episode == 1 else None)
        steps += length
        recent.append(score)
        if writer is not None:
            writer.add_scalar("charts/episodic_return", score, steps)
            writer.add_scalar("charts/episodic_length", length, steps)
            writer.add_scalar("charts/version", agent.version.step if agent.version else -1, steps)
        seconds = time.monotonic() - started
        if episode % 50 == 0:
            print(
                f"episode {episode}: mean return {statistics.fmean(recent):.1f}, version {agent.version}, "
                f"{steps / seconds:.0f} steps/s",
                flush=True,
            )
        if seconds > chosen.seconds or (len(recent) == 100 and statistics.fmean(recent) >= chosen.target):
            break
    if writer is not None:
        writer.close()
    return {"episodes": episode, "steps": steps, "mean_return": round(statistics.fmean(recent or [0.0]), 1)}


def verdict(mean_return: float, target: float) -> str:
    """The last line: nobody should have to guess whether it lands."""
    if mean_return >= target:
        return f"reached: a mean return of {mean_return} is at least {target:g}"
    return f"not reached: a mean return of {mean_return} is below {target:g}; more --episodes may help"


def land(agent: RL4SysAgent, environment: Any, seed: int | None) -> tuple[float, int]:
    """One episode, as RL4Sys documents it; a time limit is not an end of the task, so it is told apart."""
    observation, _ = environment.reset(seed=seed)
    trajectory, score, length = None, 0.0, 0
    while True:
        trajectory, action = agent.request_for_action(trajectory, observation)
        observation, reward, terminated, truncated, _ = environment.step(action.act)
        agent.add_to_trajectory(trajectory, action)
        action.update_reward(reward)
        score, length = score + float(reward), length + 1
        if terminated or truncated:
            agent.mark_end_of_trajectory(trajectory, action, truncated=not terminated, final_obs=observation)
            return score, length


def board(folder: str | None) -> Any:
    if folder is None:
        return None
    from tensorboardX import SummaryWriter

    return SummaryWriter(folder)


if __name__ == "__main__":
    main()
