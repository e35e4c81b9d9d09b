"""Folders into the database: what changed, what is new, what is damaged, what is gone."""

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import config
from penstock.control import looking
from penstock.control.index import Indexer
from penstock.errors import Unavailable
from penstock.lineage.database import Lineage
from penstock.lineage.rows import RunRow
from penstock.loop.files import append_line
from penstock.loop.processes import identify
from penstock.loop.runs import RunFolder
from penstock.model.run import Labels, RunState
from tests.unit.test_lineage import a_run, an_evaluation, put

DEAD = 2**22 - 3
"""A pid nobody has."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def lineage(tmp_path: Path) -> Iterator[Lineage]:
    opened = Lineage(f"sqlite:///{tmp_path / 'index.db'}")
    yield opened
    opened.close()


@pytest.fixture
def indexer(home: Path, lineage: Lineage) -> Indexer:
    return Indexer(home, lineage)


def make(home: Path, name: str, **labels: Any) -> RunFolder:
    """A run that this process keeps."""
    return RunFolder.create(home, config.resolve("CartPole-v1"), name, labels=Labels(**labels))


def become(folder: RunFolder, state: RunState, **fields: Any) -> None:
    folder.save_status(msgspec.structs.replace(folder.stored_status(), state=state, **fields))


def write_checkpoint(folder: RunFolder, version: str, steps: int) -> None:
    path = folder.checkpoints_path / version
    path.mkdir()
    (path / "state.safetensors").write_bytes(b"x" * 1000)
    (path / "checkpoint.json").write_bytes(
        msgspec.json.encode({"version": [1, 1], "progress": {"environment_steps": steps}, "at": 5.5})
    )


def row_of(lineage: Lineage, run: str) -> RunRow | None:
    with lineage.read() as read:
        return read.run(run)


def test_a_run_made_without_a_server_appears_with_what_its_folder_says(
    home: Path, lineage: Lineage, indexer: Indexer
) -> None:
    folder = make(home, "pole", project="red", tags=("a", "b"), group="g", note="n")
    become(folder, RunState.RUNNING, steps=5, mean_return=1.5, version="1.2", keeper=identify())
    assert indexer.scan(full=False) == ["pole"]
    row = row_of(lineage, "pole")
    assert row is not None
    assert (row.state, row.steps, row.mean_return, row.version, row.environment) == (
        "running",
        5,
        1.5,
        "1.2",
        "CartPole-v1",
    )
    assert (row.project, row.tags, row.group, row.note) == ("red", ("a", "b"), "g", "n")
    assert row.spec == config.to_mapping(folder.spec())
    assert row.stream == "embedded"
    assert row.desired == {"state": "running", "actors": 2, "learner": 1, "settings": {}}
    assert (row.position, row.managed) == ({}, False)
    assert row.disk_bytes > 0


@pytest.mark.parametrize(
    ("state", "wanted"),
    [("paused", "paused"), ("stopped", "stopped"), ("done", "stopped"), ("failed", "stopped")],
)
def test_what_is_wanted_of_an_old_run_is_what_it_is(
    home: Path, lineage: Lineage, indexer: Indexer, state: str, wanted: str
) -> None:
    become(make(home, "pole"), RunState(state))
    indexer.scan(full=True)
    row = row_of(lineage, "pole")
    assert row is not None
    assert row.desired["state"] == wanted


def test_nothing_changed_is_nothing_told(home: Path, lineage: Lineage, indexer: Indexer) -> None:
    for number in range(5):
        become(make(home, f"r{number}"), RunState.DONE)
    assert len(indexer.scan(full=False)) == 5
    assert indexer.scan(full=False) == []
    assert indexer.scan(full=True) == []
    assert Indexer(home, lineage).scan(full=True) == []


def test_each_change_is_told_once(home: Path, lineage: Lineage, indexer: Indexer) -> None:
    folder = make(home, "pole")
    indexer.scan(full=False)
    become(folder, RunState.RUNNING, steps=7)
    assert indexer.scan(full=False) == ["pole"]
    folder.save_labels(Labels(project="blue", tags=("x",)))
    assert indexer.scan(full=False) == ["pole"]
    spec = folder.spec()
    folder.save_spec(msgspec.structs.replace(spec, stop=msgspec.structs.replace(spec.stop, steps=99)))
    assert indexer.scan(full=False) == ["pole"]
    assert indexer.scan(full=False) == []
    row = row_of(lineage, "pole")
    assert row is not None
    assert (row.state, row.steps, row.project, row.spec["stop"]["steps"]) == ("running", 7, "blue", 99)


def test_what_commands_made_of_a_row_stays(home: Path, lineage: Lineage, indexer: Indexer) -> None:
    desired = {"state": "paused", "actors": 7, "learner": 0, "settings": {"gamma": 0.5}, "command": "c"}
    put(lineage, a_run("pole", desired=desired, position={"0": 12}, managed=True, created_at=1.0))
    folder = RunFolder.create(home, config.resolve("CartPole-v1"), "pole", managed=True)
    indexer.scan(full=True)
    become(folder, RunState.RUNNING, keeper=identify())
    indexer.scan(full=False)
    row = row_of(lineage, "pole")
    assert row is not None
    assert (row.desired, row.position, row.managed, row.state) == (desired, {"0": 12}, True, "running")


def test_a_killed_keeper_is_noticed_though_no_file_changes(
    home: Path, lineage: Lineage, indexer: Indexer
) -> None:
    folder = make(home, "pole")
    keeper = identify()
    assert keeper is not None
    become(folder, RunState.RUNNING, keeper=keeper)
    indexer.scan(full=False)
    content = folder.state_file.read_bytes()
    dead = content.replace(f'"pid": {keeper.pid}'.encode(), f'"pid": {DEAD}'.encode())
    before = folder.state_file.stat()
    folder.state_file.write_bytes(dead)  # the same file: as if the process were gone
    os.utime(folder.state_file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert indexer.scan(full=False) == ["pole"]
    row = row_of(lineage, "pole")
    assert row is not None
    assert row.state == "interrupted"
    with lineage.read() as read:
        assert [change.state for change in read.states("pole")] == ["running", "interrupted"]


def test_states_that_events_tell_of_survive_the_database(
    home: Path, lineage: Lineage, tmp_path: Path
) -> None:
    folder = make(home, "pole")
    for state in ("running", "stopping", "stopped"):
        folder.append_event(
            "state", process="keeper", state=state, reason="r" if state == "stopped" else None
        )
        folder.append_event("worker_restarted", process="actor-0")
    folder.append_event("state", process="keeper", state="nonsense")
    become(folder, RunState.STOPPED)
    for number in range(2):
        fresh = Lineage(f"sqlite:///{tmp_path / f'{number}.db'}")
        Indexer(home, fresh).scan(full=True)
        with fresh.read() as read:
            assert [change.state for change in read.states("pole")] == ["running", "stopping", "stopped"]
        fresh.close()


def test_checkpoints_are_indexed_as_they_come_and_go(home: Path, lineage: Lineage, indexer: Indexer) -> None:
    folder = make(home, "pole")
    write_checkpoint(folder, "1.5", 50)
    (folder.checkpoints_path / "1.9").mkdir()  # not whole
    indexer.scan(full=False)
    write_checkpoint(folder, "1.10", 100)
    folder.best_file.write_text("1.5\n")
    assert indexer.scan(full=False) == ["pole"]
    with lineage.read() as read:
        found = [(row.version, row.steps, row.at, row.best) for row in read.checkpoints("pole")]
    assert found == [("1.10", 100, 5.5, False), ("1.5", 50, 5.5, True)]
    shutil.rmtree(folder.checkpoints_path / "1.5")
    indexer.scan(full=False)
    with lineage.read() as read:
        assert [row.version for row in read.checkpoints("pole")] == ["1.10"]


def test_evaluations_are_indexed_once_and_finish_those_asked_for(
    home: Path, lineage: Lineage, indexer: Indexer
) -> None:
    folder = make(home, "pole")
    indexer.scan(full=False)
    with lineage.write() as write:
        write.put_evaluation(an_evaluation("asked", run="pole", episodes=2))
    line = {
        "checkpoint": "1.5",
        "seed": 3,
        "mean": 2.0,
        "std": 1.0,
        "returns": [1.0, 3.0],
        "lengths": [4, 5],
        "seconds": 0.5,
    }
    append_line(folder.evaluations_file, {"time": 10.0, **line})
    append_line(folder.evaluations_file, {"time": 11.0, "id": "asked", **line})
    append_line(folder.evaluations_file, {"time": 12.0, "checkpoint": "1.6"})  # half a line
    assert indexer.scan(full=False) == ["pole"]
    assert indexer.scan(full=False) == []
    Indexer(home, lineage).scan(full=True)
    with lineage.read() as read:
        found = [(row.id, row.state, row.mean, row.returns, row.seed) for row in read.evaluations("pole")]
    assert found == [("asked", "done", 2.0, (1.0, 3.0), 3), ("pole:1.5:10.000", "done", 2.0, (1.0, 3.0), 3)]


def test_damaged_runs_are_passed_over_and_come_back_once_repaired(
    home: Path, lineage: Lineage, indexer: Indexer
) -> None:
    good, bad = make(home, "good"), make(home, "bad")
    whole = bad.state_file.read_bytes()
    bad.state_file.write_text("{")
    huge = make(home, "huge")
    become(huge, RunState.DONE, steps=1 << 70)
    become(good, RunState.DONE)
    assert indexer.scan(full=True) == ["good"]
    assert set(indexer.damaged) == {"bad", "huge"}
    assert "state.json" in indexer.damaged["bad"]
    bad.state_file.with_suffix(".tmp").write_bytes(whole)
    bad.state_file.with_suffix(".tmp").replace(bad.state_file)
    become(huge, RunState.DONE, steps=70)
    assert sorted(indexer.scan(full=False)) == ["bad", "huge"]
    assert indexer.damaged == {}


def test_a_run_that_breaks_later_keeps_its_row(home: Path, lineage: Lineage, indexer: Indexer) -> None:
    folder = make(home, "pole")
    indexer.scan(full=False)
    folder.state_file.write_text("?")
    indexer.scan(full=False)
    assert list(indexer.damaged) == ["pole"]
    assert row_of(lineage, "pole") is not None
    shutil.rmtree(folder.path)
    assert indexer.scan(full=False) == ["pole"]
    assert (indexer.damaged, row_of(lineage, "pole")) == ({}, None)


def test_a_folder_that_vanished_is_forgotten_and_rows_that_wait_for_one_are_not(
    home: Path, lineage: Lineage, indexer: Indexer
) -> None:
    folder = make(home, "pole")
    put(
        lineage,
        a_run("waiting", managed=True),
        a_run("old", state="done"),
        a_run("leaving", state="stopped", desired={"state": "deleted", "actors": 1}),
    )
    assert indexer.scan(full=False) == ["pole"]
    shutil.rmtree(folder.path)
    assert indexer.scan(full=False) == ["pole"]
    with lineage.read() as read:
        assert read.names() == ["leaving", "old", "waiting"]
    assert sorted(indexer.scan(full=True)) == ["leaving", "old"]  # the controller is told of the first
    with lineage.read() as read:
        assert read.names() == ["leaving", "waiting"]


def test_a_run_whose_deletion_is_under_way_is_left_to_the_controller(
    home: Path, lineage: Lineage, indexer: Indexer
) -> None:
    folder = make(home, "pole")
    indexer.scan(full=False)
    row = row_of(lineage, "pole")
    assert row is not None
    put(lineage, replace(row, desired={**row.desired, "state": "deleted"}))
    shutil.rmtree(folder.path)
    assert indexer.scan(full=False) == ["pole"]
    assert row_of(lineage, "pole") is not None


def test_another_run_of_the_same_name_begins_anew(home: Path, lineage: Lineage, indexer: Indexer) -> None:
    folder = make(home, "pole")
    folder.append_event("state", process="keeper", state="failed")
    become(folder, RunState.FAILED)
    indexer.scan(full=False)
    shutil.rmtree(folder.path)
    again = make(home, "pole")
    again.append_event("state", process="keeper", state="running")
    become(again, RunState.RUNNING)
    indexer.scan(full=False)
    with lineage.read() as read:
        assert [change.state for change in read.states("pole")] == ["running"]


def test_what_could_not_be_stored_is_stored_the_next_time(
    home: Path, lineage: Lineage, indexer: Indexer
) -> None:
    make(home, "pole")
    file = Path(lineage.shown_url.removeprefix("sqlite:///"))
    aside = file.rename(file.with_suffix(".aside"))
    with pytest.raises(Unavailable):
        indexer.scan(full=False)
    aside.rename(file)
    assert indexer.scan(full=False) == ["pole"]


def test_names_that_are_no_runs_are_left_alone(home: Path, indexer: Indexer) -> None:
    assert indexer.scan(full=True) == []  # no folder of runs yet
    (home / "runs" / ".new-x").mkdir(parents=True)
    (home / "runs" / "Not A Run").mkdir()
    (home / "runs" / "file").write_text("")
    assert indexer.scan(full=True) == []
    assert indexer.damaged == {}


def test_the_disk_of_a_live_run_is_measured_now_and_then(
    home: Path, lineage: Lineage, indexer: Indexer, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(home, "pole")
    indexer.scan(full=False)
    before = row_of(lineage, "pole")
    (home / "stream" / "pole").mkdir(parents=True)
    (home / "stream" / "pole" / "data").write_bytes(os.urandom(1 << 20))
    assert indexer.scan(full=False) == []
    monkeypatch.setattr(looking, "DISK_SECONDS", 0.0)
    assert indexer.scan(full=False) == ["pole"]
    after = row_of(lineage, "pole")
    assert before is not None
    assert after is not None
    assert after.disk_bytes - before.disk_bytes >= 1 << 20
    assert folder.path.is_dir()


def test_two_thousand_runs_that_do_not_change_cost_little(
    home: Path, lineage: Lineage, indexer: Indexer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    first = make(home, "r0000")
    become(first, RunState.DONE)
    for number in range(1, 2000):
        copy = first.path.with_name(f"r{number:04}")
        shutil.copytree(first.path, copy)
        text = first.state_file.read_text().replace("r0000", copy.name)
        (copy / "state.json").write_text(text)
    assert len(indexer.scan(full=True)) == 2000
    took = []
    for _ in range(5):
        began = time.perf_counter()
        assert indexer.scan(full=False) == []
        took.append(time.perf_counter() - began)
    assert min(took) < 0.1
