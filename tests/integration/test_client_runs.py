"""A client's run has no environment here: what would play in one is refused at once, and says what to look at."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.sync.client import connect

from penstock.loop.gateway.configuration import translate
from penstock.loop.runs import RunFolder
from penstock.model.run import RunState
from tests.integration.harness import penstock
from tests.integration.serving import Served, served, wait_for

RUN = "luna-k3v9"
WORDS = (
    "client:luna is a running system that reaches Penstock through the gateway; there is no environment here"
)
FIX = "look at its returns instead (penstock show RUN)"


def client_run(home: Path) -> RunFolder:
    configuration = {"algorithm_parameters": {"act_dim": 2, "input_size": 4}}
    folder = RunFolder.create(home, translate("luna", configuration, "embedded"), RUN)
    folder.save_status(folder.status().to(RunState.STOPPED, "made for a test"))
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("home")
    client_run(home)
    with served(home) as running, running.client() as client:
        wait_for(lambda: client.get("/runs").json()["items"], "the run")
        yield running


@pytest.mark.parametrize("what", ["recordings", "evaluations"])
def test_it_is_neither_recorded_nor_evaluated(server: Served, what: str) -> None:
    with server.client() as client:
        answer = client.post(f"/runs/{RUN}/{what}", json={})
        assert answer.status_code == 422, answer.text
        detail = answer.json()["detail"]
        assert WORDS in detail
        assert FIX in detail
        assert client.get(f"/runs/{RUN}/{what}").json() == []


def test_it_is_not_watched(server: Served) -> None:
    url = server.address.replace("http", "ws", 1) + "/api/v1/watch"
    header = {"Authorization": f"Bearer {server.token}"}
    with connect(url, additional_headers=header, compression=None) as connection:
        connection.send(json.dumps({"type": "watch", "run": RUN, "id": "x"}))
        while (said := json.loads(connection.recv(timeout=20)))["type"] != "error":
            pass
        assert (said["status"], said["id"]) == (422, "x")
        assert WORDS in said["detail"]
    assert not server.control.plays.pids(), "no process was started for it"


@pytest.mark.parametrize("words", [("play", RUN, "--gif", "luna.gif"), ("evaluate", RUN)])
def test_the_command_line_says_so_in_one_line(tmp_path: Path, words: tuple[str, ...]) -> None:
    client_run(tmp_path)
    answer = penstock(tmp_path, *words, check=False)
    assert answer.returncode == 1
    assert answer.stderr.startswith("error: ")
    assert WORDS in answer.stderr
    assert len(answer.stderr.splitlines()) == 1
