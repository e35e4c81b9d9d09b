"""Listening for clients: limits, TLS, health and reflection around the service."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from penstock import proto
from penstock.errors import ConfigError, Denied
from penstock.server.grpc import MESSAGE_BYTES, Servicer, refusal
from penstock.server.grpc_auth import REFLECTION, Gatekeeper

MOST_CALLS = 8192
"""Under way at once; each client waits for the next version in one."""
GRACE_SECONDS = 3.0
OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.max_metadata_size", 16 << 10),
    ("grpc.max_concurrent_streams", 64),
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_ping_strikes", 3),
    ("grpc.max_connection_idle_ms", 600_000),
]
_REFLECTION = "/grpc.reflection."


class Guard(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Reflection needs a token like everything else; health is open, as it is in REST."""

    def __init__(self, gatekeeper: Gatekeeper) -> None:
        self._gatekeeper = gatekeeper

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        if not details.method.startswith(_REFLECTION):
            return await continuation(details)
        try:
            await self._gatekeeper(details.invocation_metadata, "", REFLECTION)
        except Denied as error:
            status, words = refusal(error)

            async def refuse(_: Any, context: Any) -> None:
                await context.abort(status, words)

            return grpc.stream_stream_rpc_method_handler(refuse)
        return await continuation(details)


class GatewayServer:
    """Serves until `stop`; the caller's thread runs the event loop."""

    def __init__(
        self,
        servicer: Servicer,
        gatekeeper: Gatekeeper,
        host: str,
        port: int,
        cert: Path | None,
        key: Path | None,
    ) -> None:
        self._servicer, self._gatekeeper = servicer, gatekeeper
        self._host, self._port, self._cert, self._key = host, port, cert, key
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None

    def run(self, started: Any) -> None:
        """Listen, call `started` with the port, and serve; raise ConfigError where the port is taken."""
        asyncio.run(self._run(started))

    def stop(self) -> None:
        """End soon; may be called by any thread and from signal handlers."""
        if self._loop is not None and self._stopping is not None:
            with contextlib.suppress(RuntimeError):  # it has ended already
                self._loop.call_soon_threadsafe(self._stopping.set)

    async def _run(self, started: Any) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        server = grpc.aio.server(
            options=OPTIONS, maximum_concurrent_rpcs=MOST_CALLS, interceptors=[Guard(self._gatekeeper)]
        )
        server.add_generic_rpc_handlers((self._servicer.handlers(),))
        checks = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(checks, server)
        reflection.enable_server_reflection(
            (proto.SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server
        )
        port = self._listen(server)
        await server.start()
        for name in ("", proto.SERVICE):
            await checks.set(name, health_pb2.HealthCheckResponse.SERVING)
        started(port)
        try:
            await self._stopping.wait()
        finally:
            await checks.enter_graceful_shutdown()
            await server.stop(GRACE_SECONDS)
            self._servicer.close()

    def _listen(self, server: Any) -> int:
        host = f"[{self._host}]" if ":" in self._host else self._host
        address = f"{host}:{self._port}"
        try:
            if self._cert is None or self._key is None:
                port = server.add_insecure_port(address)
            else:
                pair = (self._key.read_bytes(), self._cert.read_bytes())
                port = server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
        except (RuntimeError, OSError) as error:
            port, reason = 0, str(error)
        else:
            reason = "it is taken"
        if not port:
            raise ConfigError(
                f"the gateway cannot listen on {address}: another process has the port, perhaps another gateway; "
                f"choose one with --port (up: --gateway-port) ({reason[:80]})"
            )
        return int(port)
