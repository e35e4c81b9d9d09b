"""The web page: files that `make page` built, for whoever has a browser; they hold no secret and need no token.

Reads from: the folder `page` beside this file. Addresses that name no file are the page's own and get its index.
"""

import gzip
import mimetypes
import secrets
from functools import lru_cache
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

FOLDER = Path(__file__).parent / "page"
ELSEWHERE = ("api", "mcp")
"""First parts of addresses that are not the page's."""
INDEX = "index.html"
ASSETS = "assets"
"""What lies there has its hash in its name and never changes."""
NONCE = b"__NONCE__"
SQUEEZED = frozenset({".js", ".css", ".svg", ".html", ".json"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
MISSING = b"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Penstock</title>
<h1>Penstock answers, but its page is not built</h1>
<p>Build it with <code>make page</code> (needs Node.js 20 or newer) and load this address again.
The command line and <code>/api/v1</code> work without it.</p></html>"""


class Page:
    """Middleware before the one that asks for a token: answers GET of everything outside the API."""

    def __init__(self, app: ASGIApp, folder: Path = FOLDER) -> None:
        self._app, self._folder = app, folder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not is_page(scope):
            return await self._app(scope, receive, send)
        await self._answer(scope["path"], "gzip" in Headers(scope=scope).get("accept-encoding", ""))(
            scope, receive, send
        )

    def _answer(self, path: str, squeeze: bool) -> Response:
        if (file := self._file(path)) is not None:
            return _file_response(file, self._folder, squeeze)
        if path.startswith(f"/{ASSETS}/"):
            return Response("this file is of another build of the page; load the page anew\n", 404)
        return self._index()

    def _file(self, path: str) -> Path | None:
        """The built file at an address, never one outside the folder."""
        try:
            file = (self._folder / path.lstrip("/")).resolve()
            inside = file.is_relative_to(self._folder.resolve())
            return file if inside and file.name != INDEX and file.is_file() else None
        except (OSError, ValueError):  # no file can have such a name
            return None

    def _index(self) -> Response:
        nonce = secrets.token_urlsafe(16)
        headers = {"Content-Security-Policy": POLICY.format(nonce=nonce), "Cache-Control": "no-cache"}
        try:
            text = (self._folder / INDEX).read_bytes()
        except FileNotFoundError:
            return Response(MISSING, 503, headers, "text/html")
        return Response(text.replace(NONCE, nonce.encode()), 200, headers, "text/html")


def is_page(scope: Scope) -> bool:
    """Whether a request is for the page and not for the API."""
    if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
        return False
    return scope["path"].lstrip("/").split("/", 1)[0] not in ELSEWHERE


def _file_response(file: Path, folder: Path, squeeze: bool) -> Response:
    hashed = file.parent == (folder / ASSETS).resolve()
    headers = {"Cache-Control": "public, max-age=31536000, immutable" if hashed else "no-cache"}
    body = file.read_bytes()
    if file.suffix in SQUEEZED:
        headers["Vary"] = "Accept-Encoding"
        if squeeze:
            body = _squeezed(body)
            headers["Content-Encoding"] = "gzip"
    media_type = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    return Response(body, 200, headers, media_type)


@lru_cache(maxsize=64)
def _squeezed(body: bytes) -> bytes:
    return gzip.compress(body, mtime=0)
