"""The versions of one policy: the newest, what it changed, and who waits for the next.

Reads from: `model_updates.<run>`. One thread polls, many ask.
"""

import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec
from safetensors.numpy import save

from penstock.loop.policies import Subscriber
from penstock.model import delta
from penstock.model.policy import Policy
from penstock.model.version import NONE, Version
from penstock.stream.base import Stream

KEPT_BYTES = 64 << 20
"""Of older versions, to make deltas from."""
KEPT_VERSIONS = 64
CACHED_BYTES = 64 << 20
"""Of payloads that were made."""
LEVEL = 6

Kind = Literal["nothing", "delta", "whole"]


@dataclass(frozen=True, slots=True)
class Change:
    """What a client needs to have the newest version."""

    kind: Kind
    policy: Policy
    payload: bytes = b""
    raw_bytes: int = 0
    base: Policy | None = None


class Versions:
    def __init__(self, stream: Stream, run: str) -> None:
        self._subscriber = Subscriber(stream, run)
        self._subscriber.catch_up()  # what was handed out before a restart is here: versions never go back
        self._lock = threading.Lock()
        self._kept: OrderedDict[Version, Policy] = OrderedDict()
        self._made: OrderedDict[tuple[Version | None, Version], tuple[bytes, int]] = OrderedDict()
        self._making: dict[tuple[Version | None, Version], threading.Lock] = {}
        self._waiting: set[Callable[[], None]] = set()
        self._keep()

    @property
    def newest(self) -> Policy | None:
        return self._subscriber.newest

    @property
    def version(self) -> Version:
        return self._subscriber.version

    @property
    def loaded_after(self) -> float:
        return self._subscriber.loaded_after

    def poll(self, timeout: float) -> bool:
        """Look for a newer version, up to `timeout` seconds; those who wait are told."""
        if not self._subscriber.poll(timeout):
            return False
        self._keep()
        with self._lock:
            waiting = list(self._waiting)
        for wake in waiting:
            wake()
        return True

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake`, from another thread, at each new version, until what is returned is called."""
        with self._lock:
            self._waiting.add(wake)

        def enough() -> None:
            with self._lock:
                self._waiting.discard(wake)

        return enough

    def change(self, have: Version, sha256: str) -> Change | None:
        """What turns the version a client has into the newest; None while there is none at all."""
        newest = self.newest
        if newest is None:
            return None
        if have >= newest.facts.version:
            return Change("nothing", newest)
        with self._lock:
            base = self._kept.get(have)
        whole, raw = self._payload(None, newest)
        if (
            base is not None
            and base.facts.weights_sha256 == sha256
            and delta.fits(base.tensors, newest.tensors)
        ):
            difference, _ = self._payload(base, newest)
            if len(difference) < len(whole):
                return Change("delta", newest, difference, raw, base)
        return Change("whole", newest, whole, raw)

    def close(self) -> None:
        """Ends polling; what is kept to make deltas from is let go."""
        self._subscriber.close()
        with self._lock:
            self._kept.clear()
            self._made.clear()

    def _keep(self) -> None:
        policy = self.newest
        if policy is None:
            return
        with self._lock:
            self._kept[policy.facts.version] = policy
            while len(self._kept) > 2 and (
                len(self._kept) > KEPT_VERSIONS or self._kept_bytes() > KEPT_BYTES
            ):
                self._kept.popitem(last=False)

    def _kept_bytes(self) -> int:
        return sum(tensor.nbytes for policy in self._kept.values() for tensor in policy.tensors.values())

    def _payload(self, base: Policy | None, newest: Policy) -> tuple[bytes, int]:
        """Squeezed bytes and the size of the file that comes out; made once, however many ask at once."""
        key = (None if base is None else base.facts.version, newest.facts.version)
        with self._lock:
            if key in self._made:
                return self._made[key]
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                if key in self._made:
                    return self._made[key]
            whole = save({name: newest.tensors[name] for name in sorted(newest.tensors)})
            squeezed = (
                zlib.compress(whole, LEVEL) if base is None else delta.encode(base.tensors, newest.tensors)
            )
            with self._lock:
                self._made[key] = (squeezed, len(whole))
                self._making.pop(key, None)
                while (
                    len(self._made) > 2 and sum(len(made) for made, _ in self._made.values()) > CACHED_BYTES
                ):
                    self._made.popitem(last=False)
            return squeezed, len(whole)


def described(policy: Policy) -> str:
    """The description as clients read it."""
    return msgspec.json.encode(policy.facts.description).decode()


__all__ = ["NONE", "Change", "Versions", "described"]
