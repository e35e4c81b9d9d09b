"""The outermost layer, around a small application that reads its body and answers how much it got."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest
from prometheus_client import generate_latest
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from penstock.server.guard import Guard, _Broken
from penstock.server.hosts import LOOPBACK, Names
from penstock.server.traffic import Traffic

MOST = 1000


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["path"] == "/broken":
        raise RuntimeError("the secret reason")
    got = len(await Request(scope, receive).body())
    await send({"type": "http.response.start", "status": 200, "headers": [(b"cache-control", b"private")]})
    if scope["path"] == "/half":
        raise RuntimeError("the secret reason")
    await send({"type": "http.response.body", "body": str(got).encode()})


class Answer:
    def __init__(self, messages: list[Message]) -> None:
        self.status: int = messages[0]["status"]
        self.headers = {name.decode().lower(): value.decode() for name, value in messages[0]["headers"]}
        self.body = b"".join(message.get("body", b"") for message in messages[1:])

    @property
    def problem(self) -> dict[str, Any]:
        assert self.headers["content-type"] == "application/problem+json"
        found: dict[str, Any] = json.loads(self.body)
        return found


def ask(
    path: str = "/",
    headers: Iterable[tuple[str, str]] = (),
    chunks: Iterable[bytes] = (),
    query: bytes = b"",
    traffic: Traffic | None = None,
) -> Answer:
    sent: list[Message] = []
    waiting = [*chunks]

    async def receive() -> Message:
        if not waiting:
            return {"type": "http.disconnect"} if sent else {"type": "http.request", "body": b""}
        return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting)}

    async def send(message: Message) -> None:
        sent.append(message)

    raw = [(name.encode(), value.encode("latin-1")) for name, value in [("host", "localhost"), *headers]]
    scope = {
        "type": "http",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "query_string": query,
        "headers": raw,
    }
    guard = Guard(echo, Names(LOOPBACK, []), MOST, traffic or Traffic())
    asyncio.run(guard(scope, receive, send))
    return Answer(sent)


JSON = ("content-type", "application/json")


def test_a_body_of_the_right_kind_and_size_comes_through() -> None:
    answer = ask(headers=[JSON, ("content-length", "6")], chunks=[b"abc", b"def"])
    assert (answer.status, answer.body) == (200, b"6")


def test_every_answer_has_the_safe_headers_unless_it_says_otherwise() -> None:
    headers = ask().headers
    assert headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["cache-control"] == "private"
    assert len(headers["x-request-id"]) == 16


def test_a_body_that_says_it_is_too_large_is_not_read() -> None:
    answer = ask(headers=[JSON, ("content-length", str(MOST + 1))])
    assert answer.status == 413
    assert answer.problem["type"] == "/problems/too-large"


def test_a_body_that_becomes_too_large_is_read_no_further() -> None:
    async def reads(scope: Scope, receive: Receive, send: Send) -> None:
        with pytest.raises(Exception, match="413"):
            await Request(scope, receive).body()

    chunks = [b"x" * 400] * 5
    with pytest.raises(IndexError):  # the application above sends nothing
        _run_with(reads, chunks)
    assert len(chunks) == 2


def _run_with(app: Any, chunks: list[bytes]) -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": chunks.pop(0), "more_body": True}

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "scheme": "http", "path": "/", "query_string": b"",
             "headers": [(b"host", b"localhost"), (b"transfer-encoding", b"chunked"),
                         (b"content-type", b"application/json")]}  # fmt: skip
    asyncio.run(Guard(app, Names(LOOPBACK, []), MOST, Traffic())(scope, receive, send))
    Answer(sent)


@pytest.mark.parametrize(
    "header",
    [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp",
     "application/json; charset=latin-1", "text/plain; application/json", "application/xml",
     "application/json,text/plain"],
)  # fmt: skip
def test_a_body_that_is_not_said_to_be_json_is_refused(header: str | None) -> None:
    headers = [("content-length", "2")] + ([("content-type", header)] if header else [])
    assert ask(headers=headers, chunks=[b"{}"]).status == 415
    chunked = [("transfer-encoding", "chunked")] + ([("content-type", header)] if header else [])
    assert ask(headers=chunked, chunks=[b"{}"]).status == 415


@pytest.mark.parametrize(
    "header", ["application/json", "Application/JSON; charset=utf-8", 'application/json;charset="UTF-8"']
)
def test_json_may_say_its_charset(header: str) -> None:
    assert ask(headers=[("content-length", "2"), ("content-type", header)], chunks=[b"{}"]).status == 200


def test_compressed_bodies_are_refused() -> None:
    headers = [JSON, ("content-length", "2"), ("content-encoding", "gzip")]
    assert ask(headers=headers, chunks=[b"{}"]).status == 415


@pytest.mark.parametrize("length", ["-1", "x", "1e3", "", "٣"])
def test_a_length_that_is_no_number_is_refused(length: str) -> None:
    raw = length.encode().decode("latin-1")
    assert ask(headers=[JSON, ("content-length", raw)]).status == 400


def test_zero_bytes_in_an_address_are_refused() -> None:
    assert ask(path="/runs/\0").status == 400
    assert ask(query=b"search=%00").status == 400


def test_what_breaks_is_logged_under_an_id_and_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    answer = ask(path="/broken")
    assert answer.status == 500
    assert b"secret reason" not in answer.body
    logged = json.loads(capsys.readouterr().err)
    assert "the secret reason" in logged["trace"]
    assert logged["request"] == answer.problem["request"] == answer.headers["x-request-id"]


def test_half_an_answer_is_cut_off_not_ended(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(_Broken):
        ask(path="/half")
    assert "the secret reason" in capsys.readouterr().err


def test_the_log_has_no_header_and_no_query(capsys: pytest.CaptureFixture[str]) -> None:
    ask(path="/broken", headers=[("authorization", "Bearer pst_abc")], query=b"search=pst_def")
    logged = capsys.readouterr().err
    assert "pst_abc" not in logged
    assert "pst_def" not in logged


def test_requests_are_counted_by_operation_never_by_path() -> None:
    traffic = Traffic()
    for number in range(5):
        ask(path=f"/{number}", traffic=traffic)
    ask(headers=[("host", "evil.example")], traffic=traffic)
    text = generate_latest(traffic.registry).decode()
    assert 'penstock_http_requests_total{operation="none",status="2xx"} 5.0' in text
    assert 'penstock_http_requests_total{operation="none",status="4xx"} 1.0' in text


@pytest.mark.parametrize("extended", [True, False])
def test_a_websocket_of_a_foreign_page_is_refused_before_it_is_accepted(extended: bool) -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "websocket", "scheme": "ws", "path": "/api/v1/live", "query_string": b"", "subprotocols": [],
        "extensions": {"websocket.http.response": {}} if extended else {},
        "headers": [(b"host", b"localhost"), (b"origin", b"http://evil.example")],
    }  # fmt: skip
    asyncio.run(Guard(echo, Names(LOOPBACK, []), MOST, Traffic())(scope, receive, send))
    assert sent[0]["type"] == ("websocket.http.response.start" if extended else "websocket.close")
    assert sent[0].get("status", sent[0].get("code")) == (403 if extended else 1008)
