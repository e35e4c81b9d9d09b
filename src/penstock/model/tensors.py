"""Named tensors as bytes, with NumPy alone: what a client without our other packages needs."""

import hashlib
import json
import struct
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from penstock.errors import Damaged

Array = np.ndarray[Any, np.dtype[Any]]
MAX_HEADER = 1 << 20
_TYPES = {"F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8", "U8": "u1", "BOOL": "?"}


def weights_sha256(tensors: Mapping[str, Array]) -> str:
    """A hash of the sorted tensors (name, type, shape, bytes) and nothing else."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        digest.update(name.encode() + b"\0" + array.dtype.newbyteorder("<").str.encode())
        digest.update(struct.pack(f"<{array.ndim + 1}q", array.ndim, *array.shape))
        digest.update(array.tobytes())
    return digest.hexdigest()


def read_safetensors(content: bytes) -> dict[str, Array]:
    """The tensors of a safetensors file, as read-only views; raise Damaged where it does not hold."""
    try:
        (length,) = struct.unpack_from("<Q", content)
        if length > min(MAX_HEADER, len(content) - 8):
            raise Damaged(f"a safetensors header claims {length} bytes")
        header = json.loads(content[8 : 8 + length])
        header.pop("__metadata__", None)
        return {name: _tensor(content, 8 + length, name, facts) for name, facts in header.items()}
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(f"these are not safetensors: {error}") from error


def _tensor(content: bytes, start: int, name: str, facts: Mapping[str, Any]) -> Array:
    dtype, shape = np.dtype(_TYPES[facts["dtype"]]), tuple(int(size) for size in facts["shape"])
    begin, end = facts["data_offsets"]
    count = prod(shape)
    if not 0 <= begin <= end <= len(content) - start or min(shape, default=0) < 0:
        raise Damaged(f"the tensor {name} lies outside its file")
    if end - begin != count * dtype.itemsize:
        raise Damaged(f"the tensor {name} has {end - begin} bytes, its shape {shape} says otherwise")
    return np.frombuffer(content, dtype, count, start + begin).reshape(shape)
