"""After a loss of power: a damaged environment is renamed and reported, and a new one takes its place.

Unsynced pages reach the disk in any order, so LMDB may open such a file and crash much later. What was
last open under another boot of the machine is therefore walked once, page by page, before it is used.
"""

import contextlib
import fcntl
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lmdb import verify

OnEvent = Callable[[str, dict[str, Any]], None]
"""Told an event's name and facts."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def warn(name: str, facts: dict[str, Any]) -> None:
    """The default for events: a Python warning."""
    words = ", ".join(f"{key}={value}" for key, value in facts.items())
    warnings.warn(f"{name}: {words}", RuntimeWarning, stacklevel=2)


def set_aside(path: Path, reason: str, on_event: OnEvent) -> None:
    """Rename a damaged environment; the next one continues with the next generation of offsets."""
    number = generation(path) + 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    path.rename(aside)
    path.mkdir()
    (path / "generation").write_text(str(number))
    on_event("stream_set_aside", {"environment": str(path), "kept_as": str(aside), "reason": reason})


def set_aside_after_reboot(path: Path, on_event: OnEvent) -> None:
    """Check every page reference of an environment that this boot of the machine has not opened yet."""
    data, mark = path / "data.mdb", path / "boot"
    if not data.exists() or data.stat().st_size == 0 or (mark.exists() and mark.read_text() == _boot_id()):
        return
    try:
        findings: list[str] = verify.verify(os.fspath(path))  # type: ignore[no-untyped-call]
    except verify.VerifyError as error:
        findings = [str(error)]
    if findings:
        set_aside(path, findings[0], on_event)


@contextmanager
def one_opens(path: Path) -> Iterator[None]:
    """One process at a time opens or repairs an environment."""
    path.mkdir(parents=True, exist_ok=True)
    with (path.parent / ".opening").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        path.mkdir(exist_ok=True)
        yield


def mark_checked(path: Path) -> None:
    (path / "boot").write_text(_boot_id())


def mark_doubtful(path: Path) -> None:
    """Let the next process that opens it check it."""
    with contextlib.suppress(OSError):
        (path / "boot").unlink(missing_ok=True)


def generation(path: Path) -> int:
    """How many environments were set aside before this one."""
    try:
        return int((path / "generation").read_text())
    except (OSError, ValueError):
        return 0


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return "unknown"
