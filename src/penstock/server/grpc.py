"""`penstock.v1` for clients: messages in, messages out; what they mean is `loop.gateway`'s business.

Everything that may wait, for a log, a lock or a compression, is done in threads; the event loop only passes on.
"""

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from penstock import proto
from penstock.errors import ConfigError, Conflict, Damaged, Denied, NotFound, PenstockError, Unavailable
from penstock.logs import Log
from penstock.loop.gateway.gateway import Gateway
from penstock.loop.gateway.locks import Locks
from penstock.loop.gateway.queue import LATER, REFUSED
from penstock.loop.gateway.remote_acting import check_remote
from penstock.loop.gateway.service import Service
from penstock.loop.gateway.versions import Change, described
from penstock.model.clients import POLICY_NAME
from penstock.model.policy import Policy
from penstock.model.version import NONE, Version
from penstock.server.grpc_auth import OPERATIONS, Gatekeeper, TooMany, Unknown

MESSAGE_BYTES = 4 << 20
PART_BYTES = 1 << 20
CONFIGURATION_BYTES = 64 << 10
NOTE_CHARACTERS = 1000
MOST_TRAJECTORIES = 10_000
"""In one call."""
MOST_WAIT_SECONDS = 30.0
RETRY_SECONDS = 2.0
SOURCE = re.compile(r"[0-9a-f]{32}")
STATUS = (
    (Unknown, grpc.StatusCode.UNAUTHENTICATED),
    (TooMany, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (Denied, grpc.StatusCode.PERMISSION_DENIED),
    (ConfigError, grpc.StatusCode.INVALID_ARGUMENT),
    (Damaged, grpc.StatusCode.INVALID_ARGUMENT),
    (NotFound, grpc.StatusCode.NOT_FOUND),
    (Conflict, grpc.StatusCode.FAILED_PRECONDITION),
    (Unavailable, grpc.StatusCode.UNAVAILABLE),
    (PenstockError, grpc.StatusCode.INTERNAL),
)
"""The only table from errors to the outside; the first that fits."""


class Servicer:
    """The four calls."""

    def __init__(self, gateway: Gateway, gatekeeper: Gatekeeper) -> None:
        self._gateway, self._gatekeeper = gateway, gatekeeper
        self._log = Log(process="gateway")
        self._opening = ThreadPoolExecutor(4, "open")
        self._storing = ThreadPoolExecutor(4, "store")
        self._squeezing = ThreadPoolExecutor(2, "squeeze")
        self._deciding = ThreadPoolExecutor(2, "act")
        self._opens = Locks(asyncio.Lock)

    def handlers(self) -> Any:
        """The service, for a server; no generated code.

        All as streams, which look the same on the wire: so a message is received only once its token was checked.
        """
        made = {
            name: grpc.stream_stream_rpc_method_handler(
                self._handler(name), response_serializer=reply.SerializeToString
            )
            for name, (_, reply, _) in proto.METHODS.items()
        }
        return grpc.method_handlers_generic_handler(proto.SERVICE, made)

    def close(self) -> None:
        for pool in (self._opening, self._storing, self._squeezing, self._deciding):
            pool.shutdown(wait=False, cancel_futures=True)
        self._gatekeeper.close()

    def _handler(self, name: str) -> Any:
        kind = proto.METHODS[name][0]
        answer = {"Open": self._open, "Send": self._send, "Act": self._act}.get(name)

        async def handle(messages: AsyncIterator[bytes], context: Any) -> AsyncIterator[Any]:
            try:
                await self._gatekeeper(context.invocation_metadata(), context.peer(), OPERATIONS[name])
                request = await _request(messages, kind)
                if answer is not None:
                    yield await answer(request, context)
                    return
                async for reply in self._fetch(request, context):
                    yield reply
            except PenstockError as error:
                await context.abort(*refusal(error))

        return handle

    # -- calls -----------------------------------------------------------------------------------

    async def _open(self, request: Any, context: Any) -> Any:
        if request.protocol != proto.PROTOCOL:
            raise Conflict(
                f"this gateway speaks protocol {proto.PROTOCOL}, the client {request.protocol}; use the same release"
            )
        policy = _name(request.policy)
        configuration = _configuration(request.configuration)
        with self._opens.of(policy) as lock:
            async with lock:  # a thousand that open one policy take one thread, one after the other
                service, note = await self._in(self._opening, self._gateway.open, policy, configuration)
        newest = service.versions.newest
        if newest is None:
            raise Unavailable(f"policy {policy} has no version yet; ask again in a moment")
        return proto.OpenReply(
            protocol=proto.PROTOCOL, run=service.run, description=described(newest),
            max_lag=service.record.spec.pace.max_lag, max_message_bytes=MESSAGE_BYTES,
            note=note[:NOTE_CHARACTERS],
        )  # fmt: skip

    async def _send(self, request: Any, context: Any) -> Any:
        service = await self._service(request.policy)
        if not SOURCE.fullmatch(request.source):
            raise ConfigError(
                "source is an id of 32 hexadecimal digits, the same for all that one spool sends"
            )
        if len(request.trajectories) > MOST_TRAJECTORIES:
            raise ConfigError(
                f"one call carries at most {MOST_TRAJECTORIES} trajectories; send them in several"
            )
        if request.HasField("figures"):
            service.clients.take(context.peer(), request.figures)
        remaining = context.time_remaining()
        until = float("inf") if remaining is None else time.monotonic() + remaining
        receipts = await self._in(self._storing, _store, service, request, until)
        later = any(receipt.outcome == LATER for receipt in receipts)
        for receipt in receipts:
            if receipt.outcome == REFUSED:
                self._log.warning(
                    "trajectory_refused",
                    policy=service.policy,
                    sequence=receipt.sequence,
                    reason=receipt.reason,
                )
                break  # one line tells enough
        return proto.SendReply(
            receipts=[
                proto.SendReply.Receipt(sequence=one.sequence, outcome=one.outcome, reason=one.reason)
                for one in receipts
            ],
            retry_seconds=RETRY_SECONDS if later else 0.0,
            newest=_version(service.versions.version),
        )

    async def _fetch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        service = await self._service(request.policy)
        if request.HasField("figures"):
            service.clients.take(context.peer(), request.figures)
        have = Version(request.have.epoch, request.have.step) if request.HasField("have") else NONE
        wait = request.wait_seconds
        if not 0 <= wait <= MOST_WAIT_SECONDS:
            raise ConfigError(f"wait_seconds is 0 to {MOST_WAIT_SECONDS:g}, not {wait:g}")
        await _newer(service, have, wait)
        change = await self._in(self._squeezing, service.versions.change, have, request.have_sha256)
        if change is None:
            raise Unavailable(f"policy {service.policy} has no version yet; ask again in a moment")
        yield _head(change)
        for at in range(0, len(change.payload), PART_BYTES):
            yield proto.FetchReply(part=change.payload[at : at + PART_BYTES])

    async def _act(self, request: Any, context: Any) -> Any:
        service = await self._service(request.policy)
        policy = check_remote(service.versions.newest)
        remaining = context.time_remaining()
        patience = MOST_WAIT_SECONDS if remaining is None else remaining
        action, log_prob, version = await self._in(
            self._deciding, service.acting.decide, policy, request, patience
        )
        return proto.ActReply(action=action, log_prob=log_prob, version=_version(version))

    # -- parts -----------------------------------------------------------------------------------

    async def _service(self, policy: str) -> Service:
        known = self._gateway.known(_name(policy))
        if known is not None:
            return known
        service: Service = await self._in(self._opening, self._gateway.service, _name(policy))
        return service

    @staticmethod
    async def _in(pool: ThreadPoolExecutor, function: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(pool, function, *arguments)


def refusal(error: PenstockError) -> tuple[Any, str]:
    """The status and the sentence that an error becomes."""
    return next(code for kind, code in STATUS if isinstance(error, kind)), str(error)[:1000]


async def _request(messages: AsyncIterator[bytes], kind: Any) -> Any:
    """The one message of a call; raise Damaged."""
    async for message in messages:
        try:
            return kind.FromString(message)
        except DecodeError as error:
            raise Damaged(f"the message is no {kind.DESCRIPTOR.name} of {proto.SERVICE}") from error
    raise Damaged("the call carries no message")


def _store(service: Service, request: Any, until: float) -> list[Any]:
    newest = service.versions.version
    return service.queue.store_all(request.source, request.trajectories, newest, until, request.run)


async def _newer(service: Service, have: Version, seconds: float) -> None:
    """Return once there is a version greater than `have`, or the time is up."""
    loop, come = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # the server has ended meanwhile
            loop.call_soon_threadsafe(come.set)

    enough = service.versions.listen(wake)
    until = loop.time() + seconds
    try:
        while service.versions.version <= have and service.alive and loop.time() < until:
            come.clear()
            if service.versions.version <= have:
                # looked at now and then too: a policy that is closed wakes nobody
                with_timeout = min(1.0, until - loop.time())
                try:
                    await asyncio.wait_for(come.wait(), with_timeout)
                except TimeoutError:
                    continue
    finally:
        enough()


def _head(change: Change) -> Any:
    """The first reply: everything but the payload."""
    facts = change.policy.facts
    kind = {
        "nothing": proto.FetchReply.NOTHING,
        "delta": proto.FetchReply.DELTA,
        "whole": proto.FetchReply.WHOLE,
    }
    reply = proto.FetchReply(
        kind=kind[change.kind], version=_version(facts.version), description=described(change.policy),
        acting=dict(facts.acting), weights_sha256=facts.weights_sha256, payload_bytes=len(change.payload),
        raw_bytes=change.raw_bytes,
    )  # fmt: skip
    if change.base is not None:
        _add_base(reply, change.base)
    return reply


def _add_base(reply: Any, base: Policy) -> None:
    reply.base.CopyFrom(_version(base.facts.version))
    reply.base_sha256 = base.facts.weights_sha256


def _version(version: Version) -> Any:
    return proto.Version(epoch=version.epoch, step=max(0, version.step))


def _name(policy: str) -> str:
    if not POLICY_NAME.fullmatch(policy):
        raise ConfigError(
            f"{policy[:80]!r} cannot be a policy's name (client_id); use up to 64 letters, digits, dots, dashes and _"
        )
    return policy


def _configuration(text: str) -> dict[str, Any]:
    if len(text) > CONFIGURATION_BYTES:
        raise ConfigError(
            f"the configuration has {len(text)} characters, over the limit of {CONFIGURATION_BYTES}"
        )
    try:
        read = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the configuration is not JSON: {error}") from error
    if not isinstance(read, dict):
        raise ConfigError("the configuration is not an object of keys")
    return read
