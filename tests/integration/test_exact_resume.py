"""Synchronous runs: the same bits, whatever is killed, whenever, and on either stream."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration import harness
from tests.integration.harness import QUICK, Training, resume

SYNCHRONOUS = (
    *QUICK, "--set", "pace.lead=0", "--set", "stop.updates=150", "--set", "checkpoint.every_updates=17",
    "--set", "checkpoint.every_seconds=1000",
)  # fmt: skip


Train = Callable[..., Training]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, url: str) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def train(home: Path, url: str) -> Train:
    """Start a run on the stream that is being tested."""

    def start(name: str, *flags: str) -> Training:
        return harness.train(home, name, *flags, "--stream", url)

    return start


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The hash of a run on the embedded log that nobody touched."""
    with harness.train(tmp_path_factory.mktemp("reference"), "reference", *SYNCHRONOUS) as run:
        return str(run.result()["weights_sha256"])


def hurt(run: Training, victim: str, chance: random.Random) -> None:
    if workers := run.workers(victim):
        chance.choice(workers).kill()


def test_the_same_seed_gives_the_same_bits(train: Train, reference: str):
    with train("again", *SYNCHRONOUS) as run:
        assert run.result()["weights_sha256"] == reference


def test_another_seed_gives_other_bits(train: Train, reference: str):
    with train("other", *SYNCHRONOUS, "--seed", "2") as run:
        assert run.result()["weights_sha256"] != reference


@pytest.mark.parametrize("victim", ["learner", "actor"])
def test_a_killed_worker_leaves_no_trace_in_the_weights(train: Train, reference: str, victim: str):
    chance = random.Random(victim)
    with train(f"killed-{victim}", *SYNCHRONOUS) as run:
        for update in (20, 60, 110):
            run.wait_for_updates(update + chance.randrange(10))
            hurt(run, victim, chance)
        result = run.result()
        assert result["weights_sha256"] == reference
        assert run.status()["restarts"] >= 2
        assert not [event for event in run.events() if event["event"] == "resume_not_exact"]


def test_a_run_killed_whole_and_resumed_ends_with_the_same_bits(home: Path, train: Train, reference: str):
    chance, name = random.Random(3), "killed-whole"
    run = train(name, *SYNCHRONOUS)
    try:
        for update in (25, 70, 120):
            run.wait_for_updates(update + chance.randrange(10))
            time.sleep(chance.random() * 0.05)
            run.kill_all()
            run = resume(home, name)
        assert run.result()["weights_sha256"] == reference
    finally:
        run.kill_all()


def test_a_run_stopped_and_resumed_ends_with_the_same_bits(home: Path, train: Train, reference: str):
    with train("stopped", *SYNCHRONOUS) as run:
        run.wait_for_updates(40)
        run.process.terminate()
        assert run.result()["state"] == "stopped"
    with resume(home, "stopped") as run:
        assert run.result()["weights_sha256"] == reference


def test_a_damaged_checkpoint_is_refused_and_the_one_before_it_used(home: Path, train: Train, reference: str):
    name = "damaged"
    run = train(name, *SYNCHRONOUS)
    run.wait_for_updates(60)
    run.kill_all()
    folder = max((run.folder / "checkpoints").glob("[0-9]*"), key=lambda path: int(path.name.split(".")[1]))
    state = folder / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-7])
    with resume(home, name) as run:
        assert run.result()["weights_sha256"] == reference
        refused = [event for event in run.events() if event["event"] == "checkpoint_refused"]
        assert [event["version"] for event in refused] == [folder.name]


def test_dqn_with_its_replay_memory_resumes_to_the_same_bits(home: Path, train: Train):
    flags = (
        "--algorithm", "dqn", "--set", "network.hidden=[16]", "--set", "actors.environments=2",
        "--set", "actors.rollout=16", "--set", "dqn.gradient_steps=4", "--set", "dqn.buffer=2000",
        "--set", "dqn.learning_starts=200", "--set", "evaluation.every_seconds=0", "--set", "stop.target=null",
        "--set", "pace.lead=0", "--set", "stop.updates=80", "--set", "checkpoint.every_updates=11",
    )  # fmt: skip
    with train("dqn-whole", *flags) as run:
        whole = run.result()["weights_sha256"]
    run = train("dqn-killed", *flags)
    run.wait_for_updates(45)
    run.kill_all()
    with resume(home, "dqn-killed") as run:
        assert run.result()["weights_sha256"] == whole
