"""A policy is data: a small description and named tensors. Whoever has both can act."""

from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from penstock.errors import Damaged
from penstock.model.codec import Array, Frame, Schema, decode_columns, encode_columns
from penstock.model.spaces import Spaces
from penstock.model.tensors import weights_sha256
from penstock.model.version import Version

Head = Literal["categorical", "multi_categorical", "gaussian", "squashed_gaussian", "q"]


class NetworkSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The shape of the networks."""

    body: Literal["auto", "mlp", "cnn", "items"] = "auto"
    """`auto`: cnn where there are images, else mlp. `items`: one shared MLP over the rows of a set."""

    hidden: tuple[int, ...] = (64, 64)
    """Width of each hidden layer, in policy and value network alike."""

    activation: Literal["tanh", "relu"] = "tanh"
    """The non-linearity between layers."""

    convolutions: tuple[tuple[int, int, int], ...] = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
    """For cnn: (channels, kernel, stride) of each layer."""

    shared: bool = False
    """Whether policy and value share the body."""

    normalize_observations: bool = False
    """Scale vector observations by running mean and deviation, carried with the weights."""


class PolicyDescription(msgspec.Struct, frozen=True):
    """All that is needed, beside the tensors, to act."""

    algorithm: str
    head: Head
    spaces: Spaces
    network: NetworkSpec
    duelling: bool = False


class PolicyFacts(msgspec.Struct, frozen=True):
    """What travels with the tensors of one version."""

    run: str
    version: Version
    weights_sha256: str
    description: PolicyDescription
    roster: dict[int, int]
    """Slot → the first update (step) that expects a rollout of it."""
    environment_steps: int
    acting: dict[str, float] = {}
    """Settings of acting at this version, such as `epsilon`."""
    final: bool = False
    """Whether the run ended with this version."""
    published_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Policy:
    """One version: facts and tensors."""

    facts: PolicyFacts
    tensors: dict[str, Array]

    def encode(self) -> bytearray:
        weights = np.frombuffer(save({name: self.tensors[name] for name in sorted(self.tensors)}), np.uint8)
        return encode_columns(Schema.POLICY, self.facts, {"safetensors": weights})

    @classmethod
    def decode(cls, frame: Frame) -> "Policy":
        """Read a version and check its hash and that every number is finite."""
        facts, columns = decode_columns(frame, PolicyFacts)
        if "safetensors" not in columns:
            raise Damaged(f"version {facts.version} carries no weights")
        try:
            tensors = load(columns["safetensors"].tobytes())
        except SafetensorError as error:
            raise Damaged(f"the weights of version {facts.version} are not safetensors: {error}") from error
        if weights_sha256(tensors) != facts.weights_sha256:
            raise Damaged(f"the weights of version {facts.version} do not match their hash")
        if not all(np.isfinite(tensor).all() for tensor in tensors.values()):
            raise Damaged(f"the weights of version {facts.version} are not finite")
        return cls(facts, tensors)
