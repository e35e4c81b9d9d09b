"""From the feed's thread to all viewers: those who watch the same get the same frame, made once.

Reads from: control.feed. Writes to: viewers' queues.
"""

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from itertools import islice

from penstock.control.feed import Feed, Topic, concerns
from penstock.control.feed_ring import Message
from penstock.control.permissions import Principal
from penstock.errors import Denied, PenstockError
from penstock.server.live_protocol import batches, gap
from penstock.server.live_viewer import Frame, Viewer

SLICE = 64
"""Viewers served between two looks at other connections."""
MOST_WAITING = 8_192
"""Messages between the feed's thread and the loop; of more the oldest are dropped, and viewers get a gap."""
RECHECK_SECONDS = 2.0
"""How often tokens of viewers are looked at again."""
POLICY_VIOLATION = 1008


class Hub:
    """All viewers of one server. Used by one event loop; only `_hear` is called by the feed's thread."""

    def __init__(self, feed: Feed, authenticate: Callable[[str], Principal]) -> None:
        self.feed, self._authenticate = feed, authenticate
        self.seq = 0
        """The newest message that was told here."""
        self._viewers: set[Viewer] = set()
        self._groups: dict[frozenset[Topic], set[Viewer]] = {}
        self._holders: Counter[Topic] = Counter()
        self._held: frozenset[Topic] = frozenset()
        self._settling = asyncio.Lock()
        self._tasks: set[asyncio.Future[None]] = set()
        self._inbox: deque[Message] = deque(maxlen=MOST_WAITING)
        self._inbox_lock = threading.Lock()
        self._busy = False
        """Whether a delivery is scheduled or under way; what comes meanwhile is the next one's."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._deaf: Callable[[], None] | None = None
        self._recheck: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._viewers)

    def enter(self, viewer: Viewer) -> None:
        """A viewer that showed its token; it watches nothing yet."""
        if not self._viewers:
            self._begin()
        self._viewers.add(viewer)
        self.feed.viewers = len(self._viewers)

    async def leave(self, viewer: Viewer) -> None:
        """Forget a viewer, whatever it watched."""
        self._viewers.discard(viewer)
        self.feed.viewers = len(self._viewers)
        topics = viewer.topics
        self._move(viewer, frozenset())
        self._holders.subtract(topics)
        if not self._viewers:
            self._end()
        await self._settled()

    async def watch(self, viewer: Viewer, topics: frozenset[Topic]) -> None:
        """From the return on, the viewer gets all news of exactly these topics."""
        before = viewer.topics
        self._holders.update(topics - before)
        try:
            await self._settled()
        except BaseException:
            self._holders.subtract(topics - before)
            raise
        self._holders.subtract(before - topics)
        self._move(viewer, topics)
        if before - topics:
            await self._settled()

    def resume(self, viewer: Viewer, topics: frozenset[Topic], life: str, since: int) -> None:
        """Give a viewer what it missed of these topics since then, or a gap."""
        missed = self.feed.missed(life, since, topics)
        if missed is None:
            reason = (
                "what you missed is no longer kept"
                if life == self.feed.life
                else "the server was started anew"
            )
            viewer.reply(gap(self.feed.life, self.seq, topics, reason))
        else:
            here = [message for message in missed if message.seq <= self.seq]  # later ones are on their way
            viewer.offer(_frames(here), self.feed.life)

    # -- from the feed to the viewers ------------------------------------------------------------

    def _hear(self, messages: list[Message]) -> None:
        """Called by the feed's thread: hand over, once for all that waits."""
        with self._inbox_lock:
            self._inbox.extend(messages)
            scheduled, self._busy = self._busy, True
        if not scheduled and self._loop is not None:
            self._loop.call_soon_threadsafe(self._publish)

    def _publish(self) -> None:
        with self._inbox_lock:
            messages = [message for message in self._inbox if message.seq > self.seq]
            self._inbox.clear()
            self._busy = bool(messages)
        if not messages:
            return
        lost, self.seq = messages[0].seq != self.seq + 1, messages[-1].seq
        self._deliver(self._deliveries(messages, lost))

    def _deliveries(self, messages: list[Message], lost: bool) -> Iterator[tuple[Viewer, list[Frame]]]:
        """Who gets what; frames are made when the first of a group is served."""
        for topics, viewers in [(topics, list(viewers)) for topics, viewers in self._groups.items()]:
            frames = _frames([message for message in messages if concerns(message, topics)])
            if lost:
                note = gap(self.feed.life, messages[0].seq - 1, topics, "the server was busy")
                frames.insert(0, Frame(note, lost=topics))
            if frames:
                yield from ((viewer, frames) for viewer in viewers)

    def _deliver(self, deliveries: Iterator[tuple[Viewer, list[Frame]]]) -> None:
        """Serve some viewers, then let other connections have their turn, then go on."""
        served = 0
        for viewer, frames in islice(deliveries, SLICE):
            viewer.offer(frames, self.feed.life)
            served += 1
        loop = asyncio.get_running_loop()
        if served == SLICE:
            loop.call_soon(self._deliver, deliveries)
        else:
            loop.call_soon(self._publish)

    # -- bookkeeping -----------------------------------------------------------------------------

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._settling, self._busy = loop, asyncio.Lock(), False
        self._deaf = self.feed.listen(self._hear)
        self.seq = self.feed.seq  # nobody watches yet: what is on its way up to here can be had from the ring
        self._recheck = loop.create_task(self._recheck_tokens())

    def _end(self) -> None:
        if self._deaf is not None:
            self._deaf()
        if self._recheck is not None:
            self._recheck.cancel()

    def _move(self, viewer: Viewer, topics: frozenset[Topic]) -> None:
        group = self._groups.get(viewer.topics)
        if group is not None:
            group.discard(viewer)
            if not group:
                del self._groups[viewer.topics]
        viewer.topics = topics
        if topics:
            self._groups.setdefault(topics, set()).add(viewer)

    async def _settled(self) -> None:
        """Return once the feed follows what is held; goes on also when the one who asked is gone."""
        task = asyncio.ensure_future(self._settle())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(task)

    async def _settle(self) -> None:
        async with self._settling:
            wanted = frozenset(topic for topic, holders in self._holders.items() if holders > 0)
            await self._tell(self.feed.want, wanted - self._held)
            self._held |= wanted
            await self._tell(self.feed.release, self._held - wanted)
            self._held = wanted
            self._holders = +self._holders

    async def _tell(self, what: Callable[[frozenset[Topic]], None], topics: frozenset[Topic]) -> None:
        if topics:
            await asyncio.to_thread(what, topics)

    async def _recheck_tokens(self) -> None:
        """Send away whose token was revoked or expired."""
        while True:
            await asyncio.sleep(RECHECK_SECONDS)
            secrets = {viewer.secret for viewer in self._viewers}
            denied = await asyncio.to_thread(self._denied, secrets)
            for viewer in [viewer for viewer in self._viewers if viewer.secret in denied]:
                viewer.end(POLICY_VIOLATION, denied[viewer.secret])

    def _denied(self, secrets: set[str]) -> dict[str, str]:
        found = {}
        for secret in secrets:
            try:
                self._authenticate(secret)
            except Denied as error:
                found[secret] = str(error)
            except PenstockError:  # the database is away: asked again in a moment
                continue
        return found


def _frames(messages: list[Message]) -> list[Frame]:
    return [Frame(text, inside) for text, inside in batches(messages)]
