"""Streams that stay open as long as a run goes on: how many, and how they end with the server."""

import threading

from penstock.errors import Unavailable


class Followers:
    """How many streams may be open at once; `stopping` ends them all."""

    def __init__(self, most: int) -> None:
        self._free = threading.Semaphore(most)
        self._most = most
        self.stopping = threading.Event()

    def enter(self) -> None:
        if not self._free.acquire(blocking=False):
            raise Unavailable(f"{self._most} log streams are open already; end one, or ask again with after")

    def leave(self) -> None:
        self._free.release()
