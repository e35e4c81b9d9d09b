"""The application: routes inside, then who may come in, then which requests are heard at all."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache

from anyio import to_thread
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

from penstock import __version__
from penstock.control.control import Control
from penstock.errors import ConfigError, PenstockError
from penstock.server import live, watch
from penstock.server.auth import Authentication, Gate
from penstock.server.followers import Followers
from penstock.server.guard import Guard
from penstock.server.hosts import Names
from penstock.server.late import LateTools
from penstock.server.openapi import describe
from penstock.server.page import Page
from penstock.server.problems import on_http_exception, on_invalid_request, on_penstock_error
from penstock.server.rates import Limits
from penstock.server.rest import ROUTERS
from penstock.server.traffic import Traffic


def create_app(
    control: Control,
    *,
    allowed_hosts: Sequence[str],
    allowed_origins: Sequence[str] = (),
    limits: Limits = Limits(),  # noqa: B008 - frozen
) -> FastAPI:
    """REST, live feed, MCP and the page over `control`; raise ConfigError for a host or origin that is none."""
    gate, traffic = Gate(control.tokens, limits), Traffic()
    tools = LateTools(control)
    app = FastAPI(
        title="Penstock",
        version=__version__,
        openapi_url=None,  # ours needs a token
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        lifespan=_lifespan(tools, limits.threads),
        middleware=_layers(gate, traffic, _names(allowed_hosts, allowed_origins), allowed_origins, limits),
        exception_handlers={
            PenstockError: on_penstock_error,
            HTTPException: on_http_exception,
            RequestValidationError: on_invalid_request,
        },
    )
    for router in ROUTERS:
        app.router.routes.extend(router.routes)
    app.router.routes.extend(live.routes(control, gate))
    app.router.routes.extend(watch.routes(control, gate))
    app.router.routes.extend(tools.routes())
    app.state.control, app.state.traffic, app.state.followers = control, traffic, Followers(limits.followers)
    app.state.openapi = cache(lambda: describe(app))  # half a second's work, for those who ask
    return app


def _names(allowed_hosts: Sequence[str], allowed_origins: Sequence[str]) -> Names:
    try:
        return Names(allowed_hosts, allowed_origins)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _layers(
    gate: Gate, traffic: Traffic, names: Names, allowed_origins: Sequence[str], limits: Limits
) -> list[Middleware]:
    """Outermost first."""
    layers = [Middleware(Guard, names=names, body_bytes=limits.body_bytes, traffic=traffic)]
    if allowed_origins:  # their pages ask first whether they may send a token; that question carries none
        layers.append(
            Middleware(
                CORSMiddleware,
                allow_origins=[origin.lower() for origin in allowed_origins],
                allow_methods=["GET", "POST", "PATCH", "DELETE"],
                allow_headers=[
                    "Authorization",
                    "Content-Type",
                    "Idempotency-Key",
                    "If-Match",
                    "If-None-Match",
                ],
                expose_headers=["ETag", "Location", "Retry-After", "X-Request-Id"],
            )
        )
    return [*layers, Middleware(Page), Middleware(Authentication, gate=gate, limits=limits)]


def _lifespan(tools: LateTools, threads: int) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        to_thread.current_default_thread_limiter().total_tokens = threads
        async with tools.running():
            yield

    return lifespan
