"""What changed between two versions of the same tensors, bit for bit, in few bytes.

A float32's bits, read so that neighbouring numbers are neighbouring integers, move little in one update. So a
delta is, over all tensors in the order of their names: the integer differences (modulo 2³²), folded so that small
ones of either sign have leading zeros, ordered by the exponents of the numbers they change (who has the base knows
them; like numbers move alike), their four bytes laid out as four planes, most significant first, and squeezed with
zlib, each plane with codes of its own. The C++ client does the same (`clients/cpp`).
"""

import zlib
from collections.abc import Mapping

import numpy as np

from penstock.errors import Damaged
from penstock.model.tensors import Array

SIGN = np.uint32(0x8000_0000)


def fits(base: Mapping[str, Array], target: Mapping[str, Array]) -> bool:
    """Whether a delta between them exists: same names and shapes, all float32."""
    return base.keys() == target.keys() and all(
        base[name].shape == tensor.shape and base[name].dtype == tensor.dtype == np.float32
        for name, tensor in target.items()
    )


def encode(base: Mapping[str, Array], target: Mapping[str, Array]) -> bytes:
    """What turns `base` into `target`; they must fit."""
    flat = _flat(base)
    difference = (_ordered(_flat(target)) - _ordered(flat))[_by_exponent(flat)]
    folded = (difference << np.uint32(1)) ^ np.where(difference & SIGN, np.uint32(0xFFFF_FFFF), np.uint32(0))
    planes = folded.astype(">u4").view(np.uint8).reshape(-1, 4).T
    # without the flush all planes would share one Huffman code, and the random ones would spoil it
    squeezer = zlib.compressobj(9, strategy=zlib.Z_FILTERED)
    parts = [squeezer.compress(plane.tobytes()) + squeezer.flush(zlib.Z_FULL_FLUSH) for plane in planes]
    return b"".join(parts) + squeezer.flush()


def apply(base: Mapping[str, Array], delta: bytes) -> dict[str, Array]:
    """The tensors that `delta` turns `base` into; raise Damaged where it does not belong to them."""
    flat = _flat(base)
    squeezed = zlib.decompressobj()
    try:
        planes = squeezed.decompress(delta, flat.nbytes + 1)
    except zlib.error as error:
        raise Damaged(f"a delta cannot be unpacked: {error}") from error
    if len(planes) != flat.nbytes or not squeezed.eof or squeezed.unused_data:
        raise Damaged(f"a delta has {len(planes)} bytes where the tensors have {flat.nbytes}")
    bytes_ = np.frombuffer(planes, np.uint8).reshape(4, -1).T
    folded = np.ascontiguousarray(bytes_).view(">u4")[:, 0].astype(np.uint32)
    half, odd = folded >> np.uint32(1), folded & np.uint32(1)
    difference = half ^ np.where(odd, np.uint32(0xFFFF_FFFF), np.uint32(0))
    ordered = _ordered(flat)
    ordered[_by_exponent(flat)] += difference  # each place once: it is a permutation
    result = _numbers(ordered)
    tensors, at = {}, 0
    for name in sorted(base):
        size = base[name].size
        tensors[name] = result[at : at + size].reshape(base[name].shape)
        at += size
    return tensors


def _flat(tensors: Mapping[str, Array]) -> Array:
    return np.concatenate([np.ravel(tensors[name]) for name in sorted(tensors)] or [np.empty(0, np.float32)])


def _by_exponent(numbers: Array) -> Array:
    exponents = (np.ascontiguousarray(numbers, "<f4").view(np.uint32) >> np.uint32(23)).astype(np.uint8)
    return np.argsort(exponents, kind="stable")


def _ordered(numbers: Array) -> Array:
    """Integers in the order of the numbers: negative ones have all bits turned, others only the sign."""
    bits = np.ascontiguousarray(numbers, "<f4").view(np.uint32)
    return np.where(bits & SIGN, ~bits, bits | SIGN)


def _numbers(ordered: Array) -> Array:
    bits: Array = np.where(ordered & SIGN, ordered & ~SIGN, ~ordered)
    return bits.astype(np.uint32).view(np.float32)
