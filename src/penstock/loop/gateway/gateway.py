"""All policies of one gateway: found, made where they are new, served.

Reads from: `runs`. What a policy needs to go on lies in the log; a gateway that starts again finds it there.
"""

import contextlib
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from penstock.errors import ConfigError, Conflict, NotFound, PenstockError, Unavailable, nearest
from penstock.executors.base import Executor
from penstock.logs import Log
from penstock.loop.gateway.affording import check_memory
from penstock.loop.gateway.configuration import differences, translate
from penstock.loop.gateway.figures import OwnFigures
from penstock.loop.gateway.holding import Holding, Holdings, Lost
from penstock.loop.gateway.idling import Steering
from penstock.loop.gateway.joining import completed, joins, unknown
from penstock.loop.gateway.locks import Locks
from penstock.loop.gateway.owning import owner, owners
from penstock.loop.gateway.preparing import FirstVersions
from penstock.loop.gateway.resuming import has_unpacked, take_up
from penstock.loop.gateway.service import Service
from penstock.loop.registry import RunRecord, find, registered
from penstock.model.clients import PREFIX, policy_of
from penstock.model.spec import Spec
from penstock.stream.base import Stream

MOST_POLICIES = 64
START_SECONDS = 60.0
POLL_SECONDS = 0.05
REFUSED_SECONDS = 60.0
"""For so long a configuration that cannot be is refused without a try: clients come back often."""


class Starting(Steering, Protocol):
    """How the gateway begins runs, beside steering them."""

    def start(self, spec: Spec) -> str:
        """Begin a run of a client's policy; its name."""

    def discard(self, run: str) -> None:
        """Take back a run that could not begin."""

    def learns(self, run: str) -> bool:
        """Whether a learner of the run lives here, which somebody must park one day."""


class Opened(NamedTuple):
    """A policy, and what is to be said to whoever opened it."""

    service: Service
    note: str


class Gateway:
    """Used by many threads."""

    def __init__(
        self, home: Path, stream: Stream, starting: Starting, executor: Executor, idle_seconds: float
    ) -> None:
        self._stream, self._starting = stream, starting
        self._first_versions = FirstVersions(home, stream.url, executor)
        self._idle_seconds = idle_seconds
        self._log = Log(process="gateway")
        self._own = OwnFigures()
        self._holdings = Holdings(home, stream)
        self._lock = threading.Lock()
        self._services: dict[str, Service] = {}
        self._opening = Locks(threading.Lock)
        self._refused: dict[str, tuple[Spec, float, str]] = {}
        """Policy → a spec that could not be made, until when that is believed, and why."""
        self._ending = threading.Event()
        self._resuming = threading.Thread(target=self._resume, name="resume", daemon=True)

    def resume(self) -> None:
        """Go on, beside the calls, with what a gateway before this one left: queues, and learners that are awake."""
        self._resuming.start()

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
        """The service of a policy that is served already; never waits for anything slow."""
        found = self._services.get(policy)
        return found if found is not None and found.use() else None

    def policies(self) -> list[str]:
        return sorted(self._services)

    def close(self) -> None:
        """End all threads; nothing acknowledged is lost."""
        self._ending.set()
        if self._resuming.is_alive():
            self._resuming.join(START_SECONDS)
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

    def _resume(self) -> None:
        """Attach what has something to do; the others wait until somebody calls."""

        def attach(policy: str) -> None:
            with self._opening.of(policy) as lock, lock:
                if self._ending.is_set() or self.known(policy) is not None:
                    return
                record = self._find(policy)
                if record is not None and self._is_unfinished(policy, record.run):
                    self._attached(policy)

        take_up(lambda: owners(self._stream), attach, self._ending.wait)

    def _is_unfinished(self, policy: str, run: str) -> bool:
        if not self._holdings.is_ours(policy, run):
            return False
        return self._starting.learns(run) or has_unpacked(self._stream, run)

    def _check_room(self, policy: str) -> None:
        with self._lock:
            self._services = {name: service for name, service in self._services.items() if service.alive}
            others = len(self._services.keys() - {policy})
        if others >= MOST_POLICIES:
            raise Unavailable(
                f"this gateway serves {MOST_POLICIES} policies already; one that no client asks for gives its place "
                "away after some minutes: ask again then, or use a gateway of another home"
            )

    def _serve(self, record: RunRecord, holding: Holding) -> Service:
        policy = policy_of(record.spec.environment.id)
        self._check_room(policy)
        self._holdings.remember(policy, record.run, holding)
        service = Service(record, self._stream, self._starting, self._own, self._idle_seconds, holding)
        with self._lock:
            self._services[policy] = service
        self._log.info("policy_opened", policy=policy, run=record.run, version=str(service.versions.version))
        return service

    def _find(self, policy: str) -> RunRecord | None:
        """The run that learns the policy, if there is one."""
        return owner(owners(self._stream).get(policy, []), self._holdings.served(policy))

    def _begun(self, policy: str, spec: Spec) -> Service:
        """A new run for the policy. Of gateways that begin one at the same time the last to claim keeps its own."""
        self._refuse_again(policy, spec)
        check_memory(spec)
        self._check_room(policy)
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

    def _refuse_again(self, policy: str, spec: Spec) -> None:
        """Raise what was the matter with the same spec a moment ago."""
        refused = self._refused.get(policy)
        if refused is not None and refused[0] == spec and time.monotonic() < refused[1]:
            raise ConfigError(refused[2])

    def _remember(self, service: Service, error: ConfigError) -> None:
        now = time.monotonic()
        believed = {policy: entry for policy, entry in self._refused.items() if entry[1] > now}
        if len(believed) < MOST_POLICIES:
            believed[service.policy] = (service.record.spec, now + REFUSED_SECONDS, str(error))
        self._refused = believed

    def _prepare(self, service: Service) -> None:
        """See that it has a first version; a run that cannot have one is taken back."""
        try:
            self._first_versions.make(service.run)
        except ConfigError as error:
            self._remember(service, error)
            service.close()
            with contextlib.suppress(PenstockError):  # why it cannot be matters more
                self._starting.discard(service.run)
            raise
        until = time.monotonic() + START_SECONDS
        while service.versions.newest is None:
            if time.monotonic() > until or not service.alive:
                raise Unavailable(f"the first version of policy {service.policy} did not come; ask again")
            time.sleep(POLL_SECONDS)
