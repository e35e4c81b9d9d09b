"""A viewer's queue: bounded, honest about what it dropped, and never waited for."""

import asyncio
import json

import pytest

from penstock.control.feed import ALL, Feed
from penstock.control.feed_ring import Ring
from penstock.control.permissions import Principal, Role
from penstock.server import live_hub, live_viewer
from penstock.server.live_hub import Hub
from penstock.server.live_protocol import FRAME_BYTES, batches
from penstock.server.live_viewer import MOST_FRAMES, MOST_REPLIES, Frame, Viewer

SOMEONE = Principal("someone", Role.VIEWER)


class Line:
    """A connection that takes frames only while it is open."""

    def __init__(self):
        self.sent, self.open = [], asyncio.Event()

    async def send(self, text):
        await self.open.wait()
        self.sent.append(json.loads(text))


def news(ring, kind, run="one", **body):
    return [Frame(text, inside) for text, inside in batches(ring.add([(kind, run, body)]))]


async def drained(viewer, line):
    line.open.set()
    writer = asyncio.ensure_future(viewer.write())
    await asyncio.sleep(0.05)
    writer.cancel()
    return line.sent


@pytest.mark.parametrize("frames", [1, MOST_FRAMES])
def test_one_that_keeps_up_gets_everything_in_order(frames):
    async def story():
        line, ring = Line(), Ring()
        viewer = Viewer(SOMEONE, "", line.send)
        for _ in range(frames):
            viewer.offer(news(ring, "metrics"), "life")
        return await drained(viewer, line)

    sent = asyncio.run(story())
    assert [batch["seq"] for batch in sent] == list(range(1, frames + 1))


def test_one_that_falls_behind_keeps_answers_and_the_newest_states_and_is_told_of_the_rest():
    async def story():
        line, ring = Line(), Ring()
        viewer = Viewer(SOMEONE, "", line.send)
        viewer.reply('{"type":"pong"}')
        for step in range(MOST_FRAMES):
            viewer.offer(news(ring, "states", steps=step) + news(ring, "metrics"), "life")
        assert viewer.shed > 0
        return await drained(viewer, line)

    pong, gap, *rest = asyncio.run(story())
    assert pong == {"type": "pong"}
    assert (gap["type"], gap["kinds"], gap["runs"]) == ("gap", ["metrics"], ["one"])
    states = [message for batch in rest for message in batch["messages"] if message["kind"] == "states"]
    assert states[-1]["steps"] == MOST_FRAMES - 1
    assert len(rest) <= MOST_FRAMES


def test_one_that_stays_behind_is_sent_away(monkeypatch):
    monkeypatch.setattr(live_viewer, "SLOW_SECONDS", 0.05)

    async def story():
        line, ring = Line(), Ring()
        viewer = Viewer(SOMEONE, "", line.send)
        while not viewer.ended.done():
            viewer.offer(news(ring, "metrics", text="x" * 100_000), "life")
            await asyncio.sleep(0.005)
        return viewer.ended.result()

    assert asyncio.run(story())[0] == 1013


def test_one_that_catches_up_is_forgiven(monkeypatch):
    monkeypatch.setattr(live_viewer, "SLOW_SECONDS", 0.2)

    async def story():
        line, ring = Line(), Ring()
        viewer = Viewer(SOMEONE, "", line.send)
        for _ in range(4):
            for _ in range(MOST_FRAMES + 1):
                viewer.offer(news(ring, "metrics"), "life")
            await drained(viewer, line)
            await asyncio.sleep(0.1)
        return viewer.ended.done()

    assert asyncio.run(story()) is False


def test_one_that_only_talks_is_sent_away():
    async def story():
        viewer = Viewer(SOMEONE, "", Line().send)
        for _ in range(MOST_FRAMES + MOST_REPLIES + 1):
            viewer.reply("{}")
        return viewer.ended.result()

    assert asyncio.run(story())[0] == 1013


def test_a_long_batch_comes_in_pieces():
    ring = Ring()
    messages = ring.add(("logs", "one", {"text": "x" * 100_000}) for _ in range(7))
    frames = batches(messages)
    assert all(len(text) < FRAME_BYTES + 1000 for text, _ in frames)
    assert [message for _, inside in frames for message in inside] == messages
    assert [message["seq"] for text, _ in frames for message in json.loads(text)["messages"]] == list(
        range(1, 8)
    )
    assert batches([]) == []


def test_a_loop_that_stood_still_gets_the_newest_and_tells_of_a_gap(tmp_path, monkeypatch):
    monkeypatch.setattr(live_hub, "MOST_WAITING", 10)

    async def story():
        line = Line()
        feed = Feed(tmp_path)
        hub, viewer = Hub(feed, lambda secret: SOMEONE), Viewer(SOMEONE, "", line.send)
        hub.enter(viewer)
        await hub.watch(viewer, frozenset({("metrics", ALL)}))
        for _ in range(25):  # the feed goes on while nothing is handed over
            hub._hear(feed._ring.add([("metrics", "one", {})]))
        for _ in range(5):
            await asyncio.sleep(0)
        sent = await drained(viewer, line)
        await hub.leave(viewer)
        feed.close()
        return sent

    gap, batch = asyncio.run(story())
    assert (gap["type"], gap["seq"], gap["kinds"], gap["runs"]) == ("gap", 15, ["metrics"], "*")
    assert [message["seq"] for message in batch["messages"]] == list(range(16, 26))


def test_those_who_watch_the_same_get_the_very_same_text(tmp_path):
    async def story():
        feed = Feed(tmp_path)
        hub = Hub(feed, lambda secret: SOMEONE)
        sent = [[] for _ in range(200)]

        def line(place):
            async def send(text):
                sent[place].append(text)

            return send

        viewers = [Viewer(SOMEONE, "", line(place)) for place in range(200)]
        writers = [asyncio.ensure_future(viewer.write()) for viewer in viewers]
        for viewer in viewers:
            hub.enter(viewer)
            await hub.watch(viewer, frozenset({("metrics", ALL)}))
        for _ in range(3):
            hub._hear(feed._ring.add([("metrics", "one", {}), ("logs", "one", {})]))
            await asyncio.sleep(0.02)
        for writer, viewer in zip(writers, viewers, strict=True):
            writer.cancel()
            await hub.leave(viewer)
        feed.close()
        return sent

    sent = asyncio.run(story())
    assert all(len(texts) == 3 for texts in sent)
    for turn in range(3):
        assert len({id(texts[turn]) for texts in sent}) == 1
        assert [message["kind"] for message in json.loads(sent[0][turn])["messages"]] == ["metrics"]
