"""One channel to the gateway: calls with deadlines, and answers that went wrong as our errors."""

from __future__ import annotations

import platform
import threading
from collections.abc import Iterator
from typing import Any

import grpc

from penstock import __version__, proto
from penstock.client.gate import Gate
from penstock.client.settings import Settings
from penstock.client.token import is_loopback
from penstock.errors import ConfigError, NotFound, PenstockError, Unavailable

MAX_MESSAGE = 4 << 20
SOFTWARE = f"penstock-client/{__version__} python/{platform.python_version()}"
_CALLERS_MISTAKE = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED,
}


CANCEL_SECONDS = 0.5
"""How long a call that was given up, or a fork, waits for gRPC to let go."""


class Interrupted(Unavailable):
    """The process forks; the call may be made again at once."""


class Link:
    """Thread-safe. Connects by itself when it is first used and again whenever the gateway is back."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._address = settings, settings.address
        self._metadata = (("authorization", f"Bearer {settings.token}"),) if settings.token else ()
        self._unary: dict[str, Any] = {}
        self._channel: Any = None
        self._pending: Any = None
        self._gate = Gate()

    def connect(self) -> None:
        """Make the channel; apart from the constructor, because a forked child must not do that while it forks."""
        settings = self._settings
        options: list[tuple[str, Any]] = [
            ("grpc.max_receive_message_length", MAX_MESSAGE),
            ("grpc.max_send_message_length", MAX_MESSAGE),
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.initial_reconnect_backoff_ms", 200),
            ("grpc.max_reconnect_backoff_ms", 5_000),
            ("grpc.enable_retries", 0),
            # the fetching thread waits by itself: fewer wake-ups beside the application (7 a second instead of 17)
            ("SingleThreadedUnaryStream", 1),
            # each client has a connection of its own; a shared one would outlive `close`
            ("grpc.use_local_subchannel_pool", 1),
        ]
        if is_loopback(settings.address):
            options.append(("grpc.enable_http_proxy", 0))
        if settings.tls is None:
            self._channel = grpc.insecure_channel(settings.address, options)
        else:
            tls = settings.tls
            credentials = grpc.ssl_channel_credentials(tls.ca, tls.key, tls.cert)
            self._channel = grpc.secure_channel(settings.address, credentials, options)
        self._unary = {
            name: self._channel.unary_unary(
                proto.path(name),
                request_serializer=_serialized,
                response_deserializer=reply.FromString,
            )
            for name, (_, reply, streamed) in proto.METHODS.items()
            if not streamed
        }
        self._fetch = self._channel.unary_stream(
            proto.path("Fetch"),
            request_serializer=proto.FetchRequest.SerializeToString,
            response_deserializer=proto.FetchReply.FromString,
        )

    def open(self, seconds: float) -> Any:
        """Name the policy; raise ConfigError where the gateway refuses, Unavailable where it is away."""
        request = proto.OpenRequest(
            protocol=proto.PROTOCOL,
            policy=self._settings.policy,
            configuration=self._settings.trained,
            software=SOFTWARE,
        )
        with self._gate:
            reply = self._wait(self._unary["Open"].future(request, timeout=seconds, metadata=self._metadata))
        if reply.protocol != proto.PROTOCOL:
            raise ConfigError(
                f"the gateway at {self._address} speaks protocol {reply.protocol}, this client "
                f"{proto.PROTOCOL}; bring both to the same release"
            )
        return reply

    def _wait(self, future: Any) -> Any:
        """An answer that `cancel` need not wait for."""
        self._pending = future
        over = threading.Event()
        future.add_done_callback(lambda _: over.set())
        try:
            return future.result()
        except grpc.FutureCancelledError as error:
            over.wait(CANCEL_SECONDS)  # a thread of gRPC's is still at it
            kind = Interrupted if self._gate.is_shut else Unavailable
            raise kind(f"the call to {self._address} was given up") from error
        except grpc.RpcError as error:
            raise self._translated(error) from error
        finally:
            self._pending = None

    def call(self, method: str, request: Any, seconds: float) -> Any:
        try:
            with self._gate:
                return self._unary[method](request, timeout=seconds, metadata=self._metadata)
        except grpc.RpcError as error:
            raise self._translated(error) from error
        except ValueError as error:  # the channel was closed
            raise Unavailable(f"the channel to {self._address} is closed") from error

    def fetch(self, request: Any, seconds: float) -> Iterator[Any]:
        """Replies as they come; `cancel` ends them."""
        try:
            with self._gate:
                self._pending = self._fetch(request, timeout=seconds, metadata=self._metadata)
                yield from self._pending
        except grpc.RpcError as error:
            raise self._translated(error) from error
        except ValueError as error:
            raise Unavailable(f"the channel to {self._address} is closed") from error
        finally:
            self._pending = None

    def cancel(self) -> None:
        """End an `open` or `fetch` that waits."""
        pending = self._pending
        if pending is not None:
            pending.cancel()

    def pause(self) -> None:
        """Before a fork: nobody is inside gRPC, or its own fork handlers would not run and the child would abort."""
        self._gate.shut(self.cancel, CANCEL_SECONDS)

    def resume(self) -> None:
        """After a fork, in the parent."""
        self._gate.open()

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()

    def _translated(self, error: Any) -> PenstockError:
        code, details = error.code(), " ".join(str(error.details() or "").split())[:500]
        if code == grpc.StatusCode.CANCELLED and self._gate.is_shut:
            return Interrupted(f"the call to {self._address} was given up")
        if code == grpc.StatusCode.NOT_FOUND:
            return NotFound(f"the gateway at {self._address} does not know this policy: {details}")
        if code in _CALLERS_MISTAKE:
            return ConfigError(f"the gateway at {self._address} refuses: {details or code.name}")
        return Unavailable(f"the gateway at {self._address} does not answer ({code.name}): {details}")


def _serialized(request: Any) -> bytes:
    return request if isinstance(request, bytes) else bytes(request.SerializeToString())
