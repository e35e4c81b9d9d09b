"""Recorded vectors: what Python's policies give, for the C++ client to give too.

    python clients/cpp/tests/vectors.py        writes clients/cpp/tests/vectors/*.safetensors

One file a policy: its tensors, some observations and masks, and what came out. `description` lies in the
file's metadata. `tests/unit/test_cpp_vectors.py` fails where a file no longer says what Python says.
"""

from pathlib import Path

import msgspec
import numpy as np
from safetensors.numpy import save

from penstock.model import delta
from penstock.model.codec import Array
from penstock.model.policy import PolicyDescription
from penstock.model.spaces import ActionLayout, Column
from penstock.model.tensors import weights_sha256
from penstock.policy import heads, networks
from penstock.testing.policies import (
    BOX,
    ITEMS,
    ITEMS_AND_VECTOR,
    MANY,
    SIX,
    VECTOR,
    describe,
    observations_of,
    shaken,
)

FOLDER = Path(__file__).parent / "vectors"
ROWS = 8
IMAGE = {"observations": Column((12, 14, 3), "|u1")}
MIXED = {**VECTOR, "observations/camera": Column((12, 14, 3), "|u1")}
BODIES: dict[str, dict[str, Column]] = {"mlp": VECTOR, "cnn": IMAGE, "items": ITEMS}
HEADS: dict[str, ActionLayout] = {
    "categorical": SIX,
    "multi_categorical": MANY,
    "gaussian": BOX,
    "squashed_gaussian": BOX,
    "q": SIX,
    "duelling": SIX,
}
SMALL = {"hidden": (16, 12), "convolutions": ((4, 4, 2), (8, 3, 1))}


def descriptions() -> dict[str, PolicyDescription]:
    """Every body with every head it can have, and the ways a network can differ besides."""
    found = {}
    for body, columns in BODIES.items():
        for head, action in HEADS.items():
            if body == "items" and action is not SIX:
                continue  # chooses one of its items and nothing else
            found[f"{body}-{head}"] = _described(columns, head, action, body=body)
    scaled = {"normalize_observations": True}
    return found | {
        "mlp-relu": _described(VECTOR, "categorical", SIX, activation="relu"),
        "mlp-linear": _described(VECTOR, "categorical", SIX, hidden=()),
        "mlp-default": _described(VECTOR, "categorical", SIX, hidden=(64, 64)),
        "mlp-scaled": _described(VECTOR, "squashed_gaussian", BOX, **scaled),
        "mlp-of-image": _described(IMAGE, "categorical", SIX, body="mlp", hidden=(4,)),
        "cnn-mixed-scaled": _described(MIXED, "q", SIX, **scaled),
        "items-scaled": _described(ITEMS, "categorical", SIX, body="items", **scaled),
        "items-and-vector": _described(ITEMS_AND_VECTOR, "duelling", SIX, body="items", **scaled),
        "items-relu": _described(ITEMS_AND_VECTOR, "categorical", SIX, body="items", activation="relu"),
    }


def outcome(description: PolicyDescription, file: dict[str, Array]) -> dict[str, Array]:
    """What Python makes of a file's tensors, observations and masks."""
    tensors = {name: tensor for name, tensor in file.items() if name.startswith(("policy/", "normalizer/"))}
    columns = description.spaces.observation.columns
    observations = {name: file[f"seen/{name}"] for name in columns}
    outputs = networks.outputs(description, tensors, observations, np)
    masks = file["masks"].astype(np.bool_) if "masks" in file else None
    greedy = heads.greedy(description, outputs, masks, np)
    result = {"outputs": outputs, "greedy": greedy.astype("<f4" if masks is None else "<i4")}
    result["log_probs"] = heads.log_prob(description, outputs, file["actions"], masks, np)
    if masks is not None:
        parts = np.cumsum(description.spaces.action.sizes)[:-1]
        result["probabilities"] = np.concatenate(
            [
                _softmax(np.where(allowed, logits, heads.MASKED))
                for logits, allowed in zip(
                    np.split(outputs, parts, 1), np.split(masks, parts, 1), strict=True
                )
            ],
            1,
        )
    return {f"expected/{name}": np.ascontiguousarray(array) for name, array in result.items()}


def vector(description: PolicyDescription, seed: int) -> bytes:
    """One file, whole."""
    rng = np.random.default_rng(seed)
    file = shaken(networks.initial(description, rng))
    seen = observations_of(description, ROWS, seed)
    if description.network.body == "items":  # some places are empty
        rows = next(name for name, array in seen.items() if array.ndim == 3)
        seen[rows][:, 4:] = 0
    file |= {f"seen/{name}": array for name, array in seen.items()}
    action = description.spaces.action
    if action.kind == "box":
        low, high = np.array(action.low, np.float32), np.array(action.high, np.float32)
        file["actions"] = rng.uniform(low, high, (ROWS, *action.shape)).astype(np.float32)
    else:
        masks = rng.random((ROWS, action.choices)) < 0.6
        masks[0] = True
        chosen = np.stack([rng.integers(0, size, ROWS) for size in action.sizes], 1)
        starts = np.concatenate(([0], np.cumsum(action.sizes)[:-1]))
        for part, start in enumerate(starts):
            masks[np.arange(ROWS), start + chosen[:, part]] = True
        file |= {"masks": masks.astype(np.uint8)}
        file["actions"] = (chosen if action.kind == "multi_discrete" else chosen[:, 0]).astype(np.int32)
    tensors = {name: tensor for name, tensor in file.items() if name.startswith(("policy/", "normalizer/"))}
    file |= outcome(description, file)
    words = {
        "description": msgspec.json.encode(description).decode(),
        "weights_sha256": weights_sha256(tensors),
    }
    return save(file, words)


def delta_vector() -> bytes:
    """Two versions of all kinds of bits, and what Python says leads from one to the other."""
    rng = np.random.default_rng(0)
    strange = np.array(
        [0, 1 << 31, 1, 0x7F80_0000, 0xFF80_0000, 0x7FC0_0001, 0x7F7F_FFFF, 0xFFFF_FFFF], np.uint32
    )
    base = {
        "policy/output/weight": rng.standard_normal((16, 4)).astype(np.float32),
        "policy/output/bias": strange.view(np.float32),
        "policy/body/10/bias": rng.integers(0, 1 << 32, 32, np.uint32).view(np.float32),
        "policy/body/9/bias": np.empty((0, 3), np.float32),
    }
    moved = base["policy/output/weight"] + 1e-3 * rng.standard_normal((16, 4)).astype(np.float32)
    target = {**base, "policy/output/weight": moved.astype(np.float32)}
    target["policy/output/bias"] = strange[::-1].copy().view(np.float32)
    target["policy/body/10/bias"] = rng.integers(0, 1 << 32, 32, np.uint32).view(np.float32)
    file = {f"base/{name}": tensor for name, tensor in base.items()}
    file |= {f"target/{name}": tensor for name, tensor in target.items()}
    file["delta"] = np.frombuffer(delta.encode(base, target), np.uint8)
    return save(file, {"base_sha256": weights_sha256(base), "target_sha256": weights_sha256(target)})


def _described(
    columns: dict[str, Column], head: str, action: ActionLayout, **network: object
) -> PolicyDescription:
    settings = {**SMALL, **network}
    if head == "duelling":
        return describe(columns, "q", action, duelling=True, **settings)
    return describe(columns, head, action, **settings)  # type: ignore[arg-type]


def _softmax(logits: Array) -> Array:
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    result: Array = weights / weights.sum(-1, keepdims=True)
    return result


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for seed, (name, description) in enumerate(sorted(descriptions().items())):
        (FOLDER / f"{name}.safetensors").write_bytes(vector(description, seed))
    (FOLDER / "delta.safetensors").write_bytes(delta_vector())
