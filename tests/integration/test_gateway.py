"""The gateway as a process: it trains what bare messages bring, refuses what it must, and survives kill -9."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from penstock import proto
from penstock.control.permissions import NEEDED, Role
from penstock.server.grpc_auth import OPERATIONS
from tests.faults.accounts import check_accounts, told
from tests.gateways import Calls, Gateway
from tests.integration.harness import penstock
from tests.tiny_client import BANDIT, TinyClient, returns_of

RANDOM_RETURN = 2.0


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.fixture(scope="module")
def client(gateway: Gateway) -> Iterator[TinyClient]:
    with gateway.calls() as calls:
        made = TinyClient(calls, "bandit")
        made.open(BANDIT)
        yield made


def refused(call: Any, code: Any) -> str:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    assert caught.value.code() is code, caught.value
    return str(caught.value.details())


def train(client: TinyClient, versions: int, seconds: float = 180.0) -> list[float]:
    """Play and send, following the versions, until this many came; the returns on the way."""
    returns, first, until = list[float](), client.version.step, time.monotonic() + seconds
    while client.version.step < first + versions:
        assert time.monotonic() < until, f"only version {client.version} in {seconds} s"
        played = [client.play() for _ in range(16)]
        receipts = client.send(played).receipts
        assert {receipt.outcome for receipt in receipts} <= {proto.SendReply.STORED, proto.SendReply.LATER}
        returns += returns_of(played)
        client.fetch(wait=5.0)
    return returns


# -- learning --------------------------------------------------------------------------------------


def test_a_client_of_bare_messages_learns(gateway: Gateway, client: TinyClient) -> None:
    client.fetch()
    first = [sum(returns_of([client.play()])) for _ in range(64)]
    train(client, 30)
    last = [sum(returns_of([client.play()])) for _ in range(64)]
    assert np.mean(first) < RANDOM_RETURN + 1.5
    assert np.mean(last) > np.mean(first) + 2.5
    assert proto.FetchReply.DELTA in client.kinds


def test_a_run_of_a_client_is_a_run_like_any_other(gateway: Gateway, client: TinyClient) -> None:
    client.fetch()
    if client.version.step < 3:
        train(client, 3)
    (run,) = json.loads(penstock(gateway.home, "runs", "--json").stdout)
    assert (run["environment"], run["algorithm"], run["state"]) == ("client:bandit", "ppo", "running")
    assert run["steps"] > 0
    shown = json.loads(penstock(gateway.home, "show", run["run"], "--json").stdout)
    assert shown["run"] == run["run"]
    penstock(gateway.home, "set", run["run"], "learning_rate=5e-3")
    metrics = [
        json.loads(line)
        for line in (gateway.home / "runs" / run["run"] / "metrics.jsonl").read_text().splitlines()
    ]
    told = metrics[-1]
    parts = (
        told["gateway/packed"],
        told["gateway/stale"],
        told["gateway/foreign"],
        told["gateway/queue_trajectories"],
    )
    assert told["gateway/received"] == sum(parts)
    assert told["gateway/memory_bytes"] > 0


def test_what_needs_an_environment_is_refused_with_the_reason(gateway: Gateway, client: TinyClient) -> None:
    (run,) = json.loads(penstock(gateway.home, "runs", "--json").stdout)
    folder = gateway.home / "runs" / run["run"] / "checkpoints"
    penstock(gateway.home, "checkpoint", run["run"])
    until = time.monotonic() + 60
    while not any(folder.glob("[0-9]*")) and time.monotonic() < until:
        time.sleep(0.1)
    answer = penstock(gateway.home, "evaluate", run["run"], check=False)
    assert answer.returncode == 1
    assert "there is no environment here" in answer.stderr


# -- calls -----------------------------------------------------------------------------------------


def test_opening_again_changes_nothing_and_another_shape_is_refused(
    gateway: Gateway, client: TinyClient
) -> None:
    first = client.open(BANDIT)
    assert client.open(BANDIT) == first
    assert client.open({}) == first, "who says nothing takes the policy as it is"
    louder = json.loads(json.dumps(BANDIT))
    louder["algorithm_parameters"]["pi_lr"] = 1e-3
    told = client.open(louder)
    assert told.run == first.run
    assert "ppo.learning_rate stays" in told.note
    assert first.note == ""
    assert "configuration_differs" in gateway.log()
    wider = json.loads(json.dumps(BANDIT))
    wider["algorithm_parameters"]["input_size"] = 5
    words = refused(lambda: client.open(wider), grpc.StatusCode.FAILED_PRECONDITION)
    assert "what it sees and does" in words
    assert first.run in words


def test_an_old_client_is_told_which_protocol_is_spoken(gateway: Gateway, client: TinyClient) -> None:
    request = proto.OpenRequest(protocol=9, policy="bandit", configuration="{}")
    assert "protocol 1" in refused(lambda: client.calls("Open", request), grpc.StatusCode.FAILED_PRECONDITION)


@pytest.mark.parametrize(
    ("policy", "configuration", "words"),
    [
        ("../../etc", BANDIT, "policy's name"),
        ("a" * 65, BANDIT, "policy's name"),
        ("", BANDIT, "policy's name"),
        ("x", {}, "does not exist yet"),
        ("x", {"algorithm_name": "PPO2"}, "PPO2"),
        ("x", {**BANDIT, "algoritm": 1}, "algoritm"),
        ("x", {**BANDIT, "type": "offpolicy"}, "onpolicy"),
        ("x", [1], "object of keys"),
    ],
)
def test_a_wrong_configuration_is_named(
    client: TinyClient, policy: str, configuration: Any, words: str
) -> None:
    assert words in refused(
        lambda: client.calls.open(policy, configuration), grpc.StatusCode.INVALID_ARGUMENT
    )


def test_what_nobody_opened_is_not_found(client: TinyClient) -> None:
    for method, request in (
        ("Send", proto.SendRequest(policy="nobody", source="0" * 32)),
        ("Fetch", proto.FetchRequest(policy="nobody")),
        ("Act", proto.ActRequest(policy="nobody")),
    ):
        refused(lambda m=method, r=request: client.calls(m, r), grpc.StatusCode.NOT_FOUND)


def test_a_trajectory_is_stored_once(client: TinyClient) -> None:
    client.fetch()
    message = client.play()
    outcomes = [client.send([message]).receipts[0].outcome for _ in range(3)]
    assert outcomes == [proto.SendReply.STORED, proto.SendReply.DUPLICATE, proto.SendReply.DUPLICATE]


def test_nothing_new_is_nothing(client: TinyClient) -> None:
    client.fetch()
    began = time.monotonic()
    request = proto.FetchRequest(policy="bandit", have=proto.Version(epoch=900, step=1), wait_seconds=0.5)
    (reply,) = client.calls("Fetch", request)
    assert reply.kind == proto.FetchReply.NOTHING
    assert time.monotonic() - began >= 0.5
    request = proto.FetchRequest(policy="bandit", wait_seconds=31)
    refused(lambda: client.calls("Fetch", request), grpc.StatusCode.INVALID_ARGUMENT)


def test_the_gateway_decides_as_the_client_would(client: TinyClient) -> None:
    client.fetch()
    assert client.acting is not None
    for light in np.eye(4, dtype=np.float32):
        request = proto.ActRequest(
            policy="bandit", observations={"observations": light.tobytes()}, greedy=True
        )
        reply = client.calls("Act", request)
        if (reply.version.epoch, reply.version.step) != client.version:
            client.fetch()
            continue
        observation = {"observations": light[None]}
        assert np.frombuffer(reply.action, "<i4") == client.acting.greedy(observation)
        outputs = client.acting.outputs(observation)
        told = client.acting.log_probs(outputs, np.frombuffer(reply.action, "<i4"), None)
        assert reply.log_prob == pytest.approx(float(told[0]), abs=1e-5)
    wrong = proto.ActRequest(policy="bandit", observations={"observations": b"abc"})
    refused(lambda: client.calls("Act", wrong), grpc.StatusCode.INVALID_ARGUMENT)


# -- hostile ---------------------------------------------------------------------------------------


def hostile(client: TinyClient) -> dict[str, Any]:
    """Name → a message that no honest client sends."""
    good = {
        "length": 2, "terminated": True, "observations": {"observations": np.zeros((2, 4), "<f4").tobytes()},
        "actions": np.zeros(2, "<i4").tobytes(), "log_probs": np.full(2, -1, "<f4").tobytes(),
        "rewards": np.zeros(2, "<f4").tobytes(), "version": proto.Version(epoch=0, step=0),
    }  # fmt: skip
    nan = np.full(2, np.nan, "<f4").tobytes()
    wrong: dict[str, Any] = {
        "no rows": {"length": 0}, "too many rows": {"length": 4_000_000_000},
        "fewer bytes": {"rewards": b"\0" * 7}, "nan reward": {"rewards": nan}, "nan log_prob": {"log_probs": nan},
        "huge reward": {"rewards": np.full(2, 1e30, "<f4").tobytes()},
        "tiny log_prob": {"log_probs": np.full(2, -1e30, "<f4").tobytes()},
        "nan observation": {"observations": {"observations": np.full((2, 4), np.nan, "<f4").tobytes()}},
        "wide observation": {"observations": {"observations": np.zeros((2, 5), "<f4").tobytes()}},
        "other columns": {"observations": {"../../etc/passwd": b"x"}},
        "action too large": {"actions": np.full(2, 4, "<i4").tobytes()},
        "action below zero": {"actions": np.full(2, -1, "<i4").tobytes()},
        "masks that nobody asked for": {"masks": b"\1" * 8},
        "a version from the future": {"version": proto.Version(epoch=99, step=1 << 60)},
        "a version that was never published": {"version": proto.Version(epoch=0, step=(1 << 64) - 1)},
        "a step beyond all others": {"version": proto.Version(epoch=0, step=client.version.step + 10_000)},
        "cut off without an end": {"terminated": False},
        "not finite before": {"earlier_reward": float("inf")}, "nan before": {"earlier_reward": float("nan")},
        "much before": {"earlier_reward": 1e308, "offset": 3}, "something before nothing": {"earlier_reward": 1.0},
        "an offset without end": {"offset": (1 << 32) - 1},
    }  # fmt: skip
    return {
        name: proto.Trajectory(sequence=10_000 + number, **good | change)
        for number, (name, change) in enumerate(wrong.items())
    }


def test_hostile_trajectories_are_refused_one_by_one_and_the_good_ones_are_stored(client: TinyClient) -> None:
    client.fetch()
    bad = hostile(client)
    good = client.play()
    receipts = client.send([*bad.values(), good]).receipts
    for (name, _), receipt in zip(bad.items(), receipts, strict=False):
        assert receipt.outcome == proto.SendReply.REFUSED, name
        assert len(receipt.reason) > 10, name
    assert receipts[-1].outcome == proto.SendReply.STORED


def test_garbage_and_huge_messages_hurt_nobody(gateway: Gateway, client: TinyClient) -> None:
    rng = np.random.default_rng(5)
    for method in proto.METHODS:
        for size in (1, 17, 300):
            with pytest.raises(grpc.RpcError) as caught:
                client.calls.raw(method, rng.bytes(size))
            assert caught.value.code() is not grpc.StatusCode.UNAVAILABLE
    refused(lambda: client.calls.raw("Send", b"\0" * (5 << 20)), grpc.StatusCode.RESOURCE_EXHAUSTED)
    source = refused(
        lambda: client.calls("Send", proto.SendRequest(policy="bandit", source="../x")),
        grpc.StatusCode.INVALID_ARGUMENT,
    )
    assert "32 hexadecimal" in source
    many = proto.SendRequest(policy="bandit", source="0" * 32)
    many.trajectories.extend(proto.Trajectory(sequence=number + 1) for number in range(10_001))
    refused(lambda: client.calls("Send", many), grpc.StatusCode.INVALID_ARGUMENT)
    del many.trajectories[-1]
    receipts = client.calls("Send", many).receipts
    assert Counter(receipt.outcome for receipt in receipts) == {proto.SendReply.REFUSED: 10_000}
    assert gateway.process is not None
    assert gateway.process.poll() is None


# -- permission ------------------------------------------------------------------------------------


def test_every_call_asks_every_role(gateway: Gateway, client: TinyClient) -> None:
    assert OPERATIONS.keys() == proto.METHODS.keys()
    tokens = {str(role): make_token(gateway.home, role) for role in Role}
    for who, token in {"nobody": "", "stranger": "pst_" + "x" * 40, **tokens}.items():
        with gateway.calls(token) as calls:
            for method, (request, _, _) in proto.METHODS.items():
                code = code_of(calls, method, request(policy="bandit"))
                case = f"{method} by {who}: {code}"
                if who in ("nobody", "stranger"):
                    assert code is grpc.StatusCode.UNAUTHENTICATED, case
                elif Role(who).rank < NEEDED[OPERATIONS[method]].rank:
                    assert code is grpc.StatusCode.PERMISSION_DENIED, case
                else:
                    denied = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
                    assert code not in denied, case
    assert gateway.token not in gateway.log()


def test_a_token_is_checked_before_anything_is_received(gateway: Gateway) -> None:
    never = threading.Event()

    def nothing() -> Iterator[bytes]:
        never.wait(60)
        yield b""

    with grpc.insecure_channel(gateway.address) as channel:
        for method in proto.METHODS:
            call = channel.stream_unary(proto.path(method))
            metadata = [("authorization", "Bearer pst_" + "x" * 40)]
            refused(
                lambda call=call, metadata=metadata: call(nothing(), metadata=metadata, timeout=20),
                grpc.StatusCode.UNAUTHENTICATED,
            )
        never.set()
        metadata = [("authorization", f"Bearer {gateway.token}")]
        words = refused(
            lambda: channel.stream_unary(proto.path("Send"))(iter(()), metadata=metadata, timeout=20),
            grpc.StatusCode.INVALID_ARGUMENT,
        )
        assert "no message" in words


def make_token(home: Path, role: Role) -> str:
    """A token as the controller would write it down; the gateway only reads."""
    from penstock.control.tokens import hashed, new_secret
    from penstock.lineage.database import Lineage
    from penstock.lineage.rows import TokenRow

    secret = new_secret()
    lineage = Lineage(f"sqlite:///{home / 'penstock.db'}")
    with lineage.write() as writer:
        writer.add_token(
            TokenRow(
                id=f"id-{role}",
                name=str(role),
                role=str(role),
                sha256=hashed(secret),
                created_at=time.time(),
                created_by="tests",
            )
        )
    lineage.close()
    return secret


def code_of(calls: Calls, method: str, request: Any) -> Any:
    try:
        calls(method, request)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def test_health_is_open_and_reflection_is_not(gateway: Gateway) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    with grpc.insecure_channel(gateway.address) as channel:
        checks = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service=proto.SERVICE)
        assert checks.Check(request, timeout=10).status == health_pb2.HealthCheckResponse.SERVING
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        refused(
            lambda: list(stub.ServerReflectionInfo(iter([asked]), timeout=10)),
            grpc.StatusCode.UNAUTHENTICATED,
        )
        metadata = [("authorization", f"Bearer {gateway.token}")]
        (answer,) = stub.ServerReflectionInfo(iter([asked]), timeout=10, metadata=metadata)
        assert proto.SERVICE in {service.name for service in answer.list_services_response.service}


# -- dying -----------------------------------------------------------------------------------------


def test_kill_nine_loses_nothing_acknowledged_and_versions_never_go_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(20)
    with Gateway(tmp_path, ("--idle", "600")) as gateway, gateway.calls() as calls:
        client = TinyClient(calls, "bandit")
        run = client.open(BANDIT).run
        client.fetch()
        acknowledged, unsent = set[int](), list[Any]()
        for _ in range(4):
            until, after = time.monotonic() + 60.0, int(rng.integers(3, 12))
            while after and time.monotonic() < until:
                unsent += [client.play() for _ in range(8)]
                if deliver(client, unsent, acknowledged):
                    after -= 1
                    client.fetch(wait=0.3)
            gateway.kill()
            assert not deliver(client, unsent, acknowledged)
            gateway.start()
            while not deliver(client, unsent, acknowledged):
                time.sleep(0.2)
            client.fetch()  # asserts that versions only grow
        reached, until = client.version.step, time.monotonic() + 120
        while (
            client.version.step < reached + 2
        ):  # all that is acknowledged is known: the figures must speak of it
            assert time.monotonic() < until, gateway.log()
            unsent += [client.play() for _ in range(16)]
            assert deliver(client, unsent, acknowledged)
            client.fetch(wait=5.0)
        places = {(client.source, sequence) for sequence in acknowledged}
        figures = told(gateway.home, run, len(places))
        check_accounts(gateway.home, run, places, figures["gateway/received"])


def deliver(client: TinyClient, unsent: list[Any], acknowledged: set[int]) -> bool:
    """Send what is not acknowledged, as a client that knows nothing of a dead gateway's answers."""
    try:
        receipts = client.send(unsent).receipts
    except grpc.RpcError:
        return False
    taken = {
        receipt.sequence
        for receipt in receipts
        if receipt.outcome in (proto.SendReply.STORED, proto.SendReply.DUPLICATE)
    }
    acknowledged |= taken
    unsent[:] = [message for message in unsent if message.sequence not in taken]
    return True
