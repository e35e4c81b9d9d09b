"""Waking a process that waits for a topic: a Unix datagram, with a slow poll behind it.

A listener is a datagram socket in Linux' abstract namespace (a path is limited to 108 bytes, a home is
not) and an empty file of the same name in a folder that the bells of all processes look at. A datagram
says only "look again", so a lost or a needless one does no harm.
"""

import contextlib
import hashlib
import os
import secrets
import select
import socket
import threading
import time
from pathlib import Path

_PREFIX = "\0penstock."
_SETTLED_SECONDS = 0.05
"""A folder listed this soon after its last change may have changed again within one clock tick."""


class Listener:
    """Registered from its making until `close`; for one thread."""

    def __init__(self, folder: Path, topic: str) -> None:
        name = f"{_digest(topic)}.{os.getpid()}.{secrets.token_hex(6)}"
        self._file = folder / name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(_PREFIX + name)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._register()

    def drain(self) -> None:
        """Forget the wake-ups so far; look at the topic after this, then wait."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socket.recv(1)

    def wait(self, seconds: float) -> None:
        """Return at the next wake-up since `drain`, or after `seconds`."""
        if not self._poll.poll(max(1, round(seconds * 1000))) and not self._file.exists():
            # a writer in another network namespace could not reach us and took us for dead
            self._register()

    def close(self) -> None:
        self._socket.close()
        with contextlib.suppress(OSError):
            self._file.unlink(missing_ok=True)

    def _register(self) -> None:
        with contextlib.suppress(OSError):  # without a registration the poll still works
            self._file.parent.mkdir(exist_ok=True)
            self._file.touch()


class Bell:
    """Wakes the listeners of a folder. One per process and folder; any thread may ring."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.fspath(folder)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._lock = threading.Lock()
        self._changed = -1
        self._settled = False
        self._names: dict[str, list[str]] = {}
        self._digests: dict[str, str] = {}

    def ring(self, topic: str) -> None:
        """Wake whoever listens to `topic`; never waits. One `stat` when nobody does."""
        digest = self._digests.get(topic)
        if digest is None:
            digest = self._digests[topic] = _digest(topic)
        for name in self._listeners().get(digest, ()):
            try:
                self._socket.sendto(b"!", _PREFIX + name)
            except ConnectionRefusedError:  # it died: nobody holds the socket any more
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self._folder, name))
            except OSError:  # its queue is full: it has been told often enough
                continue

    def close(self) -> None:
        self._socket.close()

    def _listeners(self) -> dict[str, list[str]]:
        try:
            changed = os.stat(self._folder).st_mtime_ns
        except OSError:
            return {}
        if changed != self._changed or not self._settled:
            with self._lock:
                self._settled = time.time() - changed / 1e9 > _SETTLED_SECONDS
                self._changed = changed
                self._names = self._listed()
        return self._names

    def _listed(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        with contextlib.suppress(OSError):
            for name in os.listdir(self._folder):
                found.setdefault(name.partition(".")[0], []).append(name)
        return found


def _digest(topic: str) -> str:
    return hashlib.blake2s(topic.encode(), digest_size=8).hexdigest()
