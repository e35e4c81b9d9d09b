"""Keepers in the background, for callers that go on: Python's `train`, and `penstock start` without a server."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import IO

from penstock import config
from penstock.errors import ConfigError, PenstockError
from penstock.loop.runs import RunFolder
from penstock.model.run import run_id
from penstock.model.spec import Spec

POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Launched:
    """A keeper in the background and what it says."""

    process: "subprocess.Popen[bytes]"
    said: IO[bytes]

    def last_words(self) -> str:
        self.said.seek(0)
        words = self.said.read().decode(errors="replace").strip().removeprefix("error: ")
        return words or f"the keeper ended with exit code {self.process.returncode}"


def train(home: Path, spec: Spec, name: str | None = None, *flags: str) -> tuple[RunFolder, Launched]:
    """A run of this spec under a keeper of its own; returns once it has a policy, raises where it has none."""
    name = name or run_id(spec.environment.id, SystemRandom())
    keeper = launch(home, ["train", "-", "--name", name, *flags], config.to_yaml(spec).encode())
    folder = RunFolder(home, name)
    await_start(keeper, folder)
    return folder, keeper


def launch(home: Path, arguments: list[str], spec: bytes | None = None) -> Launched:
    """A keeper in the background, in a session of its own: Ctrl-C in a notebook does not reach it."""
    said = tempfile.TemporaryFile()  # noqa: SIM115  # a pipe that nobody empties would stop the keeper
    keeper = subprocess.Popen(
        [sys.executable, "-m", "penstock", *arguments, "--quiet"],
        stdin=subprocess.PIPE if spec is not None else subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=said,
        env={**os.environ, "PENSTOCK_HOME": str(home)},
        start_new_session=True,
    )
    if spec is not None and keeper.stdin is not None:
        keeper.stdin.write(spec)
        keeper.stdin.close()
    return Launched(keeper, said)


def await_start(launched: Launched, folder: RunFolder) -> None:
    """Return once this keeper's run has a policy; raise what it said when it could not start."""
    keeper = launched.process
    while keeper.poll() is None:
        with suppress(PenstockError):  # the folder may not be there yet
            status = folder.stored_status()
            if status.version is not None and status.keeper is not None and status.keeper.pid == keeper.pid:
                return
        try:
            time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            keeper.send_signal(signal.SIGINT)
            raise
    if keeper.returncode != 0:
        raise ConfigError(launched.last_words())
