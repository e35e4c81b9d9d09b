"""schemathesis, as anybody would run it against a server, finds nothing: every default check, every operation."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.serving import QUICK, Served, served, wait_for

ROOT = Path(__file__).parents[2]
RUN = "cartpole-k3v9"
"""The example of a run's id in the API's description, so that examples meet a real one."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """It knows a run that is done, and starts no other."""
    home = tmp_path_factory.mktemp("home")
    with served(home, most_runs=1) as running, running.client() as client:
        client.post("/runs", json=QUICK | {"name": RUN, "stop": {"steps": 1000, "target": None}})
        wait_for(lambda: client.get(f"/runs/{RUN}").json().get("state") == "done", "the run", 120)
    with served(home, most_runs=0) as running:
        yield running


def test_schemathesis_finds_nothing(server: Served, tmp_path: Path) -> None:
    command = [
        Path(sys.executable).with_name("schemathesis"), "--config-file", ROOT / "schemathesis.toml", "run",
        f"{server.address}/api/v1/openapi.json", "--seed", "4", "--max-examples", "12", "--no-color",
        "--generation-database", "none", "--request-timeout", "30",
    ]  # fmt: skip
    token = {"PENSTOCK_TOKEN": server.token}
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | token,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]
    cases = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    assert cases is not None, done.stdout[-5000:]
    assert int(cases[1]) == int(cases[2]) > 1000
