"""A thousand connections share eight policies: nothing fails, memory stays, every trajectory is accounted for.

Each connection is a TCP connection of its own. It opens its policy, follows its versions by long polls and sends
what it "experienced" (random observations, actions drawn with the version it has), some of it twice.
"""

import asyncio
import os
import time
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import msgspec
import numpy as np
import psutil

from penstock import proto
from penstock.model import delta
from penstock.model.policy import PolicyDescription
from penstock.model.tensors import read_safetensors, weights_sha256
from penstock.model.version import NONE, Version
from penstock.policy.acting import Acting
from tests.faults.accounts import Place, check_accounts, told
from tests.faults.checker import check_run
from tests.gateways import Gateway

LENGTH = 32
SENDS_EVERY = 5.0
CHANNEL = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", 4 << 20)]


@dataclass
class Crowd:
    """One campaign, for the report."""

    name: str
    connections: int
    seconds: float = 0.0
    calls: Counter[str] = field(default_factory=Counter)
    memory: list[float] = field(default_factory=list)
    """Of the gateway, in MB, once a second; without the log's pages, which are the kernel's to take back."""
    facts: dict[str, int] = field(default_factory=dict)
    slowest: dict[str, float] = field(default_factory=dict)
    """Method → the 99th percentile of its calls, in seconds."""


@dataclass
class Shared:
    """The newest version of one policy as its clients have it: they decode it once, here, to spare this machine."""

    name: str
    configuration: dict[str, Any]
    run: str = ""
    acting: Acting | None = None
    version: Version = NONE
    tensors: dict[str, Any] = field(default_factory=dict)
    sha256: str = ""
    acknowledged: set[Place] = field(default_factory=set)


def configured(clients: int) -> dict[str, Any]:
    """A policy of this many clients: an update for every trajectory of each."""
    parameters = {"act_dim": 4, "input_size": 8, "batch_size": 1024, "train_pi_iters": 8, "seed": 1}
    return {"algorithm_name": "PPO", "algorithm_parameters": parameters | {"traj_per_epoch": clients}}


def crowded(home: Path, seed: int, connections: int, seconds: float, policies: int = 8) -> Crowd:
    """`connections` clients for `seconds`; raise AssertionError where a promise is broken."""
    outcome = Crowd(f"crowd, seed {seed}", connections)
    began = time.monotonic()
    with Gateway(home, ("--idle", "900")) as gateway:
        configuration = configured(connections // policies)
        shared = [Shared(f"policy-{number}", configuration) for number in range(policies)]
        for policy in shared:  # one after the other: each has a policy made by a process of its own
            with gateway.calls() as calls:
                policy.run = calls.open(policy.name, policy.configuration).run
        took: dict[str, list[float]] = {}
        asyncio.run(_run(gateway, shared, outcome, connections, seconds, seed, took))
        outcome.slowest = {method: float(np.percentile(times, 99)) for method, times in took.items()}
        for policy in shared:
            figures = told(home, policy.run, len(policy.acknowledged))
            counted = check_accounts(home, policy.run, policy.acknowledged, figures["gateway/received"])
            facts = check_run(home, policy.run)
            for name, value in {**counted, "updates": facts["updates"], "used": facts["used"]}.items():
                outcome.facts[name] = outcome.facts.get(name, 0) + int(value)
    assert not outcome.calls["errors"], f"calls failed: {dict(outcome.calls)}"
    settled = outcome.memory[len(outcome.memory) // 3]
    assert outcome.memory[-1] < settled * 1.5 + 64, (
        f"the gateway grew from {settled:.0f} to {outcome.memory[-1]:.0f} MB"
    )
    outcome.seconds = time.monotonic() - began
    return outcome


async def _run(
    gateway: Gateway, shared: list[Shared], outcome: Crowd, connections: int, seconds: float, seed: int,
    took: dict[str, list[float]],
) -> None:  # fmt: skip
    assert gateway.process is not None
    process = psutil.Process(gateway.process.pid)
    until = time.monotonic() + seconds

    async def watch() -> None:
        while time.monotonic() < until:
            memory = process.memory_info()
            outcome.memory.append((memory.rss - memory.shared) / 2**20)
            await asyncio.sleep(1.0)

    clients = [
        _Client(shared[number % len(shared)], gateway, outcome, took, np.random.default_rng((seed, number)))
        for number in range(connections)
    ]
    await asyncio.gather(watch(), *(client.live(until, number) for number, client in enumerate(clients)))


class _Client:
    def __init__(
        self,
        shared: Shared,
        gateway: Gateway,
        outcome: Crowd,
        took: dict[str, list[float]],
        rng: np.random.Generator,
    ) -> None:
        self._shared, self._outcome, self._took, self._rng = shared, outcome, took, rng
        self._address, self._metadata = gateway.address, [("authorization", f"Bearer {gateway.token}")]
        self._source, self._sequence = os.urandom(16).hex(), 0
        self._have = NONE

    async def live(self, until: float, number: int) -> None:
        await asyncio.sleep(0.02 * number)  # a crowd gathers; it does not appear
        async with grpc.aio.insecure_channel(self._address, CHANNEL) as self._channel:
            await self._call("Open", proto.OpenRequest(
                protocol=proto.PROTOCOL, policy=self._shared.name, software="crowd",
                configuration=msgspec.json.encode(self._shared.configuration).decode(),
            ))  # fmt: skip
            await self._fetch(0.0)
            await asyncio.gather(self._follow(until), self._send(until))

    async def _follow(self, until: float) -> None:
        while time.monotonic() < until:
            await self._fetch(min(20.0, max(0.0, until - time.monotonic())))
            await asyncio.sleep(SENDS_EVERY)

    async def _send(self, until: float) -> None:
        await asyncio.sleep(float(self._rng.uniform(0, SENDS_EVERY)))
        while time.monotonic() < until:
            message = self._played()
            for _ in range(2 if self._rng.random() < 0.05 else 1):
                request = proto.SendRequest(
                    policy=self._shared.name, source=self._source, trajectories=[message]
                )
                reply = await self._call("Send", request)
                for receipt in [] if reply is None else reply.receipts:
                    outcome = proto.SendReply.Outcome.Name(receipt.outcome)
                    self._outcome.calls[outcome] += 1
                    if outcome in ("STORED", "DUPLICATE"):
                        self._shared.acknowledged.add((self._source, receipt.sequence))
                    elif outcome == "REFUSED":
                        self._outcome.calls["errors"] += 1
            await asyncio.sleep(SENDS_EVERY)

    async def _fetch(self, wait: float) -> None:
        shared = self._shared
        request = proto.FetchRequest(policy=shared.name, wait_seconds=wait)
        if self._have != NONE:
            request.have.CopyFrom(proto.Version(epoch=self._have.epoch, step=self._have.step))
        if self._have == shared.version != NONE:  # else the weights it would have are gone
            request.have_sha256 = shared.sha256
        replies = await self._call("Fetch", request)
        if not replies or replies[0].kind == proto.FetchReply.NOTHING:
            return
        head = replies[0]
        newer = Version(head.version.epoch, head.version.step)
        assert newer > self._have, "versions never go back"
        payload = b"".join(reply.part for reply in replies)
        self._outcome.calls[proto.FetchReply.Kind.Name(head.kind)] += 1
        if newer > shared.version:
            base = Version(head.base.epoch, head.base.step)
            if head.kind == proto.FetchReply.WHOLE:
                shared.tensors = read_safetensors(zlib.decompress(payload))
            elif base == shared.version:
                shared.tensors = delta.apply(shared.tensors, payload)
            else:  # somebody else was quicker with the version this one builds on
                self._have = NONE
                return await self._fetch(0.0)
            shared.sha256 = weights_sha256(shared.tensors)
            assert shared.sha256 == head.weights_sha256
            shared.version = newer
            if shared.acting is None:
                shared.acting = Acting(msgspec.json.decode(head.description, type=PolicyDescription))
            shared.acting.load(shared.tensors)
        self._have = newer

    def _played(self) -> Any:
        acting, rng = self._shared.acting, self._rng
        assert acting is not None
        seen = rng.standard_normal((LENGTH, 8)).astype(np.float32)
        outputs = acting.outputs({"observations": seen}).copy()
        actions = (outputs + rng.gumbel(size=outputs.shape)).argmax(1).astype(np.int32)
        log_probs = acting.log_probs(outputs, actions, None)
        rewards = (actions == (seen[:, 0] > 0)).astype(np.float32)
        self._sequence += 1
        version = self._shared.version
        return proto.Trajectory(
            sequence=self._sequence, version=proto.Version(epoch=version.epoch, step=version.step), length=LENGTH,
            observations={"observations": seen.tobytes()}, actions=actions.tobytes(), log_probs=log_probs.tobytes(),
            rewards=rewards.tobytes(), terminated=True,
        )  # fmt: skip

    async def _call(self, method: str, request: Any) -> Any:
        kind, reply, streams = proto.METHODS[method]
        make = self._channel.unary_stream if streams else self._channel.unary_unary
        call = make(
            proto.path(method),
            request_serializer=kind.SerializeToString,
            response_deserializer=reply.FromString,
        )
        began = time.monotonic()
        try:
            pending = call(request, metadata=self._metadata, timeout=60.0)
            answer = [part async for part in pending] if streams else await pending
        except grpc.RpcError as error:
            self._outcome.calls["errors"] += 1
            self._outcome.calls[f"{method} {error.code().name}"] += 1
            return None
        if method != "Fetch":  # a fetch waits on purpose
            self._took.setdefault(method, []).append(time.monotonic() - began)
        self._outcome.calls[method] += 1
        return answer
