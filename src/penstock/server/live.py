"""The WebSocket /api/v1/live: metrics, states, logs and events of runs, by subscription. See docs/live.md."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec
from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketDisconnected

from penstock.control.feed import Feed
from penstock.control.permissions import Principal
from penstock.errors import Denied
from penstock.server.auth import TooMany
from penstock.server.live_hub import POLICY_VIOLATION, Hub
from penstock.server.live_protocol import MOST_BYTES, Hello
from penstock.server.live_talk import Conversation, Ended, close, hear
from penstock.server.live_viewer import TRY_AGAIN_LATER
from penstock.server.problems import problem

PATH = "/api/v1/live"
PROTOCOL, BEARER = "penstock.v1", "bearer."
"""Subprotocols: ours, and the one that carries a token."""
MOST_VIEWERS = 2_000
MOST_STRANGERS = 100
"""Connections that have not shown a token yet."""
HELLO_SECONDS = 5.0

UVICORN: dict[str, Any] = {"ws_max_size": MOST_BYTES, "ws_per_message_deflate": False}
"""What the web server must be told: no message is larger, and nothing is compressed anew for each viewer."""

Authenticate = Callable[[HTTPConnection, str], Awaitable[Principal]]


class Authority(Protocol):
    """Knows tokens: `control.tokens`."""

    def authenticate(self, secret: str) -> Principal: ...


class Plane(Protocol):
    """The part of `Control` that is needed here."""

    @property
    def feed(self) -> Feed: ...
    @property
    def tokens(self) -> Authority: ...


def routes(control: Plane, authenticate: Authenticate, most_viewers: int = MOST_VIEWERS) -> list[BaseRoute]:
    """The route of the feed; `authenticate` is asked once for each connection."""
    live = Live(Hub(control.feed, control.tokens.authenticate), authenticate, most_viewers)
    return [WebSocketRoute(PATH, live.serve, name="live")]


def tune(listener: socket.socket) -> None:
    """Bound what the kernel keeps for a viewer that does not read, and for how long; connections inherit it."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 256 << 10)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)


class Live:
    def __init__(self, hub: Hub, authenticate: Authenticate, most_viewers: int) -> None:
        self._hub, self._authenticate, self._most_viewers = hub, authenticate, most_viewers
        self._strangers = 0

    async def serve(self, websocket: WebSocket) -> None:
        """One connection, from its handshake to its end."""
        with contextlib.suppress(WebSocketDisconnect, WebSocketDisconnected):
            try:
                conversation = await self._greet(websocket)
            except Ended as ended:
                return await close(websocket, ended.code, ended.status, str(ended))
            if conversation is not None:
                await conversation.run()

    async def _greet(self, websocket: WebSocket) -> "Conversation | None":
        """Find out who it is; None where the handshake was refused."""
        secret = offered(websocket)
        if secret is not None:
            try:
                principal = await self._authenticate(websocket, secret)
            except Denied as error:
                await websocket.send_denial_response(problem(websocket.scope, _status(error), str(error)))
                return None
        await websocket.accept(PROTOCOL if PROTOCOL in websocket.scope["subprotocols"] else None)
        self._refuse_too_many()
        since, feed = _since(websocket)
        if secret is None:
            hello = await self._hello(websocket)
            secret, since, feed = hello.token or "", hello.since, hello.feed
            try:
                principal = await self._authenticate(websocket, secret)
            except Denied as error:
                raise Ended(POLICY_VIOLATION, _status(error), str(error)) from error
            self._refuse_too_many()  # others may have come meanwhile
        return Conversation(self._hub, websocket, principal, secret, (feed, since))

    def _refuse_too_many(self) -> None:
        if len(self._hub) >= self._most_viewers:
            raise Ended(TRY_AGAIN_LATER, 503, f"this server has its {self._most_viewers} viewers; try later")

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


def _since(websocket: WebSocket) -> tuple[int | None, str | None]:
    since = websocket.query_params.get("since", "")
    return int(since) if since.isdecimal() and len(since) < 16 else None, websocket.query_params.get("feed")


def _status(error: Denied) -> int:
    return 429 if isinstance(error, TooMany) else 401
