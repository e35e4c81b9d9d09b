"""What somebody who watches says, and how pictures reach them: the newest, whatever they missed before it."""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import msgspec
from starlette.websockets import WebSocket

from penstock.control import permissions
from penstock.errors import Denied, PenstockError
from penstock.loop.watching import LIVE
from penstock.server.greeting import Guest
from penstock.server.live_hub import POLICY_VIOLATION, RECHECK_SECONDS
from penstock.server.live_protocol import Ping, Run, Words, told, trouble
from penstock.server.live_talk import Ended, Manners, hear_text
from penstock.server.live_viewer import MOST_REPLIES, SLOW_SECONDS, TRY_AGAIN_LATER
from penstock.server.problems import status_of

if TYPE_CHECKING:
    from penstock.server.watch import Plane

OPERATION = "watch_play"


class Watch(Words, frozen=True, kw_only=True):
    """From here on show this; what was shown before ends."""

    run: Run
    source: Annotated[str, msgspec.Meta(max_length=64)] = LIVE
    """`live`, `best`, `newest` or EPOCH.STEP."""


class Unwatch(Words, frozen=True, kw_only=True):
    """Show nothing for now."""


_DECODER: msgspec.json.Decoder[Watch | Unwatch | Ping] = msgspec.json.Decoder(Watch | Unwatch | Ping)


class Watching:
    """One connection."""

    def __init__(self, plane: "Plane", websocket: WebSocket, guest: Guest) -> None:
        self._plane, self._websocket, self._guest = plane, websocket, guest
        self._manners = Manners()
        self._leave: Callable[[], None] = lambda: None
        self._slot = Slot(asyncio.get_running_loop())

    async def run(self) -> None:
        """Until one of both ends it; raise Ended where it was the server."""
        who = self._guest.principal
        self._slot.reply(told("welcome", name=who.name, role=who.role))
        tasks = [asyncio.ensure_future(part()) for part in (self._listen, self._show, self._recheck)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._part()
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def _listen(self) -> None:
        while True:
            text = await hear_text(self._websocket)
            self._manners.said()
            try:
                await self._obey(_DECODER.decode(text))
            except msgspec.ValidationError as error:
                self._slot.reply(self._manners.fault(422, str(error)))
            except (msgspec.DecodeError, RecursionError) as error:
                self._slot.reply(self._manners.fault(400, f"that is not JSON: {error}"))

    async def _obey(self, said: Watch | Unwatch | Ping) -> None:
        if isinstance(said, Ping):
            return self._slot.reply(told("pong", id=said.id))
        self._part()
        if isinstance(said, Unwatch):
            return self._slot.reply(told("unwatched", id=said.id))
        try:
            permissions.check(self._guest.principal, OPERATION)
            source = await asyncio.to_thread(self._source, said)
            self._slot.reply(told("watching", run=said.run, source=source, id=said.id))
            self._leave = await self._join(said.run, source)
        except PenstockError as error:
            self._slot.reply(trouble(status_of(error), str(error), said.id))

    async def _join(self, run: str, source: str) -> Callable[[], None]:
        """Join; one who is gone meanwhile must not leave a seat taken."""
        joining = asyncio.ensure_future(
            asyncio.to_thread(self._plane.plays.join, run, source, self._slot.offer)
        )
        try:
            return await asyncio.shield(joining)
        except asyncio.CancelledError:
            joining.add_done_callback(_leave_at_once)
            raise

    def _source(self, said: Watch) -> str:
        """Blocks; raise NotFound for a run or checkpoint that is not there."""
        if said.source == LIVE:
            self._plane.reads.spec(said.run)
            return LIVE
        return self._plane.reads.checkpoint_file(said.run, said.source).name

    def _part(self) -> None:
        self._leave()
        self._leave = lambda: None
        self._slot.empty()

    async def _show(self) -> None:
        while True:
            for message in await self._slot.take():
                try:
                    async with asyncio.timeout(SLOW_SECONDS):
                        if isinstance(message, bytes):
                            await self._websocket.send_bytes(message)
                        else:
                            await self._websocket.send_text(message)
                except TimeoutError as error:
                    raise Ended(TRY_AGAIN_LATER, 503, "too slow for even one picture; come back") from error

    async def _recheck(self) -> None:
        """Send away whose token was revoked or expired."""
        while True:
            await asyncio.sleep(RECHECK_SECONDS)
            try:
                await asyncio.to_thread(self._plane.tokens.authenticate, self._guest.secret)
            except Denied as error:
                raise Ended(POLICY_VIOLATION, 401, str(error)) from error
            except PenstockError:  # the database is away: asked again in a moment
                continue


class Slot:
    """Between a play's thread and one connection: answers in order, and of pictures the newest alone."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._lock = loop, threading.Lock()
        self._picture: bytes | None = None
        self._replies: deque[str] = deque()
        self._wake, self._woken = asyncio.Event(), False

    def offer(self, picture: bytes) -> None:
        """Called by the play's thread: take the place of the one before."""
        with self._lock:
            self._picture = picture
            woken, self._woken = self._woken, True
        if not woken:
            with contextlib.suppress(RuntimeError):  # the server has ended
                self._loop.call_soon_threadsafe(self._wake.set)

    def reply(self, text: str) -> None:
        """Queue an answer; raise Ended for one who only talks and never reads."""
        self._replies.append(text)
        if len(self._replies) > MOST_REPLIES:
            raise Ended(TRY_AGAIN_LATER, 503, "too many answers wait to be read")
        self._wake.set()

    def empty(self) -> None:
        """Forget the picture: it is of what is no longer watched."""
        with self._lock:
            self._picture = None

    async def take(self) -> list[str | bytes]:
        """Wait for something to send."""
        await self._wake.wait()
        self._wake.clear()
        with self._lock:
            picture, self._picture, self._woken = self._picture, None, False
        taken: list[str | bytes] = [*self._replies]
        self._replies.clear()
        return taken if picture is None else [*taken, picture]


def _leave_at_once(joining: "asyncio.Future[Callable[[], None]]") -> None:
    if not joining.cancelled() and joining.exception() is None:
        joining.result()()
