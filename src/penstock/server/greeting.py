"""Who comes through a WebSocket: a token in a header, in a subprotocol or in the first message, never in the URL."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec
from starlette.requests import HTTPConnection
from starlette.websockets import WebSocket

from penstock.control.permissions import Principal
from penstock.errors import Denied
from penstock.server.auth import TooMany
from penstock.server.live_hub import POLICY_VIOLATION
from penstock.server.live_protocol import Hello
from penstock.server.live_talk import Ended, hear
from penstock.server.live_viewer import TRY_AGAIN_LATER
from penstock.server.problems import problem

PROTOCOL, BEARER = "penstock.v1", "bearer."
"""Subprotocols: ours, and the one that carries a token."""
MOST_STRANGERS = 100
"""Connections that have not shown a token yet."""
HELLO_SECONDS = 5.0

Authenticate = Callable[[HTTPConnection, str], Awaitable[Principal]]


@dataclass(frozen=True, slots=True)
class Guest:
    """Somebody whose token is right."""

    principal: Principal
    secret: str
    hello: Hello | None
    """Where the token came with it."""


class Greeter:
    """Finds out who it is; `authenticate` is asked once for each connection."""

    def __init__(self, authenticate: Authenticate, count: Callable[[], int], most: int) -> None:
        self._authenticate, self._count, self._most = authenticate, count, most
        self._strangers = 0

    async def greet(self, websocket: WebSocket) -> Guest | None:
        """Accept a connection whose token is right; None where the handshake was refused, Ended where it went on."""
        secret, hello = offered(websocket), None
        if secret is not None:
            try:
                principal = await self._authenticate(websocket, secret)
            except Denied as error:
                await websocket.send_denial_response(problem(websocket.scope, _status(error), str(error)))
                return None
        await websocket.accept(PROTOCOL if PROTOCOL in websocket.scope["subprotocols"] else None)
        self._refuse_too_many()
        if secret is None:
            hello = await self._hello(websocket)
            secret = hello.token or ""
            try:
                principal = await self._authenticate(websocket, secret)
            except Denied as error:
                raise Ended(POLICY_VIOLATION, _status(error), str(error)) from error
            self._refuse_too_many()  # others may have come meanwhile
        return Guest(principal, secret, hello)

    def _refuse_too_many(self) -> None:
        if self._count() >= self._most:
            raise Ended(TRY_AGAIN_LATER, 503, f"this server has its {self._most} viewers; try later")

    async def _hello(self, websocket: WebSocket) -> Hello:
        if self._strangers >= MOST_STRANGERS:
            raise Ended(TRY_AGAIN_LATER, 503, "too many connections have not shown a token yet; try again")
        self._strangers += 1
        try:
            said = await asyncio.wait_for(hear(websocket), HELLO_SECONDS)
        except TimeoutError as error:
            raise Ended(POLICY_VIOLATION, 401, f"no hello with a token within {HELLO_SECONDS:g} s") from error
        except msgspec.DecodeError as error:
            raise Ended(
                POLICY_VIOLATION, 401, f"the first message must be a hello with a token: {error}"
            ) from error
        finally:
            self._strangers -= 1
        if not isinstance(said, Hello) or said.token is None:
            raise Ended(POLICY_VIOLATION, 401, 'say first: {"type": "hello", "token": "pst_…"}')
        return said


def offered(websocket: WebSocket) -> str | None:
    """The token in the handshake's headers; None where it comes with a hello."""
    header = websocket.headers.get("authorization", "")
    if header[:7].lower() == "bearer ":
        return header[7:].strip()
    words = [word for word in websocket.scope["subprotocols"] if word.startswith(BEARER)]
    return str(words[0]).removeprefix(BEARER) if words else None


def _status(error: Denied) -> int:
    return 429 if isinstance(error, TooMany) else 401
