"""All policies of one gateway: found, made where they are new, served.

Reads from: `runs`. What a policy needs to go on lies in the log; a gateway that starts again finds it there.
"""

import contextlib
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from penstock.errors import ConfigError, Conflict, Damaged, NotFound, PenstockError, Unavailable, nearest
from penstock.executors.base import Executor, Exit, WorkerSpec
from penstock.logs import Log
from penstock.loop.gateway.configuration import differences, translate
from penstock.loop.gateway.figures import OwnFigures
from penstock.loop.gateway.holding import Holding, Holdings, Lost
from penstock.loop.gateway.idling import Steering
from penstock.loop.gateway.joining import completed, joins, unknown
from penstock.loop.gateway.locks import Locks
from penstock.loop.gateway.service import Service
from penstock.loop.registry import RunRecord, find, registered
from penstock.loop.supervise import last_words
from penstock.model.clients import PREFIX, is_client, policy_of
from penstock.model.codec import decode, open_frame
from penstock.model.spec import Spec
from penstock.stream.base import Stream

MOST_POLICIES = 64
START_SECONDS = 60.0
PREPARE_SECONDS = 120.0
PREPARE_NICE = 5
POLL_SECONDS = 0.05


class Starting(Steering, Protocol):
    """How the gateway begins runs, beside steering them."""

    def start(self, spec: Spec) -> str:
        """Begin a run of a client's policy; its name."""

    def discard(self, run: str) -> None:
        """Take back a run that could not begin."""


class Opened(NamedTuple):
    """A policy, and what is to be said to whoever opened it."""

    service: Service
    note: str


class Gateway:
    """Used by many threads."""

    def __init__(
        self, home: Path, stream: Stream, starting: Starting, executor: Executor, idle_seconds: float
    ) -> None:
        self._home, self._stream, self._starting, self._executor = home, stream, starting, executor
        self._idle_seconds = idle_seconds
        self._log = Log(process="gateway")
        self._own = OwnFigures()
        self._holdings = Holdings(home, stream)
        self._lock = threading.Lock()
        self._services: dict[str, Service] = {}
        self._opening = Locks(threading.Lock)

    def open(self, policy: str, configuration: Mapping[str, Any]) -> Opened:
        """The policy of this name, made where it is new; repeated, it changes nothing.

        A configuration without shapes takes a policy that is there as it is. Raises ConfigError for a key that is
        wrong, Conflict where the policy is known and cannot be this one, or another gateway serves it.
        """
        policy_of(PREFIX + policy)
        joining = joins(configuration)
        wanted = None if joining else translate(policy, configuration, self._stream.url)
        with self._opening.of(policy) as lock, lock:
            service = self._attached(policy)
            if wanted is None:
                if service is None:
                    raise unknown(policy, configuration)
                wanted = translate(policy, completed(configuration, service.record.spec), self._stream.url)
            service = service or self._begun(policy, wanted)
            asks = not joining or bool(configuration.get("algorithm_parameters"))
            note = self._compare(service, wanted, asks)
            if service.versions.newest is None:
                self._prepare(service)
            return Opened(service, note)

    def service(self, policy: str) -> Service:
        """A policy that somebody opened, perhaps before this gateway started; raise NotFound."""
        if (known := self.known(policy)) is not None:
            return known
        policy_of(PREFIX + policy)
        with self._opening.of(policy) as lock, lock:
            service = self._attached(policy)
        if service is None:
            raise NotFound(f"no policy {policy!r} was opened here{nearest(policy, self.policies())}")
        return service

    def known(self, policy: str) -> Service | None:
        """The service of a policy that is served already; never waits."""
        found = self._services.get(policy)
        return found if found is not None and found.alive else None

    def policies(self) -> list[str]:
        return sorted(self._services)

    def close(self) -> None:
        """End all threads; nothing acknowledged is lost."""
        with self._lock:
            services = list(self._services.values())
        for service in services:
            service.close()

    # -- finding and beginning -------------------------------------------------------------------

    def _attached(self, policy: str) -> Service | None:
        """The service of a policy that has a run."""
        if (known := self.known(policy)) is not None:
            return known
        record = self._find(policy)
        return None if record is None else self._serve(record, self._holdings.take(policy, record.run))

    def _serve(self, record: RunRecord, holding: Holding) -> Service:
        policy = policy_of(record.spec.environment.id)
        with self._lock:
            alive = sum(service.alive for name, service in self._services.items() if name != policy)
        if alive >= MOST_POLICIES:
            raise Unavailable(f"this gateway serves {MOST_POLICIES} policies already; start another one")
        self._holdings.remember(policy, record.run, holding)
        service = Service(record, self._stream, self._starting, self._own, self._idle_seconds, holding)
        with self._lock:
            self._services[policy] = service
        self._log.info("policy_opened", policy=policy, run=record.run, version=str(service.versions.version))
        return service

    def _find(self, policy: str) -> RunRecord | None:
        """The newest run of a policy that was not removed."""
        found = []
        for record in registered(self._stream).values():
            with contextlib.suppress(Damaged):
                run = decode(open_frame(record.value), RunRecord)
                if is_client(run.spec.environment.id) and policy_of(run.spec.environment.id) == policy:
                    found.append(run)
        return max(found, key=lambda run: run.created_at, default=None)

    def _begun(self, policy: str, spec: Spec) -> Service:
        """A new run for the policy. Of gateways that begin one at the same time the last to claim keeps its own."""
        holding = self._holdings.take(policy, None)
        if (record := self._find(policy)) is not None:  # another one began it a moment ago
            return self._serve(record, holding)
        run = self._starting.start(spec)
        until = time.monotonic() + START_SECONDS
        while run not in registered(self._stream):
            if time.monotonic() > until:
                raise Unavailable(f"run {run} of policy {policy} did not begin in {START_SECONDS:g} s")
            time.sleep(POLL_SECONDS)
        try:
            holding.check()
        except Lost:
            with contextlib.suppress(PenstockError):  # who has it matters more
                self._starting.discard(run)
            raise
        return self._serve(find(self._stream, run), holding)

    def _compare(self, service: Service, wanted: Spec, asks: bool) -> str:
        """What the run keeps otherwise, in a sentence; raise Conflict where it cannot be this policy."""
        wrong, loose = differences(service.record.spec, wanted)
        if wrong:
            raise Conflict(
                f"policy {service.policy} is learned by run {service.run}, whose {'; whose '.join(wrong)}; choose "
                f"another client_id, or remove the run: penstock delete {service.run}"
            )
        if not loose or not asks:
            return ""
        self._log.warning("configuration_differs", policy=service.policy, run=service.run, kept=loose)
        return (
            f"policy {service.policy} is learned by run {service.run}, which keeps its own: {'; '.join(loose)} "
            f"(change them there: penstock set {service.run} …)"
        )

    def _prepare(self, service: Service) -> None:
        """The first version, made by a child: algorithms are plugins, and JAX does not belong here."""
        try:
            self._run_prepare(service.run)
        except ConfigError:
            service.close()
            with contextlib.suppress(PenstockError):  # why it cannot be matters more
                self._starting.discard(service.run)
            raise
        until = time.monotonic() + START_SECONDS
        while service.versions.newest is None:
            if time.monotonic() > until or not service.alive:
                raise Unavailable(f"the first version of policy {service.policy} did not come; ask again")
            time.sleep(POLL_SECONDS)

    def _run_prepare(self, run: str) -> None:
        log = self._home / "runs" / run / "logs" / "prepare.log"
        place = {"PENSTOCK_HOME": str(self._home), "PENSTOCK_STREAM": self._stream.url}
        began = log.stat().st_size if log.exists() else 0
        worker = self._executor.launch(
            WorkerSpec("prepare", ("prepare", run), log, nice=PREPARE_NICE, environment=place)
        )
        until = time.monotonic() + PREPARE_SECONDS
        try:
            while (code := worker.poll()) is None:
                if time.monotonic() > until:
                    raise Unavailable(
                        f"the first version of run {run} took over {PREPARE_SECONDS:g} s; see {log}"
                    )
                time.sleep(POLL_SECONDS)
        finally:
            worker.kill()
        if code == Exit.HOPELESS:
            raise ConfigError(last_words(log, began) or f"the policy of run {run} cannot be made; see {log}")
        if code != Exit.FINISHED:
            raise Unavailable(last_words(log, began) or f"the first version of run {run} failed; see {log}")
