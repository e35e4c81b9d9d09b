"""Pictures for viewers: how they are framed, how fast they come, and that only the newest waits."""

import asyncio
import threading
from itertools import pairwise

import numpy as np
import pytest

from penstock.control import plays
from penstock.errors import Conflict, Damaged
from penstock.executors.local import LocalExecutor
from penstock.loop.pacing import Pace
from penstock.loop.pictures import MAX_WIDTH, jpeg
from penstock.loop.runs import RunFolder
from penstock.loop.watch_frames import HEADER, MOST_FACTS, MOST_PICTURE, Messages, Shown, encode, number
from penstock.server.live_talk import Ended
from penstock.server.live_viewer import MOST_REPLIES
from penstock.server.watch_talk import Slot

# -- frames ---------------------------------------------------------------------------------------


def test_messages_come_out_whole_however_they_are_cut():
    told = [Shown(state="playing", version="1.2", step=step, returns=(1.0, None)) for step in range(3)]
    stream = b"".join(encode(shown, bytes([65 + shown.step]) * 100 * shown.step) for shown in told)
    for size in (1, 7, 64, len(stream)):
        messages, found = Messages(), []
        for begin in range(0, len(stream), size):
            found += list(messages.feed(stream[begin : begin + size]))
        assert [shown for shown, _ in found] == told
        assert b"".join(whole for _, whole in found) == stream


@pytest.mark.parametrize(
    "content",
    [
        HEADER.pack(MOST_FACTS + 1, 0),
        HEADER.pack(2, MOST_PICTURE + 1) + b"{}",
        HEADER.pack(0xFFFFFFFF, 0xFFFFFFFF),
        HEADER.pack(2, 0) + b"{}",
        HEADER.pack(4, 0) + b"\xff\xfe\xfd\xfc",
        HEADER.pack(19, 0) + b'{"state":"dancing"}',
        HEADER.pack(9000, 0) + b"[" * 9000,
    ],
)
def test_what_is_no_message_is_damaged_and_nothing_is_kept_for_it(content):
    with pytest.raises(Damaged):
        list(Messages().feed(content))


def test_a_picture_that_is_too_large_is_left_out_with_the_reason():
    ((shown, whole),) = Messages().feed(encode(Shown(state="playing"), b"x" * (MOST_PICTURE + 1)))
    assert "can be shown" in shown.words
    assert len(whole) < 1000


def test_long_words_are_cut_and_odd_numbers_are_none():
    ((shown, _),) = Messages().feed(encode(Shown(state="failed", words="é" * 50_000)))
    assert len(shown.words) < 3000
    assert [number(value) for value in (1.5, float("nan"), float("inf"))] == [1.5, None, None]


def test_a_picture_is_made_small_and_keeps_its_shape():
    picture, width, height = jpeg(np.zeros((800, 1200, 3), np.uint8))
    assert picture[:3] == b"\xff\xd8\xff"
    assert (width, height) == (MAX_WIDTH, 320)
    assert jpeg(np.zeros((64, 32, 3), np.uint8))[1:] == (32, 64)


# -- pace -----------------------------------------------------------------------------------------


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        assert seconds > 0
        self.now += seconds


def shown_at(steps_per_second, steps, work=0.0):
    """When each shown step of an episode came, with so many seconds of work before each step."""
    clock = Clock()
    pace, found = Pace(steps_per_second, clock=clock, sleep=clock.sleep), {}
    for step in range(steps + 1):
        clock.now += work
        if pace.shows(step, ended=step == steps):
            pace.wait(step)
            found[step] = clock.now - 100.0
    return found


@pytest.mark.parametrize("steps_per_second", [4.0, 15.0, 30.0, 50.0, 60.0, 1000.0])
def test_an_episode_plays_at_its_own_speed_with_at_most_fifteen_pictures_a_second(steps_per_second):
    found = shown_at(steps_per_second, steps := int(steps_per_second * 4))
    times = list(found.values())
    assert all(later - earlier > 1 / 15.001 for earlier, later in pairwise(times))
    assert found[steps] - found[0] == pytest.approx(4.0, abs=0.15)


def test_one_that_is_late_does_not_hurry_after():
    times = list(shown_at(30.0, 60, work=0.2).values())
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert min(gaps) > 1 / 15.001


def test_a_new_episode_begins_at_once():
    clock = Clock()
    pace = Pace(10.0, clock=clock, sleep=clock.sleep)
    pace.wait(500)
    before = clock.now
    pace.wait(0)
    assert clock.now - before == pytest.approx(1 / 15)


# -- plays ----------------------------------------------------------------------------------------


def test_one_who_comes_while_a_play_ends_keeps_it_going(tmp_path):
    heard = []
    all_plays = plays.Plays(tmp_path, LocalExecutor())
    folder = RunFolder(tmp_path, "pole")
    play = plays.Play(folder, "live", 1.0, LocalExecutor(), all_plays._retire, left_at=-1e9)
    all_plays._plays["pole", "live"] = play
    assert play.over, "nobody has watched it for long"
    leave = all_plays.join("pole", "live", heard.append)  # after its thread looked and before it ends
    assert not play.retire(play)
    leave()
    play.left_at = -1e9
    assert play.retire(play)
    with pytest.raises(Conflict):  # it is not joined any more: another would begin
        all_plays.join("pole", "live", heard.append)


def test_whoever_watches_a_play_that_is_ended_is_told(tmp_path, monkeypatch):
    heard = []
    all_plays = plays.Plays(tmp_path, LocalExecutor())
    play = plays.Play(RunFolder(tmp_path, "pole"), "live", 1.0, LocalExecutor(), all_plays._retire)
    play.listeners.append(heard.append)
    monkeypatch.setattr(plays.Play, "run", lambda self: None)
    all_plays._run(play, ("pole", "live"))
    ((shown, _),) = Messages().feed(heard[0])
    assert shown.state == "failed"
    assert "watch it again" in shown.words


# -- one viewer -----------------------------------------------------------------------------------


def test_of_many_pictures_a_slow_viewer_gets_the_newest_and_all_answers():
    async def story():
        slot = Slot(asyncio.get_running_loop())
        slot.reply("one")
        thread = threading.Thread(target=lambda: [slot.offer(b"%d" % count) for count in range(1000)])
        thread.start()
        thread.join()
        slot.reply("two")
        first = await slot.take()
        slot.offer(b"later")
        return first, await slot.take()

    first, second = asyncio.run(asyncio.wait_for(story(), 10))
    assert first == ["one", "two", b"999"]
    assert second == [b"later"]


def test_what_is_no_longer_watched_is_not_shown_and_answers_are_bounded():
    async def story():
        slot = Slot(asyncio.get_running_loop())
        slot.offer(b"old")
        slot.empty()
        slot.reply("switched")
        taken = await slot.take()
        for _ in range(MOST_REPLIES):
            slot.reply("more")
        with pytest.raises(Ended):
            slot.reply("one too many")
        return taken

    assert asyncio.run(asyncio.wait_for(story(), 10)) == ["switched"]
