"""MCP over standard input and output, carried to the running server: messages pass, nothing is done here.

The transports are the SDK's own; what is added are the headers that HTTP wants and a pipe does not have.
"""

from typing import Any

import anyio
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.server.stdio import stdio_server
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
)
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import PROTOCOL_VERSION_META_KEY

READ_SECONDS = 600.0
"""A tool may wait for an evaluation."""


class Bridge:
    """One assistant on this process's standard input and output, one server behind it."""

    def __init__(self, address: str, token: str, read_only: bool) -> None:
        self._url = f"{address}/mcp"
        self._headers = {"Authorization": f"Bearer {token}"} | (
            {"Penstock-Role": "viewer"} if read_only else {}
        )
        self._initialize: Any = None
        """Id of the request whose answer names the protocol's version."""
        self._version: str | None = None

    def run(self) -> None:
        """Carry messages until the assistant closes its end."""
        anyio.run(self._carry)

    async def _carry(self) -> None:
        client = httpx2.AsyncClient(
            headers=self._headers, timeout=httpx2.Timeout(30.0, read=READ_SECONDS), trust_env=False
        )
        async with client, stdio_server() as (said, saying):
            carrier = streamable_http_client(self._url, http_client=client, terminate_on_close=False)
            async with carrier as (answered, asking), anyio.create_task_group() as tasks:
                tasks.start_soon(self._back, answered, saying)
                async for item in said:
                    if isinstance(item, SessionMessage):
                        await asking.send(self._stamped(item))
                tasks.cancel_scope.cancel()

    async def _back(self, answered: Any, saying: Any) -> None:
        async for item in answered:
            if not isinstance(item, SessionMessage):
                continue
            message = item.message.model_dump(by_alias=True, exclude_unset=True)
            if self._initialize is not None and message.get("id") == self._initialize:
                self._version = (message.get("result") or {}).get("protocolVersion")
            await saying.send(item)

    def _stamped(self, item: SessionMessage) -> SessionMessage:
        """The message with its headers: version, method and name, as its own body says."""
        message = item.message.model_dump(by_alias=True, exclude_unset=True)
        method, params = message.get("method"), message.get("params") or {}
        if method == "initialize":
            self._initialize = message.get("id")
        version = (params.get("_meta") or {}).get(PROTOCOL_VERSION_META_KEY) or self._version
        if method is None or version is None or method == "initialize":
            return item
        headers = {MCP_PROTOCOL_VERSION_HEADER: version, MCP_METHOD_HEADER: method}
        name = params.get(NAME_BEARING_METHODS.get(method, ""))
        if isinstance(name, str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)
        return SessionMessage(item.message, metadata=ClientMessageMetadata(headers=headers))
