"""What the documentation shows is run as it stands."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.harness import penstock

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def test_the_python_example_trains_and_acts(home: Path):
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "first_run.py"],
        env={**os.environ, "PENSTOCK_HOME": str(home)}, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-1]
    assert last.startswith("one episode of version 1.")
    assert float(last.rsplit(" ", 1)[-1]) >= 300


def test_an_environment_of_ones_own_is_learned_from_its_file(home: Path):
    done = penstock(
        home, "train", f"{ROOT}/examples/corridor.py:Corridor", "--set", "environment.kwargs.length=12",
        "--target", "0.8", "--steps", "200000", "--set", "actors.rollout=64", "--set", "ppo.learning_rate=1e-3",
        "--json", timeout=180,
    )  # fmt: skip
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["state"] == "done"
    assert result["mean_return"] >= 0.8


def test_evaluate_play_plot_export_and_show_a_finished_run(home: Path, tmp_path: Path):
    (run,) = [
        item["run"]
        for item in json.loads(penstock(home, "runs", "--json").stdout)
        if "cartpole" in item["run"]
    ]
    evaluation = json.loads(penstock(home, "evaluate", run, "--episodes", "5", "--json").stdout)
    assert evaluation["mean"] >= 300
    penstock(home, "play", run, "--gif", str(tmp_path / "play.gif"))
    assert (tmp_path / "play.gif").read_bytes()[:4] == b"GIF8"
    penstock(home, "plot", run, "--png", str(tmp_path / "curve.png"))
    assert (tmp_path / "curve.png").read_bytes()[:4] == b"\x89PNG"
    penstock(home, "export", run, "--to", str(tmp_path / "out"), "--episodes", "2")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"policy.safetensors", "config.json", "README.md", "replay.gif"} <= names
    assert run in penstock(home, "show", run).stdout
    assert "learner_started" in penstock(home, "logs", run, "--process", "learner").stdout


def test_tensorboard_reads_the_names_people_know(home: Path):
    events = list((home / "runs").glob("cartpole-*/tensorboard/events*"))
    assert events
    content = b"".join(path.read_bytes() for path in events)
    for name in (b"charts/episodic_return", b"rollout/ep_rew_mean", b"losses/policy_loss", b"charts/SPS"):
        assert name in content
