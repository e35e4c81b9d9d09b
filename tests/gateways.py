"""A real `penstock gateway` for tests, alone or beside `penstock up`, and the bare calls of its clients."""

import contextlib
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import psutil

from penstock import proto
from tests.servers import free_port


@dataclass
class Gateway:
    """A gateway on a fixed port, so that it comes back where it was; use as a context manager.

    Alone it starts keepers itself. Beside a `tests.servers.Server` of the same home, entered first, it asks that one.
    """

    home: Path
    flags: tuple[str, ...] = ()
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[str] | None" = None

    def __enter__(self) -> "Gateway":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self, seconds: float = 60.0) -> None:
        """Start it and wait until it answers."""
        words = [sys.executable, "-m", "penstock", "gateway", "--port", str(self.port), *self.flags]
        with (self.home / "gateway.log").open("a") as said:
            self.process = subprocess.Popen(
                words,
                stdout=said,
                stderr=said,
                env={**os.environ, "PENSTOCK_HOME": str(self.home)},
                text=True,
            )
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self._is_here():
                return
            assert self.process.poll() is None, self.log()
            time.sleep(0.05)
        raise AssertionError(f"no gateway in {seconds} s: {self.log()}")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        return (self.home / "token").read_text().strip()

    def log(self) -> str:
        return (self.home / "gateway.log").read_text()

    def kill(self) -> None:
        """kill -9, of the gateway alone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """As Ctrl-C would."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(timeout=60)

    def end(self) -> None:
        """End it and the keepers that it started in this home."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for state in (self.home / "runs").glob("*/state.json"):
            with contextlib.suppress(OSError, ValueError, psutil.Error, KeyError, TypeError):
                keeper = psutil.Process(json.loads(state.read_text())["keeper"]["pid"])
                if "penstock" in " ".join(keeper.cmdline()):
                    for child in keeper.children(recursive=True):
                        child.kill()
                    keeper.kill()

    def calls(self, token: str | None = None) -> "Calls":
        return Calls(self.address, self.token if token is None else token)

    def _is_here(self) -> bool:
        with contextlib.suppress(OSError, ValueError, KeyError):
            told = json.loads((self.home / "gateway.json").read_text())
            assert self.process is not None
            return bool(told["process"]["pid"] == self.process.pid)
        return False


class Calls:
    """The four calls, bare: what a client written by hand in any language would send."""

    def __init__(self, address: str, token: str, authority: bytes | None = None) -> None:
        if authority is None:
            self._channel = grpc.insecure_channel(address)
        else:
            self._channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(authority))
        self._metadata = [("authorization", f"Bearer {token}")] if token else []

    def __enter__(self) -> "Calls":
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def __call__(self, method: str, request: Any, timeout: float = 60.0) -> Any:
        """The reply; of a stream all replies, as a list."""
        kind, reply, streams = proto.METHODS[method]
        make = self._channel.unary_stream if streams else self._channel.unary_unary
        call = make(
            proto.path(method),
            request_serializer=kind.SerializeToString,
            response_deserializer=reply.FromString,
        )
        answer = call(request, metadata=self._metadata, timeout=timeout)
        return list(answer) if streams else answer

    def raw(self, method: str, message: bytes, timeout: float = 20.0) -> bytes:
        """Any bytes in the place of a message."""
        call = self._channel.unary_unary(
            proto.path(method), request_serializer=lambda data: data, response_deserializer=lambda data: data
        )
        return bytes(call(message, metadata=self._metadata, timeout=timeout))

    def open(self, policy: str, configuration: dict[str, Any]) -> Any:
        request = proto.OpenRequest(
            protocol=proto.PROTOCOL, policy=policy, configuration=json.dumps(configuration), software="tests"
        )
        return self("Open", request, timeout=150.0)
