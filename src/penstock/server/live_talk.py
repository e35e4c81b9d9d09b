"""What a known viewer says, what becomes of it, and how a conversation ends."""

import asyncio
import contextlib
import time
from typing import Any

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketDisconnected

from penstock.control import permissions
from penstock.control.feed import ALL, KINDS, Topic
from penstock.control.permissions import Principal
from penstock.errors import Conflict, NotFound, PenstockError
from penstock.server.live_hub import POLICY_VIOLATION, Hub
from penstock.server.live_protocol import (
    MOST_BYTES,
    Ping,
    Said,
    Subscribe,
    Unsubscribe,
    decode,
    told,
    trouble,
)
from penstock.server.live_viewer import TRY_AGAIN_LATER, Viewer
from penstock.server.problems import status_of

MOST_TOPICS = 256
"""Kinds × runs one viewer may watch."""
CLOSE_SECONDS = 2.0
MOST_FAULTS = 5
"""Messages of a viewer that make no sense before it is sent away."""
MOST_SAID, SAID_SECONDS = 100, 10.0
"""Messages a viewer may send in so many seconds."""

UNSUPPORTED, INVALID, TOO_BIG = 1003, 1007, 1009


class Ended(Exception):
    """The server ends a conversation."""

    def __init__(self, code: int, status: int, reason: str) -> None:
        super().__init__(reason)
        self.code, self.status = code, status


class Manners:
    """How much a viewer may say, and how much nonsense."""

    def __init__(self) -> None:
        self._faults = 0
        self._said, self._window = 0, time.monotonic()

    def said(self) -> None:
        """Count a message; raise Ended for one who says too much."""
        now = time.monotonic()
        if now - self._window > SAID_SECONDS:
            self._said, self._window = 0, now
        self._said += 1
        if self._said > MOST_SAID:
            raise Ended(POLICY_VIOLATION, 429, f"more than {MOST_SAID} messages in {SAID_SECONDS:g} s")

    def fault(self, status: int, detail: str) -> str:
        """The answer to nonsense; raise Ended once it is too much."""
        self._faults += 1
        if self._faults >= MOST_FAULTS:
            raise Ended(INVALID, status, f"{detail}; that was one too many")
        return trouble(status, detail)


class Conversation:
    """What a known viewer says, and what becomes of it."""

    def __init__(
        self,
        hub: Hub,
        websocket: WebSocket,
        principal: Principal,
        secret: str,
        seen: tuple[str | None, int | None],
    ) -> None:
        self._hub, self._websocket, self._seen = hub, websocket, seen
        self._viewer = Viewer(principal, secret, websocket.send_text)
        self._manners = Manners()

    async def run(self) -> None:
        viewer, hub = self._viewer, self._hub
        hub.enter(viewer)
        viewer.reply(self._welcome())
        tasks: list[asyncio.Future[Any]]
        tasks = [asyncio.ensure_future(self._listen()), asyncio.ensure_future(viewer.write())]
        try:
            await asyncio.wait([*tasks, viewer.ended], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            await hub.leave(viewer)
        if viewer.ended.done():
            code, reason = viewer.ended.result()
            return await close(self._websocket, code, 503 if code == TRY_AGAIN_LATER else 401, reason)
        for end in ends:
            if isinstance(end, Ended):
                await close(self._websocket, end.code, end.status, str(end))
            elif isinstance(end, Exception) and not isinstance(
                end, WebSocketDisconnect | WebSocketDisconnected
            ):
                raise end

    def _welcome(self) -> str:
        who = self._viewer.principal
        kinds = [
            kind for kind, operation in KINDS.items() if permissions.NEEDED[operation].rank <= who.role.rank
        ]
        return told(
            "welcome", feed=self._hub.feed.life, seq=self._hub.seq, name=who.name, role=who.role, kinds=kinds
        )

    async def _listen(self) -> None:
        while True:
            try:
                said = await hear(self._websocket)
                self._manners.said()
                await self._obey(said)
                await asyncio.sleep(0)  # the answer may go out before the next message is heard
            except msgspec.ValidationError as error:
                self._viewer.reply(self._manners.fault(422, str(error)))
            except msgspec.DecodeError as error:
                self._viewer.reply(self._manners.fault(400, f"that is not JSON: {error}"))

    async def _obey(self, said: Said) -> None:
        try:
            if isinstance(said, Subscribe):
                await self._subscribe(said)
            elif isinstance(said, Unsubscribe):
                await self._watch(
                    frozenset(topic for topic in self._viewer.topics if not said.concerns(topic)), said
                )
            elif isinstance(said, Ping):
                self._viewer.reply(told("pong", seq=self._hub.seq, id=said.id))
            else:
                self._seen = (said.feed, said.since)
        except PenstockError as error:
            self._viewer.reply(trouble(status_of(error), str(error), said.id))

    async def _subscribe(self, said: Subscribe) -> None:
        asked = said.topics()
        for kind in said.kinds:
            permissions.check(self._viewer.principal, KINDS[kind])
        for run in {run for _, run in asked if run != ALL}:
            if not self._hub.feed.knows(run):
                raise NotFound(f"there is no run {run!r}; GET /api/v1/runs lists them")
        await self._watch(self._viewer.topics | asked, said)
        (life, since), self._seen = self._seen, (None, None)
        if said.since is not None:
            life, since = said.feed, said.since
        if since is not None:
            self._hub.resume(self._viewer, asked, life or "", since)

    async def _watch(self, topics: frozenset[Topic], said: Said) -> None:
        if len(topics) > MOST_TOPICS:
            raise Conflict(
                f'one connection may watch {MOST_TOPICS} kinds × runs; take runs: "*" for all runs'
            )
        await self._hub.watch(self._viewer, topics)
        watched: dict[str, list[str]] = {}
        for kind, run in sorted(topics):
            watched.setdefault(kind, []).append(run)
        feed, seq = self._hub.feed.life, self._hub.seq
        self._viewer.reply(told("subscribed", feed=feed, seq=seq, topics=watched, id=said.id))


async def hear(websocket: WebSocket) -> Said:
    """The next message of a viewer of the feed; raise DecodeError for one that makes no sense."""
    return decode(await hear_text(websocket))


async def hear_text(websocket: WebSocket) -> str:
    """The next message, not yet understood."""
    message = await websocket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1005), message.get("reason"))
    text = message.get("text")
    if text is None:
        raise Ended(UNSUPPORTED, 400, "messages are text, in JSON")
    if len(text) > MOST_BYTES:
        raise Ended(TOO_BIG, 413, f"a message has at most {MOST_BYTES:,} bytes")
    return str(text)


async def close(websocket: WebSocket, code: int, status: int, reason: str) -> None:
    """Say why and close; one that does not even read that is left behind."""
    with contextlib.suppress(TimeoutError, WebSocketDisconnect, WebSocketDisconnected):
        async with asyncio.timeout(CLOSE_SECONDS):
            await websocket.send_text(trouble(status, reason))
            await websocket.close(code, reason.encode()[:120].decode(errors="ignore"))
