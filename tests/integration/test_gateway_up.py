"""The gateway beside `penstock up`: started with it, brought back when it dies, no trouble of the server's."""

import json
import time
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest

from penstock import proto
from tests.gateways import Calls
from tests.servers import Server, free_port
from tests.tiny_client import BANDIT, TinyClient


def gateway_of(server: Server, other_than: int = 0, seconds: float = 60.0) -> tuple[str, int]:
    """Where the server's gateway answers and its pid, once it is there."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            told = json.loads((server.home / "gateway.json").read_text())
        except (OSError, ValueError):
            told = None
        if told and told["process"]["pid"] != other_than and psutil.pid_exists(told["process"]["pid"]):
            return str(told["address"]), int(told["process"]["pid"])
        time.sleep(0.05)
    raise AssertionError((server.home / "up.log").read_text())


def eventually(ask: Any, seconds: float = 60.0) -> Any:
    """The answer, once it is none of "not there yet"."""
    until = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE or time.monotonic() > until:
                raise
            time.sleep(0.2)


def test_it_comes_with_the_server_and_comes_back(tmp_path: Path) -> None:
    with Server(tmp_path, ("--gateway-port", str(free_port()))) as server:
        address, pid = gateway_of(server)
        with Calls(address, server.token) as calls:
            client = TinyClient(calls, "bandit")
            run = client.open(BANDIT).run
            client.fetch()
            told = server.get(f"/runs/{run}")
            assert (told["environment"], told["managed"]) == ("client:bandit", True)
            played = [client.play() for _ in range(40)]
            assert {one.outcome for one in client.send(played).receipts} == {proto.SendReply.STORED}
            psutil.Process(pid).kill()
            assert gateway_of(server, other_than=pid)[0] == address
            again = eventually(lambda: client.send(played))
            assert {one.outcome for one in again.receipts} == {proto.SendReply.DUPLICATE}
            server.wait_for(run, lambda status: status["updates"] > 0, 120, "an update")

            server.post(f"/runs/{run}/stop")
            server.wait_for_state(run, "stopped")
            server.ask("DELETE", f"/runs/{run}", headers={"Idempotency-Key": "delete-it"})
            until = time.monotonic() + 30
            code = None
            while code is not grpc.StatusCode.NOT_FOUND and time.monotonic() < until:
                try:
                    calls("Fetch", proto.FetchRequest(policy="bandit"))
                except grpc.RpcError as error:
                    code = error.code()
                time.sleep(0.2)
            assert code is grpc.StatusCode.NOT_FOUND
            fresh = TinyClient(calls, "bandit")
            assert fresh.open(BANDIT).run != run
            fresh.fetch()
            assert fresh.version == (0, 0)
        gateway_pid = gateway_of(server)[1]
        said = (tmp_path / "up.log").read_text()
        assert f'{{"gateway": "{address}"}}' in said.replace('":"', '": "'), "where clients connect"
        assert server.stop() == 0
        assert not psutil.pid_exists(gateway_pid)


def test_a_port_that_is_taken_is_a_line_and_no_end(tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with Server(tmp_path, ("--gateway-port", str(taken.getsockname()[1]))) as server:
            until = time.monotonic() + 60
            while "the gateway is down" not in (said := (tmp_path / "up.log").read_text()):
                assert time.monotonic() < until, said
                time.sleep(0.1)
            assert "--gateway-port" in said
            assert server.get("/server")["version"]


def test_without_a_gateway_there_is_none(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        assert server.get("/server")["version"]
        assert not (tmp_path / "gateway.json").exists()


@pytest.mark.parametrize("flag", ["--host=0.0.0.0", "--idle=0", "--tls-cert=/nowhere"])
def test_a_wrong_flag_is_named(tmp_path: Path, flag: str) -> None:
    from tests.integration.harness import penstock

    answer = penstock(tmp_path, "gateway", "--port", "0", flag, check=False)
    assert answer.returncode == 1
    assert answer.stderr.startswith("error: ")
