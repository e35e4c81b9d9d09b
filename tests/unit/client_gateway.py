"""A small gateway in this process that speaks the real protocol and fails on purpose.

For faults that a real gateway does not have: lost acknowledgements, corrupted deltas, another protocol.
"""

import json
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import msgspec
import numpy as np
from safetensors.numpy import save

from penstock import proto
from penstock.model import delta
from penstock.model.policy import NetworkSpec, PolicyDescription
from penstock.model.spaces import ActionLayout, Column, Leaf, ObservationLayout, Spaces
from penstock.model.tensors import Array, weights_sha256
from penstock.model.version import Version
from penstock.policy import networks

TOKEN = "a-token-for-tests"


def description(
    observation: tuple[int, ...] = (8,),
    actions: int = 4,
    masked: bool = False,
    box: bool = False,
    q: bool = False,
) -> PolicyDescription:
    action = ActionLayout("discrete", (actions,), (0,), masked=masked)
    if box:
        action = ActionLayout("box", shape=(actions,), low=(-1.0,) * actions, high=(1.0,) * actions)
    leaf = Leaf((), "box", "observations", 0, int(np.prod(observation)), shape=observation)
    spaces = Spaces(
        ObservationLayout({"observations": Column(observation, "<f4")}, (leaf,)), action, exact=False
    )
    head = "gaussian" if box else "q" if q else "categorical"
    body = "items" if len(observation) == 2 else "auto"
    return PolicyDescription("dqn" if q else "ppo", head, spaces, NetworkSpec(hidden=(16,), body=body))


def encoded(described: PolicyDescription) -> str:
    return msgspec.json.encode(described).decode()


class Gateway:
    """Public attributes are its faults; change them while it runs."""

    def __init__(self, described: PolicyDescription | None = None, port: int = 0) -> None:
        self.description = described or description()
        self.protocol = proto.PROTOCOL
        self.run = "run-1"
        self.refuse: tuple[grpc.StatusCode, str] | None = None
        self.lose_receipts = 0
        self.later = 0
        self.hang = threading.Event()
        self.hang.set()
        """While it is clear, `Send` hangs."""
        self.making = threading.Event()
        self.making.set()
        """While it is clear, `Open` takes its time."""
        self.refuse_lengths: set[int] = set()
        self.break_deltas = False
        self.act_delay = 0.0
        self.acting: dict[str, float] = {}
        self.configurations: list[dict[str, Any]] = []
        self.kinds: list[int] = []
        self.figures: list[Any] = []
        self.received: dict[tuple[str, int], Any] = {}
        self.deliveries = 0
        self._lock = threading.Condition()
        self._versions: dict[Version, dict[str, Array]] = {}
        self.publish(Version(0, 0), seed=0)
        self._server = grpc.server(ThreadPoolExecutor(16))
        make = {True: grpc.unary_stream_rpc_method_handler, False: grpc.unary_unary_rpc_method_handler}
        handlers = {
            name: make[streamed](self._guarded(getattr(self, f"_{name.lower()}"), streamed),
                                 request.FromString, reply.SerializeToString)
            for name, (request, reply, streamed) in proto.METHODS.items()
        }  # fmt: skip
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(proto.SERVICE, handlers),)
        )
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self._server.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> "Gateway":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self.hang.set()
        self.making.set()
        with self._lock:
            self._lock.notify_all()
        self._server.stop(0).wait(5)

    def publish(self, version: Version, seed: int, change: float = 0.0) -> dict[str, Array]:
        """A version made anew, or the newest one moved a little."""
        with self._lock:
            if change:
                newest = self._versions[max(self._versions)]
                tensors = {name: tensor + np.float32(change) for name, tensor in newest.items()}
            else:
                tensors = networks.initial(self.description, np.random.default_rng(seed))
            self._versions[version] = tensors
            self._lock.notify_all()
        return tensors

    def begin_again(self) -> None:
        """Another run of the same policy, as after a delete: its versions count from zero."""
        with self._lock:
            self.run += "-again"
            self._versions.clear()
            self.publish(Version(0, 0), seed=9)

    def wait_for(self, count: int, seconds: float = 30.0) -> list[Any]:
        """The trajectories once there are that many."""
        until = time.monotonic() + seconds
        while len(self.received) < count:
            assert time.monotonic() < until, (
                f"{len(self.received)} of {count} trajectories came in {seconds} s"
            )
            time.sleep(0.01)
        return list(self.received.values())

    def _guarded(self, method: Any, streamed: bool) -> Any:
        def guard(context: Any) -> None:
            if dict(context.invocation_metadata()).get("authorization") != f"Bearer {TOKEN}":
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is not known")
            if self.refuse is not None:
                context.abort(*self.refuse)

        def unary(request: Any, context: Any) -> Any:
            guard(context)
            return method(request, context)

        def stream(request: Any, context: Any) -> Iterator[Any]:
            guard(context)
            yield from method(request, context)

        return stream if streamed else unary

    def _open(self, request: Any, context: Any) -> Any:
        self.making.wait(30)
        self.configurations.append(json.loads(request.configuration))
        return proto.OpenReply(
            protocol=self.protocol, run=self.run, description=encoded(self.description),
            max_lag=8, max_message_bytes=4 << 20,
        )  # fmt: skip

    def _send(self, request: Any, context: Any) -> Any:
        self.figures.append(request.figures)
        self.deliveries += 1
        self.hang.wait(30)
        reply = proto.SendReply(retry_seconds=0.2)
        full, self.later = self.later > 0, max(0, self.later - 1)
        for trajectory in request.trajectories:
            key = (request.source, trajectory.sequence)
            if full:
                outcome = proto.SendReply.LATER
            elif trajectory.length in self.refuse_lengths:
                outcome = proto.SendReply.REFUSED
            elif key in self.received:
                outcome = proto.SendReply.DUPLICATE
            else:
                self.received[key] = trajectory
                outcome = proto.SendReply.STORED
            reply.receipts.add(sequence=trajectory.sequence, outcome=outcome, reason="for a test")
        if self.lose_receipts:
            self.lose_receipts -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "the acknowledgement was lost")
        return reply

    def _fetch(self, request: Any, context: Any) -> Iterator[Any]:
        have = Version(request.have.epoch, request.have.step) if request.HasField("have") else None
        until = time.monotonic() + request.wait_seconds
        with self._lock:
            while have is not None and max(self._versions) <= have and time.monotonic() < until:
                self._lock.wait(max(0.0, min(0.2, until - time.monotonic())))
                if not context.is_active():
                    return
            newest = max(self._versions)
            tensors = self._versions[newest]
        first = proto.FetchReply(
            version=proto.Version(epoch=newest.epoch, step=newest.step), acting=self.acting,
            description=encoded(self.description), weights_sha256=weights_sha256(tensors),
        )  # fmt: skip
        if have is not None and newest <= have:
            first.kind = proto.FetchReply.NOTHING
            self.kinds.append(first.kind)
            yield first
            return
        whole = save(tensors)
        first.raw_bytes = len(whole)
        base = self._versions.get(have) if have is not None else None
        if base is not None and delta.fits(base, tensors) and weights_sha256(base) == request.have_sha256:
            first.kind, payload = proto.FetchReply.DELTA, delta.encode(base, tensors)
            first.base.epoch, first.base.step = have
            first.base_sha256 = request.have_sha256
            if self.break_deltas:
                payload = payload[:-6] + bytes(6)
        else:
            first.kind, payload = proto.FetchReply.WHOLE, zlib.compress(whole)
        first.payload_bytes = len(payload)
        self.kinds.append(first.kind)
        yield first
        for at in range(0, len(payload), 1000):
            yield proto.FetchReply(part=payload[at : at + 1000])

    def _act(self, request: Any, context: Any) -> Any:
        time.sleep(self.act_delay)
        kind = "<f4" if self.description.spaces.action.kind == "box" else "<i4"
        count = self.description.spaces.action.shape[0] if kind == "<f4" else 1
        return proto.ActReply(
            action=np.ones(count, kind).tobytes(), log_prob=-0.5, version=proto.Version(epoch=1, step=7)
        )
