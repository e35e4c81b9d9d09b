"""A policy of clients on the page: figures of them and of the gateway, and nothing that would hurt it."""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from penstock.client import Agent
from tests.e2e.browser import Tab
from tests.servers import Server, free_port

PPO = {"traj_per_epoch": 16, "batch_size": 64, "hidden_sizes": [16], "seed": 1}


@pytest.fixture(scope="module")
def gateway_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, gateway_port: int) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("home"), ("--gateway-port", str(gateway_port))) as running:
        yield running


def play(agent: Agent, episodes: int) -> None:
    """Say whether the first number is positive."""
    rng = np.random.default_rng(0)
    for _ in range(episodes):
        for _ in range(8):
            seen = rng.standard_normal(4)
            agent.reward(float(agent.act(seen) == int(seen[0] > 0)))
        agent.end()


def test_figures_of_clients_and_gateway_are_on_the_runs_page(
    server: Server, tab: Tab, gateway_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(server.home))
    monkeypatch.delenv("PENSTOCK_TOKEN", raising=False)
    keys: dict[str, Any] = {"send_frequency": 8, "flush_seconds": 0.2}
    with Agent(
        f"127.0.0.1:{gateway_port}", policy="guess", observation=4, actions=2, parameters=PPO, **keys
    ) as agent:
        until = time.monotonic() + 120
        while agent.version is None:
            assert time.monotonic() < until, agent.figures()
            time.sleep(0.05)
        play(agent, 100)
        [run] = [one["run"] for one in server.get("/runs")["items"]]
        server.wait_for(run, lambda status: status["updates"] > 0, 120, "an update")
        tab.go(f"/runs/{run}")
        tab.sign_in(server.token)
        tab.wait_for_fact("Clients", "Connected", "1")
        tab.wait_for_fact("Clients", "Decisions", "800")
        tab.wait_for_fact("Gateway", "Received", "100")
        assert tab.fact("Memory", "Clients").endswith("B")  # this process: what other tests left counts too
        assert "MB" in tab.fact("Memory", "Gateway")
        assert tab.page.get_by_role("slider", name="Number of actors").count() == 0, (
            "actors would end the run"
        )
        tab.page.get_by_role("tab", name="Watch").click()
        tab.sees("only its clients see")
        tab.page.get_by_role("tab", name="Actors").click()
        tab.page.get_by_role("cell", name="gateway", exact=True).wait_for()
        refuse_actors(server, run)


def refuse_actors(server: Server, run: str) -> None:
    with server.client() as client:
        answer = client.post(f"/runs/{run}/actors", json={"actors": 2})
    assert answer.status_code == 422
    assert "client:guess is played by its clients" in answer.json()["detail"]
    assert server.get(f"/runs/{run}")["desired"]["actors"] == 0
