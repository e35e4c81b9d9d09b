"""The C++ client for tests: what it needs is installed, and it is built once a session, in `build/`."""

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.debian import installed

ROOT = Path(__file__).parents[1]
CLIENT, EXAMPLE = ROOT / "clients" / "cpp", ROOT / "examples" / "cpp_control"
PACKAGES = (
    "g++", "cmake", "ninja-build", "pkg-config", "libgrpc++-dev", "protobuf-compiler-grpc", "libprotobuf-dev",
    "libeigen3-dev", "nlohmann-json3-dev", "libgtest-dev", "zlib1g-dev", "libssl-dev",
)  # fmt: skip
NEEDED_FILES = (
    "/usr/include/eigen3/Eigen/Core",
    "/usr/include/nlohmann/json.hpp",
    "/usr/include/gtest/gtest.h",
    "/usr/include/grpcpp/grpcpp.h",
    "/usr/include/openssl/evp.h",
    "/usr/include/zlib.h",
)
NEEDED_PROGRAMS = ("g++", "cmake", "ninja", "protoc", "grpc_cpp_plugin", "pkg-config")
BUILD_SECONDS = 1500
"""A quiet pair of cores takes about one minute; a busy one may take twenty times that."""


def build(folder: Path, *flags: str) -> Path:
    """Configure and build the client with its tests; only what changed since is compiled again."""
    folder.mkdir(parents=True, exist_ok=True)
    # test files run side by side; the second to come finds everything built
    with (folder / "building").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        installed(lambda: not _missing() or None, *PACKAGES)
        run(["cmake", "-S", str(CLIENT), "-B", str(folder), "-G", "Ninja", *flags])
        run(["cmake", "--build", str(folder), "--parallel", "2"])
    return folder


def run(command: list[str], seconds: float = BUILD_SECONDS, **more: str) -> str:
    """What a command says; the test fails with its words where it does."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=seconds, check=False, env={**os.environ, **more}
    )
    if done.returncode:
        pytest.fail(
            f"{' '.join(command)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}"
        )
    return done.stdout


def _missing() -> list[str]:
    programs = [name for name in NEEDED_PROGRAMS if shutil.which(name) is None]
    return programs + [path for path in NEEDED_FILES if not Path(path).exists()]


def script_of(path: Path) -> ModuleType:
    """One of the client's own scripts, as a module."""
    spec = importlib.util.spec_from_file_location(f"cpp_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
