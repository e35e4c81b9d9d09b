"""Small policies of every kind, for tests."""

from typing import Any

import numpy as np

from penstock.model.codec import Array
from penstock.model.policy import Head, NetworkSpec, Policy, PolicyDescription, PolicyFacts
from penstock.model.spaces import ActionLayout, Column, Leaf, ObservationLayout, Spaces
from penstock.model.tensors import weights_sha256
from penstock.model.version import Version

VECTOR = {"observations": Column((5,), "<f4")}
IMAGE = {"observations": Column((20, 24, 3), "|u1")}
MIXED = {"observations": Column((5,), "<f4"), "observations/camera": Column((20, 24, 3), "|u1")}
ITEMS = {"observations": Column((6, 4), "<f4")}
ITEMS_AND_VECTOR = {"observations": Column((3,), "<f4"), "observations/jobs": Column((6, 4), "<f4")}
SIX = ActionLayout("discrete", (6,), (0,))
MANY = ActionLayout("multi_discrete", (3, 2), (0, 0))
BOX = ActionLayout("box", shape=(2,), low=(-2.0, -1.0), high=(2.0, 3.0))
CONVOLUTIONS = ((8, 4, 2), (16, 3, 1))
FIRST = Version(1, 0)


def describe(
    columns: dict[str, Column], head: Head, action: ActionLayout, duelling: bool = False, **network: Any
) -> PolicyDescription:
    """A policy over these columns, with convolutions that fit the small images here."""
    leaves = tuple(
        Leaf((), "box", name, 0, column.shape[0] if len(column.shape) == 1 else 0)
        for name, column in columns.items()
    )
    spec = NetworkSpec(**{"convolutions": CONVOLUTIONS, **network})
    return PolicyDescription("test", head, Spaces(ObservationLayout(columns, leaves), action), spec, duelling)


def observations_of(description: PolicyDescription, rows: int, seed: int = 0) -> dict[str, Array]:
    """Random observations with one leading axis."""
    rng = np.random.default_rng(seed)
    result: dict[str, Array] = {}
    for name, column in description.spaces.observation.columns.items():
        shape = (rows, *column.shape)
        if column.dtype == "|u1":
            result[name] = rng.integers(0, 256, shape, np.uint8)
        else:
            result[name] = rng.standard_normal(shape).astype(np.float32)
    return result


def shaken(tensors: dict[str, Array]) -> dict[str, Array]:
    """Tensors whose zero biases and small gains cannot hide an error."""
    rng = np.random.default_rng(1)
    result: dict[str, Array] = {}
    for name, tensor in tensors.items():
        noise = rng.standard_normal(tensor.shape)
        moved = np.abs(noise) + 0.5 if name.endswith("variance") else tensor + 0.3 * noise
        result[name] = moved.astype(np.float32)
    return result


def policy_of(run: str, tensors: dict[str, Array], version: Version = FIRST) -> Policy:
    """A version with these tensors, to be sent; nobody acts with it."""
    description = describe(VECTOR, "categorical", SIX)
    return Policy(PolicyFacts(run, version, weights_sha256(tensors), description, {0: 0}, 0), tensors)
