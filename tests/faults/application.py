"""An application that decides all the time, in a process of its own: python -m tests.faults.application …

    client CONFIGURATION STOP FILE FIGURES    decides through our client, and sends what it experienced
    bare STOP FILE                            calls a policy of the same size directly: what this machine allows

Both go on until the file STOP is there, pace themselves alike, and write what each decision took, in seconds.
"""

import itertools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from penstock.client import RL4SysAgent
from penstock.client.trajectory import Trajectory
from penstock.model.spaces import ActionLayout, Column
from penstock.model.tensors import Array
from penstock.policy import networks
from penstock.policy.acting import Acting
from penstock.testing.policies import describe

PAUSE_SECONDS = 0.0005
EPISODE = 64
MOST = 4_000_000


def main() -> None:
    kind, *rest = sys.argv[1:]
    if kind == "client":
        configuration, stop, file, figures = (Path(word) for word in rest)
        versions: list[str] = []
        with RL4SysAgent(configuration) as agent:
            times = timed(_through(agent, versions), stop)
        np.save(file, times)
        figures.write_text(json.dumps(agent.figures() | {"versions": versions}))
    else:
        stop, file = (Path(word) for word in rest)
        np.save(file, timed(_bare(), stop))


def timed(decide: Callable[[Array], None], stop: Path) -> Array:
    """Decide until `stop` is there."""
    rng, times, count = np.random.default_rng(1), np.empty(MOST), 0
    seen = rng.standard_normal((1024, 8)).astype(np.float32)
    while count < MOST and (count % 256 or not stop.exists()):
        began = time.perf_counter()
        decide(seen[count % 1024])
        times[count] = time.perf_counter() - began
        count += 1
        if count // EPISODE % 2:
            time.sleep(PAUSE_SECONDS)
        elif count % EPISODE == 0:  # every other episode runs without a pause: nobody beside it finds a gap
            time.sleep(EPISODE * PAUSE_SECONDS)
    return times[:count]


def _through(agent: RL4SysAgent, versions: list[str]) -> Callable[[Array], None]:
    trajectory: Trajectory | None = None
    row = 0

    def decide(seen: Array) -> None:
        nonlocal trajectory, row
        trajectory, action = agent.request_for_action(trajectory, seen)
        action.update_reward(float(action.act == (seen[0] > 0)))
        agent.add_to_trajectory(trajectory, action)
        row += 1
        if row % EPISODE == 0:
            agent.mark_end_of_trajectory(trajectory, action)
            trajectory = None
            if not versions or str(agent.version) != versions[-1]:
                versions.append(str(agent.version))

    return decide


def _bare() -> Callable[[Array], None]:
    columns, choice = {"observations": Column((8,), "<f4")}, ActionLayout("discrete", (4,), (0,))
    acting = Acting(describe(columns, "categorical", choice))
    acting.load(networks.initial(acting.description, np.random.default_rng(1)))
    noise = acting.noise((1, 0, 0), 1024, 1)
    rows = itertools.cycle(noise)

    def decide(seen: Array) -> None:
        acting.decide({"observations": seen[None]}, None, next(rows))

    return decide


if __name__ == "__main__":
    main()
