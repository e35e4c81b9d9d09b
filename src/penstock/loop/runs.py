"""A run's folder: where everything of it lies, and how it is read and written.

PENSTOCK_HOME/runs/<id>/
  spec.json  state.json  labels.json  actors.json  metrics.jsonl  events.jsonl  evaluations.jsonl  tensorboard/
  checkpoints/<epoch>.<step>/{checkpoint.json, state.safetensors, policy.safetensors, policy.json}
  checkpoints/best                  names the best checkpoint
  recordings/<id>.{gif,json}        episodes somebody asked for
  logs/{learner.log, actor-<slot>.log, evaluator.log, watch.log, recordings.log}
"""

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from random import SystemRandom
from typing import Any

import msgspec

from penstock import config
from penstock.errors import ConfigError, Conflict, Damaged, NotFound, nearest
from penstock.loop.files import append_line, read_json, read_lines, write_atomically
from penstock.loop.processes import identify, is_alive
from penstock.model.run import FORMAT, LIVE, RUN_ID, Labels, RunState, RunStatus, run_id
from penstock.model.spec import Spec
from penstock.model.version import Version


class RunFolder:
    """The files of one run; holds no state, so any process may have one."""

    def __init__(self, home: Path, run: str) -> None:
        if not RUN_ID.fullmatch(run):
            raise ConfigError(f"{run!r} is not a run id; they look like cartpole-k3v9")
        self.home = home
        self.run = run
        self.path = home / "runs" / run
        self.spec_file = self.path / "spec.json"
        self.state_file = self.path / "state.json"
        self.labels_file = self.path / "labels.json"
        self.actors_file = self.path / "actors.json"
        self.lock_file = self.path / "keeper.lock"
        """Held by the run's keeper."""
        self.metrics_file = self.path / "metrics.jsonl"
        self.events_file = self.path / "events.jsonl"
        self.evaluations_file = self.path / "evaluations.jsonl"
        self.tensorboard = self.path / "tensorboard"
        self.checkpoints_path = self.path / "checkpoints"
        self.best_file = self.checkpoints_path / "best"
        self.pinned_file = self.checkpoints_path / "pinned"
        self.logs = self.path / "logs"

    @classmethod
    def create(
        cls, home: Path, spec: Spec, run: str | None = None, *, adopt: bool = False,
        labels: Labels | None = None, managed: bool = False, created_at: float | None = None,
    ) -> "RunFolder":  # fmt: skip
        """A new pending run, kept by this process until another takes over; it appears whole or not at all.

        One that is `managed` waits for a keeper of its own instead.

        Raises Conflict where `run` is given and exists, or where its shared store holds another run's
        checkpoints already; `adopt` takes them over.
        """
        runs = home / "runs"
        runs.mkdir(mode=0o700, parents=True, exist_ok=True)
        while True:
            folder = cls(home, run or run_id(spec.environment.id, SystemRandom()))
            if not adopt:
                folder._refuse_old_checkpoints(spec.checkpoint.store)
            draft = Path(tempfile.mkdtemp(prefix=".new-", dir=runs))  # mode 700
            try:
                folder._fill(draft, spec, labels or Labels(), managed, created_at or time.time())
                if not folder.path.exists():
                    draft.rename(folder.path)
                    return folder
            except OSError:
                if not folder.path.exists():  # otherwise another process took the name
                    raise
            finally:
                shutil.rmtree(draft, ignore_errors=True)
            if run is not None:
                raise Conflict(f"there is a run {run} already; choose another name or resume it")

    @classmethod
    def open(cls, home: Path, run: str) -> "RunFolder":
        """An existing run; raise NotFound with the nearest id."""
        if RUN_ID.fullmatch(run) and (folder := cls(home, run)).path.is_dir():
            return folder
        known = [other.run for other in list_runs(home)]
        hint = nearest(run, known) if known else "; there are no runs yet: penstock train CartPole-v1"
        raise NotFound(f"there is no run {run!r} in {home}{hint}")

    def log_file(self, process: str) -> Path:
        """The log of `learner`, `actor-<slot>` or `evaluator`."""
        return self.logs / f"{process}.log"

    def checkpoint_path(self, version: Version) -> Path:
        return self.checkpoints_path / str(version)

    def spec(self) -> Spec:
        """The spec as it was stored; raise Damaged."""
        return config.from_mapping(read_json(self.spec_file, dict[str, Any]), str(self.spec_file))

    def save_spec(self, spec: Spec) -> None:
        write_atomically(self.spec_file, _spec_json(spec))

    def stored_status(self) -> RunStatus:
        """The status as its keeper wrote it; raise Damaged."""
        form = read_json(self.state_file, _Format).format
        if form > FORMAT:
            raise Damaged(f"{self.state_file} has format {form}, newer than {FORMAT}; upgrade penstock")
        return read_json(self.state_file, RunStatus)

    def status(self) -> RunStatus:
        """The status as it is: a run that should be live and has no live keeper is interrupted."""
        for _ in ("a look", "another: the keeper may have ended properly between reading and asking"):
            status = self.stored_status()
            waits = status.state is RunState.PENDING and status.managed and status.keeper is None
            if status.state not in LIVE or waits or self._kept(status):
                return status
        return status.to(RunState.INTERRUPTED, "its keeper process is gone")

    def kept(self) -> bool:
        """Whether a keeper looks after it now: a paused run may have one."""
        status = self.status()
        return status.state in LIVE or (status.state is RunState.PAUSED and self._kept(status))

    def labels(self) -> Labels:
        """Its project, tags and note; raise Damaged."""
        return read_json(self.labels_file, Labels) if self.labels_file.exists() else Labels()

    def save_labels(self, labels: Labels) -> None:
        write_atomically(self.labels_file, _pretty(labels))

    def save_status(self, status: RunStatus) -> None:
        """Replace state.json, whole and synced."""
        write_atomically(self.state_file, _pretty(status))

    def conclude(self, status: RunStatus) -> None:
        """Write down a state that no keeper of the run can."""
        self.append_event("state", process="control", state=str(status.state), reason=status.reason)
        self.save_status(status)

    def checkpoints(self) -> list[Version]:
        """The complete checkpoints, newest first."""
        try:
            names = os.listdir(self.checkpoints_path)
        except FileNotFoundError:
            return []
        found = [
            Version.parse(name) for name in names if name.replace(".", "", 1).isdecimal() and "." in name
        ]
        whole = [
            version for version in found if (self.checkpoint_path(version) / "checkpoint.json").is_file()
        ]
        return sorted(whole, reverse=True)

    def best(self) -> Version | None:
        """The checkpoint evaluations found best, if it is still there."""
        try:
            version = Version.parse(self.best_file.read_text().strip())
        except (FileNotFoundError, ConfigError, UnicodeDecodeError):
            return None
        return version if version in self.checkpoints() else None

    def save_best(self, version: Version) -> None:
        write_atomically(self.best_file, f"{version}\n".encode())

    def choose(self, which: str) -> Version:
        """`best` (the newest where none is known), `newest` or EPOCH.STEP; raise NotFound."""
        kept = self.checkpoints()
        if not kept:
            raise NotFound(f"run {self.run} has no checkpoint yet")
        if which in ("best", "newest"):
            return (self.best() if which == "best" else None) or kept[0]
        version = Version.parse(which)
        if version not in kept:
            raise NotFound(f"run {self.run} has no checkpoint {which}; it has {', '.join(map(str, kept))}")
        return version

    def append_event(self, event: str, **fields: Any) -> None:
        """Add one line to the run's story."""
        append_line(self.events_file, {"time": time.time(), "event": event, **fields})

    def events(self) -> list[dict[str, Any]]:
        return list(read_lines(self.events_file))

    def evaluations(self) -> list[dict[str, Any]]:
        return list(read_lines(self.evaluations_file))

    def _kept(self, status: RunStatus) -> bool:
        return status.keeper is not None and is_alive(status.keeper, self.lock_file)

    def _refuse_old_checkpoints(self, store: str | None) -> None:
        """A new run must not begin with the weights of an old one of its name."""
        if store is not None and any((Path(store).expanduser() / self.run / "checkpoints").glob("[0-9]*")):
            raise Conflict(
                f"checkpoint.store {store} holds checkpoints of another run {self.run}; choose another name, "
                f"or remove {Path(store) / self.run}"
            )

    def _fill(self, draft: Path, spec: Spec, labels: Labels, managed: bool, created_at: float) -> None:
        (draft / "logs").mkdir(mode=0o700)
        link_store(draft, spec.checkpoint.store, self.run)
        status = RunStatus(
            run=self.run,
            state=RunState.PENDING,
            environment=spec.environment.id,
            algorithm=spec.algorithm,
            seed=spec.seed,
            created_at=created_at,
            keeper=None if managed else identify(),
            actors=spec.actors.count,
            managed=managed,
        )
        write_atomically(draft / "spec.json", _spec_json(spec))
        write_atomically(draft / "labels.json", _pretty(labels))
        write_atomically(draft / "state.json", _pretty(status))


def link_store(folder: Path, store: str | None, run: str) -> Path:
    """Make a run's folder; where its checkpoints lie in a store that hosts share, link to them there."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in ("checkpoints", "replay"):
        path = folder / name
        if store is None:
            path.mkdir(mode=0o700, exist_ok=True)
        elif not path.is_symlink():
            shared = Path(store).expanduser().absolute() / run / name
            try:
                shared.mkdir(mode=0o700, parents=True, exist_ok=True)
                path.symlink_to(shared, target_is_directory=True)
            except OSError as error:
                raise ConfigError(
                    f"checkpoint.store {store} cannot be used: {error.strerror or error}"
                ) from error
    return folder


def sweep(home: Path) -> None:
    """Remove what a crash left of runs that were being made or deleted."""
    hour_ago = time.time() - 3600
    for path in (*(home / "runs").glob(".deleted-*"), *(home / "runs").glob(".new-*")):
        with contextlib.suppress(OSError):
            if path.name.startswith(".deleted-") or path.stat().st_mtime < hour_ago:
                shutil.rmtree(path, ignore_errors=True)


def list_runs(home: Path) -> list[RunFolder]:
    """All runs, in the order of their folders' names."""
    try:
        entries = sorted(os.scandir(home / "runs"), key=lambda entry: entry.name)
    except FileNotFoundError:
        return []
    return [
        RunFolder(home, entry.name) for entry in entries if RUN_ID.fullmatch(entry.name) and entry.is_dir()
    ]


def statuses(home: Path) -> tuple[list[RunStatus], list[Damaged]]:
    """The status of every run, newest first, and what could not be read; one damaged run hides no other."""
    found, damaged = [], []
    for folder in list_runs(home):
        try:
            found.append(folder.status())
        except Damaged as error:
            damaged.append(error)
    return sorted(found, key=lambda status: status.created_at, reverse=True), damaged


class _Format(msgspec.Struct):
    format: int = FORMAT


def _spec_json(spec: Spec) -> bytes:
    return _pretty(config.to_mapping(spec))


def _pretty(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
