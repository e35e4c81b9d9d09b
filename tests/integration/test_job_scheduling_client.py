"""The scheduling example as an application of its own: it acts, reports, and gets what was learned from it."""

import re
import subprocess
import sys
from pathlib import Path

from tests.gateways import Gateway
from tests.integration.harness import environment

EXAMPLE = Path(__file__).parents[2] / "examples" / "job_scheduling" / "train_client.py"
SAID = re.compile(r"episode (\d+): slowdown [\d,.]+, version (None|\d+\.\d+)")


def schedule(home: Path, *arguments: str) -> list[tuple[int, str]]:
    """What it says: episodes so far, and the version that decides."""
    done = subprocess.run(
        [sys.executable, EXAMPLE, *arguments],
        env=environment(home), capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [SAID.fullmatch(line) for line in done.stdout.splitlines()]
    assert all(lines), done.stdout
    return [(int(line[1]), line[2]) for line in lines if line]


def test_the_simulator_trains_through_the_gateway(tmp_path: Path) -> None:
    with Gateway(tmp_path) as gateway:
        said = schedule(tmp_path, gateway.address, "--jobs", "48", "--episodes", "100000", "--updates", "2")
        runs = list((tmp_path / "runs").iterdir())
    assert [run.name.rpartition("-")[0] for run in runs] == ["job-scheduling"]
    episodes, version = said[-1]
    assert int(version.split(".")[1]) >= 2
    assert episodes >= 2 * 16, "an update is made of 16 episodes"
    steps = [-1 if version == "None" else int(version.split(".")[1]) for _, version in said]
    assert steps == sorted(steps), "versions never go back"


def test_without_a_gateway_the_shortest_job_goes_first(tmp_path: Path) -> None:
    said = schedule(tmp_path, "127.0.0.1:1", "--jobs", "24", "--episodes", "20")
    assert said == [(16, "None"), (20, "None")]
    assert list((tmp_path / "clients" / "spool" / "job-scheduling").glob("*/*.batch")), "experience waits"
