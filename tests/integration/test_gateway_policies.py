"""Each kind of policy through a real gateway: it opens, takes experience, and its learner makes versions of it."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from penstock import proto
from tests.brokers import make_certificates
from tests.gateways import Calls, Gateway
from tests.tiny_client import BANDIT, TinyClient

ROWS = 64
SMALL = {"hidden_sizes": [16], "traj_per_epoch": 2}
REPLAY = {"buf_size": 2000, "batch_size": 32, "train_q_iters": 4, "learning_starts": 64}
KINDS: dict[str, dict[str, Any]] = {
    "dqn": {"algorithm_name": "DQN", "algorithm_parameters": {"act_dim": 3, "input_size": 4, **SMALL, **REPLAY}},
    "sac": {"algorithm_name": "SAC", "act_limit": 2.0,
            "algorithm_parameters": {"act_dim": 2, "input_size": 4, **SMALL, **REPLAY}},
    "impala": {"algorithm_name": "IMPALA", "algorithm_parameters": {"act_dim": 3, "input_size": 4, **SMALL}},
    "items": {"masked": True, "observation_shape": [6, 4], "algorithm_parameters": {"act_dim": 6, **SMALL}},
    "numbers": {"continuous": True, "algorithm_parameters": {"act_dim": 2, "input_size": 4, **SMALL}},
}  # fmt: skip


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("home"), ("--idle", "2")) as running:
        yield running


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_of_this_kind_is_learned(gateway: Gateway, kind: str) -> None:
    with gateway.calls() as calls:
        client = TinyClient(calls, kind)
        client.open(KINDS[kind])
        client.fetch()
        first, until = client.version, time.monotonic() + 150
        while client.version.step < 3:
            assert time.monotonic() < until, gateway.log()
            receipts = client.send([played(client) for _ in range(4)]).receipts
            assert {one.outcome for one in receipts} == {proto.SendReply.STORED}, receipts
            client.fetch(wait=2.0)
        assert client.version > first
        if kind == "dqn":
            assert client.acting is not None
            head = calls("Fetch", proto.FetchRequest(policy=kind))[0]
            assert 0 < head.acting["epsilon"] <= 1


def played(client: TinyClient) -> Any:
    """A trajectory that ends by being cut off, of random observations."""
    assert client.acting is not None
    spaces = client.acting.description.spaces
    shape = spaces.observation.columns["observations"].shape
    seen = client.rng.standard_normal((ROWS + 1, *shape)).astype("<f4")
    masks = client.rng.random((ROWS + 1, spaces.action.choices)) < 0.6 if spaces.action.masked else None
    if masks is not None:
        masks[:, 0] = True
    noise = client.acting.noise((int(client.rng.integers(1 << 31)), 0, 0), ROWS, 1)
    pairs = [
        client.acting.decide(
            {"observations": seen[t : t + 1]}, None if masks is None else masks[t : t + 1], noise[t]
        )
        for t in range(ROWS)
    ]
    actions, outputs = (np.concatenate([pair[part] for pair in pairs]) for part in (0, 1))
    told = np.zeros(ROWS, "<f4")
    if client.acting.description.head != "q":
        told = client.acting.log_probs(outputs, actions, None if masks is None else masks[:ROWS])
    more: dict[str, Any] = {"terminated": False, "final_observations": {"observations": seen[-1].tobytes()}}
    if masks is not None:
        more |= {"masks": masks[:ROWS].tobytes(), "final_masks": masks[-1].tobytes()}
    message = client.message(seen[:-1], actions, told, seen[:-1].reshape(ROWS, -1)[:, 0], **more)
    message.actions = actions.astype(spaces.action.column.dtype).tobytes()
    return message


def test_a_learner_is_parked_when_idle_and_comes_back_with_data(gateway: Gateway) -> None:
    with gateway.calls() as calls:
        client = TinyClient(calls, "parked")
        run = client.open(BANDIT).run
        client.fetch()
        learn_until(client, 2)
        events = gateway.home / "runs" / run / "events.jsonl"
        until = time.monotonic() + 90
        while not any(
            json.loads(line)["event"] == "learner_parked" for line in events.read_text().splitlines()
        ):
            assert time.monotonic() < until, gateway.log()
            time.sleep(0.1)
        client.fetch()
        epoch, step = client.version
        learn_until(client, step + 2)
        assert client.version.epoch > epoch, "another learner went on"


def learn_until(client: TinyClient, step: int) -> None:
    until = time.monotonic() + 150
    while client.version.step < step:
        assert time.monotonic() < until
        client.send([client.play() for _ in range(16)])
        client.fetch(wait=1.0)


def test_tls(tmp_path: Path) -> None:
    authority, both = make_certificates(tmp_path)
    flags = ("--tls-cert", str(both), "--tls-key", str(both))
    with Gateway(tmp_path, flags) as gateway:
        request = proto.FetchRequest(policy="nobody")
        with Calls(gateway.address, gateway.token) as plain, pytest.raises(grpc.RpcError) as caught:
            plain("Fetch", request, timeout=10)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        with Calls(f"localhost:{gateway.port}", gateway.token, authority.read_bytes()) as calls:
            with pytest.raises(grpc.RpcError) as caught:
                calls("Fetch", request)
            assert caught.value.code() is grpc.StatusCode.NOT_FOUND
