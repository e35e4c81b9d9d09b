"""One viewer: a bounded queue of frames, and what happens when it does not keep up.

The server never waits for a viewer. One that is too slow loses metrics, logs and events and is told so by a gap;
states are kept, the newest of each run. One that stays too slow is sent away.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from penstock.control.feed import Topic
from penstock.control.feed_ring import Message
from penstock.control.permissions import Principal
from penstock.server.live_protocol import batches, gap

MOST_FRAMES = 16
MOST_BYTES = 1 << 20
"""What waits for one viewer at most; more is shed."""
MOST_REPLIES = 64
SLOW_SECONDS = 15.0
"""A viewer that did not catch up for so long is sent away."""
TRY_AGAIN_LATER = 1013

_KEPT = ("states", "removed")


@dataclass(frozen=True, slots=True)
class Frame:
    """Text as it is sent: messages, a gap, or, without both, an answer to this viewer alone."""

    text: str
    messages: list[Message] = field(default_factory=list)
    lost: frozenset[Topic] = frozenset()
    """What a gap is about."""


class Viewer:
    """Used by the event loop's thread only."""

    def __init__(self, principal: Principal, secret: str, send: Callable[[str], Awaitable[None]]) -> None:
        self.principal, self.secret = principal, secret
        self.topics: frozenset[Topic] = frozenset()
        self.ended: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
        """Why the server ends the conversation: a close code and a sentence."""
        self.shed = 0
        """Messages this viewer lost because it was slow."""
        self._send = send
        self._queue: deque[Frame] = deque()
        self._bytes = 0
        self._seq = 0
        """The newest message that was queued."""
        self._slow_since: float | None = None
        self._wake = asyncio.Event()

    def offer(self, frames: Iterable[Frame], life: str) -> None:
        """Queue frames; return at once."""
        for frame in frames:
            self._put(frame)
            self._seq = frame.messages[-1].seq if frame.messages else self._seq
        if len(self._queue) > MOST_FRAMES or self._bytes > MOST_BYTES:
            self._shed(life)
        self._wake.set()

    def reply(self, text: str) -> None:
        """Queue an answer to what it said; one that only talks and never reads is sent away."""
        self._put(Frame(text))
        if len(self._queue) > MOST_FRAMES + MOST_REPLIES:
            self._give_up()
        self._wake.set()

    def end(self, code: int, reason: str) -> None:
        """Let the conversation end; the first reason holds."""
        if not self.ended.done():
            self.ended.set_result((code, reason))

    async def write(self) -> None:
        """Send what is queued, for as long as the connection lives."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                frame = self._queue.popleft()
                self._bytes -= len(frame.text)
                await self._send(frame.text)
            self._slow_since = None

    def _put(self, frame: Frame) -> None:
        self._queue.append(frame)
        self._bytes += len(frame.text)

    def _shed(self, life: str) -> None:
        """Keep answers and the newest states, drop the rest, say so; or give up on this viewer."""
        now = time.monotonic()
        self._slow_since = self._slow_since or now
        if now - self._slow_since > SLOW_SECONDS:
            return self._give_up()
        replies = [frame for frame in self._queue if not frame.messages and not frame.lost]
        messages = [message for frame in self._queue for message in frame.messages]
        kept = _newest(messages)
        lost = {topic for frame in self._queue for topic in frame.lost} | _missing(messages, kept)
        self.shed += len(messages) - len(kept)
        note = gap(life, self._seq, lost, "you read too slowly")
        told = [Frame(note, lost=frozenset(lost))] if lost else []
        self._replace([*replies, *told, *(Frame(text, inside) for text, inside in batches(kept))])

    def _give_up(self) -> None:
        self._replace([])
        self.end(TRY_AGAIN_LATER, "too slow: what is sent to you is not read")

    def _replace(self, frames: list[Frame]) -> None:
        self._queue.clear()
        self._bytes = 0
        for frame in frames:
            self._put(frame)


def _newest(messages: list[Message]) -> list[Message]:
    """The last word on each run's state; nothing where even that is too much."""
    newest = {message.run: message for message in messages if message.kind in _KEPT}
    kept = sorted(newest.values(), key=lambda message: message.seq)
    return kept if sum(len(message.encoded) for message in kept) <= MOST_BYTES // 2 else []


def _missing(messages: list[Message], kept: list[Message]) -> set[Topic]:
    """The topics of which something is dropped; a state that a newer one replaces is not missed."""
    known = {message.run for message in kept}
    return {
        ("states" if message.kind in _KEPT else message.kind, message.run)
        for message in messages
        if not (message.kind in _KEPT and message.run in known)
    }
