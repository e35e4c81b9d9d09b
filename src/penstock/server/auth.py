"""Who asks: a bearer token on every request, checked before anything else is done with it."""

import hashlib
import math
from collections import OrderedDict
from urllib.parse import parse_qsl

from anyio import CapacityLimiter, to_thread
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.control.permissions import Principal
from penstock.control.tokens import Tokens
from penstock.errors import Denied
from penstock.server.problems import problem
from penstock.server.rates import Buckets, Limits
from penstock.server.refusal import refuse

OPEN = frozenset({"/api/v1/health"})
"""Paths that need no token."""
SOCKETS = frozenset({"/api/v1/live", "/api/v1/watch"})
"""A browser cannot send headers with a WebSocket, so these may show their token in their first message."""
SECRET_WORDS = frozenset({"token", "access_token", "api_key", "authorization", "bearer"})
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="penstock"'}
MOST_KNOWN = 1024
LONGEST_SECRET = 256
LOOKING = 4
"""Tokens looked at at once."""


class TooMany(Denied):
    """Too many wrong tokens came from one address."""

    def __init__(self, seconds: float) -> None:
        super().__init__("too many wrong tokens came from your address; wait a little")
        self.seconds = math.ceil(seconds)


class Gate:
    """Turns secrets into principals; an address that shows too many wrong ones has to wait."""

    def __init__(self, tokens: Tokens, limits: Limits) -> None:
        self._tokens = tokens
        per_second = limits.failures_per_minute / 60
        self._failures = Buckets(per_second, limits.failures_per_minute)
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._looking = CapacityLimiter(LOOKING)  # its own: who comes must not wait for what others read

    async def __call__(self, connection: HTTPConnection, secret: str) -> Principal:
        """Whose `secret` this is; raise Denied."""
        address = connection.client.host if connection.client else ""
        digest = hashlib.sha256(secret.encode("utf-8", "replace")).digest()
        if digest not in self._known and (seconds := self._failures.wait(address)):
            raise TooMany(seconds)
        try:
            principal = await to_thread.run_sync(self._tokens.authenticate, secret, limiter=self._looking)
        except Denied:
            self._known.pop(digest, None)
            self._failures.take(address)
            raise
        self._remember(digest)
        return principal

    def _remember(self, digest: bytes) -> None:
        """A token that was right is looked at even when its address has to wait."""
        self._known[digest] = None
        self._known.move_to_end(digest)
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)


class Authentication:
    """Middleware: puts the principal into `request.state`, or refuses; counts what each token asks."""

    def __init__(self, app: ASGIApp, gate: Gate, limits: Limits) -> None:
        self._app, self._gate = app, gate
        self._reads = Buckets(limits.reads_per_second, limits.reads_per_second * limits.burst_seconds)
        self._writes = Buckets(limits.writes_per_second, limits.writes_per_second * limits.burst_seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or (scope["type"] == "http" and scope["path"] in OPEN):
            return await self._app(scope, receive, send)
        if (refused := await self._refused(scope)) is not None:
            return await refuse(refused, scope, receive, send)
        await self._app(scope, receive, send)

    async def _refused(self, scope: Scope) -> Response | None:
        connection = HTTPConnection(scope)
        if tells_secret(scope):
            detail = (
                "a token in a URL ends up in logs and histories: send it as the header "
                "Authorization: Bearer pst_…, and revoke this one if it was real"
            )
            return problem(scope, 400, detail)
        if (
            scope["type"] == "websocket"
            and scope["path"] in SOCKETS
            and "authorization" not in connection.headers
        ):
            return None
        try:
            principal = await self._gate(connection, bearer(connection.headers))
        except TooMany as error:
            return problem(scope, 429, str(error), {"Retry-After": str(error.seconds)})
        except Denied as error:
            return problem(scope, 401, str(error), CHALLENGE)
        scope["state"]["principal"] = principal
        return self._over(scope, principal)

    def _over(self, scope: Scope, principal: Principal) -> Response | None:
        """The refusal of one request too many; the live feed has bounds of its own."""
        if scope["type"] == "websocket":
            return None
        reading = scope["method"] in ("GET", "HEAD")
        seconds = (self._reads if reading else self._writes).take(principal.token or principal.name)
        if not seconds:
            return None
        what = "reads" if reading else "writes"
        return problem(
            scope,
            429,
            f"too many {what} with this token; wait a little",
            {"Retry-After": str(math.ceil(seconds))},
        )


def bearer(headers: Headers) -> str:
    """The secret in the one Authorization header; raise Denied."""
    values = headers.getlist("authorization")
    if not values:
        raise Denied(
            "no token; send the header Authorization: Bearer pst_… (penstock up prints the first one)"
        )
    scheme, _, secret = values[0].partition(" ")
    secret = secret.strip()
    if len(values) > 1 or scheme.lower() != "bearer" or not 0 < len(secret) <= LONGEST_SECRET:
        raise Denied("the Authorization header is not understood; it must be one, as in: Bearer pst_…")
    return secret


def tells_secret(scope: Scope) -> bool:
    """Whether the query holds a token."""
    query = scope.get("query_string", b"")
    if not query:
        return False
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    return any(name.lower() in SECRET_WORDS or value.startswith("pst_") for name, value in pairs)
