"""Fetching: a version arrives whole or as a delta, is checked, and becomes tensors."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock import proto
from penstock.client import description as descriptions
from penstock.client.description import Description
from penstock.errors import Damaged, NotFound
from penstock.model import delta
from penstock.model.tensors import Array, read_safetensors, weights_sha256
from penstock.model.version import Version

MAX_BYTES = 256 << 20
"""Of one version; a larger policy is for remote inference."""


@dataclass(frozen=True, slots=True)
class Held:
    """A version as it lies here: never changed, only replaced."""

    version: Version
    sha256: str
    tensors: Mapping[str, Array]
    description: Description
    acting: Mapping[str, float]


class NotThisDelta(Damaged):
    """A delta that does not apply here; the whole version is asked for next."""


def receive(replies: Iterable[Any], held: Held | None) -> Held | None:
    """The version that came, or None where there is nothing newer; raise Damaged where it does not hold.

    Raises NotFound where what is held is of another run than the gateway's: it must be opened again.
    """
    stream = iter(replies)
    first = next(stream, None)
    if first is None:
        return None
    version = Version(first.version.epoch, first.version.step)
    if held is not None and first.HasField("version") and _of_another_run(first, version, held):
        raise NotFound(f"{held.version} is here, but the newest version is {version}, of another run")
    if first.kind in (proto.FetchReply.NOTHING, proto.FetchReply.UNSPECIFIED):
        return None
    if held is not None and version <= held.version:
        return None
    payload = _payload(first, stream)
    if first.kind == proto.FetchReply.DELTA:
        tensors = _applied(first, payload, held)
    else:
        tensors = read_safetensors(_unsqueezed(payload, first.raw_bytes))
    if weights_sha256(tensors) != first.weights_sha256:
        kind = NotThisDelta if first.kind == proto.FetchReply.DELTA else Damaged
        raise kind(f"version {version} arrived with other weights than its hash says")
    if not all(np.isfinite(tensor).all() for tensor in tensors.values()):
        raise Damaged(f"version {version} has weights that are not finite")
    if held is not None and not first.description:
        return Held(version, first.weights_sha256, tensors, held.description, dict(first.acting))
    described = descriptions.read(first.description)
    return Held(version, first.weights_sha256, tensors, described, dict(first.acting))


def _of_another_run(first: Any, version: Version, held: Held) -> bool:
    """Versions of one run only grow, and each has one content."""
    if version == held.version:
        return bool(first.weights_sha256) and first.weights_sha256 != held.sha256
    return version < held.version


def _payload(first: Any, rest: Iterator[Any]) -> bytes:
    size = first.payload_bytes
    if size > MAX_BYTES or first.raw_bytes > MAX_BYTES:
        raise Damaged(f"a version of {max(size, first.raw_bytes)} bytes is too large; use inference: remote")
    payload = bytearray(first.part)
    while len(payload) < size:
        reply = next(rest, None)
        if reply is None or not reply.part:
            raise Damaged(f"a version ended after {len(payload)} of {size} bytes")
        payload += reply.part
    if len(payload) != size:
        raise Damaged(f"a version has {len(payload)} bytes where {size} were announced")
    return bytes(payload)


def _applied(first: Any, payload: bytes, held: Held | None) -> dict[str, Array]:
    base = Version(first.base.epoch, first.base.step)
    if held is None or held.version != base or held.sha256 != first.base_sha256:
        raise NotThisDelta(f"a delta on {base} arrived, but {held.version if held else 'nothing'} is here")
    try:
        return delta.apply(held.tensors, payload)
    except Damaged as error:
        raise NotThisDelta(str(error)) from error


def _unsqueezed(payload: bytes, size: int) -> bytes:
    squeezed = zlib.decompressobj()
    try:
        content = squeezed.decompress(payload, size + 1)
    except zlib.error as error:
        raise Damaged(f"a version cannot be unpacked: {error}") from error
    if len(content) != size or not squeezed.eof:
        raise Damaged(f"a version unpacks to {len(content)} bytes where {size} were announced")
    return content
