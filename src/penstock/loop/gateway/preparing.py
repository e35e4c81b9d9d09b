"""The first version of a policy, made by a child: algorithms are plugins, and JAX does not belong into the gateway.

Writes to: `model_updates.<run>`, through the child.
"""

import time
from collections import Counter
from pathlib import Path

from penstock.errors import ConfigError, Unavailable
from penstock.executors.base import Executor, Exit, WorkerSpec
from penstock.loop.supervise import last_words

SECONDS = 120.0
NICE = 5
POLL_SECONDS = 0.05
MOST_FAILURES = 2
"""A child that failed so often would fail for ever, and each try costs seconds of a processor."""
MOST_WORDS = 300


class FirstVersions:
    """Used by many threads, for one run by one at a time."""

    def __init__(self, home: Path, stream_url: str, executor: Executor) -> None:
        self._home, self._url, self._executor = home, stream_url, executor
        self._failures: Counter[str] = Counter()

    def make(self, run: str) -> None:
        """Return once it is published; raise ConfigError where it cannot be made, Unavailable where asking again helps.

        A child that fails for no stated reason, or takes too long, is tried twice.
        """
        while True:
            code, words = self._run_child(run)
            if code == Exit.FINISHED:
                self._failures.pop(run, None)
                return
            if code == Exit.UNREACHABLE:
                raise Unavailable(words)
            if code == Exit.HOPELESS:
                self._failures.pop(run, None)
                raise ConfigError(words)
            self._failures[run] += 1
            if self._failures[run] >= MOST_FAILURES:
                self._failures.pop(run, None)
                raise ConfigError(
                    f"the policy could not be made in {MOST_FAILURES} tries: {words}; change the configuration, or "
                    "the machine of the gateway"
                )
            if code is None:  # whoever opened it has waited long enough
                raise Unavailable(f"{words}; ask again")

    def _run_child(self, run: str) -> tuple[int | None, str]:
        """How it ended, None where it took too long, and its last words."""
        log = self._home / "runs" / run / "logs" / "prepare.log"
        place = {"PENSTOCK_HOME": str(self._home), "PENSTOCK_STREAM": self._url}
        began = log.stat().st_size if log.exists() else 0
        worker = self._executor.launch(
            WorkerSpec("prepare", ("prepare", run), log, nice=NICE, environment=place)
        )
        until = time.monotonic() + SECONDS
        try:
            while (code := worker.poll()) is None:
                if time.monotonic() > until:
                    return None, f"the first version took over {SECONDS:g} s"
                time.sleep(POLL_SECONDS)
        finally:
            worker.kill()
        return code, last_words(log, began) or _end_of(log, began) or _death(code)


def _end_of(log: Path, start: int) -> str:
    """The last line of a program that fell: what went wrong. No path: whoever reads it is on another machine."""
    try:
        with log.open("rb") as file:
            file.seek(max(start, log.stat().st_size - 65_536))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    fault = next((line for line in reversed(lines) if line and not line.startswith((" ", "\t"))), "")
    return fault[:MOST_WORDS] if "Error" in fault else ""


def _death(code: int) -> str:
    if code < 0:
        return f"its process was killed by signal {-code}, as happens when memory runs out"
    return f"its process ended with exit code {code}"
