"""Calls in progress, and a moment without any: a process must not fork while one of its threads is inside gRPC."""

import threading
from collections.abc import Callable
from time import monotonic

LONGEST_CALL = 120.0
"""A gate that stays shut longer than this is not waited for: no fork takes so long."""


class Gate:
    """`with gate:` around a call. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self.is_shut = False

    def __enter__(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self.is_shut, LONGEST_CALL)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def shut(self, cancel: Callable[[], None], seconds: float) -> bool:
        """Let nobody in, `cancel` who is inside; whether all were out in time."""
        until = monotonic() + seconds
        self.is_shut = True
        while monotonic() < until:
            cancel()  # again and again: a call may just have begun and not be there to be cancelled yet
            with self._changed:
                if not self._inside or self._changed.wait_for(lambda: not self._inside, 0.005):
                    return True
        return False

    def open(self) -> None:
        with self._changed:
            self.is_shut = False
            self._changed.notify_all()
