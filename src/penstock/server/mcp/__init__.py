"""The same verbs for AI assistants: tools, resources and prompts over streamable HTTP at /mcp.

`penstock mcp` carries standard input and output there (server/bridge.py).
"""

import contextlib
import logging
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.routing import Route

from penstock import __version__
from penstock.control.permissions import Principal, Role
from penstock.errors import Denied
from penstock.server.late import PATH
from penstock.server.mcp import admin, catalogue, reading, steering
from penstock.server.mcp.backend import Backend
from penstock.server.mcp.desk import Identify, Offer, tool_of
from penstock.server.mcp.sources import PROMPTS, add_resources, guard

ROLE_HEADER = "Penstock-Role"
BODY_BYTES = 1 << 20

OFFERS: tuple[Offer, ...] = (*reading.OFFERS, *steering.OFFERS, *catalogue.OFFERS, *admin.OFFERS)

WITHOUT_TOOL = {
    "download_checkpoint": "a file of many megabytes is nothing for a conversation; export it, or use REST",
    "download_recording": "a moving picture is nothing for a conversation; the page shows it, penstock play keeps it",
    "get_ready": "get_server tells the same checks",
    "get_openapi": "the description of the REST interface; tools describe themselves",
    "get_prometheus": "for Prometheus; get_metrics and get_server tell it in fewer words",
    "watch_metrics": "the live feed; a conversation asks get_metrics",
    "watch_states": "the live feed; a conversation asks get_status",
    "watch_logs": "the live feed; a conversation asks get_logs with `after`",
    "watch_play": "pictures for people; a conversation asks evaluate_policy",
    "open_policy": "for running systems, over gRPC (docs/gateway.md)",
    "send_experience": "for running systems, over gRPC",
    "fetch_policy": "for running systems, over gRPC",
    "act_remotely": "for running systems, over gRPC",
}
"""Operations an assistant has no tool for, and why."""

INSTRUCTIONS = """\
Penstock trains reinforcement-learning policies. A run trains one policy in one environment; its id looks like
cartpole-k3v9. list_runs and get_status tell what there is, start_training begins a run, get_metrics and compare_runs
tell how runs learn, evaluate_policy plays episodes with a checkpoint.
Commands return once they are recorded; look at get_status for their effect a second or two later. Errors say what to do
next. Judge results by evaluations and several seeds. Never delete a run or change one at work unless the person asked
for it."""


def create_server(backend: Backend, identify: Identify) -> MCPServer[Any]:
    """Tools, resources and prompts over `backend`; each is offered the tools its role may use."""
    with _own_logging():
        server: MCPServer[Any] = MCPServer(
            "penstock",
            title="Penstock",
            instructions=INSTRUCTIONS,
            version=__version__,
            log_level="WARNING",
            tools=[tool_of(offer, backend, identify) for offer in OFFERS],
            subscriptions=False,
            middleware=[guard(identify)],
        )
    add_resources(server, backend, identify)
    for prompt, title in PROMPTS:
        server.prompt(title=title)(prompt)
    return server


def mount(control: Backend) -> tuple[list[Route], AbstractAsyncContextManager[None]]:
    """The route of streamable HTTP, and what must be entered while the application lives.

    Every call is its own: no session is kept, answers are JSON. The application around it has checked Host, Origin,
    token and size before.
    """
    server = create_server(control, principal_of)
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,
        max_request_body_size=BODY_BYTES,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    endpoint = next(route for route in app.routes if isinstance(route, Route) and route.path == PATH).endpoint
    # only POST: a GET would open a stream on which nothing is ever sent
    return [Route(PATH, endpoint, methods=["POST"], name="mcp")], server.session_manager.run()


def principal_of(request: Any) -> Principal:
    """Whom the authentication middleware found behind an HTTP request; raise Denied without one.

    The header Penstock-Role makes the role smaller for this request: an assistant that should only look.
    """
    who = getattr(getattr(request, "state", None), "principal", None)
    if not isinstance(who, Principal):
        raise Denied("no token; send the header Authorization: Bearer pst_…")
    wished = request.headers.get(ROLE_HEADER)
    if wished is None:
        return who
    if wished not in set(Role):
        raise Denied(f"the header {ROLE_HEADER} names no role; they are {', '.join(Role)}")
    return replace(who, role=min(who.role, Role(wished), key=lambda role: role.rank))


@contextlib.contextmanager
def _own_logging() -> Iterator[None]:
    """The SDK sets up logging of the whole process; that is not its business."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
