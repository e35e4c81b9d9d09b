"""Programs that tests need and PyPI does not have: installed from Debian where that is ours to do."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")

INSTALL_SECONDS = 250


def installed(find: Callable[[], T | None], *packages: str) -> T:
    """What `find` finds, after installing these packages where it found nothing; never a skipped test."""
    if not (found := find()) and os.geteuid() == 0 and shutil.which("apt-get"):
        with (Path(tempfile.gettempdir()) / "penstock-apt.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another worker of these tests may be installing it just now
            if not (found := find()):
                _install(packages)
                found = find()
    if not found:
        pytest.fail(f"these tests need {' and '.join(packages)}: apt-get install {' '.join(packages)}")
    return found


def _install(packages: tuple[str, ...]) -> None:
    patient = ("-o", "DPkg::Lock::Timeout=200")  # somebody else may be installing something
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update"], ["apt-get", *patient, "install", "-y", *packages]):
        subprocess.run(command, check=False, capture_output=True, timeout=INSTALL_SECONDS, env=quiet)
