"""The command line from outside: exit codes, one sentence on stderr, JSON on stdout."""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pytest
import yaml
from PIL import Image
from safetensors.numpy import load_file

from penstock import cli, config
from penstock.algorithms.base import State
from penstock.envs.single import SingleEnvironment
from penstock.loop.checkpoint import Checkpoint, CheckpointStore, Progress
from penstock.loop.intake import Ledger
from penstock.loop.metrics import MetricsWriter
from penstock.loop.runs import RunFolder
from penstock.model.policy import Policy, PolicyDescription, PolicyFacts
from penstock.model.run import RunState
from penstock.model.tensors import weights_sha256
from penstock.model.version import Version
from penstock.policy import networks


@dataclass
class Result:
    returncode: int
    stdout: str
    stderr: str


def penstock(home: Path, *arguments: str, **environment: str) -> Result:
    """Run a command in this process, where nothing has to be imported again."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        for name, value in {"PENSTOCK_HOME": str(home), **environment}.items():
            patch.setenv(name, value)
        code = cli.run(list(arguments))
    return Result(code, out.getvalue(), err.getvalue())


def subprocess_of(home: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "penstock.cli", *arguments]
    environment = {**os.environ, "PENSTOCK_HOME": str(home)}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)


def make_run(home: Path, environment: str = "CartPole-v1") -> RunFolder:
    """A finished run with one untrained checkpoint and a few reports."""
    spec = config.resolve(environment)
    folder = RunFolder.create(home, spec)
    single = SingleEnvironment(spec.environment, seed=1)
    description = PolicyDescription("ppo", "categorical", single.spaces, spec.network)
    single.close()
    tensors = networks.initial(description, np.random.default_rng(1))
    version = Version(1, 4)
    facts = PolicyFacts(folder.run, version, weights_sha256(tensors), description, {0: 0}, 1024)
    ledger = Ledger({0: 0}, [(0, 0)], {0: 0}, {})
    head = Checkpoint(version, ledger, {0: 0}, {}, {}, Progress(1024, 2), {}, 0, (), {}, 1.0)
    CheckpointStore(folder.path, 3).write(head, State({}, {}, {}, 0), Policy(facts, tensors), 0)
    with MetricsWriter(folder.path, tensorboard=False) as writer:
        for steps in range(0, 1024, 256):
            writer.write({"steps": steps, "seconds": 1.0, "time": 1.0, "charts/episodic_return": steps / 10})
    folder.save_status(
        msgspec.structs.replace(
            folder.status(), state=RunState.DONE, steps=1024, mean_return=76.8, version="1.4", reason="enough"
        )
    )
    folder.append_event("run_done", reason="enough")
    for process, text in (("learner", "a\nb\nc\n"), ("actor-0", "x\x1b[2J\n")):
        folder.log_file(process).write_text(text)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("home"))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["show", "cartpol"], 1, "there is no run 'cartpol'"),
        (["spec", "CartPole-v1", "--set", "ppo.gamm=1"], 1, "did you mean 'gamma'"),
        (["spec", "CartPole-v1", "--set", "gamma"], 1, "gamma"),
        (["spec", "no.yaml"], 1, "there is no spec file no.yaml"),
        (["spec"], 1, "name an environment"),
        (["shw"], 2, "shw"),
        (["show"], 2, "RUN"),
        (["runs", "--jsn"], 2, "--json"),
        (["evaluate", "x", "--episodes", "many"], 2, "many"),
        (["plot", "--png", "x.png"], 1, "name the runs"),
    ],
)
def test_a_mistake_is_one_sentence_and_an_exit_code(tmp_path, arguments, code, words):
    result = penstock(tmp_path, *arguments)
    assert result.returncode == code, result.stderr
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert words.lower() in result.stderr.lower()
    assert len(result.stderr.strip().splitlines()) == 1
    assert "Traceback" not in result.stderr


def test_the_process_ends_with_the_code_and_writes_nothing_else(folder):
    wrong, right = subprocess_of(folder.home, "show", "nobody"), subprocess_of(folder.home, "runs", "--json")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr.startswith("error: there is no run 'nobody'")
    assert right.returncode == 0
    assert folder.run in [run["run"] for run in json.loads(right.stdout)]


def test_a_reader_that_leaves_early_is_no_error(folder):
    command = f"{sys.executable} -m penstock.cli spec --schema | head -c 10"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert result.stderr == ""


def test_the_traceback_is_there_for_those_who_ask(tmp_path):
    assert "Traceback" in penstock(tmp_path, "show", "x", PENSTOCK_DEBUG="1").stderr


def test_every_command_explains_itself(tmp_path):
    overview = penstock(tmp_path, "--help")
    assert overview.returncode == 0
    for command in ("spec", "runs", "show", "logs", "evaluate", "play", "plot", "export", "doctor"):
        assert command in overview.stdout
        assert penstock(tmp_path, command, "--help").stdout.startswith(f"Usage: penstock {command}")


def test_help_imports_nothing_heavy(tmp_path):
    code = (
        "import sys; from penstock.cli import run; run(['--help']); "
        "heavy = {'jax', 'gymnasium', 'matplotlib', 'tensorboardX', 'yaml', 'numpy'}; "
        "sys.exit(str(heavy & set(sys.modules) or 'none'))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.stderr.strip() == "none"


def test_the_printed_spec_is_a_spec_file(tmp_path):
    printed = penstock(tmp_path, "spec", "CartPole-v1", "--algorithm", "dqn", "--set", "pace.lead=0").stdout
    (tmp_path / "my.yaml").write_text(printed)
    spec = config.resolve(tmp_path / "my.yaml")
    assert (spec.algorithm, spec.pace.lead) == ("dqn", 0)
    again = penstock(tmp_path, "spec", str(tmp_path / "my.yaml"), "--json")
    assert config.resolve(json.loads(again.stdout)) == spec
    assert json.loads(penstock(tmp_path, "spec", "--schema").stdout)["title"] == "Penstock spec"


def test_runs_lists_what_is_there_and_warns_of_what_is_damaged(folder):
    broken = RunFolder.create(folder.home, config.resolve("CartPole-v1"), run="broken")
    broken.state_file.write_text("{")
    result = penstock(folder.home, "runs", "--json")
    listed = {run["run"]: run for run in json.loads(result.stdout)}
    assert {"run", "state", "environment", "algorithm", "steps", "mean_return"} <= set(listed[folder.run])
    assert listed[folder.run]["state"] == "done"
    assert "broken" in result.stderr
    assert result.returncode == 0
    assert folder.run in penstock(folder.home, "runs").stdout
    assert "penstock train" in penstock(folder.home / "other", "runs").stdout


def test_show_tells_all_about_a_run(folder):
    known = json.loads(penstock(folder.home, "show", folder.run, "--json").stdout)
    assert known["checkpoints"] == ["1.4"]
    assert known["spec"]["environment"]["id"] == "CartPole-v1"
    assert known["events"][-1]["event"] == "run_done"
    page = penstock(folder.home, "show", folder.run).stdout
    assert "done (enough)" in page
    assert "1,024 steps" in page


def test_logs_are_printed_without_what_moves_the_cursor(folder):
    result = penstock(folder.home, "logs", folder.run, "--follow")
    assert result.returncode == 0
    assert "learner" in result.stdout
    assert "\x1b" not in result.stdout
    assert (
        penstock(folder.home, "logs", folder.run, "--process", "learner", "--lines", "2").stdout == "b\nc\n"
    )
    assert "did you mean 'learner'" in penstock(folder.home, "logs", folder.run, "--process", "lerner").stderr


def test_evaluate_is_repeatable(folder):
    arguments = ("evaluate", folder.run, "--episodes", "3", "--json")
    first, second = (json.loads(penstock(folder.home, *arguments).stdout) for _ in range(2))
    assert first["returns"] == second["returns"]
    assert len(first["returns"]) == 3
    assert first["mean"] == pytest.approx(np.mean(first["returns"]))
    assert first["checkpoint"] == "1.4"
    assert "no checkpoint 9.9" in penstock(folder.home, "evaluate", folder.run, "--checkpoint", "9.9").stderr
    assert penstock(folder.home, "evaluate", folder.run, "--episodes", "0").returncode != 0


def test_play_writes_a_moving_picture(folder, tmp_path):
    file = tmp_path / "play.gif"
    result = penstock(folder.home, "play", folder.run, "--gif", str(file), "--json")
    recording = json.loads(result.stdout)
    assert recording["length"] > 0
    with Image.open(file) as picture:
        assert picture.n_frames == recording["frames"] > 1
    assert "return" in penstock(folder.home, "play", folder.run, "--gif", str(file)).stdout
    missing = penstock(folder.home, "play", folder.run, "--gif", str(tmp_path / "no" / "x.gif"))
    assert missing.returncode == 1
    assert "cannot be written" in missing.stderr


def test_plot_draws_curves(folder, tmp_path):
    file = tmp_path / "curves.png"
    assert penstock(folder.home, "plot", folder.run, "--png", str(file)).returncode == 0
    with Image.open(file) as picture:
        assert picture.size[0] > 500
    unknown = penstock(folder.home, "plot", folder.run, "--png", str(file), "--metric", "losses/none")
    assert "losses/none" in unknown.stderr


def test_export_is_a_folder_to_share(folder, tmp_path):
    to = tmp_path / "shared"
    exported = json.loads(
        penstock(folder.home, "export", folder.run, "--to", str(to), "--episodes", "2", "--json").stdout
    )
    assert set(exported["files"]) == {"policy.safetensors", "config.json", "README.md", "replay.gif"}
    described = json.loads((to / "config.json").read_text())
    tensors = load_file(to / "policy.safetensors")
    assert weights_sha256(tensors) == described["policy"]["weights_sha256"]
    facts = msgspec.json.decode(json.dumps(described["policy"]), type=PolicyFacts)
    assert facts.description.head == "categorical"
    assert config.resolve(described["spec"]) == folder.spec()
    front = yaml.safe_load((to / "README.md").read_text().split("---")[1])
    assert front["library_name"] == "penstock"
    assert front["model-index"][0]["results"][0]["metrics"][0]["type"] == "mean_reward"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("")
    refused = penstock(folder.home, "export", folder.run, "--to", str(tmp_path / "full"))
    assert "thesis.tex" in refused.stderr


def test_doctor_says_what_is_missing(tmp_path):
    diagnosis = json.loads(penstock(tmp_path, "doctor", "--json").stdout)
    assert diagnosis["ready"] is True
    assert {part["name"] for part in diagnosis["parts"]} >= {"home", "core", "box2d", "plot"}
    (tmp_path / "file").write_text("")
    result = penstock(tmp_path / "file", "doctor")
    assert result.returncode == 1
    assert "PENSTOCK_HOME" in result.stdout
