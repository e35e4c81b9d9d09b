"""The WebSocket /api/v1/watch: a policy at play, as pictures with facts. See docs/live.md."""

import contextlib
from typing import Protocol

from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketDisconnected

from penstock.control.plays import Plays
from penstock.control.reads import Reads
from penstock.server.greeting import Authenticate, Greeter
from penstock.server.live import Authority
from penstock.server.live_talk import Ended, close
from penstock.server.watch_talk import Watching

PATH = "/api/v1/watch"
MOST_WATCHERS = 64
"""Each may take 15 pictures a second."""


class Plane(Protocol):
    """The part of `Control` that is needed here."""

    @property
    def plays(self) -> Plays: ...
    @property
    def reads(self) -> Reads: ...
    @property
    def tokens(self) -> Authority: ...


def routes(control: Plane, authenticate: Authenticate, most: int = MOST_WATCHERS) -> list[BaseRoute]:
    """The route of pictures; `authenticate` is asked once for each connection."""
    return [WebSocketRoute(PATH, Watch(control, authenticate, most).serve, name="watch")]


class Watch:
    def __init__(self, control: Plane, authenticate: Authenticate, most: int) -> None:
        self._control, self._here = control, 0
        self._greeter = Greeter(authenticate, lambda: self._here, most)

    async def serve(self, websocket: WebSocket) -> None:
        """One connection, from its handshake to its end."""
        with contextlib.suppress(WebSocketDisconnect, WebSocketDisconnected):
            try:
                guest = await self._greeter.greet(websocket)
                if guest is not None:
                    await self._entertain(Watching(self._control, websocket, guest))
            except Ended as ended:
                await close(websocket, ended.code, ended.status, str(ended))

    async def _entertain(self, watching: Watching) -> None:
        self._here += 1
        try:
            await watching.run()
        finally:
            self._here -= 1
