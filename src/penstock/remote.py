"""The running server, as commands of this machine use it: REST with the owner's token.

PENSTOCK_SERVER and PENSTOCK_TOKEN name another one, PENSTOCK_CA whom to believe that it is it.
"""

import os
import time
import uuid
from pathlib import Path
from typing import Any

from penstock.errors import ConfigError, Conflict, Denied, NotFound, PenstockError, Unavailable

BY_STATUS: dict[int, type[PenstockError]] = {
    400: ConfigError, 401: Denied, 403: Denied, 404: NotFound, 409: Conflict, 412: Conflict, 413: ConfigError,
    415: ConfigError, 422: ConfigError, 429: Unavailable, 503: Unavailable,
}  # fmt: skip
PATIENCE_SECONDS = 15.0
"""A server that is just being started again is waited for; the key makes sure that nothing happens twice."""


class Remote:
    """One server."""

    def __init__(self, address: str, token: str) -> None:
        import httpx2

        self.address = address
        self._client = httpx2.Client(
            verify=_certificates(address),
            base_url=f"{address}/api/v1", headers={"Authorization": f"Bearer {token}"}, timeout=60.0,
            trust_env=False,
        )  # fmt: skip

    def get(self, path: str, **params: Any) -> Any:
        """What the server answers; raise what it refuses, in its words."""
        wanted = {name: value for name, value in params.items() if value is not None}
        response = self._call("GET", path, params=wanted)
        return response.json() if response.content else None

    def download(self, path: str) -> bytes:
        """A file, whole."""
        return bytes(self._call("GET", path).content)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Ask for a change, once, however often it must be sent."""
        response = self._call(method, path, json=body, headers={"Idempotency-Key": uuid.uuid4().hex})
        return response.json() if response.content else None

    def _call(self, method: str, path: str, **request: Any) -> Any:
        import httpx2

        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                response = self._client.request(method, path, **request)
                break
            except httpx2.TransportError as error:
                if time.monotonic() > until:
                    raise Unavailable(
                        f"the server at {self.address} does not answer ({error}); start it again: penstock up"
                    ) from error
                time.sleep(0.2)
        if response.is_success:
            return response
        raise _refusal(response)


def server(home: Path) -> Remote | None:
    """The server that commands should use: the one PENSTOCK_SERVER names, or this machine's own if it runs."""
    address = os.environ.get("PENSTOCK_SERVER")
    if address is None:
        from penstock.loop.presence import server_of

        presence = server_of(home)
        if presence is None:
            return None
        address = presence.address
    return Remote(address.rstrip("/"), token(home))


def token(home: Path) -> str:
    """What this user shows to servers."""
    if said := os.environ.get("PENSTOCK_TOKEN"):
        return said
    try:
        return (home / "token").read_text().strip()
    except OSError as error:
        raise ConfigError(f"set PENSTOCK_TOKEN; {home / 'token'} cannot be read: {error.strerror}") from error


def _certificates(address: str) -> Any:
    """Whom to believe; loading that costs a quarter of a second, so only where there is TLS at all."""
    if not address.startswith("https:"):
        return False
    import ssl

    try:
        return ssl.create_default_context(cafile=os.environ.get("PENSTOCK_CA"))
    except OSError as error:
        raise ConfigError(f"PENSTOCK_CA names no certificates: {error}") from error


def _refusal(response: Any) -> PenstockError:
    try:
        problem = response.json()
        words = problem.get("detail") or problem.get("title") or response.reason_phrase
        errors = problem.get("errors") or []
        details = "; ".join(
            str(item.get("detail", item)) if isinstance(item, dict) else str(item) for item in errors
        )
        words = f"{words}: {details}" if details and details not in words else words
    except (ValueError, AttributeError):
        words = f"the server answered {response.status_code}"
    return BY_STATUS.get(response.status_code, PenstockError)(words)
