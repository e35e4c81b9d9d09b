"""A run's folder: whole or absent, honest about dead keepers, and damaged ones hide no others."""

import os
import signal
import subprocess
import sys
import threading

import msgspec
import pytest

from penstock import config
from penstock.errors import ConfigError, Conflict, Damaged, NotFound
from penstock.loop.files import read_lines, write_atomically
from penstock.loop.processes import identify, is_alive
from penstock.loop.runs import RunFolder, list_runs, statuses
from penstock.model.run import RunState
from penstock.model.version import Version


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path, config.resolve("CartPole-v1"))


@pytest.fixture
def ended_process():
    """A keeper that lived and died."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    keeper = identify(process.pid)
    process.kill()
    process.wait()
    return keeper


def checkpoint(folder, name):
    path = folder.checkpoints_path / name
    path.mkdir(parents=True)
    (path / "checkpoint.json").write_text("{}")


def test_a_new_run_is_pending_private_and_remembers_its_spec(folder):
    status = folder.status()
    assert (status.state, status.environment, status.algorithm) == ("pending", "CartPole-v1", "ppo")
    assert folder.spec() == config.resolve("CartPole-v1")
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in folder.path.parent.iterdir()] == [folder.run]


def test_a_name_is_taken_once(tmp_path):
    spec = config.resolve("CartPole-v1")
    made = []

    def create():
        try:
            made.append(RunFolder.create(tmp_path, spec, run="mine"))
        except Conflict:
            made.append(None)

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([run for run in made if run]) == 1
    with pytest.raises(Conflict, match="there is a run mine already"):
        RunFolder.create(tmp_path, spec, run="mine")


def test_an_unknown_run_names_the_nearest(folder):
    with pytest.raises(NotFound, match=f"did you mean '{folder.run}'"):
        RunFolder.open(folder.home, folder.run + "x")
    with pytest.raises(NotFound):
        RunFolder.open(folder.home, "../../etc")
    with pytest.raises(ConfigError):
        RunFolder(folder.home, "../x")


@pytest.mark.parametrize("state", ["pending", "running", "stopping"])
def test_a_live_state_without_its_keeper_is_interrupted(folder, ended_process, state):
    status = msgspec.structs.replace(folder.status(), state=RunState(state))
    folder.save_status(msgspec.structs.replace(status, keeper=identify()))
    assert folder.status().state == state
    folder.save_status(msgspec.structs.replace(status, keeper=ended_process))
    assert folder.status().state == "interrupted"
    assert folder.stored_status().state == state


def test_a_finished_run_needs_no_keeper(folder, ended_process):
    status = msgspec.structs.replace(folder.status(), state=RunState.DONE, keeper=ended_process)
    folder.save_status(status)
    assert folder.status() == status


def test_a_zombie_and_a_reused_pid_are_not_the_keeper():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    keeper = identify(process.pid)
    assert is_alive(keeper)
    assert not is_alive(msgspec.structs.replace(keeper, started=keeper.started - 10))
    assert not is_alive(msgspec.structs.replace(keeper, boot="another"))
    assert is_alive(msgspec.structs.replace(keeper, host="elsewhere", pid=1 << 22))
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(keeper)
    process.wait()
    process.stdin.close()


def test_checkpoints_are_newest_first_and_only_whole_ones_count(folder):
    for name in ("1.9", "1.10", "2.1"):
        checkpoint(folder, name)
    (folder.checkpoints_path / "3.1").mkdir()
    (folder.checkpoints_path / ".4.1.77").mkdir()
    assert folder.checkpoints() == [Version(2, 1), Version(1, 10), Version(1, 9)]
    assert folder.best() is None
    assert folder.choose("best") == Version(2, 1)
    folder.save_best(Version(1, 9))
    assert folder.choose("best") == folder.best() == Version(1, 9)
    assert folder.choose("1.10") == Version(1, 10)
    with pytest.raises(NotFound, match=r"has no checkpoint 7\.7; it has 2\.1"):
        folder.choose("7.7")


def test_a_run_without_checkpoints_says_so(folder):
    with pytest.raises(NotFound, match="no checkpoint yet"):
        folder.choose("best")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b'{"run": 3}', b"[" * 100_000])
def test_a_damaged_run_is_named_and_hides_no_other(folder, content):
    other = RunFolder.create(folder.home, config.resolve("Acrobot-v1"))
    folder.state_file.write_bytes(content)
    found, damaged = statuses(folder.home)
    assert [status.run for status in found] == [other.run]
    assert str(folder.state_file) in str(damaged[0])
    other.spec_file.write_bytes(content)
    with pytest.raises(Damaged, match=r"spec\.json"):
        other.spec()
    assert len(list_runs(folder.home)) == 2


def test_a_state_of_a_newer_format_is_refused(folder):
    values = {**msgspec.json.decode(folder.state_file.read_bytes()), "format": 9}
    folder.state_file.write_bytes(msgspec.json.encode(values))
    with pytest.raises(Damaged, match="format 9, newer than 1; upgrade penstock"):
        folder.status()


def test_a_failed_write_leaves_the_old_content(tmp_path, monkeypatch):
    path = tmp_path / "state.json"
    write_atomically(path, b"old")

    def full(_descriptor):
        raise OSError(28, "no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.json"]


def test_events_are_lines_and_a_torn_one_is_skipped(folder):
    folder.append_event("actor_restarted", slot=1)
    with folder.events_file.open("ab") as file:
        file.write(b'{"event": "to')
    assert [event["event"] for event in folder.events()] == ["actor_restarted"]
    assert list(read_lines(folder.path / "missing.jsonl")) == []
