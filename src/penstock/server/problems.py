"""Errors as the outside sees them: RFC 9457 problem details, the only table from errors to HTTP."""

import traceback
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from penstock.errors import ConfigError, Conflict, Denied, NotFound, PenstockError, Stale, Unavailable
from penstock.logs import Log

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 2

KINDS: dict[int, tuple[str, str]] = {
    400: ("malformed", "The request cannot be read"),
    401: ("no-token", "A valid token is needed"),
    403: ("denied", "This is not allowed"),
    404: ("not-found", "There is no such thing"),
    405: ("method", "This cannot be done to it"),
    409: ("conflict", "Not in this state"),
    412: ("changed", "It has changed since"),
    413: ("too-large", "The body is too large"),
    415: ("media-type", "The body must be JSON"),
    421: ("host", "This server has another name"),
    422: ("invalid", "The request is not valid"),
    429: ("too-many", "Too many requests"),
    500: ("internal", "Something broke here"),
    503: ("unavailable", "Not now"),
}
"""Status → last part of the type, and the title."""

STATUS: dict[type[PenstockError], int] = {
    ConfigError: 422,
    NotFound: 404,
    Stale: 412,
    Conflict: 409,
    Denied: 403,
    Unavailable: 503,
}
"""What an error becomes; one that is not here, nor below one that is, is a 500."""

log = Log(process="server")


class ProblemItem(BaseModel):
    """One of several things that are wrong."""

    where: str = Field(
        description="body, query, path or header, and the name in it: query.limit, body.tags.0."
    )
    detail: str


class Problem(BaseModel):
    """RFC 9457 problem details."""

    type: str = Field(
        description="/problems/ and one word for the kind of problem.", examples=["/problems/conflict"]
    )
    title: str
    status: int
    detail: str = Field(description="One sentence that names the place and the fix.")
    instance: str = Field(description="The path that was asked for.")
    request: str = Field(
        description="Id of this request; the header X-Request-Id and the server's log have it too."
    )
    errors: list[ProblemItem] | None = None
    checks: dict[str, str] | None = Field(None, description="Of /ready: part → ok, or what is wrong.")


def problem(
    scope: Mapping[str, Any], status: int, detail: str, headers: Mapping[str, str] | None = None, **more: Any
) -> Response:
    """The answer to a request that cannot be done; `more` are members of Problem."""
    kind, title = KINDS.get(status) or (f"http-{status}", HTTPStatus(status).phrase)
    content = Problem(
        type=f"/problems/{kind}",
        title=title,
        status=status,
        detail=detail,
        instance=scope.get("path", ""),
        request=scope.get("state", {}).get("request", ""),
        **more,
    )
    return Response(to_json(content, exclude_none=True), status, headers, MEDIA_TYPE)


def status_of(error: Exception) -> int:
    """As the table above has it."""
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 500)


async def on_penstock_error(request: Request, error: Exception) -> Response:
    """An error raised on purpose: its text is the answer."""
    status = status_of(error)
    if status == 500:
        return internal(request.scope, error)
    if status == 404 and request.method == "POST" and not request.path_params:
        status = 422  # what is missing is not what the path names but something the body names
    headers = {"Retry-After": str(RETRY_SECONDS)} if status == 503 else None
    return problem(request.scope, status, str(error), headers)


async def on_http_exception(request: Request, error: Exception) -> Response:
    """What the router and the guard raise."""
    assert isinstance(error, HTTPException)
    detail = error.detail
    if error.status_code == 404:
        detail = f"there is no {request.url.path}; all paths are in /api/v1/openapi.json"
    elif error.status_code == 405:
        allowed = _methods(request)
        detail = f"{request.method} cannot be done to {request.url.path}; what can: {allowed}"
        return problem(request.scope, 405, detail, {"Allow": allowed})
    return problem(request.scope, error.status_code, detail, error.headers)


async def on_invalid_request(request: Request, error: Exception) -> Response:
    """Parameters or a body that do not fit their schema; JSON that is none."""
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    if any(item["type"] == "json_invalid" for item in found):
        reason = found[0].get("ctx", {}).get("error", "")
        return problem(request.scope, 400, f"the body is not JSON: {reason}")
    items = [
        ProblemItem(where=".".join(map(str, item["loc"])), detail=_sentence(item)) for item in found[:50]
    ]
    first = items[0]
    return problem(request.scope, 422, f"{first.where}: {first.detail}", errors=items)


def internal(scope: Mapping[str, Any], error: BaseException) -> Response:
    """A fault of ours: the reason stays in the log, under the request's id."""
    request = scope.get("state", {}).get("request", "")
    trace = "".join(traceback.format_exception(error))[-8000:]
    log.error(
        "request_failed", request=request, method=scope.get("method"), path=scope.get("path"), trace=trace
    )
    return problem(scope, 500, f"it is in the server's log as request {request}; please report it")


def _methods(request: Request) -> str:
    """What the path can: all its routes together."""
    scope = dict(request.scope)
    found: set[str] = set()
    for route in request.app.router.routes:
        for method in getattr(route, "methods", None) or ():
            match, _ = route.matches(scope | {"method": method})
            if match.value == 2:
                found.add(method)
    return ", ".join(sorted(found))


def _sentence(item: Mapping[str, Any]) -> str:
    """What is wrong, never what was sent: that may be a secret."""
    return str(item["msg"])
