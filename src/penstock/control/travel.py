"""Fork and replay: a new run out of what another one recorded. The origin is only read, and may be live."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from penstock import config
from penstock.control import verbs
from penstock.errors import ConfigError
from penstock.executors.base import Executor, Worker, WorkerSpec
from penstock.loop.keeper import Keeper, Watcher
from penstock.loop.origin import Origin, learns_alike
from penstock.loop.runs import RunFolder
from penstock.loop.trainer import ACTORS
from penstock.model.run import RunState, RunStatus
from penstock.model.spec import OriginSpec, Spec
from penstock.model.version import Version
from penstock.stream.base import Stream

Changes = Mapping[str, Any]
"""Dotted paths and their values, as `config.resolve` takes them."""


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """A replay to be made."""

    spec: Spec
    weights_sha256: str | None
    """What must come out; None where other settings make other weights."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """How a replay ended."""

    status: RunStatus
    origin: OriginSpec
    equal: bool | None
    """Whether the weights are the recorded ones; None where there is nothing to compare."""
    missing: int
    """Updates of the line that could not be learned: the log no longer holds them."""


def plan_fork(origin: Origin, at: str, changes: Changes) -> Spec:
    """The spec of a fork; raise where the version is not on the line or a change cannot be had."""
    _refuse_replay(origin, f"penstock fork {{origin}} --at {at}")
    version = origin.find(at)
    same = changes.get("algorithm", origin.spec.algorithm) == origin.spec.algorithm
    _refuse(changes, ("environment", "origin", *(("network",) if same else ())), "fork")
    mapping = _mapping(origin.spec, changes)
    overrides = origin.overrides(version)
    mapping["actors"]["count"] = overrides.pop(ACTORS, origin.spec.actors.count)
    if same:  # what was changed while the origin ran holds in the fork from its first update on
        mapping[origin.spec.algorithm] |= overrides
    return _resolved(origin, mapping, changes, OriginSpec(run=origin.run, version=str(version)))


def plan_replay(origin: Origin, until: str, changes: Changes) -> ReplayPlan:
    """The spec of a replay; raise where the version is not on the line or a change cannot be had."""
    _refuse_replay(origin, "penstock replay {origin}")
    version = origin.find(until)
    _refuse(changes, ("environment", "origin"), "replay")
    mapping = _mapping(origin.spec, changes)
    mapping["actors"]["count"] = 0
    mapping["evaluation"]["every_seconds"] = 0  # it would need the environment
    mapping["stop"] |= {"updates": max(1, version.step), "steps": None, "target": None, "seconds": None}
    spec = _resolved(origin, mapping, changes, OriginSpec(run=origin.run, version=str(version), replay=True))
    update = origin.past.update(version.step)
    comparable = update is not None and learns_alike(spec, origin.spec)
    return ReplayPlan(spec, update.weights_sha256 if update is not None and comparable else None)


def fork(
    home: Path, spec: Spec, stream: Stream, executor: Executor, watch: Watcher, name: str | None, train: bool
) -> RunStatus:
    """Make the fork and, with `train`, keep it until it ends. One that cannot be had leaves nothing behind."""
    folder, record = verbs.make(home, spec, stream, name)
    if train:
        status = Keeper(folder, record, stream, executor, watch).run()
    else:
        actors = msgspec.structs.replace(spec.actors, count=0)
        record = msgspec.structs.replace(record, spec=msgspec.structs.replace(spec, actors=actors))
        status = Keeper(folder, record, stream, _OnlyFirst(executor), watch).run()
    _remove_unmade(folder, stream, status)
    return _with_advice(folder, spec, status, train)


def replay(
    home: Path, plan: ReplayPlan, stream: Stream, executor: Executor, watch: Watcher, name: str | None
) -> Replayed:
    """Learn from the log until all of it is learned, or it is told to stop."""
    folder, record = verbs.make(home, plan.spec, stream, name)
    status = Keeper(folder, record, stream, executor, watch).run()
    _remove_unmade(folder, stream, status)
    origin = plan.spec.origin
    assert origin is not None
    done = status.state is RunState.DONE
    equal = done and status.weights_sha256 == plan.weights_sha256 if plan.weights_sha256 else None
    missing = Version.parse(origin.version).step - status.updates if done else 0
    return Replayed(status, origin, equal, missing)


@dataclass(frozen=True, slots=True)
class _OnlyFirst:
    """Starts the learner of a fork for its first checkpoint and no more."""

    executor: Executor

    @property
    def place(self) -> str:
        return self.executor.place

    def launch(self, spec: WorkerSpec) -> Worker:
        return self.executor.launch(replace(spec, arguments=(*spec.arguments, "--only-first")))


def _remove_unmade(folder: RunFolder, stream: Stream, status: RunStatus) -> None:
    """A run that failed before its first checkpoint is none."""
    if status.state is RunState.FAILED and not folder.checkpoints():
        verbs.unmake(folder, folder.spec(), stream)
        raise ConfigError(status.reason or "the run could not start")


def _with_advice(folder: RunFolder, spec: Spec, status: RunStatus, trained: bool) -> RunStatus:
    """Where nothing was learned after the fork, say why and how to go on."""
    assert spec.origin is not None
    if status.updates != Version.parse(spec.origin.version).step:
        return status
    if status.state is RunState.DONE:
        again = f"penstock resume {status.run} --steps N, or --target R"
        reason = f"{status.reason}, already at the fork; set another limit and go on: {again}"
    elif status.state is RunState.STOPPED and not trained:
        place = f"{spec.origin.run} at {spec.origin.version}"
        reason = f"forked from {place}; train it with: penstock resume {status.run}"
    else:
        return status
    status = msgspec.structs.replace(status, reason=reason, actors=spec.actors.count)
    folder.save_status(status)
    return status


def _refuse_replay(origin: Origin, instead: str) -> None:
    """A replay has no log of its own to go back in."""
    source = origin.spec.origin
    if source is not None and source.replay:
        raise ConfigError(
            f"{origin.run} is a replay and recorded nothing itself; go back to its origin: "
            + instead.format(origin=source.run)
        )


def _refuse(changes: Changes, groups: tuple[str, ...], what: str) -> None:
    for path in changes:
        group = path.partition(".")[0]
        if group in groups:
            raise ConfigError(
                f"a {what} keeps the {group} of its origin, so {path} cannot change; begin anew: penstock train"
            )


def _mapping(origin: Spec, changes: Changes) -> dict[str, Any]:
    """The origin's spec in its file form, ready to be changed."""
    mapping = config.to_mapping(origin)
    if changes.get("algorithm", origin.algorithm) != origin.algorithm:
        del mapping[origin.algorithm]
    mapping |= {"origin": None, "prometheus": None}  # a port belongs to one run
    # a gateway parks its run's learner and wakes it; nobody would wake this one
    mapping["learner"]["count"] = 1
    return mapping


def _resolved(origin: Origin, mapping: dict[str, Any], changes: Changes, source: OriginSpec) -> Spec:
    """Checked; the environment as the origin has it, without a look at its files, which may be gone."""
    environment = origin.spec.environment
    if any(".py:" in name for name in (environment.id, *environment.wrappers)):
        mapping["environment"] = {"id": "recorded"}
    spec = config.resolve(mapping, changes)
    return msgspec.structs.replace(spec, environment=environment, origin=source)
