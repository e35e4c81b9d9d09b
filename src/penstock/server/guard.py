"""The outermost layer: every request is asked for its Host, Origin and body before anything else reads it.

Also gives each request an id, counts and times it, and keeps whatever breaks from reaching the client.
"""

import re
import secrets
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.server.hosts import Names
from penstock.server.problems import internal, problem
from penstock.server.refusal import refuse
from penstock.server.traffic import Traffic

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""On every answer that does not say otherwise."""

_JSON = re.compile(r"application/json(?:\s*;\s*charset=\"?utf-8\"?)?\s*", re.IGNORECASE)


class Guard:
    """Middleware around everything; knows plain requests and WebSockets."""

    def __init__(self, app: ASGIApp, names: Names, body_bytes: int, traffic: Traffic) -> None:
        self._app, self._names, self._body_bytes, self._traffic = app, names, body_bytes, traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        answer = _Answer(scope, send)
        try:
            if (refused := self._refused(scope)) is not None:
                return await refuse(refused, scope, receive, answer)
            await self._app(scope, _Capped(receive, self._body_bytes), answer)
        except ClientDisconnect:
            pass  # nobody is left to answer
        except Exception as error:
            failed = internal(scope, error)
            if not answer.status:
                await refuse(failed, scope, receive, answer)
            else:
                raise _Broken from None  # the connection is cut, so that nobody takes half an answer for a whole one
        finally:
            if scope["type"] == "http":
                self._traffic.saw(scope, answer.status, answer.seconds)

    def _refused(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = self._names.host(headers.getlist("host"))
        if host is None:
            detail = (
                "the Host header names another server; start this one with --allow-host to give it that name"
            )
            return problem(scope, 421, detail)
        if not self._names.may_speak(headers.getlist("origin"), scope["scheme"], host):
            detail = "a page of another origin may not speak to this server; allow it with --allow-origin"
            return problem(scope, 403, detail)
        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            return problem(scope, 400, "the address holds a zero byte, which is part of no name here")
        return self._refused_body(scope, headers)

    def _refused_body(self, scope: Scope, headers: Headers) -> Response | None:
        """Judge a body by what its headers say."""
        length = headers.get("content-length", "0")
        if not length.isdecimal():
            return problem(scope, 400, "Content-Length is no number")
        if int(length) > self._body_bytes:
            return problem(scope, 413, _too_large(self._body_bytes))
        if (length == "0" and "transfer-encoding" not in headers) or scope["type"] == "websocket":
            return None
        if not _JSON.fullmatch(headers.get("content-type", "")):
            return problem(
                scope, 415, "send the body as JSON, with the header Content-Type: application/json"
            )
        if headers.get("content-encoding", "identity") != "identity":
            return problem(scope, 415, "send the body without Content-Encoding")
        return None


class _Broken(Exception):
    """An answer that had begun could not be ended; why is in the log."""


class _Capped:
    """Receives a body until it has become too large, whatever its headers promised."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive, self._most, self._got = receive, most, 0

    async def __call__(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._got += len(message.get("body", b""))
            if self._got > self._most:
                raise HTTPException(413, _too_large(self._most))
        return message


class _Answer:
    """Sends, with the headers every answer has; remembers how and when it began."""

    def __init__(self, scope: Scope, send: Send) -> None:
        scope["state"] = dict(scope.get("state") or {})
        scope["state"]["request"] = self._request = secrets.token_hex(8)
        self._send, self._begun = send, time.perf_counter()
        self.status = 0
        self.seconds = 0.0

    async def __call__(self, message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            self.status, self.seconds = message["status"], time.perf_counter() - self._begun
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers["X-Request-Id"] = self._request
        elif message["type"] in ("websocket.accept", "websocket.close"):
            self.status = self.status or 101
        await self._send(message)


def _too_large(most: int) -> str:
    return f"a body may have {most:,} bytes and this one has more"
