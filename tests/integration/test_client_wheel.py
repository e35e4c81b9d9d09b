"""The wheel `penstock-client`, in an environment that has nothing else: NumPy, gRPC and protobuf are enough."""

import json
import os
import socket
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.unit.client_gateway import TOKEN, Gateway

ROOT = Path(__file__).parents[2]
LOOP = """
import json, sys, time
from penstock.client import RL4SysAgent

with RL4SysAgent(sys.argv[1]) as agent:
    until = time.monotonic() + float(sys.argv[2])
    while agent.version is None and time.monotonic() < until:
        time.sleep(0.01)
    trajectory = None
    for step in range(20):
        trajectory, action = agent.request_for_action(trajectory, [0.5] * 8)
        agent.add_to_trajectory(trajectory, action)
        action.update_reward(1.0)
    agent.mark_end_of_trajectory(trajectory, action)
print(json.dumps({"figures": agent.figures(), "modules": sorted(sys.modules)}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(command, cwd=ROOT / "clients" / "python", check=True, capture_output=True, timeout=120)
    (built,) = out.glob("penstock_client-*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the wheel and what it asks for, from the index that pip is set up with."""
    folder = tmp_path_factory.mktemp("empty")
    uv = str(Path(sys.executable).parent / "uv")
    for arguments in (
        ["venv", "--quiet", "--python", sys.executable, str(folder)],
        ["pip", "install", "--quiet", "--python", str(folder / "bin" / "python"), str(wheel)],
    ):
        subprocess.run([uv, *arguments], check=True, timeout=240)
    return folder / "bin" / "python"


def looped(python: Path, home: Path, address: str, seconds: float) -> dict[str, dict[str, object]]:
    configuration = {
        "client_id": "pump", "algorithm_name": "PPO", "algorithm_parameters": {"act_dim": 4, "input_size": 8},
        "train_server_address": address, "token": TOKEN,
    }  # fmt: skip
    (home / "pump.json").write_text(json.dumps(configuration))
    done = subprocess.run(
        [str(python), "-I", "-c", LOOP, str(home / "pump.json"), str(seconds)],
        env={**os.environ, "PENSTOCK_HOME": str(home)}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_the_wheel_has_the_files_of_its_rooms_and_no_others(wheel: Path):
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("penstock/")}
    source = ROOT / "src"
    wanted = {
        str(path.relative_to(source))
        for room in ("client", "policy", "proto")
        for path in (source / "penstock" / room).iterdir()
        if path.is_file()
    }
    wanted |= {f"penstock/{name}" for name in ("__init__.py", "errors.py", "py.typed")}
    wanted |= {f"penstock/model/{name}.py" for name in ("__init__", "delta", "tensors", "version")}
    assert packed == wanted


def test_the_wheel_asks_for_what_the_platform_asks_for():
    client = tomllib.loads((ROOT / "clients" / "python" / "pyproject.toml").read_text())["project"]
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(client["dependencies"]) < set(whole["dependencies"])
    assert client["requires-python"] == whole["requires-python"]


def test_it_acts_and_sends_with_numpy_and_grpc_alone(python: Path, tmp_path: Path):
    with Gateway() as gateway:
        said = looped(python, tmp_path, gateway.address, 30)
        (sent,) = gateway.wait_for(1)
    assert (sent.length, sent.foreign) == (20, b"")
    ours = {name for name in said["modules"] if name.startswith("penstock.")}
    rooms = {"client", "policy", "proto", "errors", "model"}
    assert {name.split(".")[1] for name in ours} == rooms
    foreign = {"msgspec", "safetensors", "jax", "gymnasium", "psutil", "yaml", "torch", "pydantic"}
    assert not foreign & {name.split(".")[0] for name in said["modules"]}


def test_without_a_gateway_it_falls_back_and_keeps_what_it_saw(python: Path, tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        said = looped(python, tmp_path, f"127.0.0.1:{taken.getsockname()[1]}", 0)
    assert said["figures"]["fallbacks"] == {"safe": 20}
    assert len(list(tmp_path.rglob("*.batch"))) == 1
