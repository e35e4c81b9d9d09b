"""`penstock up` as a process of its own: asked, hurt and ended as a person would."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import psutil

QUICK: dict[str, Any] = {
    "environment": "CartPole-v1", "algorithm": "ppo", "network": {"hidden": [16]},
    "actors": {"count": 2, "environments": 2, "rollout": 32}, "ppo": {"epochs": 2, "minibatch": 64},
    "evaluation": {"every_seconds": 0}, "stop": {"steps": None, "target": None}, "tensorboard": False,
    "checkpoint": {"every_seconds": 5},
}  # fmt: skip
"""A run that makes many small updates quickly and does not end."""


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


@dataclass
class Server:
    """A server on a fixed port, so that it comes back where it was; use as a context manager."""

    home: Path
    flags: tuple[str, ...] = ()
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[str] | None" = None
    prefix: tuple[str, ...] = ()
    """Words before the command, such as taskset."""

    def __enter__(self) -> "Server":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self, seconds: float = 60.0) -> None:
        """Start it and wait until it answers."""
        words = [
            *self.prefix,
            sys.executable,
            "-m",
            "penstock",
            "up",
            "--port",
            str(self.port),
            "--json",
            # most tests need no gateway, and its port is the same for all
            *([] if "--gateway-port" in self.flags else ["--no-gateway"]),
            *self.flags,
        ]
        with (self.home / "up.log").open("ab") as log:
            self.process = subprocess.Popen(
                words, stdout=log, stderr=log, text=True, env={**os.environ, "PENSTOCK_HOME": str(self.home)}
            )
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with contextlib.suppress(httpx2.TransportError):
                if httpx2.get(
                    f"{self.address}/api/v1/health", timeout=2.0, trust_env=False, verify=False
                ).is_success:
                    return
            assert self.process.poll() is None, (self.home / "up.log").read_text()
            time.sleep(0.05)
        raise AssertionError(f"no answer in {seconds} s: {(self.home / 'up.log').read_text()}")

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        return (self.home / "token").read_text().strip()

    def client(self, **options: Any) -> httpx2.Client:
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx2.Client(
            base_url=f"{self.address}/api/v1",
            headers=headers,
            timeout=30.0,
            trust_env=False,
            verify=False,
            **options,
        )

    def get(self, path: str, **params: Any) -> Any:
        return self.ask("GET", path, params=params)

    def post(self, path: str, body: Any = None, key: str | None = None) -> Any:
        return self.ask("POST", path, json=body, headers={"Idempotency-Key": key or uuid.uuid4().hex})

    def ask(self, method: str, path: str, **request: Any) -> Any:
        with self.client() as client:
            response = client.request(method, path, **request)
        assert response.is_success, f"{method} {path}: {response.status_code} {response.text}"
        return response.json()

    def wait_for(self, run: str, condition: Any, seconds: float = 60.0, what: str = "") -> dict[str, Any]:
        """Wait until what the server says of a run satisfies a condition."""
        until = time.monotonic() + seconds
        while not condition(status := self.get(f"/runs/{run}")):
            if time.monotonic() > until:
                raise AssertionError(f"{what or 'a condition'} did not come true in {seconds} s: {status}")
            time.sleep(0.02)
        return dict(status)

    def wait_for_state(self, run: str, state: str, seconds: float = 60.0) -> dict[str, Any]:
        return self.wait_for(run, lambda status: status["state"] == state, seconds, f"state {state}")

    def kill(self) -> None:
        """kill -9, of the server alone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Ctrl-C."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=120)

    def end(self) -> None:
        """End it and whatever keeper is left of this home."""
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.stop()
            self.process.kill()
            self.process.wait()
        for keeper in keepers(self.home):
            with contextlib.suppress(psutil.Error):
                for child in keeper.children(recursive=True):
                    child.kill()
                keeper.kill()


def keepers(home: Path) -> list[psutil.Process]:
    """The live keepers of the runs of a home."""
    found = []
    for state in (home / "runs").glob("*/state.json"):
        with contextlib.suppress(OSError, ValueError, psutil.Error, KeyError, TypeError):
            process = psutil.Process(json.loads(state.read_text())["keeper"]["pid"])
            if "keep" in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def workers(keeper: psutil.Process, role: str) -> list[psutil.Process]:
    found = []
    for child in keeper.children():
        with contextlib.suppress(psutil.Error, ValueError):
            line = child.cmdline()
            if line[line.index("penstock.worker") + 1] == role:
                found.append(child)
    return found
