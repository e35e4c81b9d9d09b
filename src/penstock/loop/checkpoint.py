"""Checkpoints: all that is needed to go on exactly, written whole or not at all.

A checkpoint is a folder `checkpoints/<epoch>.<step>/` of safetensors and one `checkpoint.json` that
holds the hash of every file. It is written beside, synced and renamed, so a crash leaves the one
before it. Replay rows are written once, in chunks that later checkpoints share (`replay/`).
"""

import contextlib
import hashlib
import os
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from penstock.algorithms.base import State
from penstock.errors import Damaged, PenstockError, Unavailable
from penstock.loop.files import sync_folder
from penstock.loop.intake import Ledger
from penstock.model.codec import Array
from penstock.model.policy import Policy, PolicyFacts
from penstock.model.version import Version

FORMAT = 1
INDEX = "checkpoint.json"
NAME = re.compile(r"\d+\.\d+")
PINNED = "pinned"
"""A file that names the checkpoint being evaluated, which must not vanish meanwhile."""


class Chunk(msgspec.Struct, frozen=True):
    """Replay rows [first, last) in `replay/<name>`."""

    name: str
    first: int
    last: int
    sha256: str


class Progress(msgspec.Struct):
    """Counters that people and stop conditions look at."""

    environment_steps: int = 0
    episodes: int = 0
    updates: int = 0
    seconds: float = 0.0
    returns: list[float] = []
    """Returns of the last episodes, oldest first; as many as the stop condition's window."""
    lengths: list[int] = []


class Checkpoint(msgspec.Struct, frozen=True):
    """Everything but the tensors."""

    version: Version
    ledger: Ledger = msgspec.field(default_factory=Ledger)
    roster: dict[int, int] = {}
    overrides: dict[str, Any] = {}
    commands: dict[int, int] = {}
    progress: Progress = msgspec.field(default_factory=Progress)
    numbers: dict[str, Any] = {}
    """The learner's own numbers."""
    rows_added: int = 0
    chunks: tuple[Chunk, ...] = ()
    files: dict[str, str] = {}
    """File name → sha256."""
    at: float = 0.0
    format: int = FORMAT


class CheckpointStore:
    """The checkpoints of one run; with `reading`, of a run whose own learner may be writing some."""

    def __init__(self, folder: Path, keep: int, reading: bool = False) -> None:
        self._folder, self._replay, self._keep = folder / "checkpoints", folder / "replay", keep
        self._chunks: list[Chunk] = []
        if reading:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        for draft in self._folder.glob(".*"):  # what learners that were killed left behind
            shutil.rmtree(draft, ignore_errors=True)

    @property
    def rows_saved(self) -> int:
        """Replay rows that are on disk already: what `Learner.save` may leave out."""
        return self._chunks[-1].last if self._chunks else 0

    def versions(self) -> list[Version]:
        """What is there, newest first, damaged ones included."""
        names = (entry.name for entry in self._folder.iterdir() if entry.is_dir())
        return sorted((Version.parse(name) for name in names if NAME.fullmatch(name)), reverse=True)

    def write(self, head: Checkpoint, state: State, policy: Policy, memory_rows: int) -> Path:
        """Store a checkpoint durably, then let go of what is no longer kept."""
        try:
            self._append_rows(state, memory_rows)
            files = {
                "state.safetensors": save(state.tensors),
                "policy.safetensors": save({name: policy.tensors[name] for name in sorted(policy.tensors)}),
                "policy.json": msgspec.json.encode(policy.facts),
            }
            head = msgspec.structs.replace(
                head,
                numbers=state.numbers,
                rows_added=state.rows_added,
                chunks=tuple(self._chunks),
                files={name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
            )
            path = self._publish(str(head.version), files | {INDEX: msgspec.json.encode(head)})
        except OSError as error:
            raise Unavailable(f"cannot write a checkpoint under {self._folder}: {error.strerror}") from error
        self._prune()
        return path

    def load(self, version: Version) -> tuple[Checkpoint, State, Policy]:
        """Read a checkpoint and check every byte of it; raise Damaged otherwise."""
        path = self._folder / str(version)
        head = self._head(path)
        policy = load_policy(path, head.files)
        tensors = _tensors(path / "state.safetensors", head.files["state.safetensors"])
        rows = self._load_rows(head)
        self._chunks = list(head.chunks)
        return head, State(tensors, head.numbers, rows, head.rows_added), policy

    def oldest_position(self) -> dict[int, int] | None:
        """Where the oldest of the newest checkpoints goes on reading: retention must not pass it.

        The best one does not count: it is kept for its policy, and would pin the log for ever.
        """
        heads = []
        for version in self.versions()[: self._keep]:
            with contextlib.suppress(PenstockError):
                heads.append(self._head(self._folder / str(version)).ledger.position)
        if not heads:
            return None
        return {partition: min(head.get(partition, 0) for head in heads) for partition in heads[0]}

    def _append_rows(self, state: State, memory_rows: int) -> None:
        first, last = self.rows_saved, state.rows_added
        if state.rows and last > first:
            self._replay.mkdir(parents=True, exist_ok=True)
            content = save(state.rows)
            name = f"{first}-{last}.safetensors"
            _write_synced(self._replay / name, content)
            self._chunks.append(Chunk(name, first, last, hashlib.sha256(content).hexdigest()))
        self._chunks = [chunk for chunk in self._chunks if chunk.last > last - memory_rows]

    def _load_rows(self, head: Checkpoint) -> dict[str, Array]:
        parts = [_tensors(self._replay / chunk.name, chunk.sha256) for chunk in head.chunks]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}

    def _publish(self, name: str, files: dict[str, bytes]) -> Path:
        final, draft = self._folder / name, self._folder / f".{name}.{os.getpid()}"
        if final.exists():  # the same version saved again is the same state
            return final
        draft.mkdir()
        for file, content in files.items():
            _write_synced(draft / file, content)
        draft.rename(final)
        sync_folder(self._folder)
        return final

    def _head(self, path: Path) -> Checkpoint:
        try:
            content = (path / INDEX).read_bytes()
            found = msgspec.json.decode(content)
            if isinstance(found, dict) and found.get("format", 0) > FORMAT:
                raise Damaged(
                    f"checkpoint {path} has format {found['format']}, newer than {FORMAT}: upgrade penstock"
                )
            return msgspec.json.decode(content, type=Checkpoint)
        except (OSError, msgspec.DecodeError) as error:
            raise Damaged(f"checkpoint {path} cannot be read: {error}") from error

    def _prune(self) -> None:
        """Keep the newest, the best and what a fork began with; drop replay chunks nobody refers to."""
        spared = {named(self._folder / "best"), *map(named, self._folder.glob(f"{PINNED}*"))}
        for version in self.versions()[self._keep :]:
            # epoch 0 is a fork's beginning: its log goes on from there, and nothing else brings it back
            if version not in spared and version.epoch > 0:
                shutil.rmtree(self._folder / str(version), ignore_errors=True)
        if self._replay.is_dir():
            needed = {chunk.name for chunk in self._chunks}
            for version in self.versions():
                with contextlib.suppress(PenstockError):
                    needed |= {chunk.name for chunk in self._head(self._folder / str(version)).chunks}
            for file in self._replay.iterdir():
                if file.name not in needed:
                    file.unlink(missing_ok=True)


def named(file: Path) -> Version | None:
    """The checkpoint that a small file (`best`, `pinned`) names; None where there is no such file."""
    try:
        return Version.parse(file.read_text().strip())
    except (OSError, PenstockError):
        return None


def load_policy(path: Path, hashes: dict[str, str] | None = None) -> Policy:
    """The policy in a checkpoint folder, checked; what acting needs, without the learner's state."""
    if hashes is None:
        try:
            hashes = msgspec.json.decode((path / INDEX).read_bytes(), type=Checkpoint).files
        except (OSError, msgspec.DecodeError) as error:
            raise Damaged(f"checkpoint {path} cannot be read: {error}") from error
    tensors = _tensors(path / "policy.safetensors", hashes.get("policy.safetensors", ""))
    facts = msgspec.json.decode(
        _checked(path / "policy.json", hashes.get("policy.json", "")), type=PolicyFacts
    )
    return Policy(facts, tensors)


def _tensors(path: Path, sha256: str) -> dict[str, Array]:
    try:
        return dict(load(_checked(path, sha256)))
    except SafetensorError as error:
        raise Damaged(f"{path} is not a safetensors file: {error}") from error


def _checked(path: Path, sha256: str) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise Damaged(f"{path} does not match its hash")
    return content


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
