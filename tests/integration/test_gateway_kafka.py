"""The gateway on a real Kafka: a client trains through it, and a gateway that is killed loses nothing."""

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from penstock import proto
from penstock.broker import Broker
from penstock.client import RL4SysAgent
from penstock.client.trajectory import Trajectory
from tests.faults.accounts import check_accounts, told
from tests.gateways import Calls, Gateway
from tests.tiny_client import BANDIT, TinyClient

EPISODE = 8
CONFIGURATION: dict[str, Any] = {
    "client_id": "guess", "algorithm_name": "PPO", "send_frequency": 4, "flush_seconds": 0.1,
    "algorithm_parameters": {
        "act_dim": 2, "input_size": 4, "traj_per_epoch": 16, "batch_size": 128, "train_pi_iters": 4, "seed": 1,
        "hidden_sizes": [16],
    },
}  # fmt: skip


@pytest.fixture
def url(broker: Broker) -> str:
    return f"kafka://{broker.bootstrap}/{uuid.uuid4().hex[:8]}"


def guess(agent: RL4SysAgent, rng: np.random.Generator) -> None:
    """One episode in RL4Sys' words: say whether the first number is positive."""
    trajectory: Trajectory | None = None
    for _ in range(EPISODE):
        seen = rng.standard_normal(4).astype(np.float32)
        trajectory, action = agent.request_for_action(trajectory, seen)
        action.update_reward(float(action.act == int(seen[0] > 0)))
        agent.add_to_trajectory(trajectory, action)
    agent.mark_end_of_trajectory(trajectory, action)


def play_until(
    agent: RL4SysAgent, came: Callable[[], Any], versions: list[Any], seconds: float = 120.0
) -> int:
    """Play until it came true, at a pace that leaves the processors to others; how many episodes it took."""
    rng, end, played = np.random.default_rng(len(versions)), time.monotonic() + seconds, 0
    while not came():
        assert time.monotonic() < end, f"it did not come in {seconds:g} s: {agent.figures()}"
        guess(agent, rng)
        played += 1
        versions.append(agent.version)
        time.sleep(0.02)
    return played


def test_a_client_trains_and_a_killed_gateway_loses_nothing(tmp_path: Path, url: str) -> None:
    file, versions = tmp_path / "client.json", list[Any]()
    with Gateway(tmp_path, ("--stream", url, "--idle", "600")) as gateway:
        keys = {"train_server_address": gateway.address, "token": gateway.token}
        file.write_text(json.dumps({**CONFIGURATION, **keys, "spool": {"folder": str(tmp_path / "spool")}}))
        with RL4SysAgent(file) as agent:
            played = play_until(
                agent, lambda: agent.version is not None and agent.version.step >= 2, versions
            )
            gateway.kill()
            sent = agent.figures()["sent"]
            deaf = len(versions) + 20
            played += play_until(agent, lambda: len(versions) > deaf, versions)
            gateway.start()
            reached = agent.version.step
            played += play_until(agent, lambda: agent.version.step >= reached + 1, versions)
            end = time.monotonic() + 60
            while agent.figures()["sent"] < played:
                assert time.monotonic() < end, f"{played} played: {agent.figures()}"
                time.sleep(0.05)
            figures, outbox = agent.figures(), agent._courier.outbox
            source, run = outbox.spool.source, agent._courier._run
        assert 0 < sent < played == figures["sent"]
        assert not figures["dropped"]
        acknowledged = {(source, number) for number in range(1, played + 1)}
        received = told(tmp_path, run, played, url=url)["gateway/received"]
        counted = check_accounts(tmp_path, run, acknowledged, received, url=url)
    assert counted["stored"] == played
    assert counted["packed"] > 0
    known = [version for version in versions if version is not None]
    assert known == sorted(known), "versions went back"


def test_of_two_homes_one_serves_a_policy_and_the_other_takes_over_when_it_dies(
    tmp_path: Path, url: str
) -> None:
    homes = [tmp_path / "a", tmp_path / "b"]
    for home in homes:
        home.mkdir()
    first, second = (Gateway(home, ("--stream", url, "--idle", "600")) for home in homes)
    with first, second, first.calls() as calls, second.calls() as others:
        client = TinyClient(calls, "bandit")
        run = client.open(BANDIT).run
        client.fetch()
        assert stored(client) == 4
        for _ in range(2):  # the second answer is a remembered one
            words = refusal(others)
            assert f"served by the gateway of {homes[0]} on " in words
            assert "send its clients there, end that gateway" in words
        first.kill()
        client.calls = others
        assert opened(client) == run, "the dead one's policy, not another"
        assert stored(client) == 4
        end = time.monotonic() + 120
        while (
            client.version.step < 2
        ):  # the first only says who acts; the keeper of the first home hears the second gateway
            assert time.monotonic() < end, second.log()
            stored(client)
            client.fetch(wait=2.0)
        first.start()
        assert f"served by the gateway of {homes[1]} on " in refusal(calls)
        places = {(client.source, number) for number in range(1, client.sequence + 1)}
        received = told(homes[1], run, len(places), url=url)["gateway/received"]
        check_accounts(homes[1], run, places, received, url=url)


def stored(client: TinyClient) -> int:
    """Send four trajectories; how many were acknowledged."""
    receipts = client.send([client.play() for _ in range(4)]).receipts
    return sum(receipt.outcome == proto.SendReply.STORED for receipt in receipts)


def opened(client: TinyClient, seconds: float = 60.0) -> str:
    """Come again while it is refused, as clients do; the run of the policy."""
    end = time.monotonic() + seconds
    while True:
        try:
            return str(client.open(BANDIT).run)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.FAILED_PRECONDITION or time.monotonic() > end:
                raise
        time.sleep(0.2)


def refusal(calls: Calls) -> str:
    with pytest.raises(grpc.RpcError) as caught:
        calls.open("bandit", BANDIT)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION, caught.value
    return str(caught.value.details())
