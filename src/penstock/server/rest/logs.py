"""Logs: the last lines of a run's processes, or a stream of them."""

from collections.abc import AsyncIterator
from typing import Annotated

import anyio
from fastapi import Query
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from penstock.control.control import Control
from penstock.control.views import Logs
from penstock.errors import NotFound
from penstock.model.run import LIVE
from penstock.server.followers import Followers
from penstock.server.rest.parts import ControlDep, Run, answer, make_router

router = make_router("logs")

MEDIA_TYPE = "application/x-ndjson"
FOLLOW_SECONDS = (0.5, 2.0)
"""How long to wait for more: little while lines come, longer when none do."""
MOST_LINES = 2000


@router.get(
    "/runs/{run}/logs",
    response_model=Logs,
    responses={
        200: {
            "content": {
                MEDIA_TYPE: {"schema": {"type": "string", "description": "One LogLine as JSON on each line."}}
            }
        }
    },
)
def get_logs(
    control: ControlDep,
    request: Request,
    run: Run,
    process: Annotated[str | None, Query(max_length=100, description="Such as learner or actor-0.")] = None,
    lines: Annotated[int, Query(ge=0, le=MOST_LINES, description="Most lines, the last ones.")] = 200,
    after: Annotated[
        str | None, Query(max_length=4000, description="`next` of an answer: only what is new.")
    ] = None,
    follow: Annotated[bool, Query(description="Stream lines until the run ends.")] = False,
) -> Response:
    """The last lines of a run's logs. Ask again with `after`, or `follow` them as one JSON object a line."""
    found = control.reads.logs(run, process, lines, after)
    if not follow:
        return answer(found)
    return _Followed(control, request.app.state.followers, found, process)


class _Followed(StreamingResponse):
    """Lines as they are written; the client that reads slowly is waited for, nothing piles up."""

    def __init__(self, control: Control, followers: Followers, first: Logs, process: str | None) -> None:
        followers.enter()
        self._control, self._followers, self._process = control, followers, process
        super().__init__(self._lines(first), media_type=MEDIA_TYPE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._followers.leave()

    async def _lines(self, found: Logs) -> AsyncIterator[bytes]:
        quick, slow = FOLLOW_SECONDS
        seconds = quick
        over = False
        while True:
            if found.lines:
                yield b"".join(to_json(line) + b"\n" for line in found.lines)
            if (over and not found.lines) or self._followers.stopping.is_set():
                return
            seconds = quick if found.lines else min(slow, seconds * 1.5)
            await anyio.sleep(0 if over else seconds)
            try:
                over, found = await anyio.to_thread.run_sync(self._more, found)
            except NotFound:  # it was deleted meanwhile
                return

    def _more(self, seen: Logs) -> tuple[bool, Logs]:
        """Whether the run was over before this look, so that what it wrote last is in it; and the look."""
        over = self._control.reads.status(seen.run).state not in LIVE
        return over, self._control.reads.logs(seen.run, self._process, MOST_LINES, seen.next)
