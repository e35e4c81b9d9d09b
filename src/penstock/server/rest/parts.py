"""What all routes share: how they are guarded, what they take and how they answer."""

import json
import re
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Header, Path, Query
from fastapi.routing import APIRoute
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from penstock.control import permissions
from penstock.control.control import Control
from penstock.control.permissions import Principal
from penstock.errors import NotFound, nearest
from penstock.model.run import RUN_ID

PREFIX = "/api/v1"
OPEN = "get_health"
"""The only operation that needs no token."""

DEEPEST = 64
_SUSPICIOUS = re.compile(rb"\\u0000|[0-9]{19}")


class GuardedRoute(APIRoute):
    """Asks for permission before it reads anything; a route that is in no permission table cannot be made."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        options["name"] = options["operation_id"] = endpoint.__name__
        if endpoint.__name__ not in permissions.NEEDED and endpoint.__name__ != OPEN:
            raise LookupError(f"the route {endpoint.__name__} is not in control/permissions.py")
        super().__init__(path, endpoint, **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        known = {field.alias for field in self.dependant.query_params}

        async def guarded(request: Request) -> Response:
            if self.name != OPEN:
                permissions.check(request.state.principal, self.name)
            if not RUN_ID.fullmatch(run := request.path_params.get("run", "any")):
                raise NotFound(f"there is no run {run[:80]!r}; ids look like cartpole-k3v9")
            _refuse_unknown(request, known)
            return await handle(_StrictRequest(request.scope, request.receive))

        return guarded


def _refuse_unknown(request: Request, known: set[str]) -> None:
    """A misspelt filter must not answer with everything."""
    for name in request.query_params:
        if name not in known:
            raise HTTPException(
                422, f"there is no query parameter {name[:80]!r} here{nearest(name[:80], known)}"
            )


class _StrictRequest(Request):
    """Reads JSON as RFC 8259 has it; numbers and texts that nothing behind it could keep are refused."""

    async def json(self) -> Any:
        body = await self.body()
        try:
            value = msgspec.json.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise json.JSONDecodeError(str(error), "", 0) from error
        if _SUSPICIOUS.search(body) or body.count(b"[") + body.count(b"{") > DEEPEST:
            _look_through(value, DEEPEST)
        return value


def _look_through(value: Any, deep: int) -> None:
    """Raise 422 for what is JSON and still could not be kept in a log or a database."""
    if not deep:
        raise HTTPException(422, f"the body is nested deeper than {DEEPEST}")
    if isinstance(value, str) and "\0" in value:
        raise HTTPException(422, "the body has a text with a zero character")
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise HTTPException(422, "the body has a number of more than 64 bits")
    if isinstance(value, dict | list):
        for item in value:
            _look_through(item, deep - 1)
    if isinstance(value, dict):
        for item in value.values():
            _look_through(item, deep - 1)


def make_router(tag: str) -> APIRouter:
    """An empty one whose routes are guarded."""
    return APIRouter(prefix=PREFIX, tags=[tag], route_class=GuardedRoute)


async def _control(request: Request) -> Control:
    control: Control = request.app.state.control
    return control


async def _who(request: Request) -> Principal:
    principal: Principal = request.state.principal
    return principal


ControlDep = Annotated[Control, Depends(_control)]
Who = Annotated[Principal, Depends(_who)]

Run = Annotated[
    str,
    Path(
        description="A run's id.",
        examples=["cartpole-k3v9"],
        json_schema_extra={"pattern": f"^{RUN_ID.pattern}$"},
    ),
]
Id = Annotated[str, Path(min_length=1, max_length=200, pattern=r"^[!-~]+$")]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[!-~]+$",
        description="Any word of your own: the same key with the same request has one effect and one answer.",
    ),
]
IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match", max_length=1000, description="The ETag seen last; 412 where the run changed since."
    ),
]
Limit = Annotated[int, Query(ge=1, le=500, description="Most items of a page.")]
Cursor = Annotated[str | None, Query(min_length=1, max_length=500, description="`next` of the page before.")]


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """`value` as JSON, made in the thread that read it and not checked twice; what is not finite is null."""
    content = to_json(value, by_alias=True, inf_nan_mode="null")
    return Response(content, status, headers, "application/json")


def run_path(run: str) -> str:
    return f"{PREFIX}/runs/{run}"


def etag(revision: int) -> str:
    return f'"{revision}"'


def names_tag(header: str | None, tag: str) -> bool:
    """Whether an If-Match or If-None-Match names `tag`."""
    if header is None:
        return False
    words = [word.strip().removeprefix("W/") for word in header.split(",")]
    return "*" in words or tag in words
