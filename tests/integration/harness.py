"""Real runs in real processes, started, hurt and watched as a person would."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.hosts import Host

QUICK = (
    "--set", "network.hidden=[16]", "--set", "actors.environments=2", "--set", "actors.rollout=32",
    "--set", "ppo.epochs=2", "--set", "ppo.minibatch=64", "--set", "evaluation.every_seconds=0",
    "--set", "stop.target=null", "--no-tensorboard",
)  # fmt: skip
"""Flags of a run that makes many small updates quickly."""


def penstock(
    home: Path, *arguments: str, timeout: float = 120, check: bool = True
) -> "subprocess.CompletedProcess[str]":
    """One command to its end."""
    done = subprocess.run(
        command(*arguments),
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if check and done.returncode != 0:
        raise AssertionError(f"penstock {' '.join(arguments)} failed:\n{done.stdout}\n{done.stderr}")
    return done


def command(*arguments: str, host: Host | None = None) -> list[str]:
    words = [sys.executable, "-m", "penstock", *arguments]
    return words if host is None else host.command(words)


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "PENSTOCK_HOME": str(home)}


@dataclass
class Training:
    """A keeper in the background."""

    home: Path
    arguments: tuple[str, ...]
    name: str
    host: Host | None = None
    process: "subprocess.Popen[str]" = field(init=False)

    def __post_init__(self) -> None:
        self.process = subprocess.Popen(
            command(*self.arguments, "--json", host=self.host), env=environment(self.home), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __enter__(self) -> "Training":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill_all()

    @property
    def folder(self) -> Path:
        return self.home / "runs" / self.name

    def status(self) -> dict[str, Any]:
        with contextlib.suppress(OSError, ValueError):
            return dict(json.loads((self.folder / "state.json").read_text()))
        return {}

    def events(self) -> list[dict[str, Any]]:
        path = self.folder / "events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def workers(self, role: str = "") -> list[psutil.Process]:
        """The live workers, by the beginning of their role."""
        found = []
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self.process.pid).children():
                with contextlib.suppress(psutil.Error):
                    line = child.cmdline()
                    if "penstock.worker" in line and line[line.index("penstock.worker") + 1].startswith(role):
                        found.append(child)
        return found

    def wait_until(self, condition: Any, seconds: float = 60.0, what: str = "") -> None:
        until = time.monotonic() + seconds
        while not condition():
            if self.process.poll() is not None:
                raise AssertionError(f"the run ended before {what}: {self.process.communicate()}")
            if time.monotonic() > until:
                raise AssertionError(
                    f"{what or 'a condition'} did not come true in {seconds} s: {self.status()}"
                )
            time.sleep(0.02)

    def wait_until_running(self) -> None:
        self.wait_until(lambda: self.status().get("state") == "running", what="a running state")

    def wait_for_updates(self, count: int, seconds: float = 60.0) -> None:
        self.wait_until(lambda: self.updates() >= count, seconds, f"update {count}")

    def updates(self) -> int:
        """From metrics, which are fresher than the status."""
        with contextlib.suppress(OSError, IndexError, ValueError):
            return int(json.loads((self.folder / "metrics.jsonl").read_text().splitlines()[-1])["updates"])
        return 0

    def kill_all(self) -> None:
        """kill -9 of the keeper and every worker, at once."""
        workers = self.workers()
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGSTOP)  # no restarts between the kills
        for worker in workers:
            with contextlib.suppress(psutil.Error):
                worker.kill()
        self.process.kill()
        self.process.wait()
        for worker in workers:
            with contextlib.suppress(psutil.Error, psutil.TimeoutExpired):
                worker.wait(10)

    def result(self, timeout: float = 120.0) -> dict[str, Any]:
        """The last line of a run that ended well."""
        out, err = self.process.communicate(timeout=timeout)
        assert self.process.returncode == 0, f"{out}\n{err}"
        return dict(json.loads(out.splitlines()[-1]))


def train(
    home: Path, name: str, *arguments: str, source: str = "CartPole-v1", host: Host | None = None
) -> Training:
    return Training(home, ("train", source, "--name", name, *arguments), name, host)


def resume(home: Path, name: str, *arguments: str, host: Host | None = None) -> Training:
    return Training(home, ("resume", name, *arguments), name, host)


@contextlib.contextmanager
def role(home: Path, *arguments: str, host: Host | None = None) -> Iterator["subprocess.Popen[str]"]:
    """A process of a run, as `penstock actor` or `penstock learner` starts it; ended at the end."""
    process = subprocess.Popen(
        command(*arguments, host=host), env=environment(home), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
