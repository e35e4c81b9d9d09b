"""Whether the server's stream answers: told by /server and /ready, and nobody waits for it."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.control import pulse
from penstock.control.pulse import Pulse
from penstock.errors import Unavailable
from penstock.model.spec import StreamSpec
from penstock.stream.base import Position, Stream
from penstock.wiring import open_stream
from tests.integration.serving import Served, served


def until(truth: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 20
    while not truth():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.01)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path, most_runs=0) as running:
        yield running


def test_a_stream_that_answers_is_told_with_how_long_it_took(server: Served) -> None:
    with server.client() as client:
        until(lambda: client.get("/server").json()["stream_seconds"] is not None, "the first answer")
        told = client.get("/server").json()
        assert told["checks"]["stream"] == "ok"
        assert 0 < told["stream_seconds"] < 20
        assert client.get("/ready").json()["checks"]["stream"] == "ok"


class Away:
    """A real stream whose brokers go and come back."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self.away, self.held = stream, False, threading.Event()
        self.held.set()

    def end(self, topic: str) -> Position:
        self.held.wait(30)
        if self.away:
            raise Unavailable("kafka://nowhere does not answer; is the broker running?")
        return self._stream.end(topic)

    def close(self) -> None:
        self._stream.close()


@pytest.fixture
def stream(tmp_path: Path) -> Away:
    return Away(open_stream(tmp_path, StreamSpec()))


@pytest.fixture
def beating(stream: Away) -> Iterator[Pulse]:
    made = Pulse(lambda: stream, every_seconds=0.01)  # type: ignore[arg-type,return-value]  # the part that is asked
    made.start()
    yield made
    stream.held.set()
    made.close()


def test_one_that_is_away_is_told_in_its_words_until_it_is_back(beating: Pulse, stream: Away) -> None:
    until(lambda: beating.seconds is not None, "the first answer")
    stream.away = True
    until(lambda: "is the broker running?" in beating.check(), "the loss")
    assert beating.seconds is None
    stream.away = False
    until(lambda: beating.check() == "ok", "the return")


def test_nobody_waits_for_a_question_that_hangs(
    beating: Pulse, stream: Away, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "SLOW_SECONDS", 0.2)
    stream.held.clear()
    until(lambda: "has not answered for" in beating.check(), "the silence")
    stream.held.set()
    until(lambda: beating.check() == "ok", "the answer")
