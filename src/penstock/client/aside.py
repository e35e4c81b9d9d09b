"""Two small threads that nothing may hold up but their own matter: the operator's switch, and words for the log.

Neither calls the gateway: a call that hangs must not keep a file from switching the policy off, and a log that is
not read must keep neither the application nor the courier waiting.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from penstock.client.figures import Counters
from penstock.client.token import home

LOOK_SECONDS = 0.5


def look(policy: str, switch: Callable[[bool], None], counters: Counters, stop: threading.Event) -> None:
    """An operator's kill switch: a file, for all clients of this machine's user or for one policy."""
    while True:
        try:
            switch(any(path.exists() for path in off_files(policy)))
        except (OSError, RuntimeError) as error:  # a folder that may not be read, a user without a home
            counters.trouble("switch", f"the kill switch's file cannot be looked for: {error}")
        if stop.wait(LOOK_SECONDS):
            return


def say(counters: Counters, stop: threading.Event) -> None:
    """Write down what was noticed, as it comes; the last of it when `stop` is set and `counters.noticed` too."""
    while True:
        counters.noticed.wait()
        counters.noticed.clear()
        last = stop.is_set()
        counters.write_down()
        if last:
            return


def off_files(policy: str) -> tuple[Path, Path]:
    folder = home() / "clients"
    return folder / "off", folder / f"{policy}.off"


def switched_off_by_environment() -> bool:
    return os.environ.get("PENSTOCK_CLIENT_OFF", "") not in ("", "0", "false")
