"""The feed: told once a tick, encoded once, resumed from a number, honest about gaps."""

import json
import shutil
import subprocess
import sys
import time

import msgspec
import pytest

from penstock import config
from penstock.control.feed import ALL, Feed, concerns
from penstock.control.feed_ring import Message, Ring
from penstock.control.feed_watch import MOST_LINES, POINTS
from penstock.loop.files import append_line
from penstock.loop.processes import identify
from penstock.loop.runs import RunFolder
from penstock.model.run import RunState

EVERYTHING = [(kind, ALL) for kind in ("states", "metrics", "logs", "events")]


class Listener:
    """Collects what the feed tells."""

    def __init__(self):
        self.batches = []

    def __call__(self, messages):
        self.batches.append([json.loads(message.encoded) for message in messages])

    def of(self, kind):
        return [message for batch in list(self.batches) for message in batch if message["kind"] == kind]

    def wait(self, kind, count=1, seconds=5.0):
        until = time.monotonic() + seconds
        while len(self.of(kind)) < count:
            assert time.monotonic() < until, f"no {count} messages of {kind}: {self.batches}"
            time.sleep(0.005)
        return self.of(kind)


@pytest.fixture
def run(tmp_path):
    return RunFolder.create(tmp_path, config.resolve("CartPole-v1"), "one")


@pytest.fixture
def feed(tmp_path):
    feed = Feed(tmp_path, tick_seconds=0.02)
    yield feed
    feed.close()


@pytest.fixture
def heard(feed):
    listener = Listener()
    feed.listen(listener)
    return listener


def report(run, steps, **values):
    append_line(run.metrics_file, {"steps": steps, "seconds": 0.5, "time": time.time(), **values})


def become(run, state, **fields):
    run.save_status(msgspec.structs.replace(run.stored_status(), state=RunState(state), **fields))


def test_a_state_is_told_with_the_fields_a_list_shows(run, feed, heard):
    feed.want([("states", ALL)])
    become(run, "running", steps=70, mean_return=2.5)
    [message] = heard.wait("states")
    assert (message["run"], message["state"], message["steps"]) == ("one", "running", 70)
    assert (message["project"], message["tags"]) == ("default", [])
    assert "keeper" not in message
    assert message["seq"] == feed.seq == 1


def test_what_happened_before_is_not_told(run, feed, heard):
    report(run, 1)
    run.append_event("old")
    feed.want(EVERYTHING)
    report(run, 2, loss=0.5)
    [message] = heard.wait("metrics")
    assert message["columns"]["steps"] == [2]
    assert message["columns"]["loss"] == [0.5]
    assert heard.of("events") == heard.of("states") == []


def test_only_what_somebody_wants_is_told(run, feed, heard):
    feed.want([("events", "one")])
    report(run, 1)
    become(run, "running")
    run.append_event("actor_restarted", process="actor-0", slot=0)
    [message] = heard.wait("events")
    assert message["events"][0]["event"] == "actor_restarted"
    assert message["events"][0]["fields"] == {"slot": 0}
    assert heard.of("metrics") == heard.of("states") == []


def test_many_reports_in_one_tick_become_one_message_with_the_newest(run, feed, heard):
    feed.want([("metrics", ALL)])
    lines = b"".join(b'{"steps":%d}\n' % steps for steps in range(1, 101))
    with run.metrics_file.open("ab", buffering=0) as file:
        file.write(lines)
    [message] = heard.wait("metrics")
    assert message["total"] == 100
    assert message["columns"]["steps"] == [25, 50, 75, 100]
    assert len(message["columns"]["steps"]) == POINTS


def test_a_report_without_a_number_has_null_there(run, feed, heard):
    feed.want([("metrics", ALL)])
    with run.metrics_file.open("ab") as file:
        file.write(b'{"steps":1,"a":1.0}\nnonsense\n[]\n{"steps":2,"b":0.123456789012}\n{"steps":3,"to')
    [message] = heard.wait("metrics")
    assert message["columns"]["a"] == [1.0, None]
    assert message["columns"]["b"] == [None, 0.1234568]


def test_log_lines_are_told_by_process_and_bounded(run, feed, heard):
    run.log_file("learner").write_text("before\n")
    feed.want([("logs", "one")])
    with run.log_file("learner").open("a") as file:
        file.write("after\nunfinished")
    whole = run.path / "whole"  # appears at once, so that one tick sees all of it
    whole.write_text("".join(f"line {index}\n" for index in range(MOST_LINES + 7)))
    whole.rename(run.log_file("actor-0"))
    told, until = {}, time.monotonic() + 5
    while told.keys() != {"learner", "actor-0"}:
        assert time.monotonic() < until
        for message in heard.wait("logs"):
            told.update(message["processes"])
    assert told["learner"]["lines"] == ["after"]
    assert len(told["actor-0"]["lines"]) == MOST_LINES
    assert told["actor-0"]["skipped"] == 7
    assert told["actor-0"]["lines"][-1] == f"line {MOST_LINES + 6}"


def test_a_new_run_is_told_from_its_beginning_and_a_removed_one_once(tmp_path, feed, heard):
    feed.want(EVERYTHING)
    run = RunFolder.create(tmp_path, config.resolve("CartPole-v1"), "two")
    report(run, 1)
    feed.changed("two")
    assert heard.wait("states")[0]["run"] == "two"
    assert heard.wait("metrics")[0]["columns"]["steps"] == [1]
    shutil.rmtree(run.path)
    assert [message["run"] for message in heard.wait("removed")] == ["two"]
    time.sleep(0.1)
    assert len(heard.of("removed")) == 1


def test_a_dead_keeper_is_noticed_without_any_write(run, feed, heard):
    keeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    become(run, "running", keeper=identify(keeper.pid))
    feed.want([("states", ALL)])
    keeper.kill()
    keeper.communicate()
    assert heard.wait("states")[-1]["state"] == "interrupted"


def test_a_damaged_run_hides_no_other(tmp_path, run, feed, heard):
    other = RunFolder.create(tmp_path, config.resolve("CartPole-v1"), "other")
    feed.want(EVERYTHING)
    other.state_file.write_bytes(b"{")
    other.metrics_file.write_bytes(b"\xff\xfe\n" + b"[" * 100_000 + b"\n")
    become(run, "running")
    assert heard.wait("states")[0]["run"] == "one"
    assert feed.faults == 0


def test_one_who_comes_back_gets_exactly_what_it_missed(run, feed, heard):
    topics = [("metrics", "one")]
    feed.want(topics)
    for steps in (1, 2, 3):
        report(run, steps)
        heard.wait("metrics", steps)
    seen = heard.of("metrics")[0]["seq"]
    feed.release(topics)
    report(run, 4)
    heard.wait("metrics", 4)  # still warm
    missed = feed.missed(feed.life, seen, topics)
    assert [json.loads(message.encoded)["columns"]["steps"] for message in missed] == [[2], [3], [4]]
    assert feed.missed(feed.life, feed.seq, topics) == []


def test_what_cannot_be_had_any_more_is_a_gap(run, feed, heard):
    feed.want([("metrics", "one")])
    report(run, 1)
    heard.wait("metrics")
    assert feed.missed("another life", 1, [("metrics", "one")]) is None
    assert feed.missed(feed.life, 99, [("metrics", "one")]) is None
    assert feed.missed(feed.life, 0, [("logs", "one")]) is None  # nobody had wanted it
    feed.want([("logs", "one")])
    assert feed.missed(feed.life, 0, [("logs", "one")]) is None
    assert feed.missed(feed.life, 1, [("logs", "one")]) == []


def test_topics_nobody_wants_grow_cold_and_the_feed_sleeps(run, feed, heard, monkeypatch):
    monkeypatch.setattr("penstock.control.feed.WARM_SECONDS", 0.05)
    feed.want([("metrics", "one")])
    feed.release([("metrics", "one")])
    until = time.monotonic() + 5
    while feed._watches:
        assert time.monotonic() < until
        time.sleep(0.01)
    report(run, 1)
    feed.want([("metrics", "one")])
    report(run, 2)
    assert heard.wait("metrics")[0]["columns"]["steps"] == [2]


def test_the_ring_is_bounded_in_count_and_bytes():
    ring = Ring(most_messages=3, most_bytes=10_000)
    ring.add(("logs", "r", {}) for _ in range(5))
    assert [message.seq for message in ring.after(2)] == [3, 4, 5]
    assert ring.after(1) is None
    assert ring.after(5) == []
    assert ring.after(6) is None
    small = Ring(most_messages=100, most_bytes=1_000)
    small.add(("logs", "r", {"text": "x" * 300}) for _ in range(5))
    assert len(small.after(3)) == 2
    assert small.after(0) is None


def test_numbers_of_two_lives_are_not_confused():
    assert Ring().life != Ring().life


def test_a_message_concerns_its_topic_and_a_removal_all_of_its_run():
    message = Message(1, "metrics", "one", b"")
    assert concerns(message, {("metrics", ALL)})
    assert concerns(message, {("metrics", "one")})
    assert not concerns(message, {("metrics", "two"), ("states", ALL)})
    assert concerns(Message(2, "removed", "one", b""), {("logs", "one")})
    assert not concerns(Message(2, "removed", "one", b""), {("logs", "two")})


def test_a_listener_that_fails_does_not_silence_others(run, feed, heard):
    def broken(messages):
        raise ValueError("broken")

    feed.listen(broken)
    end = feed.listen(Listener())
    end()
    feed.want([("metrics", ALL)])
    report(run, 1)
    heard.wait("metrics")
    report(run, 2)
    heard.wait("metrics", 2)


def test_a_thousand_ended_runs_cost_little(tmp_path):
    first = RunFolder.create(tmp_path, config.resolve("CartPole-v1"), "run-0")
    become(first, "done")
    for index in range(1, 1000):
        shutil.copytree(first.path, tmp_path / "runs" / f"run-{index}")
    feed = Feed(tmp_path)
    feed.want(EVERYTHING)
    feed._tick()
    before = time.thread_time()
    for _ in range(4):
        feed._tick()
    spent = time.thread_time() - before
    feed.close()
    assert spent < 0.25, f"a second of ticks costs {spent:.3f} s"
