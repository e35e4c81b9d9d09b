"""`penstock up` as a team leaves it running: steered, killed, stopped, started again."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.harness import penstock
from tests.servers import QUICK, Server, keepers, workers

ACTS_WITHIN_SECONDS = 2.0
"""The promise is one second, measured in bench/control.py; tests share their machine with other tests."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, url: str) -> Iterator[Server]:
    """One server for each stream."""
    home = tmp_path_factory.mktemp("home")
    with Server(home, () if url == "embedded" else ("--stream", url)) as running:
        yield running


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path) as running:
        yield running


def begin(server: Server, name: str, **changes: Any) -> str:
    run: str = server.post("/runs", QUICK | {"name": name} | changes)["run"]
    server.wait_for(run, lambda status: status["updates"] > 5, what="training")
    return run


def events(server: Server, run: str, name: str) -> list[dict[str, Any]]:
    found = server.get(f"/runs/{run}/events", limit=500)
    return [event for event in found if event["event"] == name]


def until(condition: Any, seconds: float = 20.0, what: str = "") -> float:
    """How long it took for a condition to hold."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, what or "a condition did not come true"
        time.sleep(0.01)
    return time.monotonic() - began


def keeper_of(server: Server, run: str) -> psutil.Process:
    found = [process for process in keepers(server.home) if process.cmdline()[-1] == run]
    assert found, f"{run} has no keeper"
    return found[0]


def test_every_verb_acts_within_a_second_and_is_recorded(server: Server):
    run = begin(server, "steered")
    keeper = keeper_of(server, run)
    before = server.get(f"/runs/{run}")["settings"]["learning_rate"]
    answer = server.post(f"/runs/{run}/settings", {"settings": {"learning_rate": 1e-4}})
    assert answer["command"]["old"] == {"learning_rate": before}
    assert answer["command"]["new"] == {"learning_rate": 1e-4}
    assert until(lambda: events(server, run, "settings_changed")) < ACTS_WITHIN_SECONDS
    assert server.get(f"/runs/{run}")["settings"]["learning_rate"] == 1e-4
    server.post(f"/runs/{run}/settings/rollback", {})
    until(lambda: len(events(server, run, "settings_changed")) == 2)
    assert server.get(f"/runs/{run}")["settings"]["learning_rate"] == before
    server.post(f"/runs/{run}/actors", {"actors": 3})
    assert until(lambda: len(workers(keeper, "actor")) == 3) < ACTS_WITHIN_SECONDS
    server.post(f"/runs/{run}/actors", {"actors": 1})
    until(lambda: len(workers(keeper, "actor")) == 1)
    seen = server.get(f"/runs/{run}")["updates"]  # another number of actors is compiled anew first
    server.wait_for(run, lambda status: status["updates"] > seen + 300)
    server.post(f"/runs/{run}/pause")
    assert until(lambda: server.get(f"/runs/{run}")["state"] == "paused") < ACTS_WITHIN_SECONDS + 1
    server.post(f"/runs/{run}/resume", {})
    server.wait_for_state(run, "running")
    saved = len(server.get(f"/runs/{run}/checkpoints"))
    server.post(f"/runs/{run}/checkpoints")
    until(lambda: len(server.get(f"/runs/{run}/checkpoints")) >= min(saved + 1, 3))
    asked = server.post(f"/runs/{run}/evaluations", {"episodes": 3, "checkpoint": "newest"})
    id = asked["command"]["id"]
    until(lambda: server.get(f"/runs/{run}/evaluations/{id}")["state"] == "done", 40)
    assert len(server.get(f"/runs/{run}/evaluations/{id}")["returns"]) == 3
    child = server.post(f"/runs/{run}/forks", {"at": "newest", "changes": {"stop.updates": 10_000_000}})[
        "run"
    ]
    server.wait_for(
        child, lambda status: status["state"] == "running" and status["updates"] > 0, what="the fork"
    )
    for one in (run, child):
        server.post(f"/runs/{one}/stop")
        server.wait_for_state(one, "stopped", 30)
    server.ask("PATCH", f"/runs/{run}", json={"project": "trials", "tags": ["kept"], "note": "a note"})
    found = server.get("/runs", project="trials", tag="kept")["items"]
    assert [one["run"] for one in found] == [run]
    server.ask("DELETE", f"/runs/{child}")
    until(lambda: child not in [one["run"] for one in server.get("/runs")["items"]])
    assert not (server.home / "runs" / child).exists()
    trail = [row["verb"] for row in server.get("/commands", run=run, limit=100)["items"]]
    assert trail == [
        "label",
        "stop",
        "evaluate",
        "checkpoint",
        "resume",
        "pause",
        "scale",
        "scale",
        "set",
        "set",
        "start",
    ]
    assert {row["who"] for row in server.get("/commands", run=run)["items"]} == {"owner"}


def test_a_killed_server_is_not_noticed_by_its_runs_and_finds_them_again(server: Server):
    run = begin(server, "survives")
    keeper = keeper_of(server, run)
    server.kill()
    before = json.loads((server.home / "runs" / run / "state.json").read_text())["updates"]
    time.sleep(2.0)
    assert json.loads((server.home / "runs" / run / "state.json").read_text())["updates"] > before
    # without a server commands go straight to the log, and the next server knows of them
    penstock(server.home, "scale", run, "--actors", "1")
    until(lambda: len(workers(keeper, "actor")) == 1, 10)
    server.start()
    assert keeper_of(server, run).pid == keeper.pid
    assert server.get(f"/runs/{run}")["desired"]["actors"] == 1
    assert server.get("/commands", run=run, verb="scale")["items"][0]["outcome"] == "applied"
    penstock(server.home, "stop", run)
    server.wait_for_state(run, "stopped")


def test_whatever_crashes_comes_back(server: Server):
    run = begin(server, "crashes")
    steps = server.get(f"/runs/{run}")["steps"]
    keeper = keeper_of(server, run)
    for child in keeper.children():
        child.kill()
    keeper.kill()
    assert until(lambda: any(one.pid != keeper.pid for one in keepers(server.home))) < 6.0
    status = server.wait_for(run, lambda status: status["state"] == "running" and status["steps"] > steps)
    assert status["managed"]
    assert not events(server, run, "resume_not_exact")
    server.post(f"/runs/{run}/stop")
    server.wait_for_state(run, "stopped")
    states = [row["state"] for row in server.get(f"/runs/{run}/states")]
    assert states[0] == "pending"
    assert "interrupted" in states
    assert states[-1] == "stopped"


def test_ctrl_c_saves_everything_and_the_next_start_goes_on(server: Server):
    run, rests = begin(server, "returns"), begin(server, "rests")
    server.post(f"/runs/{rests}/pause")
    server.wait_for_state(rests, "paused")
    before = server.get(f"/runs/{run}")["updates"]
    assert server.stop() == 0
    assert not keepers(server.home)
    state = json.loads((server.home / "runs" / run / "state.json").read_text())
    assert state["state"] == "interrupted"
    assert "the next one resumes it" in state["reason"]
    server.start()
    server.wait_for(run, lambda status: status["state"] == "running" and status["updates"] > before + 5)
    assert not events(server, run, "resume_not_exact")
    server.post(f"/runs/{run}/stop")
    server.wait_for_state(run, "stopped")
    # what rested was saved too, and rests on until somebody says otherwise
    assert server.get(f"/runs/{rests}")["state"] == "paused"
    server.post(f"/runs/{rests}/resume", {})
    server.wait_for(rests, lambda status: status["state"] == "running" and status["updates"] > 5)
    server.post(f"/runs/{rests}/stop")
    server.wait_for_state(rests, "stopped")


def test_a_keeper_does_not_outlive_its_grace(alone: Server):
    run = begin(alone, "patient", keeper={"grace": 2.0})
    alone.kill()
    until(lambda: not keepers(alone.home), 20, "the keeper goes on without a server")
    state = json.loads((alone.home / "runs" / run / "state.json").read_text())
    assert state["state"] == "interrupted"
    assert "keeper.grace" in state["reason"]
    alone.start()
    alone.wait_for(run, lambda status: status["state"] == "running" and status["updates"] > state["updates"])


def test_the_database_can_be_removed_at_any_time(alone: Server):
    penstock(
        alone.home, "train", "CartPole-v1", "--name", "older", "--set", "network.hidden=[16]", "--set",
        "stop.updates=2", "--project", "past", "--no-tensorboard", "--quiet",
    )  # fmt: skip
    run = begin(alone, "newer")
    alone.post(f"/runs/{run}/actors", {"actors": 1})
    token = alone.post("/tokens", {"name": "grafana", "role": "viewer"})["token"]
    trail = alone.get("/commands", limit=100)["items"]
    for file in alone.home.glob("penstock.db*"):
        file.unlink()
    until(lambda: _same_trail(alone, trail), 20, "the index was not made again")
    assert {row["run"] for row in alone.get("/runs")["items"]} == {"older", "newer"}
    assert alone.get("/runs/older")["project"] == "past"
    assert alone.get(f"/runs/{run}")["desired"]["actors"] == 1
    with alone.client() as client:
        client.headers["Authorization"] = f"Bearer {token}"
        assert client.get("/runs").is_success
    alone.stop()
    for file in alone.home.glob("penstock.db*"):
        file.unlink()
    alone.start()
    alone.wait_for_state(run, "running")
    assert _same_trail(alone, trail)
    assert alone.get("/runs/older")["state"] == "done"


def _same_trail(server: Server, trail: list[dict[str, Any]]) -> bool:
    with server.client() as client:
        response = client.get("/commands", params={"limit": 100})
    if not response.is_success:
        return False
    found = response.json()["items"]
    names = ("id", "run", "verb", "who", "outcome", "new")
    return [[row[name] for name in names] for row in found] == [
        [row[name] for name in names] for row in trail
    ]


def test_runs_wait_for_their_turn(tmp_path: Path):
    with Server(tmp_path, ("--max-runs", "1")) as server:
        short = QUICK | {"stop": {"updates": 20, "target": None}}
        answer = server.post("/runs", short | {"name": "queue", "seeds": 3})
        assert [run["run"] for run in answer["runs"]] == ["queue-1", "queue-2", "queue-3"]
        assert {run["group"] for run in answer["runs"]} == {"queue-seeds"}
        most = 0
        deadline = time.monotonic() + 90
        while any(run["state"] != "done" for run in server.get("/runs", group="queue-seeds")["items"]):
            most = max(most, len(keepers(tmp_path)))
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert most == 1
        assert server.get("/groups")[0]["seeds"] == [1, 2, 3]


def test_a_run_that_cannot_begin_fails_with_its_reason(alone: Server):
    broken = alone.home / "broken.py"
    broken.write_text("import gymnasium\n\n\nclass Broken(gymnasium.Env):\n    pass\n")
    run = alone.post("/runs", {"environment": f"{broken}:Broken", "actors": {"restarts": 1}})["run"]
    status = alone.wait_for_state(run, "failed", 60)
    assert status["reason"]
    assert "Traceback" not in status["reason"]
    with alone.client() as client:
        refused = client.post(f"/runs/{run}/pause")
    assert refused.status_code == 409
    assert "only a running run" in refused.json()["detail"]


def test_the_command_line_uses_the_server(alone: Server):
    home = alone.home
    done = penstock(
        home,
        "start",
        "CartPole-v1",
        "--name",
        "told",
        "--keep-going",
        "--set",
        "network.hidden=[16]",
        "--json",
    )
    assert json.loads(done.stdout)["run"] == "told"
    alone.wait_for("told", lambda status: status["updates"] > 3)
    assert "told was told to scale" in penstock(home, "scale", "told", "--actors", "1").stdout
    penstock(home, "set", "told", "learning_rate=1e-4", "ppo.entropy=0.01")
    assert (
        "taken back" in penstock(home, "undo", "told").stdout or alone.get("/commands", verb="set")["items"]
    )
    penstock(home, "label", "told", "--tag", "cli")
    assert json.loads(penstock(home, "runs", "--search", "cli", "--json").stdout)[0]["run"] == "told"
    assert "cartpole" in penstock(home, "environments", "--search", "cartpole").stdout.lower()
    assert "ppo" in penstock(home, "algorithms").stdout
    assert "charts/episodic_return" in penstock(home, "metrics", "told").stdout
    penstock(home, "pause", "told")
    alone.wait_for_state("told", "paused")
    penstock(home, "resume", "told")
    alone.wait_for_state("told", "running")
    refused = penstock(home, "resume", "told", check=False)
    assert refused.returncode == 1
    assert "stop it first" in refused.stderr
    assert "return" in penstock(home, "evaluate", "told", "--episodes", "2", "--checkpoint", "newest").stdout
    forked = json.loads(penstock(home, "fork", "told", "--at", "newest", "--name", "child", "--json").stdout)
    assert forked["run"] == "child"
    for run in ("told", "child"):
        assert f"{run} is stopped" in penstock(home, "stop", run).stdout
    assert "seed" in penstock(home, "compare", "told", "child").stdout
    made = json.loads(penstock(home, "token", "create", "bob", "--role", "operator", "--json").stdout)
    assert made["token"] not in penstock(home, "token", "list").stdout
    penstock(home, "token", "revoke", made["id"])
    assert "revoked" in penstock(home, "token", "list").stdout
    penstock(home, "download", "told", "--to", str(home / "copy"), "--checkpoint", "newest")
    assert (home / "copy" / "policy.safetensors").exists()
    penstock(home, "delete", "child", "--yes")
    until(lambda: not (home / "runs" / "child").exists())
    assert "child" in penstock(home, "commands", "--verb", "delete").stdout
    assert "stream" in penstock(home, "server").stdout
    assert "has ended" in penstock(home, "down").stdout


def test_a_second_server_and_a_taken_port_are_refused_in_a_sentence(alone: Server, tmp_path_factory: Any):
    second = penstock(alone.home, "up", "--port", "0", check=False)
    assert second.returncode == 1
    assert "has a server already" in second.stderr
    other = tmp_path_factory.mktemp("other")
    taken = penstock(other, "up", "--port", str(alone.port), check=False)
    assert taken.returncode == 1
    assert "is in use" in taken.stderr
    assert not (other / "penstock.db").exists()
    outside = penstock(other, "up", "--host", "0.0.0.0", "--port", "0", check=False)
    assert outside.returncode == 1
    assert "--tls-cert" in outside.stderr
    newer = penstock(other, "up", "--port", "0", "--database", "mysql://x", check=False)
    assert newer.returncode == 1
    assert "bug" not in newer.stderr


def test_an_assistant_over_stdio_steers_a_run(tmp_path: Path):
    """A real `penstock mcp` process; it starts the server it needs."""
    script = """
import anyio, os, sys
from mcp import Client, StdioServerParameters

def server(*flags):
    words = ["-m", "penstock", "mcp", *flags]
    return StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))

async def main():
    for mode in ("legacy", "auto"):
        async with Client(server(), mode=mode) as c:
            tools = {tool.name for tool in (await c.list_tools()).tools}
            assert "start_training" in tools, tools
            asked = await c.call_tool("start_training", {"environment": "CartPole-v1", "name": "m-" + mode})
            assert not asked.is_error, asked
            status = await c.call_tool("get_status", {"run": "m-" + mode})
            assert status.structured_content["run"] == "m-" + mode, status
            wrong = await c.call_tool("get_status", {"run": "nobody"})
            assert wrong.is_error and "list_runs" in wrong.content[0].text, wrong
            print(mode, "ok", flush=True)
    async with Client(server("--read-only")) as c:
        denied = await c.call_tool("stop_training", {"run": "m-auto"})
        assert denied.is_error, denied
        assert not (await c.call_tool("list_runs", {})).is_error
        print("read-only ok", flush=True)

anyio.run(main)
"""
    environment = {**os.environ, "PENSTOCK_HOME": str(tmp_path)}
    try:
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.split("\n")[:3] == ["legacy ok", "auto ok", "read-only ok"]
    finally:
        penstock(tmp_path, "down", check=False)
        Server(tmp_path).end()


def test_no_token_is_in_any_log(alone: Server):
    made = alone.post("/tokens", {"name": "spy", "role": "viewer"})
    with alone.client() as client:
        client.get("/runs", params={"token": alone.token})
        client.get("/runs", headers={"Authorization": f"Bearer {made['token']}x"})
    alone.stop()
    for file in alone.home.rglob("*"):
        if file.is_file() and file.name != "token":
            content = file.read_bytes()
            assert alone.token.encode() not in content, file
            assert made["token"].encode() not in content, file


def test_a_server_that_is_interrupted_twice_leaves_runs_to_their_keepers(alone: Server):
    run = begin(alone, "left")
    keeper = keeper_of(alone, run)
    os.kill(keeper.pid, signal.SIGSTOP)  # it cannot end in time
    assert alone.process is not None
    alone.process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    alone.process.send_signal(signal.SIGINT)
    assert alone.process.wait(timeout=20) == 130
    os.kill(keeper.pid, signal.SIGCONT)
    alone.start()
    alone.wait_for_state(run, "running", 60)


def test_a_free_port_is_told(tmp_path: Path):
    """--port 0 and --detach: the address is found where commands find it."""
    environment = {**os.environ, "PENSTOCK_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "up", "--port", "0", "--detach", "--json"],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    port = int(json.loads(done.stdout)["address"].rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        pass
    assert "has ended" in penstock(tmp_path, "down").stdout
    again = penstock(tmp_path, "down", check=False)
    assert again.returncode == 1
    assert "penstock up" in again.stderr


def test_a_keeper_killed_in_its_first_moment_is_started_again(alone: Server):
    alone.post("/runs", QUICK | {"name": "early"})
    found: list[psutil.Process] = []

    def killed() -> bool:
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if words[-2:] == ["keep", "early"] and process.status() != psutil.STATUS_ZOMBIE:
                process.kill()
                found.append(process)
        return bool(found)

    until(killed)
    alone.wait_for("early", lambda status: status["state"] == "running" and status["updates"] > 0)


def test_a_run_whose_folder_is_removed_ends_and_its_name_is_free(alone: Server):
    run = begin(alone, "gone")
    keeper = keeper_of(alone, run)
    children = keeper.children()
    shutil.rmtree(alone.home / "runs" / run)
    until(
        lambda: not keeper.is_running() or keeper.status() == psutil.STATUS_ZOMBIE, 15, "the keeper goes on"
    )
    psutil.wait_procs(children, timeout=15)
    until(lambda: run not in [one["run"] for one in alone.get("/runs")["items"]])
    again = begin(alone, "gone", seed=77)
    assert alone.get(f"/runs/{again}")["seed"] == 77


def test_a_pause_with_the_learner_parked_takes_effect_and_back(alone: Server):
    run = begin(alone, "parked")
    alone.post(f"/runs/{run}/learner", {"learner": 0})
    keeper = keeper_of(alone, run)
    until(lambda: not workers(keeper, "learner"))
    alone.post(f"/runs/{run}/pause")
    alone.wait_for_state(run, "paused", 10)
    alone.post(f"/runs/{run}/resume", {})
    alone.wait_for_state(run, "running", 10)
    alone.post(f"/runs/{run}/learner", {"learner": 1})
    seen = alone.get(f"/runs/{run}")["updates"]
    alone.wait_for(run, lambda status: status["updates"] > seen + 5)


def test_a_machine_that_is_called_otherwise_finds_its_runs_again(alone: Server):
    run = begin(alone, "moved")
    keeper = keeper_of(alone, run)
    alone.kill()
    for process in (*keeper.children(), keeper):
        process.kill()
    state_file = alone.home / "runs" / run / "state.json"
    state = json.loads(state_file.read_text())
    state["keeper"]["host"] = "the-name-before"
    state_file.write_text(json.dumps(state))
    alone.start()
    alone.wait_for(run, lambda status: status["state"] == "running" and status["updates"] > state["updates"])
