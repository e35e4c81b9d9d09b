"""Listening for real: sockets, certificates, ports that are taken, and an end that comes in time."""

import http.client
import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest
from fastapi import FastAPI
from starlette.responses import StreamingResponse

from penstock.errors import ConfigError
from penstock.server.followers import Followers
from penstock.server.rates import Limits
from penstock.server.serve import Server, serve


def application() -> FastAPI:
    app = FastAPI()
    app.state.followers = Followers(Limits().followers)

    @app.get("/hello")
    async def hello() -> str:
        return "hello"

    @app.get("/forever")
    async def forever() -> StreamingResponse:
        async def drops() -> AsyncIterator[bytes]:
            while True:
                yield b"."
                await anyio.sleep(0.1)

        return StreamingResponse(drops())

    return app


@pytest.fixture
def running() -> Iterator[list[Server]]:
    """Servers put in here are running when it returns and end with the test."""
    servers: list[Server] = []
    yield servers
    for server in servers:
        server.stop()
        server.close()


def start(server: Server) -> threading.Thread:
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until = time.monotonic() + 20
    while not server.started and time.monotonic() < until:
        time.sleep(0.01)
    assert server.started
    return thread


def ask(server: Server, path: str = "/hello") -> bytes:
    scheme, _, place = server.address.partition("://")
    if scheme == "https":
        context = ssl._create_unverified_context()
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            place, timeout=10, context=context
        )
    else:
        connection = http.client.HTTPConnection(place, timeout=10)
    connection.request("GET", path)
    return connection.getresponse().read()


def test_the_port_is_known_before_it_runs_and_nothing_names_its_software(running: list[Server]) -> None:
    server = serve(application(), "127.0.0.1", 0)
    running.append(server)
    assert server.address.startswith("http://127.0.0.1:")
    assert not server.address.endswith(":0")
    start(server)
    assert ask(server) == b'"hello"'


def test_a_port_in_use_is_a_sentence_that_names_its_user() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            ConfigError, match=rf"port {port} on 127.0.0.1 is in use by .*pid {os.getpid()}.*choose"
        ):
            serve(application(), "127.0.0.1", port)


def test_two_servers_of_one_port_fail_when_the_second_binds_not_later() -> None:
    first = serve(application(), "127.0.0.1", 0)
    with pytest.raises(ConfigError, match="in use"):
        serve(application(), "127.0.0.1", int(first.address.rpartition(":")[2]))
    first.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_elsewhere_than_on_loopback_it_wants_a_certificate_or_the_word(host: str) -> None:
    with pytest.raises(ConfigError, match=r"--tls-cert.*--insecure"):
        serve(application(), host, 0)


def test_with_the_word_it_listens_everywhere(running: list[Server]) -> None:
    server = serve(application(), "0.0.0.0", 0, insecure=True)
    running.append(server)
    assert server.address.startswith("http://127.0.0.1:")  # as this machine reaches it


@pytest.mark.parametrize(
    ("host", "port"), [("nowhere.invalid", 0), ("127.0.0.1", 70_000), ("127.0.0.1", -1), ("a" * 300, 0)]
)
def test_an_address_that_is_none_is_a_sentence(host: str, port: int) -> None:
    with pytest.raises(ConfigError, match=r"unknown here|is none"):
        serve(application(), host, port)


def test_an_address_of_another_machine_is_a_sentence() -> None:
    with pytest.raises(ConfigError, match="cannot listen on"):
        serve(application(), "192.0.2.1", 0, insecure=True)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


def test_with_a_certificate_it_speaks_tls(certificate: tuple[Path, Path], running: list[Server]) -> None:
    server = serve(application(), "127.0.0.1", 0, *certificate)
    running.append(server)
    start(server)
    assert server.address.startswith("https://")
    assert ask(server) == b'"hello"'


def test_a_certificate_that_cannot_be_used_is_a_sentence(
    certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    cert, key = certificate
    (tmp_path / "bad.pem").write_text("no certificate")
    with pytest.raises(ConfigError, match="both a certificate and its key"):
        serve(application(), "127.0.0.1", 0, cert, None)
    with pytest.raises(ConfigError, match="cannot be used"):
        serve(application(), "127.0.0.1", 0, tmp_path / "bad.pem", key)
    with pytest.raises(ConfigError, match="cannot be used"):
        serve(application(), "127.0.0.1", 0, tmp_path / "absent.pem", key)


def test_it_ends_in_time_though_somebody_still_listens(running: list[Server]) -> None:
    server = serve(application(), "127.0.0.1", 0)
    running.append(server)
    thread = start(server)
    connection = http.client.HTTPConnection(server.address.removeprefix("http://"), timeout=10)
    connection.request("GET", "/forever")
    assert connection.getresponse().read(1) == b"."
    began = time.monotonic()
    server.stop()
    thread.join(timeout=10)
    assert not thread.is_alive()
    assert time.monotonic() - began < 5


def test_who_does_not_say_what_it_wants_is_hung_up_on(
    running: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.server.serve.HEADERS_SECONDS", 0.3)
    server = serve(application(), "127.0.0.1", 0)
    running.append(server)
    start(server)
    port = int(server.address.rpartition(":")[2])
    whole = b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for said in (
        b"",
        whole[:20],
        whole + whole[:20],
    ):  # nothing, half a request, a second one that stays half
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            client.sendall(said)
            began = time.monotonic()
            while client.recv(4096):
                pass
            assert time.monotonic() - began < 4
    assert ask(server) == b'"hello"'
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:  # an answer may take its time
        client.sendall(b"GET /forever HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(0.8)
        assert client.recv(4096)
        time.sleep(0.3)
        assert client.recv(4096)
