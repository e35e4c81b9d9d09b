"""Saying no before a request reaches the application, to plain requests and to WebSockets alike."""

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

POLICY_VIOLATION = 1008


async def refuse(answer: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Send `answer`; a WebSocket whose server cannot answer with HTTP is closed."""
    if scope["type"] == "websocket":
        await receive()  # websocket.connect
        if "websocket.http.response" not in (scope.get("extensions") or {}):
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
            return
    await answer(scope, receive, send)
