"""Checkpoints: whole or not at all, checked to the last byte, replay rows written once."""

from pathlib import Path

import numpy as np
import pytest

from penstock.algorithms.base import State
from penstock.errors import Damaged, Unavailable
from penstock.loop.checkpoint import Checkpoint, CheckpointStore, Progress, load_policy
from penstock.loop.intake import Ledger
from penstock.model.policy import NetworkSpec, Policy, PolicyDescription, PolicyFacts
from penstock.model.spaces import ActionLayout, Column, Leaf, ObservationLayout, Spaces
from penstock.model.tensors import weights_sha256
from penstock.model.version import Version

SPACES = Spaces(
    ObservationLayout({"observations": Column((4,), "<f4")}, (Leaf((), "box", "observations", size=4),)),
    ActionLayout("discrete", (2,), (0,)),
)


def policy(version: Version) -> Policy:
    tensors = {"policy/weight": np.arange(6, dtype=np.float32) + version.step}
    description = PolicyDescription("ppo", "categorical", SPACES, NetworkSpec())
    return Policy(PolicyFacts("r", version, weights_sha256(tensors), description, {0: 0}, 10), tensors)


def head(version: Version, offset: int = 0) -> Checkpoint:
    ledger = Ledger({0: offset}, [(0, offset + 2)], {0: 3}, {"used": 4})
    return Checkpoint(
        version, ledger, {0: 0}, {"learning_rate": 0.1}, {0: 1}, Progress(10, 2), {}, 0, (), {}, 1.0
    )


def state(version: Version, first: int = 0, last: int = 0) -> State:
    rows = {"reward": np.arange(first, last, dtype=np.float32)} if last > first else {}
    return State({"theta": np.full(3, version.step, np.float32)}, {"count": version.step}, rows, last)


def write(store: CheckpointStore, step: int, epoch: int = 1, rows: int = 0, memory: int = 0) -> Path:
    version = Version(epoch, step)
    saved = state(version, store.rows_saved, rows)
    return store.write(head(version, step), saved, policy(version), memory)


def test_what_was_written_comes_back(tmp_path: Path):
    store = CheckpointStore(tmp_path, keep=3)
    write(store, 5)
    found, restored, acting = CheckpointStore(tmp_path, 3).load(Version(1, 5))
    assert found.ledger == Ledger({0: 5}, [(0, 7)], {0: 3}, {"used": 4})
    assert found.overrides == {"learning_rate": 0.1}
    assert found.progress.environment_steps == 10
    assert restored.tensors["theta"].tolist() == [5, 5, 5]
    assert restored.numbers == {"count": 5}
    assert acting.tensors["policy/weight"].tolist() == [5, 6, 7, 8, 9, 10]


@pytest.mark.parametrize(
    "name", ["state.safetensors", "policy.safetensors", "policy.json", "checkpoint.json"]
)
@pytest.mark.parametrize("harm", ["cut", "flip", "remove"])
def test_any_damage_is_refused(tmp_path: Path, name: str, harm: str):
    path = write(CheckpointStore(tmp_path, keep=3), 5) / name
    content = bytearray(path.read_bytes())
    if harm == "remove":
        path.unlink()
    elif harm == "cut":
        path.write_bytes(content[: len(content) // 2])
    else:
        content[0] ^= 0xFF
        path.write_bytes(content)
    with pytest.raises(Damaged, match=str(path.parent.name)):
        CheckpointStore(tmp_path, 3).load(Version(1, 5))


def test_a_newer_format_is_refused_with_the_fix(tmp_path: Path):
    path = write(CheckpointStore(tmp_path, keep=3), 5) / "checkpoint.json"
    path.write_text(path.read_text().replace('"format":1', '"format":2'))
    with pytest.raises(Damaged, match="upgrade penstock"):
        CheckpointStore(tmp_path, 3).load(Version(1, 5))


def test_the_newest_and_the_best_are_kept(tmp_path: Path):
    store = CheckpointStore(tmp_path, keep=2)
    write(store, 1)
    (tmp_path / "checkpoints" / "best").write_text("1.1\n")
    for step in (2, 3, 4):
        write(store, step)
    assert store.versions() == [Version(1, 4), Version(1, 3), Version(1, 1)]


def test_a_later_epoch_is_newer_whatever_its_step(tmp_path: Path):
    store = CheckpointStore(tmp_path, keep=3)
    write(store, 50)
    write(store, 41, epoch=2)
    assert store.versions()[0] == Version(2, 41)


def test_retention_may_pass_only_what_no_kept_checkpoint_needs(tmp_path: Path):
    store = CheckpointStore(tmp_path, keep=2)
    for step in (3, 7, 9):
        write(store, step)
    assert store.oldest_position() == {0: 7}


def test_replay_rows_are_written_once_and_shared(tmp_path: Path):
    store = CheckpointStore(tmp_path, keep=3)
    write(store, 1, rows=10, memory=100)
    write(store, 2, rows=25, memory=100)
    assert sorted(file.name for file in (tmp_path / "replay").iterdir()) == [
        "0-10.safetensors",
        "10-25.safetensors",
    ]
    _, restored, _ = CheckpointStore(tmp_path, 3).load(Version(1, 2))
    assert restored.rows["reward"].tolist() == list(range(25))
    assert restored.rows_added == 25


def test_rows_the_memory_has_forgotten_are_let_go(tmp_path: Path):
    store = CheckpointStore(tmp_path, keep=1)
    for step, rows in ((1, 10), (2, 20), (3, 30)):
        write(store, step, rows=rows, memory=15)
    assert sorted(file.name for file in (tmp_path / "replay").iterdir()) == [
        "10-20.safetensors",
        "20-30.safetensors",
    ]


def test_a_restored_store_goes_on_with_the_rows_it_has(tmp_path: Path):
    write(CheckpointStore(tmp_path, keep=3), 1, rows=10, memory=100)
    store = CheckpointStore(tmp_path, keep=3)
    store.load(Version(1, 1))
    assert store.rows_saved == 10


def test_a_crash_while_writing_leaves_no_trace(tmp_path: Path):
    store = CheckpointStore(tmp_path, keep=3)
    (tmp_path / "checkpoints" / ".1.5.123").mkdir()
    assert store.versions() == []


def test_a_full_disk_is_a_clear_sentence(tmp_path: Path):
    store = CheckpointStore(tmp_path, keep=3)
    (tmp_path / "checkpoints").rmdir()
    (tmp_path / "checkpoints").write_text("in the way")
    with pytest.raises(Unavailable, match="cannot write a checkpoint"):
        write(store, 1)


def test_a_policy_can_be_read_alone(tmp_path: Path):
    path = write(CheckpointStore(tmp_path, keep=3), 5)
    assert load_policy(path).facts.version == Version(1, 5)
