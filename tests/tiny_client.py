"""A client written by hand against the bare messages: acts with NumPy, sends what it did, follows versions."""

import json
import os
import zlib
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from penstock import proto
from penstock.model import delta
from penstock.model.policy import PolicyDescription
from penstock.model.tensors import Array, read_safetensors, weights_sha256
from penstock.model.version import NONE, Version
from penstock.policy.acting import Acting
from tests.gateways import Calls

BANDIT: dict[str, Any] = {
    "algorithm_name": "PPO",
    "algorithm_parameters": {
        "batch_size": 64, "act_dim": 4, "input_size": 4, "seed": 3, "traj_per_epoch": 16, "pi_lr": 1e-2, "vf_lr": 1e-2,
        "train_pi_iters": 20, "train_v_iters": 20, "hidden_sizes": [16], "gamma": 0.0, "lam": 0.0,
    },
}  # fmt: skip
"""See which of four lights is on, press that button: random play earns 2 in 8 tries, a right policy 8."""
TRIES = 8


def bandit_rewards(lights: Array, actions: Array) -> Array:
    return (lights.argmax(-1) == actions).astype(np.float32)


@dataclass
class TinyClient:
    """One policy of one source."""

    calls: Calls
    policy: str
    source: str = field(default_factory=lambda: os.urandom(16).hex())
    sequence: int = 0
    run: str = ""
    version: Version = NONE
    tensors: dict[str, Array] = field(default_factory=dict)
    kinds: list[int] = field(default_factory=list)
    """What each fetch brought."""
    acting: Acting | None = None
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def open(self, configuration: dict[str, Any]) -> Any:
        reply = self.calls.open(self.policy, configuration)
        self.run = reply.run
        return reply

    def fetch(self, wait: float = 0.0) -> bool:
        """The newest version, checked; whether it is a newer one."""
        request = proto.FetchRequest(policy=self.policy, wait_seconds=wait)
        if self.version != NONE:
            request.have.CopyFrom(proto.Version(epoch=self.version.epoch, step=self.version.step))
            request.have_sha256 = weights_sha256(self.tensors)
        head, *parts = self.calls("Fetch", request)
        self.kinds.append(head.kind)
        if head.kind == proto.FetchReply.NOTHING:
            return False
        payload = b"".join(part.part for part in parts)
        assert len(payload) == head.payload_bytes
        if head.kind == proto.FetchReply.DELTA:
            assert head.base_sha256 == weights_sha256(self.tensors)
            self.tensors = delta.apply(self.tensors, payload)
        else:
            self.tensors = read_safetensors(zlib.decompress(payload))
        assert weights_sha256(self.tensors) == head.weights_sha256
        newer = Version(head.version.epoch, head.version.step)
        assert newer > self.version, "versions never go back"
        self.version = newer
        if self.acting is None:
            self.acting = Acting(msgspec.json.decode(head.description, type=PolicyDescription))
        self.acting.load(self.tensors)
        return True

    def play(self) -> Any:
        """One trajectory of the bandit, as a message."""
        assert self.acting is not None
        lights = np.eye(4, dtype=np.float32)[self.rng.integers(0, 4, TRIES)]
        noise = self.acting.noise((int(self.rng.integers(1 << 31)), 0, 0), TRIES, 1)
        pairs = [
            self.acting.decide({"observations": lights[t : t + 1]}, None, noise[t]) for t in range(TRIES)
        ]
        actions = np.concatenate([action for action, _ in pairs])
        log_probs = self.acting.log_probs(np.concatenate([out for _, out in pairs]), actions, None)
        return self.message(lights, actions, log_probs, bandit_rewards(lights, actions))

    def message(
        self, observations: Array, actions: Array, log_probs: Array, rewards: Array, **more: Any
    ) -> Any:
        self.sequence += 1
        fields = {
            "sequence": self.sequence, "length": len(rewards), "terminated": True,
            "version": proto.Version(epoch=self.version.epoch, step=max(0, self.version.step)),
            "observations": {"observations": observations.astype("<f4").tobytes()},
            "actions": actions.astype("<i4").tobytes(), "log_probs": log_probs.astype("<f4").tobytes(),
            "rewards": rewards.astype("<f4").tobytes(),
        }  # fmt: skip
        return proto.Trajectory(**fields | more)

    def send(self, trajectories: list[Any], **more: Any) -> Any:
        fields = {"policy": self.policy, "source": self.source, "run": self.run, "trajectories": trajectories}
        return self.calls("Send", proto.SendRequest(**fields | more))


def returns_of(trajectories: list[Any]) -> list[float]:
    return [float(np.frombuffer(item.rewards, "<f4").sum()) for item in trajectories]


def luna() -> dict[str, Any]:
    """The configuration that RL4Sys shows, as clients send it."""
    return dict(json.loads(LUNA))


LUNA = """{"client_id": "luna-landing", "algorithm_name": "PPO", "algorithm_parameters": {"batch_size": 512,
"act_dim": 4, "seed": 0, "traj_per_epoch": 256, "clip_ratio": 0.2, "gamma": 0.99, "lam": 0.95, "pi_lr": 3e-4,
"vf_lr": 1e-3, "train_pi_iters": 80, "train_v_iters": 80, "target_kl": null, "input_size": 8}, "act_limit": 1.0,
"max_traj_length": 1000, "type": "onpolicy", "train_server_address": "localhost:50051", "send_frequency": 10}"""
