"""Listening: a socket bound before anything else starts, and uvicorn around the application."""

import asyncio
import contextlib
import errno
import resource
import socket
import ssl
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import psutil
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from penstock.errors import ConfigError
from penstock.server import live

HEADERS_SECONDS = 10.0
"""How long a client may take to say what it wants."""
GRACE_SECONDS = 3
"""How long open requests may go on once the server stops."""
MOST_CONNECTIONS = 8192
ELSEWHERE = (
    "give it a certificate (--tls-cert, --tls-key), or say --insecure if something in front of it encrypts"
)


class Listener:
    """A bound socket; the port is known, nothing is answered yet."""

    def __init__(
        self, host: str, port: int, cert: Path | None, key: Path | None, *, insecure: bool = False
    ) -> None:
        """Raise ConfigError where it cannot be had; elsewhere than on loopback only with TLS or `insecure`."""
        family, address = check_place(host, port, cert, key, insecure)
        self.cert, self.key = cert, key
        self.socket = _bind(family, host, address, port)
        self.host, self.port = host, int(self.socket.getsockname()[1])

    @property
    def address(self) -> str:
        """As one would type it into a browser of this machine."""
        host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host).strip("[]")  # noqa: S104
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if self.cert else 'http'}://{shown}:{self.port}"

    def close(self) -> None:
        self.socket.close()


class Server:
    """An application on a listener. Signals are the caller's; `stop` may be called by any thread and from handlers."""

    def __init__(self, app: FastAPI, listener: Listener) -> None:
        self._app, self._listener = app, listener
        self._server = _Quiet(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,  # an address that a client may choose limits nobody
                http=_Prompt,
                ws="auto",
                **live.UVICORN,
                limit_concurrency=MOST_CONNECTIONS,
                timeout_graceful_shutdown=GRACE_SECONDS,
                ssl_certfile=listener.cert,
                ssl_keyfile=listener.key,
            )
        )

    @property
    def address(self) -> str:
        return self._listener.address

    @property
    def started(self) -> bool:
        """Whether requests are answered."""
        return self._server.started and not self._server.should_exit

    def run(self) -> None:
        """Answer until `stop`; then end what is open within a few seconds and return."""
        allow_many_files()
        try:
            self._server.run(sockets=[self._listener.socket])
        finally:
            self._listener.close()

    def stop(self) -> None:
        """Ask `run` to return."""
        self._app.state.followers.stopping.set()
        self._server.should_exit = True

    def close(self) -> None:
        """Give the port back without having run."""
        self._listener.close()


def serve(
    app: FastAPI,
    host: str,
    port: int,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    *,
    insecure: bool = False,
) -> Server:
    """Bind now; answer once `run` is called."""
    return Server(app, Listener(host, port, tls_cert, tls_key, insecure=insecure))


class _Prompt(HttpToolsProtocol):
    """A connection on which no request has been told to its headers' end in time is closed: it costs a place."""

    _slow: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_headers()

    def on_message_begin(self) -> None:
        self._await_headers()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._be_patient()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._be_patient()
        super().connection_lost(exc)

    def _be_patient(self) -> None:
        if self._slow is not None:
            self._slow.cancel()

    def _await_headers(self) -> None:
        self._be_patient()
        self._slow = self.loop.call_later(HEADERS_SECONDS, self.transport.close)


class _Quiet(uvicorn.Server):
    """Leaves signals to whoever runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def check_place(
    host: str, port: int, cert: Path | None, key: Path | None, insecure: bool
) -> tuple[socket.AddressFamily, str]:
    """Where to listen; raise ConfigError for what would be reached from elsewhere without TLS or `insecure`."""
    family, address = _resolve(host, port)
    if (cert is None) != (key is None):
        raise ConfigError("TLS needs both a certificate and its key: --tls-cert FILE --tls-key FILE")
    if not ip_address(address.partition("%")[0]).is_loopback and cert is None and not insecure:
        raise ConfigError(
            f"{host} can be reached from other machines and tokens would travel in the clear; {ELSEWHERE}"
        )
    _check_certificate(cert, key)
    return family, address


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, str]:
    if not 0 <= port < 65536:
        raise ConfigError(f"port {port} is none: 0 (any free one) to 65535")
    try:
        found = socket.getaddrinfo(host.strip("[]") or "0.0.0.0", port, type=socket.SOCK_STREAM)  # noqa: S104
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"host {host!r} is unknown here ({error}); try 127.0.0.1") from error
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return family, str(address[0])


def _bind(family: socket.AddressFamily, host: str, address: str, port: int) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # else a restart waits for old connections
        bound.bind((address, port))
        bound.listen(2048)  # so that a second server of this port fails now and not later
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} on {host} is in use{_user_of(port)}; stop that, or choose another (0 is any free one)"
            ) from error
        raise ConfigError(
            f"cannot listen on {host} port {port}: {error.strerror}; choose another --host or --port"
        ) from error
    bound.set_inheritable(False)
    live.tune(bound)
    return bound


def _user_of(port: int) -> str:
    """Who listens there, where this user may know."""
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            listens = (
                connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr[1] == port
            )
            if listens and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (pid {connection.pid})"
    return ""


def _check_certificate(cert: Path | None, key: Path | None) -> None:
    if cert is None:
        return
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key, password=lambda: b"")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigError(f"the certificate {cert} and key {key} cannot be used: {error}") from error


def allow_many_files() -> None:
    """Each viewer is an open file; the usual soft limit of 1,024 is not enough."""
    with contextlib.suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
