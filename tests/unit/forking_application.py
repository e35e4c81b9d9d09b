"""An application that forks in the middle of an episode: `test_client_courier.py` starts it.

Says as JSON how its children ended, and what troubled its own client.
"""

import json
import os
import sys
import time

import numpy as np

from penstock.client import RL4SysAgent

CHILD_SECONDS = 60.0


def step(agent: RL4SysAgent, end: bool) -> None:
    trajectory, action = agent.request_for_action(None, np.zeros(8))
    agent.add_to_trajectory(trajectory, action)
    action.update_reward(1)
    if end:
        agent.mark_end_of_trajectory(trajectory, action)


def child(agent: RL4SysAgent, inherited: object) -> int:
    """0 where it went on by itself."""
    fresh, _ = agent.request_for_action(inherited, np.zeros(8))  # type: ignore[arg-type]
    if fresh is inherited or agent.version is None:
        return 1
    step(agent, end=True)
    agent.close(seconds=3.0)
    return 0


def fork(agent: RL4SysAgent, inherited: object) -> int:
    """How the child ended; 99 where it hung."""
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            code = child(agent, inherited)
        finally:
            os._exit(code)
    end = time.monotonic() + CHILD_SECONDS
    while (done := os.waitpid(pid, os.WNOHANG))[0] == 0:
        if time.monotonic() > end:
            os.kill(pid, 9)
            return 99
        time.sleep(0.02)
    return os.waitstatus_to_exitcode(done[1])


def main() -> None:
    configuration, forks = json.loads(sys.argv[1]), int(sys.argv[2])
    with RL4SysAgent(configuration) as agent:
        while agent.version is None:
            time.sleep(0.01)
        time.sleep(0.3)  # so that it is asking for the next version
        trajectory, action = agent.request_for_action(None, np.zeros(8))
        agent.add_to_trajectory(trajectory, action)
        action.update_reward(1)
        ended = [fork(agent, trajectory) for _ in range(forks)]
        agent.mark_end_of_trajectory(trajectory, action)
        troubles = agent.figures()["troubles"]
    print(json.dumps({"children": ended, "troubles": troubles}))


if __name__ == "__main__":
    main()
