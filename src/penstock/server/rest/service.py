"""The server itself: health, readiness, facts, metrics and its own description."""

from typing import Any, Literal

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from penstock.control.views import ServerView
from penstock.server import prometheus
from penstock.server.problems import problem
from penstock.server.rest.parts import ControlDep, answer, make_router

router = make_router("server")


class Health(BaseModel):
    status: Literal["ok"]


class Ready(BaseModel):
    status: Literal["ready"]
    checks: dict[str, str]


@router.get("/health", response_model=Health)
async def get_health() -> Response:
    """Whether the server answers at all; needs no token."""
    return answer({"status": "ok"})


@router.get("/ready", response_model=Ready)
def get_ready(control: ControlDep, request: Request) -> Response:
    """Whether database, log and controller work: 200, or 503 with what is wrong."""
    checks = control.ready()
    bad = [f"{name}: {word}" for name, word in checks.items() if word != "ok"]
    if bad:
        return problem(request.scope, 503, "; ".join(bad), {"Retry-After": "2"}, checks=checks)
    return answer({"status": "ready", "checks": checks})


@router.get("/server", response_model=ServerView)
def get_server(control: ControlDep) -> Response:
    """What this server is and how it does."""
    return answer(control.server())


@router.get(
    "/prometheus",
    response_class=Response,
    responses={
        200: {
            "description": "Prometheus' text format.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        }
    },
)
def get_prometheus(control: ControlDep, request: Request) -> Response:
    """Runs by state, live runs' progress, commands, viewers and requests, for Prometheus."""
    return Response(prometheus.scrape(control, request.app.state.traffic), media_type=prometheus.MEDIA_TYPE)


@router.get("/openapi.json", response_model=dict[str, Any])
def get_openapi(request: Request) -> Response:
    """This API as an OpenAPI 3.1 document."""
    return Response(request.app.state.openapi(), media_type="application/json")
