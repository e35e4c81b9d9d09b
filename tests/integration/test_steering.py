"""Runs steered from another terminal, and ended in every way a person can."""

import json
import os
import pty
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

import penstock as penstock_api
from penstock.errors import ConfigError
from penstock.loop.recorded import read_history
from penstock.model import topics
from penstock.model.codec import Schema
from penstock.model.history import lineage
from penstock.model.rollout import Rollout
from penstock.model.spec import StreamSpec
from penstock.model.version import Version
from penstock.stream.records import RecordReader
from penstock.wiring import open_stream
from tests.integration.harness import QUICK, command, environment, penstock, resume, train

ENDLESS = (*QUICK, "--set", "stop.steps=null", "--set", "checkpoint.every_seconds=2")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, url: str) -> Path:
    """A home for each stream."""
    return tmp_path_factory.mktemp("place")


def test_actors_are_added_and_removed_while_the_run_goes_on(place: Path, url: str):
    with train(place, "scaled", *ENDLESS, "--stream", url) as run:
        run.wait_for_updates(10)
        penstock(place, "scale", "scaled", "--actors", "4")
        run.wait_until(lambda: len(run.workers("actor")) == 4, what="four actors")
        run.wait_until(lambda: len(joined(run.events())) == 2, what="two newcomers in the roster")
        before = run.updates()
        run.wait_for_updates(before + 10)
        penstock(place, "scale", "scaled", "--actors", "1")
        run.wait_until(lambda: len(run.workers("actor")) == 1, what="one actor")
        before = run.updates()
        run.wait_for_updates(before + 10)
        run.process.send_signal(signal.SIGINT)
        assert run.result()["state"] == "stopped"
    check_accounts(run.folder)


def joined(events: list[dict[str, object]]) -> set[object]:
    return {event["slot"] for event in events if event["event"] == "actor_joined"}


def check_accounts(folder: Path) -> None:
    """Every rollout received was learned from, dropped for a stated reason, or is still pending."""
    last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    accounts = {
        name.removeprefix("accounting/"): value
        for name, value in last.items()
        if name.startswith("accounting/")
    }
    outcomes = ("used", "duplicate", "stale", "not_rostered", "misfit", "pending")
    assert accounts["received"] == sum(accounts.get(name, 0) for name in outcomes), accounts
    assert accounts["used"] > 0


def test_stop_from_another_terminal_saves_and_resume_goes_on(home: Path):
    with train(home, "stopped", *ENDLESS) as run:
        run.wait_for_updates(10)
        answer = json.loads(penstock(home, "stop", "stopped", "--json").stdout)
        assert answer["state"] == "stopped"
        ended = run.result()
        assert ended["checkpoint"] == ended["version"]
    with resume(home, "stopped", "--set", f"stop.updates={ended['updates'] + 20}") as run:
        result = run.result()
        assert result["updates"] == ended["updates"] + 20
        assert result["version"].startswith("2.")


def test_hyperparameters_change_while_the_run_goes_on(place: Path, url: str):
    with train(place, "tuned", *ENDLESS, "--stream", url) as run:
        run.wait_for_updates(5)
        penstock(place, "set", "tuned", "learning_rate=1e-5", "ppo.entropy=0.02")
        run.wait_until(
            lambda: last_metric(run.folder, "charts/learning_rate") == pytest.approx(1e-5),
            what="the new rate",
        )
        assert last_metric(run.folder, "charts/entropy") == pytest.approx(0.02)
        for bad, words in (("lerning_rate=1", "did you mean 'learning_rate'"), ("epochs=3", "cannot change"),
                           ("learning_rate=-1", "learning_rate")):  # fmt: skip
            refused = penstock(place, "set", "tuned", bad, check=False)
            assert refused.returncode == 1
            assert words in refused.stderr


def last_metric(folder: Path, name: str) -> float | None:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    value = json.loads(lines[-1]).get(name)
    return None if value is None else float(value)


def test_ctrl_c_once_drains_saves_and_exits_0(home: Path):
    with train(home, "once", *ENDLESS) as run:
        run.wait_for_updates(5)
        workers = run.workers()
        run.process.send_signal(signal.SIGINT)
        result = run.result()
        assert result["state"] == "stopped"
        assert (run.folder / "checkpoints" / result["checkpoint"] / "checkpoint.json").exists()
        assert not any(worker.is_running() for worker in workers)


def test_ctrl_c_twice_ends_now_and_leaves_no_process(home: Path):
    with train(home, "twice", *ENDLESS) as run:
        run.wait_for_updates(5)
        workers = run.workers()
        for worker in workers:
            worker.suspend()  # so that a graceful end would take for ever
        run.process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert run.process.poll() is None
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(10) != 0
        assert not any(alive(worker) for worker in workers)
        assert run.status()["state"] == "interrupted"


def alive(worker: psutil.Process) -> bool:
    return worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE


def test_workers_end_when_their_keeper_is_killed(home: Path):
    with train(home, "orphans", *ENDLESS) as run:
        run.wait_for_updates(5)
        workers = run.workers()
        run.process.kill()
        run.process.wait()
        _, left = psutil.wait_procs(workers, timeout=20)
        assert not left
        listed = json.loads(penstock(home, "runs", "--json").stdout)
        assert {item["run"]: item["state"] for item in listed}["orphans"] == "interrupted"


def test_a_second_keeper_or_learner_is_refused_with_a_sentence(home: Path):
    with train(home, "busy", *ENDLESS) as run:
        run.wait_for_updates(5)
        refused = penstock(home, "resume", "busy", check=False)
        assert refused.returncode == 1
        assert "stop it first" in refused.stderr
        second = penstock(home, "learner", "busy", check=False, timeout=60)
        assert second.returncode != 0
        assert "has a learner already" in second.stderr


def test_a_learner_stopped_replaced_and_continued_changes_nothing(place: Path, url: str):
    """SIGSTOP, another learner takes over, SIGCONT: the old one notices and ends."""
    with train(place, "zombie", *ENDLESS, "--set", "pace.lead=0", "--stream", url) as run:
        run.wait_for_updates(20)
        (old,) = run.workers("learner")
        old.suspend()
        before = run.updates()
        with subprocess.Popen(command("learner", "zombie", "--takeover"), env=environment(place)) as new:
            run.wait_for_updates(before + 20)
            old.resume()
            old.wait(30)  # it notices that it was replaced, and ends
            before = run.updates()
            run.wait_for_updates(before + 20)  # and the run goes on under the new one
            new.send_signal(signal.SIGTERM)
            new.wait(30)
            assert run.result()["reason"] == "the learner that had taken over was stopped"
    assert loaded_by_actors(place, "zombie", url).epoch == 2
    check_history(place, "zombie", url)


def test_an_actor_that_somebody_ends_is_started_again(home: Path):
    with train(home, "ended", *ENDLESS) as run:
        run.wait_for_updates(5)
        run.workers("actor")[0].terminate()
        run.wait_until(lambda: run.status().get("restarts") == 1, what="a restart")
        before = run.updates()
        run.wait_for_updates(before + 10)


def test_ctrl_c_before_anything_was_learned_exits_0(home: Path):
    with train(home, "early", *ENDLESS) as run:
        run.wait_until(lambda: run.status().get("state") == "running", what="a running state")
        run.process.send_signal(signal.SIGINT)
        assert run.result(30)["state"] == "stopped"
        assert not run.workers()


def test_the_python_face_steers_a_run(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PENSTOCK_HOME", str(home))
    settings = {"network.hidden": [16], "actors.rollout": 32, "actors.environments": 2, "stop.target": None}
    run = penstock_api.train("CartPole-v1", actors=1, settings=settings, wait=False)
    assert run.status().state == "running"
    run.scale(2)
    run.set(learning_rate=1e-5)
    ended = run.stop()
    assert (ended.state, ended.actors) == ("stopped", 2)
    assert run.id in [other.id for other in penstock_api.runs()]
    again = penstock_api.load(run.id).resume(updates=ended.updates + 5, progress=False)
    assert again.status().updates == ended.updates + 5
    assert again.policy().act([0.0, 0.0, 0.0, 0.0]) in (0, 1)
    assert len(again.evaluate(episodes=2).returns) == 2


def test_a_mistake_in_python_is_the_same_sentence(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PENSTOCK_HOME", str(home))
    with pytest.raises(ConfigError, match="did you mean 'CartPole-v1'"):
        penstock_api.train("CartPol-v1", progress=False)


def loaded_by_actors(home: Path, run: str, url: str) -> Version:
    """The version in the newest rollout; on the way there no slot ever went back."""
    stream = open_stream(home, StreamSpec(url=url))
    reader = RecordReader(stream, topics.experiences(run), lambda frame: frame)
    last: dict[int, Version] = {}
    for found in reader.drain():
        for _, frame in found:
            if frame.schema is Schema.ROLLOUT:
                facts = Rollout.decode(frame).facts
                assert facts.version >= last.get(facts.slot, facts.version), (
                    "a slot went back to an older version"
                )
                last[facts.slot] = facts.version
    stream.close()
    return max(last.values())


def check_history(home: Path, run: str, url: str) -> None:
    """In the history of the newest version every rollout occurs at most once."""
    stream = open_stream(home, StreamSpec(url=url))
    line = lineage(read_history(stream, run))
    stream.close()
    used = [(item.slot, item.round) for update in line.updates for item in update.used]
    assert len(used) == len(set(used))
    assert [update.version.step for update in line.updates] == list(range(1, len(line.updates) + 1))


def test_on_a_terminal_the_live_panel_shows_the_run_to_its_end(home: Path):
    """A real pseudo-terminal: what a person sees, not what a pipe does."""
    mine, theirs = pty.openpty()
    arguments = command("train", "CartPole-v1", "--name", "seen", *QUICK, "--set", "stop.updates=40")
    with subprocess.Popen(
        arguments, env={**environment(home), "TERM": "xterm"}, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # the terminal is gone when the process has ended
            while part := os.read(mine, 65536):
                shown += part
    os.close(mine)
    assert process.returncode == 0, shown[-2000:].decode(errors="replace")
    for words in ("seen", "CartPole-v1", "steps/s", "updates 40", "is done"):
        assert words in shown.decode(errors="replace")
