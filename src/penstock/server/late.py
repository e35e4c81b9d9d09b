"""MCP joins a moment later: importing it takes a second, and a server that was killed should answer before that."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from anyio import to_thread
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.control.control import Control

PATH = "/mcp"


class LateTools:
    """Loads the tools beside the first requests; those that ask for them wait until they are there."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._app: asyncio.Future[ASGIApp] | None = None
        self._closing = asyncio.Event()

    def routes(self) -> list[BaseRoute]:
        return [Route(PATH, endpoint=self, methods=["POST"], name="mcp")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._app is not None, "the application has not started"
        await (await asyncio.shield(self._app))(scope, receive, send)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Enter while the application lives."""
        self._app = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._run(self._app), name="mcp")
        try:
            yield
        finally:
            self._closing.set()
            await task

    async def _run(self, ready: "asyncio.Future[ASGIApp]") -> None:
        """One task from beginning to end: whoever enters the session must leave it."""

        def load() -> tuple[ASGIApp, AbstractAsyncContextManager[None]]:
            from penstock.server import mcp

            (route,), session = mcp.mount(self._control)
            return route.app, session

        try:
            app, session = await to_thread.run_sync(load)
        except Exception as error:
            ready.set_exception(error)
            return
        async with session:
            ready.set_result(app)
            await self._closing.wait()
