"""The trained policy as a scheduler: from a folder that `penstock export` wrote, or from a run."""

from pathlib import Path
from typing import Protocol

import msgspec
from safetensors.numpy import load_file

import penstock
from baselines import Choose
from cluster import Cluster
from environment import Mask, Rows, View, mask_of
from penstock.model.policy import PolicyFacts, weights_sha256
from penstock.policy.acting import Acting

MAX_BYTES = 64 << 20


class Actor(Protocol):
    def act(self, observation: Rows, mask: Mask) -> int:
        """The most likely action."""


class _Config(msgspec.Struct, frozen=True):
    """What we need of `config.json`."""

    policy: PolicyFacts


class Exported:
    """A policy from an export's folder; raise ValueError where its files do not belong together."""

    def __init__(self, folder: Path) -> None:
        for file in (folder / "config.json", folder / "policy.safetensors"):
            if not file.is_file():
                raise ValueError(f"{file} is missing; write it with: penstock export RUN --to {folder}")
            if file.stat().st_size > MAX_BYTES:
                raise ValueError(f"{file} is larger than {MAX_BYTES} bytes; it is no policy of this example")
        self.facts = msgspec.json.decode((folder / "config.json").read_bytes(), type=_Config).policy
        tensors = load_file(folder / "policy.safetensors")
        if weights_sha256(tensors) != self.facts.weights_sha256:
            raise ValueError(f"the weights in {folder} do not match its config.json; export the run again")
        self._acting = Acting(self.facts.description)
        self._acting.load(tensors)

    def act(self, observation: Rows, mask: Mask) -> int:
        return int(self._acting.act_one(observation, mask))


def of(source: str) -> Actor:
    """The policy of an export's folder or, where there is no such folder, of the run of that name."""
    if Path(source).is_dir():
        return Exported(Path(source))
    actor: Actor = penstock.load(source).policy("newest")
    return actor


def scheduler(actor: Actor) -> Choose:
    """Like a baseline: looks at a cluster, names a place in its queue."""
    view: View | None = None

    def choose(cluster: Cluster) -> int:
        nonlocal view
        if view is None or view.cluster is not cluster:
            view = View(cluster)
        return actor.act(view.rows(), mask_of(cluster))

    return choose
