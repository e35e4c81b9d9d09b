"""Workers as processes of this machine.

A worker runs in a session of its own, so that Ctrl-C reaches only the keeper, and ends with the
keeper: it asks the kernel for SIGTERM when its parent dies (see `penstock.worker`).
"""

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from penstock.errors import NotFound
from penstock.executors.base import WorkerSpec

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
LOG_BYTES = 32 << 20
"""Past this a log is set aside when its process starts anew."""


@dataclass(slots=True, eq=False)
class LocalWorker:
    spec: WorkerSpec
    process: "subprocess.Popen[bytes]"

    @property
    def pid(self) -> int:
        return self.process.pid

    def poll(self) -> int | None:
        return self.process.poll()

    def stop(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        # the whole session: an environment may have started processes of its own; their group keeps its
        # number as long as one of them lives, so nobody else can be hit
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)


class LocalExecutor:
    """Starts `python -m penstock.worker …` with its threads fixed and its output in a log file."""

    @property
    def place(self) -> str:
        return f"local: processes of {os.uname().nodename}, {len(os.sched_getaffinity(0))} processors"

    def launch(self, spec: WorkerSpec) -> LocalWorker:
        with open_log(spec.log) as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "penstock.worker", *spec.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(spec),
                start_new_session=True,
                pass_fds=spec.descriptors,
            )
        return LocalWorker(spec, process)


def open_log(path: Path) -> IO[bytes]:
    """A log to add to; a long one is set aside first, and the one set aside before is let go.

    Raises NotFound where the run's folder is gone: it must not come back as an empty one.
    """
    try:
        path.parent.mkdir(exist_ok=True)
    except FileNotFoundError as error:
        raise NotFound(f"{path.parent.parent} was removed") from error
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > LOG_BYTES:
            path.replace(path.with_suffix(".log.1"))
    return path.open("ab")


def environment(spec: WorkerSpec) -> dict[str, str]:
    """The variables of a worker: the keeper's, with thread counts that the spec fixes."""
    threads = str(spec.threads)
    return {
        **os.environ,
        **dict.fromkeys(THREAD_VARIABLES, threads),
        "PENSTOCK_PARENT": str(os.getpid()),
        "PENSTOCK_NICE": str(spec.nice),
        "PENSTOCK_CPUS": ",".join(map(str, spec.cpus)),
        "PENSTOCK_MEMORY": str(spec.memory_bytes or 0),
        **spec.environment,
    }
