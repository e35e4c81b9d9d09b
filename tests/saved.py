"""Runs with checkpoints that nobody had to train."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from penstock import config
from penstock.algorithms.base import State
from penstock.envs.single import SingleEnvironment
from penstock.loop.checkpoint import Checkpoint, CheckpointStore, Progress
from penstock.loop.intake import Ledger
from penstock.loop.runs import RunFolder
from penstock.model.policy import Policy, PolicyDescription, PolicyFacts
from penstock.model.run import RunState
from penstock.model.tensors import weights_sha256
from penstock.model.version import Version
from penstock.policy import networks


def checkpoint(folder: RunFolder, step: int, lean: float | None = None) -> Version:
    """A policy that knows nothing; or, with `lean`, one of CartPole that pushes towards where the pole falls."""
    spec = folder.spec()
    with SingleEnvironment(spec.environment, seed=1) as single:
        description = PolicyDescription("ppo", "categorical", single.spaces, spec.network)
    tensors = networks.initial(description, np.random.default_rng(1))
    if lean is not None:
        for i in range(2):
            tensors[f"policy/body/{i}/weight"] = np.zeros_like(tensors[f"policy/body/{i}/weight"])
            tensors[f"policy/body/{i}/bias"] = np.zeros_like(tensors[f"policy/body/{i}/bias"])
        tensors["policy/body/0/weight"][2:, 0] = 1.0  # angle and its speed
        tensors["policy/body/1/weight"][0, 0] = 1.0
        output = np.zeros_like(tensors["policy/output/weight"])
        output[0] = (-lean, lean)
        tensors["policy/output/weight"] = output
    version = Version(1, step)
    facts = PolicyFacts(folder.run, version, weights_sha256(tensors), description, {0: 0}, step)
    head = Checkpoint(version, Ledger({}, [], {}, {}), {}, {}, {}, Progress(), {}, 0, (), {}, 1.0)
    CheckpointStore(folder.path, 9).write(head, State({}, {}, {}, 0), Policy(facts, tensors), 0)
    return version


def saved_run(home: Path, run: str, environment: str | Mapping[str, Any]) -> RunFolder:
    """A run that has ended; it has no checkpoint yet."""
    folder = RunFolder.create(home, config.resolve({"environment": environment, "algorithm": "ppo"}), run)
    folder.save_status(folder.status().to(RunState.STOPPED, "made for a test"))
    return folder
