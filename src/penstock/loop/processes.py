"""Whether a process that was written down is still the same one."""

import fcntl
import os
import socket
from pathlib import Path

from penstock.model.run import Keeper


def identify(pid: int | None = None) -> Keeper | None:
    """Name a live process of this machine (default: this one); None where there is none."""
    number = os.getpid() if pid is None else pid
    started = _started(number)
    return None if started is None else Keeper(number, socket.gethostname(), started, _boot())


def is_alive(keeper: Keeper, lock: Path | None = None) -> bool:
    """Whether it still runs. A process of another host cannot be seen from here: it lives while it holds `lock`.

    A host may also just be called otherwise than it was: a container that was started again, a laptop elsewhere.
    """
    if keeper.host != socket.gethostname():
        return lock is None or is_locked(lock)
    if keeper.boot and keeper.boot != _boot():
        return False
    started = _started(keeper.pid)
    return started is not None and abs(started - keeper.started) < 0.5


def is_locked(path: Path) -> bool:
    """Whether some process holds the lock of this file."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _started(pid: int) -> float | None:
    """Seconds from boot to the start of a live process; a zombie has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return None if Path("/proc/self").exists() else _started_elsewhere(pid)
    except (OSError, ValueError):
        return None
    fields = stat[stat.rindex(")") + 2 :].split()  # the name before it may hold spaces and brackets
    if fields[0] in "ZX":
        return None
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _started_elsewhere(pid: int) -> float | None:
    """Without /proc the best there is follows the wall clock."""
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return float(process.create_time() - psutil.boot_time())
    except psutil.Error:
        return None


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
