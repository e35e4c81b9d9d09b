"""The live feed over real sockets: who may watch, what is told, what a gap is, and what slow viewers cost."""

import contextlib
import json
import socket
import threading
import time
from dataclasses import dataclass

import msgspec
import psutil
import pytest
import uvicorn
from starlette.applications import Starlette
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from penstock import config
from penstock.control.feed import KINDS, Feed
from penstock.control.permissions import NEEDED, Role
from penstock.control.tokens import Tokens, first_token, hashed, new_secret
from penstock.lineage.database import Lineage
from penstock.lineage.rows import TokenRow
from penstock.loop.files import append_line
from penstock.loop.runs import RunFolder
from penstock.model.run import RunState
from penstock.server import greeting, live, live_talk, live_viewer
from penstock.server.auth import Gate
from penstock.server.rates import Limits
from tests.integration.serving import QUICK, served, wait_for


@dataclass
class Plane:
    """What the live feed needs of `Control`, with its real parts."""

    feed: Feed
    tokens: Tokens


class Watching:
    """A server with a home of its own."""

    def __init__(self, home, most_viewers=live.MOST_VIEWERS):
        self.home = home
        self.token = first_token(home)[0]
        self.lineage = Lineage(f"sqlite:///{home}/penstock.db")
        self.plane = Plane(Feed(home, tick_seconds=0.05), Tokens(home, self.lineage))
        gate = Gate(self.plane.tokens, Limits(failures_per_minute=10_000))
        app = Starlette(routes=live.routes(self.plane, gate, most_viewers))
        self.socket = socket.create_server(("127.0.0.1", 0))
        live.tune(self.socket)
        self.url = f"ws://127.0.0.1:{self.socket.getsockname()[1]}/api/v1/live"
        self.server = uvicorn.Server(uvicorn.Config(app, log_config=None, **live.UVICORN))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]}, daemon=True)
        self.thread.start()

    def close(self):
        self.server.should_exit = True
        self.thread.join(10)
        self.plane.feed.close()
        self.lineage.close()

    def give_token(self, role, expires_at=None):
        secret = new_secret()
        row = TokenRow(
            id=secret[4:12], name="someone", role=role, sha256=hashed(secret), created_at=time.time(),
            created_by="owner", expires_at=expires_at,
        )  # fmt: skip
        with self.lineage.write() as writes:
            writes.add_token(row)
        self.plane.tokens.changed()
        return secret

    @contextlib.contextmanager
    def viewer(self, token=None, **options):
        with self.connection(token, **options) as connection:
            yield Talk(connection)

    def connection(self, token=None, query="", **options):
        headers = {"Authorization": f"Bearer {token or self.token}"}
        return connect(self.url + query, additional_headers=headers, compression=None, **options)


class Talk:
    """Says and hears JSON."""

    def __init__(self, connection):
        self.connection = connection
        self.welcome = self.hear("welcome")

    def say(self, kind, **fields):
        self.connection.send(json.dumps({"type": kind, **fields}))

    def hear(self, kind=None, seconds=5.0):
        """The next message, or the next of a kind."""
        until = time.monotonic() + seconds
        while True:
            message = json.loads(self.connection.recv(timeout=max(0.01, until - time.monotonic())))
            if kind is None or message["type"] == kind:
                return message

    def news(self, kind, count=1, seconds=5.0):
        """The next messages of a kind, out of batches."""
        found = []
        while len(found) < count:
            found += [
                message for message in self.hear("batch", seconds)["messages"] if message["kind"] == kind
            ]
        return found

    def subscribe(self, *kinds, runs="*", **fields):
        self.say("subscribe", kinds=kinds, runs=runs, **fields)
        return self.hear("subscribed")


@pytest.fixture
def server(tmp_path):
    server = Watching(tmp_path)
    yield server
    server.close()


@pytest.fixture
def run(server):
    return RunFolder.create(server.home, config.resolve("CartPole-v1"), "one")


def report(run, steps, **values):
    append_line(run.metrics_file, {"steps": steps, "seconds": 0.5, "time": time.time(), **values})


def closed(talk, seconds=10.0):
    """The code and reason the server ends it with, and the last error it tells."""
    error = None
    try:
        while True:
            message = json.loads(talk.recv(timeout=seconds))
            error = message if message["type"] == "error" else error
    except ConnectionClosed as end:
        return end.rcvd.code, end.rcvd.reason, error


# -- who may watch ---------------------------------------------------------------------------------


def test_a_viewer_is_welcomed_and_told_what_it_may_watch(server):
    with server.viewer(server.give_token("viewer")) as talk:
        assert talk.welcome["role"] == "viewer"
        assert talk.welcome["kinds"] == ["states", "metrics", "logs", "events"]
        assert talk.welcome["feed"] == server.plane.feed.life


def test_a_browser_shows_its_token_in_a_hello_or_a_subprotocol(server):
    with connect(server.url) as connection:
        connection.send(json.dumps({"type": "hello", "token": server.token}))
        assert Talk(connection).welcome["name"] == "owner"
    with connect(server.url, subprotocols=["penstock.v1", f"bearer.{server.token}"]) as connection:
        assert Talk(connection).welcome["name"] == "owner"
        assert connection.subprotocol == "penstock.v1"


def test_a_wrong_token_is_refused_in_the_handshake(server):
    with pytest.raises(InvalidStatus) as refused:
        server.connection("pst_wrong")
    assert refused.value.response.status_code == 401
    assert json.loads(refused.value.response.body)["title"] == "A valid token is needed"


@pytest.mark.parametrize(
    "first",
    [
        '{"type": "hello", "token": "pst_wrong"}',
        '{"type": "hello"}',
        '{"type": "subscribe", "kinds": ["metrics"]}',
        '{"type": "ping"}',
        "nonsense",
        "[]",
        "[" * 5000,
    ],
)
def test_without_a_token_nothing_is_told(server, first):
    with connect(server.url) as connection:
        connection.send(first)
        code, _, error = closed(connection)
        assert code == 1008
        assert error["status"] == 401


def test_one_who_says_nothing_is_sent_away(server, monkeypatch):
    monkeypatch.setattr(greeting, "HELLO_SECONDS", 0.2)
    with connect(server.url) as connection:
        code, reason, _ = closed(connection)
        assert (code, "no hello" in reason) == (1008, True)


def test_each_kind_asks_for_its_permission(server, run, monkeypatch):
    monkeypatch.setitem(live_talk.permissions.NEEDED, "watch_logs", Role.ADMIN)
    with server.viewer(server.give_token("viewer")) as talk:
        assert talk.welcome["kinds"] == ["states", "metrics", "events"]
        talk.say("subscribe", kinds=["metrics", "logs"], id=7)
        error = talk.hear("error")
        assert (error["status"], error["id"]) == (403, 7)
        assert "watch_logs needs the role admin" in error["detail"]
        assert talk.subscribe("metrics")["topics"] == {"metrics": ["*"]}


def test_a_revoked_token_ends_the_connection_within_seconds(server):
    secret = server.give_token("viewer")
    with server.connection(secret) as connection, server.viewer() as other:
        Talk(connection)
        with server.lineage.write() as writes:
            writes.revoke_token(secret[4:12], time.time())
        server.plane.tokens.changed()
        code, reason, _ = closed(connection)
        assert (code, "was revoked" in reason) == (1008, True)
        other.say("ping")
        other.hear("pong")


def test_an_expired_token_ends_the_connection_within_seconds(server):
    with server.connection(server.give_token("viewer", time.time() + 1)) as connection:
        Talk(connection)
        code, reason, _ = closed(connection)
        assert (code, "has expired" in reason) == (1008, True)


def test_more_viewers_than_allowed_are_told_to_come_later(tmp_path):
    server = Watching(tmp_path, most_viewers=2)
    try:
        with server.viewer(), server.viewer(), server.connection() as third:
            assert closed(third)[0] == 1013
            assert server.plane.feed.viewers == 2
    finally:
        server.close()


# -- what is told ----------------------------------------------------------------------------------


def test_metrics_states_logs_and_events_arrive(server, run):
    with server.viewer() as talk:
        talk.subscribe("metrics", "states", "logs", "events", runs=["one"])
        report(run, 5, loss=0.25)
        [metrics] = talk.news("metrics")
        assert metrics["run"] == "one"
        assert metrics["columns"]["loss"] == [0.25]
        run.save_status(msgspec.structs.replace(run.stored_status(), state=RunState.RUNNING, steps=5))
        [states] = talk.news("states")
        assert (states["state"], states["steps"]) == ("running", 5)
        run.append_event("roster_changed", slots=[0])
        assert talk.news("events")[0]["events"][0]["fields"] == {"slots": [0]}
        run.log_file("learner").write_text("hello\n")
        assert talk.news("logs")[0]["processes"]["learner"]["lines"] == ["hello"]


def test_numbers_grow_and_what_is_not_subscribed_is_not_told(server, run):
    other = RunFolder.create(server.home, config.resolve("CartPole-v1"), "other")
    with server.viewer() as talk, server.viewer() as everything:
        talk.subscribe("metrics", runs=["one"])
        everything.subscribe("metrics")
        for steps in range(3):
            report(other, steps)
            report(run, steps)
            assert talk.news("metrics")[0]["run"] == "one"
        seen = everything.news("metrics", 6)
        assert [message["seq"] for message in seen] == sorted(message["seq"] for message in seen)
        assert {message["run"] for message in seen} == {"one", "other"}


def test_one_may_stop_watching(server, run):
    with server.viewer() as talk:
        talk.subscribe("metrics", "states")
        talk.subscribe("logs", runs=["one"])
        talk.say("unsubscribe", kinds=["metrics"])
        assert talk.hear("subscribed")["topics"] == {"logs": ["one"], "states": ["*"]}
        talk.say("unsubscribe")
        assert talk.hear("subscribed")["topics"] == {}
        report(run, 1)
        talk.say("ping", id="p")
        assert talk.hear() == {"type": "pong", "seq": talk.welcome["seq"], "id": "p"}


def test_one_who_comes_back_gets_exactly_what_it_missed(server, run):
    with server.viewer() as talk:
        talk.subscribe("metrics")
        report(run, 1)
        seen = talk.news("metrics")[0]["seq"]
        feed = talk.welcome["feed"]
    for steps in (2, 3, 4):
        report(run, steps)
        time.sleep(0.1)
    with server.connection(query=f"?since={seen}&feed={feed}") as connection:
        talk = Talk(connection)
        talk.subscribe("metrics")
        missed = talk.news("metrics", 3)
        assert [message["columns"]["steps"] for message in missed] == [[2], [3], [4]]
        report(run, 5)
        assert talk.news("metrics")[0]["columns"]["steps"] == [5]


@pytest.mark.parametrize(("feed", "since"), [("another", 1), (None, 99_999), (None, -1)])
def test_what_is_no_longer_kept_is_a_gap(server, run, feed, since):
    with server.viewer() as talk:
        talk.subscribe("metrics", since=since, feed=feed or talk.welcome["feed"])
        gap = talk.hear("gap")
        assert (gap["kinds"], gap["runs"], gap["feed"]) == (["metrics"], "*", talk.welcome["feed"])
        report(run, 1)
        assert talk.news("metrics")[0]["seq"] > gap["seq"]


def test_a_run_deleted_while_watched_is_told(server, run):
    with server.viewer() as talk:
        talk.subscribe("logs", runs=["one"])
        run.path.rename(server.home / "gone")
        assert talk.news("removed")[0]["run"] == "one"


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "status", "words"),
    [
        ("{", 400, "not JSON"),
        ("[" * 30_000, 422, "Expected `object`"),
        ("[1]", 422, "Expected `object`"),
        ('{"type": "dance"}', 422, "Invalid value 'dance'"),
        ('{"type": "subscribe", "kinds": ["metrics"], "run": "x"}', 422, "unknown field `run`"),
        ('{"type": "subscribe", "kinds": ["secrets"]}', 422, "Invalid enum value 'secrets'"),
        ('{"type": "subscribe", "kinds": []}', 422, "length >= 1"),
        ('{"type": "subscribe", "kinds": ["metrics"], "runs": ["nowhere"]}', 404, "no run 'nowhere'"),
        ('{"type": "subscribe", "kinds": ["metrics"], "runs": ["../../etc"]}', 404, "no run"),
        ('{"type": "subscribe", "kinds": ["metrics"], "since": 1e99}', 422, "since"),
    ],
)
def test_bad_input_is_answered_and_harms_nothing(server, message, status, words):
    with server.viewer() as talk:
        talk.connection.send(message)
        error = talk.hear("error")
        assert (error["status"], words in error["detail"]) == (status, True), error
        assert talk.subscribe("metrics")["topics"] == {"metrics": ["*"]}


def test_one_who_keeps_talking_nonsense_is_sent_away(server):
    with server.viewer() as talk:
        for _ in range(live_talk.MOST_FAULTS):
            talk.say("nonsense")
        assert closed(talk.connection)[0] == 1007


def test_binary_too_large_and_too_many_messages_end_it(server):
    with server.viewer() as talk:
        talk.connection.send(b"binary")
        assert closed(talk.connection)[0] == 1003
    with server.viewer() as talk:
        talk.say("ping", id="x" * (80 << 10))
        assert closed(talk.connection)[0] == 1009
    with server.viewer() as talk:
        with contextlib.suppress(ConnectionClosed):
            for _ in range(live_talk.MOST_SAID + 1):
                talk.say("ping")
        assert closed(talk.connection)[0] == 1008


def test_a_viewer_may_not_watch_too_many_runs(server, run):
    for index in range(129):
        (server.home / "runs" / f"r{index}").mkdir()
    with server.viewer() as talk:
        talk.say("subscribe", kinds=["metrics", "logs"], runs=[f"r{index}" for index in range(129)])
        assert "256 kinds × runs" in talk.hear("error")["detail"]


def test_viewers_that_come_and_go_leave_nothing_behind(server, run):
    def visit(number):
        kinds = ["metrics", "states", "logs", "events"][: 1 + number % 4]
        for turn in range(5):
            with server.connection() as connection:
                talk = Talk(connection)
                talk.say("subscribe", kinds=kinds, runs="*" if number % 2 else ["one"], since=turn, feed="x")
                if turn % 2:
                    talk.hear("gap")
                elif turn == 2:
                    connection.socket.shutdown(socket.SHUT_RDWR)  # gone without a word

    threads = [threading.Thread(target=visit, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    feed = server.plane.feed
    wait_for(lambda: feed.viewers == 0, "all to be gone", 10)
    wait_for(lambda: all(i.holders == 0 for i in list(feed._interests.values())), "nothing to be held", 10)
    with server.viewer() as talk:
        talk.subscribe("metrics")
        report(run, 1)
        assert talk.news("metrics")


# -- slow viewers ----------------------------------------------------------------------------------


def test_a_viewer_that_does_not_read_is_dropped_and_nobody_waits(server, run, monkeypatch):
    monkeypatch.setattr(live_viewer, "SLOW_SECONDS", 1.0)
    monkeypatch.setattr(live_viewer, "MOST_BYTES", 256 << 10)
    with server.viewer() as quick, socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect(("127.0.0.1", server.socket.getsockname()[1]))
        with server.connection(sock=raw, max_queue=1) as slow:
            Talk(slow).subscribe("logs")
            quick.subscribe("logs", "metrics")
            memory = psutil.Process().memory_info().rss
            until, delays = time.monotonic() + 20, []
            while server.plane.feed.viewers > 1:
                assert time.monotonic() < until, "the slow viewer is still there"
                with run.log_file("learner").open("a") as file:
                    file.write(("x" * 3000 + "\n") * 80)
                report(run, 1)
                before = time.monotonic()
                quick.news("metrics")
                delays.append(time.monotonic() - before)
            assert max(delays) < 1.0
            assert psutil.Process().memory_info().rss - memory < 100 << 20
            quick.say("ping")
            quick.hear("pong")


# -- behind the whole application ------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    with served(tmp_path_factory.mktemp("whole")) as running:
        yield running


def live_url(server, query=""):
    return f"ws://127.0.0.1:{server.port}/api/v1/live{query}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("role", list(Role))
def test_every_kind_asks_every_role(whole, role, kind):
    with connect(
        live_url(whole), subprotocols=["penstock.v1", f"bearer.{whole.token_of(role)}"]
    ) as connection:
        talk = Talk(connection)
        talk.say("subscribe", kinds=[kind])
        allowed = NEEDED[KINDS[kind]].rank <= role.rank
        assert talk.hear()["type"] == ("subscribed" if allowed else "error")


def test_the_three_ways_to_show_a_token_pass_the_guard(whole):
    with connect(
        live_url(whole), additional_headers={"Authorization": f"Bearer {whole.token}"}
    ) as connection:
        assert Talk(connection).welcome["name"] == "owner"
        assert whole.control.server().viewers == 1
    with connect(live_url(whole), subprotocols=["penstock.v1", f"bearer.{whole.token}"]) as connection:
        assert Talk(connection).welcome["name"] == "owner"
    with connect(live_url(whole)) as connection:
        connection.send(json.dumps({"type": "hello", "token": whole.token}))
        assert Talk(connection).welcome["name"] == "owner"


@pytest.mark.parametrize(
    ("query", "options", "status"),
    [
        ("?token=pst_secret", {}, 400),
        ("?x=pst_secret", {}, 400),
        ("", {"additional_headers": {"Authorization": "Bearer pst_wrong"}}, 401),
        ("", {"additional_headers": {"Authorization": "Basic x"}}, 401),
        ("", {"subprotocols": ["penstock.v1", "bearer.pst_wrong"]}, 401),
        ("", {"origin": "https://evil.example"}, 403),
        ("", {"origin": "null"}, 403),
    ],
)
def test_what_the_guard_refuses_never_becomes_a_viewer(whole, query, options, status):
    with pytest.raises(InvalidStatus) as refused:
        connect(live_url(whole, query), **options)
    assert refused.value.response.status_code == status
    assert json.loads(refused.value.response.body)["status"] == status


def test_a_run_started_by_rest_is_told_at_once(whole):
    with connect(
        live_url(whole), additional_headers={"Authorization": f"Bearer {whole.token}"}
    ) as connection:
        talk = Talk(connection)
        talk.subscribe("states")
        with whole.client() as client:
            run = client.post("/runs", json=QUICK).json()["run"]
            assert talk.news("states")[0]["run"] == run
            assert client.patch(f"/runs/{run}", json={"tags": ["watched"]}).status_code == 202
            assert talk.news("states")[-1]["tags"] == ["watched"]
