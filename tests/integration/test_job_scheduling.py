"""The scheduling example as its README runs it, and the claim of its table, computed again."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.harness import environment, penstock

EXAMPLE = Path(__file__).parents[2] / "examples" / "job_scheduling"
sys.path.append(str(EXAMPLE))

import lublin  # noqa: E402
import policy  # noqa: E402
import swf  # noqa: E402
from cluster import Rules  # noqa: E402
from evaluate import cases, schedulers, score  # noqa: E402
from report import LEARNED, table  # noqa: E402

SMALL = (
    "--set", "environment.kwargs.jobs=24", "--set", "actors.environments=2", "--set", "actors.rollout=64",
    "--set", "ppo.minibatch=64", "--steps", "512", "--no-tensorboard",
)  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def exported(home: Path) -> Path:
    """A policy of a few updates, trained and exported by the commands of the README."""
    done = penstock(
        home, "train", str(EXAMPLE / "spec.yaml"), *SMALL, "--name", "small", "--json", timeout=180
    )
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["state"] == "done"
    assert result["episodes"] > 0
    penstock(home, "export", "small", "--to", str(home / "exported"), "--episodes", "1")
    assert str(EXAMPLE) not in (home / "exported" / "config.json").read_text()  # paths tell who trained it
    return home / "exported"


def evaluate(home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, EXAMPLE / "evaluate.py", *arguments],
        env=environment(home), capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


def test_a_trained_policy_is_exported_and_evaluated(home: Path, exported: Path, tmp_path: Path):
    done = evaluate(home, str(exported), "--jobs", "48", "--to", str(tmp_path))
    assert done.returncode == 0, done.stderr
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert len(scores["workloads"]) == 20
    for by_name in scores["scores"].values():
        assert {LEARNED, "FCFS", "SJF", "F1", "SAF", "random"} == set(by_name)
        assert all(value >= 1 for values in by_name.values() for value in values)
    assert (tmp_path / "table.md").read_text().count(f"| {LEARNED} |") == 12
    assert (tmp_path / "plot.png").read_bytes()[:4] == b"\x89PNG"


def test_a_run_is_evaluated_on_a_log(home: Path, exported: Path, tmp_path: Path):
    swf.write(tmp_path / "made.swf", lublin.generate(300, 3, load=0.8))
    done = evaluate(home, "small", "--log", str(tmp_path / "made.swf"), "--jobs", "60", "--to", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "of 5 |" in (tmp_path / "log.md").read_text()


def test_an_export_that_was_mixed_up_is_refused(exported: Path, tmp_path: Path):
    trained = EXAMPLE / "trained"
    (tmp_path / "config.json").write_bytes((trained / "config.json").read_bytes())
    with pytest.raises(ValueError, match=r"policy\.safetensors is missing"):
        policy.of(str(tmp_path))
    (tmp_path / "policy.safetensors").write_bytes((exported / "policy.safetensors").read_bytes())
    with pytest.raises(ValueError, match=r"do not match its config\.json"):
        policy.of(str(tmp_path))


def test_the_trained_policy_beats_first_come_and_shortest_first_as_the_table_says():
    players = schedulers(policy.of(str(EXAMPLE / "trained")))
    names = (LEARNED, "FCFS", "SJF")
    scores = score(cases(), {name: players[name] for name in names}, Rules())
    verdicts = {
        row.split("|")[1].strip(): row.split("|")[-2].strip() for row in table(scores).splitlines()[2:]
    }
    assert verdicts == {LEARNED: "", "FCFS": "better", "SJF": "better"}
    written = json.loads((EXAMPLE / "results" / "scores.json").read_text())["scores"]
    as_trained = next(iter(written.values()))
    for name in names:  # another processor may break a tie in another way
        assert scores[name].mean() == pytest.approx(sum(as_trained[name]) / 20, rel=0.02)
