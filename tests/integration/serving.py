"""A server as `penstock up` makes it, in this process: a real control plane, a real socket, real clients."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2

from penstock.control.control import Control, open_control
from penstock.control.permissions import Principal, Role
from penstock.control.tokens import first_token
from penstock.control.views import TokenRequest
from penstock.executors.local import LocalExecutor
from penstock.model.spec import StreamSpec
from penstock.server.app import create_app
from penstock.server.hosts import LOOPBACK
from penstock.server.rates import Limits
from penstock.server.serve import serve
from penstock.wiring import open_stream

OWNER = Principal("owner", Role.ADMIN)
GENEROUS = replace(Limits(), reads_per_second=1e6, writes_per_second=1e6, failures_per_minute=1e6)
QUICK: dict[str, Any] = {
    "environment": "CartPole-v1",
    "algorithm": "ppo",
    "network": {"hidden": [16]},
    "actors": {"count": 1, "environments": 2, "rollout": 32},
    "ppo": {"epochs": 2, "minibatch": 64},
    "evaluation": {"every_seconds": 0},
    "stop": {"steps": 1_000_000, "target": None},
    "tensorboard": False,
}
"""A spec that makes many small updates quickly."""


@contextlib.contextmanager
def controlled(home: Path, most_runs: int) -> Iterator[Control]:
    """A control plane; with `most_runs` 0 it accepts everything and starts nothing."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    control = open_control(
        home, "test", f"sqlite:///{home / 'penstock.db'}", "embedded",
        lambda url: open_stream(home, StreamSpec(url=url)), lambda spec: open_stream(home, spec.stream),
        LocalExecutor(), most_runs,
    )  # fmt: skip
    try:
        yield control
    finally:
        control.close(stop_runs=True)


@dataclass
class Served:
    """A running server and the ways to ask it."""

    control: Control
    address: str
    token: str

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def client(self, token: str | None = None, **headers: str) -> httpx2.Client:
        """One that shows `token`; by default the owner's."""
        shown = {"Authorization": f"Bearer {self.token if token is None else token}"} if token != "" else {}
        return httpx2.Client(base_url=f"{self.address}/api/v1", headers={**shown, **headers}, timeout=60)

    def token_of(self, role: str, days: float | None = None) -> str:
        wish = TokenRequest(name=f"a {role}", role=Role(role), days=days)
        return self.control.commander.create_token(OWNER, wish).token

    def raw(self, request: bytes) -> bytes:
        """What comes back for these very bytes; empty where the connection is just closed."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            connection.sendall(request)
            connection.settimeout(5)
            found = b""
            with contextlib.suppress(ConnectionError, TimeoutError):
                while b"\r\n\r\n" not in found and (more := connection.recv(65536)):
                    found += more
            return found


@contextlib.contextmanager
def served(
    home: Path, most_runs: int = 0, limits: Limits = GENEROUS, origins: tuple[str, ...] = ()
) -> Iterator[Served]:
    with controlled(home, most_runs) as control:
        app = create_app(control, allowed_hosts=LOOPBACK, allowed_origins=origins, limits=limits)
        server = serve(app, "127.0.0.1", 0)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        wait_for(lambda: server.started, "the server")
        try:
            yield Served(control, server.address, first_token(home)[0])
        finally:
            server.stop()
            thread.join(timeout=10)


def wait_for(done: Any, what: str, seconds: float = 60.0) -> Any:
    """What `done` returns once it is true."""
    until = time.monotonic() + seconds
    while not (found := done()):
        assert time.monotonic() < until, f"{what} did not come in {seconds:g} s"
        time.sleep(0.05)
    return found
