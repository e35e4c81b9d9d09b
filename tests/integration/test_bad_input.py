"""What goes wrong on purpose: one clear sentence, a non-zero exit, nothing left behind."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.harness import QUICK, Training, penstock, resume, train
from tests.lacking import lacking

FAULTY = "penstock.testing.environments:Faulty"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["CartPol-v1"], "did you mean 'CartPole-v1'"),
        (["ALE/Pong-v5"], "ale-py"),
        (["CartPole-v1", "--algorithm", "pppo"], "did you mean 'ppo'"),
        (["CartPole-v1", "--algorithm", "sac"], "sac needs"),
        (["Pendulum-v1", "--algorithm", "dqn"], "dqn needs"),
        (["CartPole-v1", "--set", "ppo.lerning_rate=1"], "did you mean 'learning_rate'"),
        (["CartPole-v1", "--set", "pace.max_lag=0", "--set", "pace.lead=2"], "max_lag"),
        (["CartPole-v1", "--set", "dqn.batch=3"], "belongs to another algorithm"),
        (["./nowhere.py:Env"], "there is no file"),
        (["CartPole-v1", "--stream", "carrier-pigeon://x"], "stream.url"),
        (["CartPole-v1", "--set", "network.body=items"], "items"),
        (["CartPole-v1", "--set", "environment.kwargs.gravity=3"], "gravity"),
    ],
)
def test_a_wrong_request_is_one_sentence_and_leaves_no_run(home: Path, arguments: list[str], words: str):
    done = penstock(home, "train", *arguments, "--quiet", check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.strip().splitlines()) == 1
    assert words in done.stderr
    assert json.loads(penstock(home, "runs", "--json").stdout) == []


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("raises", "raised ValueError"),
        ("nan", "observations"),
        ("shape", "shape"),
        ("four", "step"),
        ("hangs", "hung past 1.5 s"),
    ],
)
def test_an_environment_that_breaks_its_promise_is_restarted_then_the_run_fails_with_the_reason(
    home: Path, fault: str, words: str
):
    flags = (
        *QUICK, "--set", "actors.restarts=1", "--set", "environment.step_limit_seconds=1.5", "--actors", "1",
        "--set", f"environment.kwargs.fault={fault}", "--set", "environment.kwargs.at=310",
    )  # fmt: skip
    with train(home, f"faulty-{fault}", *flags, source=FAULTY) as run:
        out, _ = run.process.communicate(timeout=90)
        assert run.process.returncode == 1
        failed = json.loads(out.splitlines()[-1])
        assert failed["state"] == "failed"
        assert words in failed["reason"]
        assert failed["updates"] > 0
        assert failed["checkpoint"] == failed["version"], "what was learned before the fault is saved"
        assert [event["event"] for event in run.events()].count("worker_restarted") == 1
        assert not run.workers()


def test_a_damaged_or_newer_run_is_refused_with_the_file(home: Path):
    with train(home, "harmed", *QUICK, "--set", "stop.updates=3") as run:
        run.result()
    spec = run.folder / "spec.json"
    whole = spec.read_text()
    for content, words in (
        (whole[:-40], "spec.json"),
        (whole.replace('"format": 1', '"format": 9'), "upgrade"),
    ):
        spec.write_text(content)
        done = penstock(home, "resume", "harmed", check=False)
        assert done.returncode == 1
        assert words in done.stderr
    spec.write_text(whole)
    done = penstock(home, "resume", "harmd", check=False)
    assert "did you mean 'harmed'" in done.stderr


def test_a_run_whose_checkpoints_are_all_damaged_starts_from_its_log(home: Path):
    flags = (*QUICK, "--set", "pace.lead=0", "--set", "checkpoint.every_updates=5")
    with train(home, "whole", *flags, "--set", "stop.updates=30") as run:
        expected = run.result()["weights_sha256"]
    with train(home, "bare", *flags, "--set", "stop.updates=20") as run:
        run.result()
    for state in (run.folder / "checkpoints").glob("*/state.safetensors"):
        state.write_bytes(b"")
    with resume(home, "bare", "--set", "stop.updates=30") as run:
        assert run.result()["weights_sha256"] == expected


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 64 MB."""
    if (
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", tmp_path], check=False).returncode
        != 0
    ):
        lacking("mounting a small disk needs root; run the tests as root")
    yield tmp_path
    subprocess.run(["umount", "-l", tmp_path], check=True)


def test_a_full_disk_is_a_sentence_and_what_was_saved_can_be_resumed(small_disk: Path):
    flags = (*QUICK, "--set", "checkpoint.every_updates=10", "--set", "stream.budget_bytes=8000000",
             "--set", "stream.retention_bytes=4000000")  # fmt: skip
    with train(small_disk, "full", *flags, "--set", "stop.updates=2000") as run:
        run.wait_for_updates(15)
        filler = small_disk / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(65536))
        run.wait_until(lambda: failures(run) or run.process.poll() is not None, 60, "a failed checkpoint")
        run.kill_all()
    filler.unlink()
    with resume(small_disk, "full", "--set", f"stop.updates={run.updates() + 30}") as run:
        assert run.result()["state"] == "done"


def failures(run: Training) -> list[str]:
    """What the learner's log says of the disk; the log itself may be cut off by it."""
    log = (run.folder / "logs" / "learner.log").read_text(errors="replace")
    words = ("checkpoint_failed", "No space left", "disk")
    return [line for line in log.splitlines() if any(word in line for word in words)]
