"""The client against a real gateway: it trains, survives the gateway's death, and is told what is wrong."""

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.client import Agent, RL4SysAgent
from penstock.errors import ConfigError
from penstock.loop.gateway.trajectory import Trajectory
from penstock.model import topics
from penstock.model.codec import open_frame
from penstock.model.version import Version
from penstock.wiring import open_stream
from tests.gateways import Gateway

ROOT = Path(__file__).parents[2]
PPO = {
    "act_dim": 2, "input_size": 4, "traj_per_epoch": 32, "batch_size": 256, "pi_lr": 0.02, "gamma": 0.9,
    "hidden_sizes": [16], "seed": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.fixture(autouse=True)
def _home(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token is found where `penstock gateway` wrote it."""
    monkeypatch.setenv("PENSTOCK_HOME", str(gateway.home))
    monkeypatch.delenv("PENSTOCK_TOKEN", raising=False)


def until(condition: Callable[[], Any], what: str, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen in {seconds} s"
        time.sleep(0.02)


def guess(agent: Agent, rng: np.random.Generator, steps: int = 8) -> float:
    """One episode of a game: say whether the first number is positive. Half right by chance."""
    total = 0.0
    for _ in range(steps):
        seen = rng.standard_normal(4)
        right = float(agent.act(seen) == int(seen[0] > 0))
        agent.reward(right)
        total += right
    agent.end()
    return total / steps


def stored(gateway: Gateway, run: str) -> list[tuple[str, int]]:
    """What lies in the log: (source, sequence) of each trajectory."""
    stream = open_stream(gateway.home)
    try:
        reader = stream.reader(topics.trajectories(run))
        found = []
        while records := reader.read(1000, 0.2):
            facts = [Trajectory.decode(open_frame(record.value)).facts for record in records]
            found += [(fact.source, fact.sequence) for fact in facts]
        return found
    finally:
        stream.close()


def test_a_system_learns_while_it_runs(gateway: Gateway):
    rng = np.random.default_rng(0)
    keys = {"send_frequency": 16, "flush_seconds": 0.2, "deadline_ms": 60_000}
    with Agent(gateway.address, policy="guess", observation=4, actions=2, parameters=PPO, **keys) as agent:
        until(lambda: agent.version is not None, "the first version")
        first = statistics.fmean(guess(agent, rng) for _ in range(64))
        scores, seen, end = [first], [], time.monotonic() + 200
        while statistics.fmean(scores[-50:]) < 0.85:
            assert time.monotonic() < end, (
                f"{first:.2f} → {statistics.fmean(scores[-50:]):.2f}: {agent.figures()}"
            )
            scores.append(guess(agent, rng))
            seen.append(agent.version)
            if agent.figures()["waiting_trajectories"] > 64:
                time.sleep(0.05)  # leave the processors to the learner
        assert 0.3 < first < 0.7
        assert seen == sorted(seen), "versions never go back"
        assert agent.figures()["fallbacks"] == {}
        assert agent.figures()["troubles"].get("delta") is None


def test_a_gateway_that_is_killed_again_and_again_loses_nothing(gateway: Gateway):
    rng = np.random.default_rng(1)
    keys = {"send_frequency": 4, "flush_seconds": 0.1, "deadline_ms": 60_000}
    parameters = {**PPO, "traj_per_epoch": 64}
    with Agent(
        gateway.address, policy="killed", observation=4, actions=2, parameters=parameters, **keys
    ) as agent:
        until(lambda: agent.version is not None, "the first version")
        made, versions = 0, []
        for _ in range(3):
            for _ in range(30):
                guess(agent, rng)
                made += 1
                versions.append(agent.version)
                time.sleep(0.005)
            gateway.kill()
            for _ in range(20):
                guess(agent, rng)
                made += 1
            gateway.start()
        until(lambda: agent.figures()["sent"] == made, f"{made} acknowledgements")
        assert agent.figures()["dropped"] == {}
        assert versions == sorted(versions)
        source = agent.agent._courier.outbox.spool.source
        run = agent.agent._courier._run
    assert stored(gateway, run) == [(source, number) for number in range(1, made + 1)]


def test_the_gateway_decides_for_a_remote_client(gateway: Gateway):
    keys = {"inference": "remote", "deadline_ms": 20_000, "flush_seconds": 0.1}
    with Agent(gateway.address, policy="guess", observation=4, actions=2, parameters=PPO, **keys) as agent:
        until(lambda: agent.agent._courier._opened.is_set(), "an open policy")
        guess(agent, np.random.default_rng(2))
        assert agent.figures()["fallbacks"] == {}
        assert agent.version is not None
        assert agent.version >= Version(0, 0)
        until(lambda: agent.figures()["sent"] == 1, "an acknowledgement")


WRONG = [
    ({"algorithm_name": "PPOO"}, "PPOO"),
    ({"algorithm_name": "DQN", "type": "onpolicy"}, "offpolicy"),
    ({"algorithm_parameters": {"act_dim": 2, "input_size": 4, "polyak": 0.5}}, "polyak"),
    ({"algorithm_parameters": {**PPO, "act_dim": 3}}, "what it sees and does"),
    ({"token": "wrong"}, "token"),
]


@pytest.mark.parametrize(("change", "sentence"), WRONG)
def test_what_the_gateway_refuses_is_raised_by_the_constructor(
    gateway: Gateway, change: dict[str, Any], sentence: str
):
    configuration = {
        "client_id": "guess", "algorithm_name": "PPO", "algorithm_parameters": PPO,
        "train_server_address": gateway.address, **change,
    }  # fmt: skip
    assert sentence in refusal(configuration)


def refusal(configuration: dict[str, Any]) -> str:
    """What the constructor raised; on a very busy machine the answer may come after its two seconds."""
    try:
        agent = RL4SysAgent(configuration)
    except ConfigError as error:
        return str(error)
    with agent:
        until(lambda: agent._courier._refusal is not None, "the refusal", 60)
        return str(agent._courier._refusal)


@pytest.mark.parametrize("name", ["luna_conf.json", "luna_dqn.json"])
def test_the_lunar_example_runs_with_its_own_configuration(gateway: Gateway, name: str, tmp_path: Path):
    """Only the address is another: 50051 may be taken while tests run."""
    configuration = json.loads((ROOT / "examples" / "lunar" / name).read_text())
    assert configuration["train_server_address"] == "localhost:50051"
    configuration["train_server_address"] = gateway.address
    (tmp_path / name).write_text(json.dumps(configuration))
    words = ["--config", str(tmp_path / name), "--episodes", "60", "--log", str(tmp_path / "board")]
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "lunar" / "train.py"), *words],
        env={**os.environ, "PENSTOCK_HOME": str(gateway.home)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *_, said, verdict = done.stdout.splitlines()
    result = json.loads(said)
    assert result["episodes"] == 60
    assert verdict.startswith("not reached: "), "sixty landings teach nobody"
    figures = result["figures"]
    waits = len(list((gateway.home / "clients" / "spool" / configuration["client_id"]).rglob("*.batch")))
    assert figures["sent"] == 60 or waits, figures
    assert figures["dropped"] == {}
    events = b"".join(path.read_bytes() for path in (tmp_path / "board").iterdir())
    assert b"charts/episodic_return" in events


def test_a_client_speaks_tls_and_trusts_only_what_it_is_told(tmp_path: Path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    home = tmp_path / "home"
    home.mkdir()
    with Gateway(home, ("--tls-cert", str(cert), "--tls-key", str(key))) as secure:
        configuration = {
            "client_id": "guess", "algorithm_name": "PPO", "algorithm_parameters": PPO, "token": secure.token,
            "train_server_address": secure.address,
        }  # fmt: skip
        with RL4SysAgent({**configuration, "tls": {"ca": str(cert)}}) as agent:
            until(lambda: agent.version is not None, "the first version")
        for trust in ({"tls": {}}, {}):  # another authority; no encryption
            with RL4SysAgent({**configuration, **trust}) as agent:
                until(lambda: agent.figures()["troubles"].get("unreachable"), "a counted trouble")
                assert agent.request_for_action(None, np.zeros(4))[1].foreign


def test_threads_take_an_agent_each(gateway: Gateway):
    keys = {"parameters": PPO, "deadline_ms": 60_000, "flush_seconds": 0.1}
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with Agent(gateway.address, policy="guess", observation=4, actions=2, **keys) as agent:
                until(lambda: agent.version is not None, "the first version")
                for _ in range(10):
                    guess(agent, np.random.default_rng(number))
                until(lambda: agent.figures()["sent"] == 10, "acknowledgements")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
    assert failures == []
    assert not any(thread.is_alive() for thread in threads)
