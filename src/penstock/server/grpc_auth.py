"""Who calls: a bearer token in the metadata of every call, checked against the one table of permissions."""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from penstock.control.permissions import Principal, check
from penstock.control.tokens import Tokens
from penstock.errors import Denied
from penstock.server.rates import Buckets, Limits

OPERATIONS = {
    "Open": "open_policy",
    "Send": "send_experience",
    "Fetch": "fetch_policy",
    "Act": "act_remotely",
}
"""Method → what it needs in `control/permissions.py`."""
REFLECTION = "get_openapi"
"""To read how the service is called needs what reading the REST interface's description needs."""
LONGEST_SECRET = 256
KNOWN_SECONDS = 1.0
TRUSTED_SECONDS = 3600.0
"""A token that was right so lately is looked up again whatever its neighbours on the same address do."""
MOST_KNOWN = 4096

Metadata = Iterable[tuple[str, str | bytes]]


class Gatekeeper:
    """Turns metadata into principals; an address that shows too many wrong tokens has to wait."""

    def __init__(self, tokens: Tokens, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        self._tokens = tokens
        self._failures = Buckets(limits.failures_per_minute / 60, limits.failures_per_minute)
        self._known: OrderedDict[bytes, tuple[float, Principal]] = OrderedDict()
        self._looking = ThreadPoolExecutor(
            2, "tokens"
        )  # its own: who comes must not wait for what others store

    async def __call__(self, metadata: Metadata | None, peer: str, operation: str) -> Principal:
        """Who calls, if that may; raise Denied. `Unknown` where it is not known who it is."""
        secret = bearer(metadata or ())
        digest = hashlib.sha256(secret.encode("utf-8", "replace")).digest()
        principal = self._remembered(digest)
        if principal is None:
            address = peer.rpartition(":")[0]
            if not self._trusted(digest) and self._failures.wait(address):
                raise TooMany("too many wrong tokens came from your address; wait a little")
            try:
                loop = asyncio.get_running_loop()
                principal = await loop.run_in_executor(self._looking, self._tokens.authenticate, secret)
            except Denied as error:
                self._known.pop(digest, None)
                self._failures.take(address)
                raise Unknown(str(error)) from error
            self._known[digest] = (time.monotonic(), principal)
            self._known.move_to_end(digest)
            while len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)
        check(principal, operation)
        return principal

    def close(self) -> None:
        self._looking.shutdown(wait=False, cancel_futures=True)

    def _remembered(self, digest: bytes) -> Principal | None:
        """A token that was right a moment ago; one that was revoked since is found out a moment later."""
        known = self._known.get(digest)
        if known is None or time.monotonic() - known[0] > KNOWN_SECONDS:
            return None
        return known[1]

    def _trusted(self, digest: bytes) -> bool:
        known = self._known.get(digest)
        return known is not None and time.monotonic() - known[0] < TRUSTED_SECONDS


class TooMany(Denied):
    """Wrong tokens came too often; the same call may be right a little later."""


class Unknown(Denied):
    """Nobody knows who calls."""


def bearer(metadata: Metadata) -> str:
    """The secret in the one `authorization`; raise Unknown."""
    values = [value for name, value in metadata if name == "authorization"]
    if not values:
        raise Unknown(
            "no token; send the metadata authorization: Bearer pst_… (it is in PENSTOCK_HOME/token)"
        )
    scheme, _, secret = str(values[0]).partition(" ")
    secret = secret.strip()
    if len(values) > 1 or scheme.lower() != "bearer" or not 0 < len(secret) <= LONGEST_SECRET:
        raise Unknown("the authorization is not understood; it must be one, as in: Bearer pst_…")
    return secret
