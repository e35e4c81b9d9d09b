"""The C++ client, as an engineer meets it: built, tested, installed, found, linked, and trained with."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cpp import EXAMPLE, ROOT, build, run
from tests.gateways import Gateway

pytestmark = pytest.mark.timeout(2400)  # the first build of a session is in it


@pytest.fixture(scope="module")
def built() -> Path:
    return build(ROOT / "build" / "cpp")


@pytest.fixture(scope="module")
def control(built: Path) -> Path:
    """The example, built as a stranger's project: it knows the installed library and nothing else of ours."""
    prefix, folder = ROOT / "build" / "cpp-installed", ROOT / "build" / "cpp-control"
    run(["cmake", "--install", str(built), "--prefix", str(prefix)])
    run(["cmake", "-S", str(EXAMPLE), "-B", str(folder), "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}"])
    run(["cmake", "--build", str(folder)])
    return folder / "cpp_control"


def configuration(folder: Path, address: str, **keys: Any) -> Path:
    """The example's own configuration, for this gateway."""
    raw = json.loads((EXAMPLE / "configuration.json").read_text())
    raw |= {"train_server_address": address, "spool": {"folder": str(folder / "spool")}, **keys}
    file = folder / "configuration.json"
    file.write_text(json.dumps(raw))
    return file


def lines(said: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.splitlines()]


def test_its_own_tests_pass(built: Path) -> None:
    run(["ctest", "--test-dir", str(built), "--output-on-failure"])


def test_a_decision_of_the_default_policy_takes_microseconds(built: Path) -> None:
    (told,) = lines(run([str(built / "bench" / "penstock_bench"), "100000"]))
    assert told["swaps"] >= 2, "versions must come in while it is measured"
    # the promise is 3 µs on a quiet machine (docs/cpp.md); here others work beside it
    assert told["p50_ns"] < 30_000, told


def test_without_a_gateway_the_heuristic_acts_and_experience_waits(control: Path, tmp_path: Path) -> None:
    file = configuration(tmp_path, "127.0.0.1:1")
    said = lines(run([str(control), str(file), "30"], PENSTOCK_HOME=str(tmp_path)))
    assert said[-1]["episodes"] == 30
    assert said[-1]["fallbacks"] == said[-1]["decisions"] > 0
    assert said[-1]["sent"] == 0
    assert list((tmp_path / "spool").glob("cpp-cart-pole/*/*.batch"))


def test_a_wrong_configuration_is_named(control: Path, tmp_path: Path) -> None:
    file = configuration(tmp_path, "127.0.0.1:1", send_frequenzy=3)
    done = subprocess.run([control, file], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        f"cpp_control: {file}: there is no key send_frequenzy; did you mean 'send_frequency'?\n"
    )


def test_a_control_loop_in_cpp_trains_through_the_gateway(control: Path, tmp_path: Path) -> None:
    with Gateway(tmp_path) as gateway:
        # what waited while nobody was there is delivered by the next process, under its own name
        away = configuration(tmp_path, "127.0.0.1:1")
        run([str(control), str(away), "3"], PENSTOCK_HOME=str(tmp_path))
        file = configuration(tmp_path, gateway.address)
        said = lines(run([str(control), str(file), "1200", "150"], 1500, PENSTOCK_HOME=str(tmp_path)))
    first, last = said[0], said[-1]
    assert last["mean_return"] >= 150, said
    assert last["mean_return"] > 2 * first["mean_return"], (
        "the first episodes were good already; nothing was learned"
    )
    assert last["version"].split(".")[1] != "0"
    assert last["decisions"] - last["fallbacks"] > 10_000, "the policy decided, not the heuristic"
    assert last["sent"] >= last["episodes"], "every episode arrived, and those that waited"
    assert not list((tmp_path / "spool").glob("*/*/*.batch"))


def test_a_gateway_that_dies_is_not_felt_and_nothing_is_lost(control: Path, tmp_path: Path) -> None:
    with Gateway(tmp_path) as gateway:
        file = configuration(tmp_path, gateway.address)
        command = [str(control), str(file), "400", "1000"]
        environment = {**os.environ, "PENSTOCK_HOME": str(tmp_path)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as loop:
            assert loop.stdout is not None
            before: dict[str, Any] = {"version": ""}
            while not before["version"]:
                before = json.loads(loop.stdout.readline())
            gateway.kill()
            gateway.start()
            said = lines(loop.stdout.read())
        assert loop.returncode == 0
    last = said[-1]
    assert last["episodes"] == 400
    assert last["fallbacks"] == before["fallbacks"], "the policy that was there went on deciding"
    assert last["sent"] == 400
    assert not list((tmp_path / "spool").glob("*/*/*.batch"))


def test_a_refusal_of_the_gateway_is_the_constructors_error(control: Path, tmp_path: Path) -> None:
    with Gateway(tmp_path) as gateway:
        file = configuration(tmp_path, gateway.address, token="nobodys-token")
        done = subprocess.run([control, file, "5"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "refuses" in done.stderr
    assert "nobodys-token" not in done.stderr
