"""A lock for each name, kept only while somebody holds it or waits for it."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

L = TypeVar("L")


class Locks(Generic[L]):
    """Of any kind: `with locks.of(name) as lock, lock: …`"""

    def __init__(self, make: Callable[[], L]) -> None:
        self._make = make
        self._guard = threading.Lock()
        self._wanted: dict[str, tuple[L, int]] = {}

    @contextlib.contextmanager
    def of(self, name: str) -> Iterator[L]:
        """The same lock for all who want this name at the same time."""
        with self._guard:
            lock, users = self._wanted.get(name) or (self._make(), 0)
            self._wanted[name] = (lock, users + 1)
        try:
            yield lock
        finally:
            with self._guard:
                lock, users = self._wanted.pop(name)
                if users > 1:
                    self._wanted[name] = (lock, users - 1)

    def __len__(self) -> int:
        return len(self._wanted)
