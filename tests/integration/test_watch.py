"""A policy at play over real sockets: one process for all who watch, ended when nobody does, and every way to fail."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from penstock.control import permissions, plays
from penstock.control.permissions import NEEDED, Role
from penstock.control.reconcile import Reconciler
from penstock.loop.watch_frames import HEADER, Shown
from penstock.server import greeting, live_talk
from penstock.server.watch import MOST_WATCHERS
from penstock.server.watch_talk import OPERATION
from tests.integration.serving import QUICK, Served, served, wait_for
from tests.saved import checkpoint, saved_run
from tests.servers import Server

ODD = """
import time
import numpy as np
from penstock.testing.environments import Counter

class Odd(Counter):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}

    def __init__(self, fault="", render_mode=None):
        super().__init__(length=1000)
        self.render_mode, self.fault = render_mode, fault

    def render(self):
        if self.count > 6:
            if self.fault == "hangs":
                time.sleep(3600)
            if self.fault == "exits":
                import os
                os._exit(7)
            if self.fault == "shapeless":
                return np.zeros((3, 3))
            if self.fault == "raises":
                raise ValueError("no paint left")
        print("an environment may print what it likes", flush=True)
        return np.full((40, 60, 3), self.count % 256, np.uint8)
"""


class Talk:
    """Says JSON; hears JSON and pictures."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.welcome = self.hear("welcome")

    def say(self, kind: str, **fields: Any) -> None:
        self.connection.send(json.dumps({"type": kind, **fields}))

    def watch(self, run: str, source: str = "live") -> Any:
        self.say("watch", run=run, source=source)
        return self.hear("watching")

    def hear(self, kind: str, seconds: float = 20.0) -> Any:
        return next(said for said in self._heard(seconds) if isinstance(said, dict) and said["type"] == kind)

    def shown(self, state: str = "playing", seconds: float = 60.0) -> tuple[Shown, bytes]:
        """The next message of that state."""
        for said in self._heard(seconds):
            if isinstance(said, tuple) and said[0].state == state:
                return said
            assert isinstance(said, tuple), said
            assert said[0].state != "failed", said
        raise AssertionError

    def _heard(self, seconds: float) -> Iterator[Any]:
        until = time.monotonic() + seconds
        while True:
            said = self.connection.recv(timeout=max(0.01, until - time.monotonic()))
            if isinstance(said, str):
                yield json.loads(said)
            else:
                facts, picture = HEADER.unpack_from(said)
                told = msgspec.json.decode(said[HEADER.size :][:facts], type=Shown)
                assert len(said) == HEADER.size + facts + picture
                yield told, said[HEADER.size + facts :]


def url(server: Served) -> str:
    return server.address.replace("http", "ws", 1) + "/api/v1/watch"


@contextlib.contextmanager
def viewer(server: Served, token: str | None = None) -> Iterator[Talk]:
    header = {"Authorization": f"Bearer {token or server.token}"}
    with connect(url(server), additional_headers=header, compression=None) as connection:
        yield Talk(connection)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("home")
    (home / "odd.py").write_text(ODD)
    pole = saved_run(home, "pole", "CartPole-v1")
    checkpoint(pole, 1, -5.0)
    checkpoint(pole, 2, 5.0)
    checkpoint(saved_run(home, "blind", "penstock.testing.environments:Blind"), 1)
    for fault in ("hangs", "exits", "shapeless", "raises"):
        environment = {"id": f"{home}/odd.py:Odd", "kwargs": {"fault": fault}, "step_limit_seconds": 1.0}
        checkpoint(saved_run(home, fault, environment), 1)
    with served(home) as running:
        wait_for(lambda: len(listed(running)) == 6, "the runs")
        yield running


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plays, "LINGER_SECONDS", 0.5)
    monkeypatch.setattr(plays, "SLACK_SECONDS", 1.0)


def listed(server: Served) -> list[Any]:
    with server.client() as client:
        return list(client.get("/runs").json()["items"])


def players(server: Served) -> list[int]:
    return list(server.control.plays.pids().values())


def nobody_plays(server: Served) -> None:
    wait_for(lambda: not server.control.plays.pids(), "the end of the play", 20)


# -- what is shown --------------------------------------------------------------------------------


def test_two_viewers_share_one_child_that_yields_and_ends_when_nobody_watches(server: Served) -> None:
    with viewer(server) as one, viewer(server) as other:
        assert one.watch("pole", "best")["source"] == "1.2"
        shown, picture = one.shown()
        assert picture[:3] == b"\xff\xd8\xff"
        assert (shown.version, shown.episode, shown.width) == ("1.2", 1, 480)
        other.watch("pole", "1.2")
        assert other.shown()[0].episode >= 1
        (pid,) = players(server)
        child = psutil.Process(pid)
        assert child.nice() == plays.NICE
        assert child.ppid() == os.getpid()
    nobody_plays(server)
    wait_for(lambda: not psutil.pid_exists(pid), "the end of the child", 10)


def test_the_return_grows_and_pictures_change(server: Served) -> None:
    with viewer(server) as talk:
        talk.watch("pole", "1.1")  # falls at once, so that episodes end
        pictures, returns, steps = set(), (), []
        while len(returns) < 2:
            shown, picture = talk.shown()
            pictures.add(picture)
            returns = shown.returns
            steps.append(shown.step)
            assert shown.total_reward == shown.step  # CartPole gives one a step
        assert len(pictures) > 3
        assert all(value is not None and 5 < value < 30 for value in returns)
        assert shown.ended
        assert shown.episode == 2


def test_a_viewer_may_switch_and_rest(server: Served) -> None:
    with viewer(server) as talk:
        talk.watch("pole", "1.1")
        assert talk.shown()[0].version == "1.1"
        talk.watch("pole", "1.2")
        assert talk.shown()[0].version == "1.2"  # nothing of the other comes after the answer
        talk.say("unwatch", id=3)
        assert talk.hear("unwatched")["id"] == 3
        talk.say("ping", id=4)
        talk.hear("pong")
        with pytest.raises(TimeoutError):
            talk.connection.recv(timeout=0.5)
        nobody_plays(server)


def test_live_follows_what_a_run_learns(tmp_path: Path) -> None:
    with served(tmp_path / "home", most_runs=1) as server, viewer(server) as talk:
        server.control.commander.start(*_start(QUICK | {"name": "young"}))
        wait_for(lambda: (tmp_path / "home/runs/young").is_dir(), "the run")
        talk.watch("young")
        versions = [talk.shown(seconds=120)[0].version]
        until = time.monotonic() + 120
        while len(set(versions)) < 2:
            assert time.monotonic() < until, versions
            versions.append(talk.shown(seconds=60)[0].version)
        steps = [int(version.split(".")[1]) for version in versions]
        assert steps == sorted(steps)


def test_a_run_that_has_not_begun_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the moment between the command and its first look: otherwise the folder is there too soon to ask
    monkeypatch.setattr(Reconciler, "repair", lambda *_: False)
    with served(tmp_path / "home") as server, viewer(server) as talk:
        server.control.commander.start(*_start(QUICK | {"name": "waits"}))
        assert not (tmp_path / "home/runs/waits").exists()
        talk.say("watch", run="waits")
        assert talk.hear("error")["status"] == 409


def test_live_of_a_run_that_has_ended_shows_its_newest_checkpoint(server: Served) -> None:
    with viewer(server) as talk:
        talk.watch("pole")
        assert talk.shown()[0].version == "1.2"


# -- what goes wrong ------------------------------------------------------------------------------


def test_a_killed_child_is_told_of_and_comes_back_on_the_next_watch(server: Served) -> None:
    with viewer(server) as talk:
        talk.watch("pole", "1.2")
        talk.shown()
        os.kill(server.control.plays.pids()["pole", "1.2"], signal.SIGKILL)  # another may linger still
        assert "killed by signal 9" in talk.shown("failed")[0].words
        talk.watch("pole", "1.2")
        talk.shown()


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ("hangs", "environment.step_limit_seconds"),
        ("exits", "ended with exit code 7"),
        ("shapeless", "rendered an array of shape (3, 3), not a picture"),
        ("raises", "no paint left"),
        ("blind", "cannot draw itself"),
    ],
)
def test_an_environment_that_fails_is_told_in_a_sentence(server: Served, run: str, words: str) -> None:
    with viewer(server) as talk:
        talk.watch(run, "1.1")
        assert words in talk.shown("failed")[0].words
        nobody_plays(server)


@pytest.mark.parametrize(
    ("run", "source", "status", "words"),
    [
        ("nowhere", "live", 404, "there is no run 'nowhere'"),
        ("pole", "9.9", 404, "has no checkpoint 9.9"),
        ("pole", "../../x", 422, "is not a version"),
        ("../pole", "live", 404, "there is no run"),
    ],
)
def test_what_is_not_there_is_refused(server: Served, run: str, source: str, status: int, words: str) -> None:
    with viewer(server) as talk:
        talk.say("watch", run=run, source=source, id="x")
        error = talk.hear("error")
        assert (error["status"], error["id"]) == (status, "x")
        assert words in error["detail"]
        assert (run, source) not in server.control.plays.pids()


def test_more_than_some_are_refused_unless_nobody_watches_one(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.control.plays, "_most", 1)
    monkeypatch.setattr(plays, "LINGER_SECONDS", 60.0)
    with viewer(server) as one, viewer(server) as other:
        one.watch("pole", "1.1")
        one.shown()
        other.say("watch", run="pole", source="1.2")
        error = other.hear("error")
        assert error["status"] == 503
        assert "being watched already" in error["detail"]
        one.watch("pole", "1.2")  # the one it leaves makes room
        assert one.shown()[0].version == "1.2"
        one.say("unwatch")
    monkeypatch.setattr(plays, "LINGER_SECONDS", 0.1)
    nobody_plays(server)


def test_a_child_does_not_outlive_a_server_that_is_killed(tmp_path: Path) -> None:
    checkpoint(saved_run(tmp_path, "pole", "CartPole-v1"), 1, 5.0)
    with Server(tmp_path) as server:
        served_here = Served(None, server.address, server.token)  # type: ignore[arg-type]
        with viewer(served_here) as talk:
            talk.watch("pole", "1.1")
            talk.shown()
            assert server.process is not None
            (child,) = [
                one for one in psutil.Process(server.process.pid).children() if "watch" in one.cmdline()
            ]
            server.kill()
            child.wait(10)


# -- who may watch --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "first",
    ['{"type": "hello", "token": "pst_wrong"}', '{"type": "watch", "run": "pole"}', "nonsense", "[" * 5000],
)
def test_without_a_token_nothing_is_shown(server: Served, first: str) -> None:
    with connect(url(server)) as connection:
        connection.send(first)
        assert json.loads(connection.recv(timeout=10))["status"] == 401
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(timeout=10)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008


def test_a_silent_stranger_is_sent_away(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greeting, "HELLO_SECONDS", 0.2)
    with connect(url(server)) as connection:
        assert json.loads(connection.recv(timeout=10))["status"] == 401


def test_a_token_may_come_in_the_first_message_and_never_in_the_address(server: Served) -> None:
    with connect(url(server)) as connection:
        connection.send(json.dumps({"type": "hello", "token": server.token}))
        assert Talk(connection).welcome["role"] == "admin"
    for address, status in ((f"{url(server)}?token={server.token}", 400), (url(server), 401)):
        with pytest.raises(InvalidStatus) as refused:
            connect(address, additional_headers={"Authorization": "Bearer pst_wrong"})
        assert refused.value.response.status_code == status


@pytest.mark.parametrize("needed", list(Role))
@pytest.mark.parametrize("role", list(Role))
def test_every_role_is_asked_for_the_permission(
    server: Served, monkeypatch: pytest.MonkeyPatch, role: Role, needed: Role
) -> None:
    assert NEEDED[OPERATION] is Role.VIEWER
    monkeypatch.setitem(permissions.NEEDED, OPERATION, needed)
    with viewer(server, server.token_of(role)) as talk:
        talk.say("watch", run="nowhere")
        assert talk.hear("error")["status"] == (404 if role.rank >= needed.rank else 403)


def test_a_page_of_another_origin_is_refused(server: Served) -> None:
    with pytest.raises(InvalidStatus) as refused:
        connect(url(server), origin="http://evil.example")  # type: ignore[arg-type]
    assert refused.value.response.status_code == 403


def test_a_revoked_token_ends_it_within_seconds(server: Served) -> None:
    with server.client() as owner:
        made = owner.post("/tokens", json={"name": "for a moment"}).json()
        with viewer(server, made["token"]) as talk:
            talk.watch("pole", "1.1")
            talk.shown()
            owner.delete(f"/tokens/{made['id']}")
            assert talk.hear("error")["status"] == 401
    nobody_plays(server)


def test_nonsense_and_chatter_end_a_connection(server: Served) -> None:
    with viewer(server) as talk:
        for _ in range(live_talk.MOST_FAULTS):
            talk.connection.send("{}")
        told = []
        with contextlib.suppress(ConnectionClosed):
            while True:
                told.append(json.loads(talk.connection.recv(timeout=10))["status"])
        assert set(told) == {422}
        assert talk.connection.close_code == 1007
    with viewer(server) as talk, contextlib.suppress(ConnectionClosed):
        for _ in range(live_talk.MOST_SAID + 1):
            talk.say("ping")
        while (said := json.loads(talk.connection.recv(timeout=10)))["type"] == "pong":
            pass
        assert said["status"] in (429, 503)


def test_only_so_many_watch(server: Served) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(MOST_WATCHERS):
            stack.enter_context(viewer(server))
        header = {"Authorization": f"Bearer {server.token}"}
        with connect(url(server), additional_headers=header) as connection:
            assert json.loads(connection.recv(timeout=10))["status"] == 503


def _start(spec: dict[str, Any]) -> Any:
    from penstock.control.views import StartRequest
    from tests.integration.serving import OWNER

    return OWNER, StartRequest.model_validate(spec)
