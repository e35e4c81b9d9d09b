"""The WebSocket /api/v1/live: metrics, states, logs and events of runs, by subscription. See docs/live.md."""

import contextlib
import socket
from typing import Any, Protocol

from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketDisconnected

from penstock.control.feed import Feed
from penstock.control.permissions import Principal
from penstock.server.greeting import Authenticate, Greeter
from penstock.server.live_hub import Hub
from penstock.server.live_protocol import MOST_BYTES
from penstock.server.live_talk import Conversation, Ended, close

PATH = "/api/v1/live"
MOST_VIEWERS = 2_000

UVICORN: dict[str, Any] = {"ws_max_size": MOST_BYTES, "ws_per_message_deflate": False}
"""What the web server must be told: no message is larger, and nothing is compressed anew for each viewer."""


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
        self._hub, self._greeter = hub, Greeter(authenticate, lambda: len(hub), most_viewers)

    async def serve(self, websocket: WebSocket) -> None:
        """One connection, from its handshake to its end."""
        with contextlib.suppress(WebSocketDisconnect, WebSocketDisconnected):
            try:
                guest = await self._greeter.greet(websocket)
            except Ended as ended:
                return await close(websocket, ended.code, ended.status, str(ended))
            if guest is not None:
                since, feed = _since(websocket)
                if guest.hello is not None:
                    since, feed = guest.hello.since, guest.hello.feed
                await Conversation(self._hub, websocket, guest.principal, guest.secret, (feed, since)).run()


def _since(websocket: WebSocket) -> tuple[int | None, str | None]:
    since = websocket.query_params.get("since", "")
    return int(since) if since.isdecimal() and len(since) < 16 else None, websocket.query_params.get("feed")
