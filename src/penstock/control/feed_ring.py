"""Numbered messages, each encoded once, the newest of them kept for those who come back."""

import secrets
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

MOST_BYTES = 8 << 20
MOST_MESSAGES = 16_384

_ENCODER = msgspec.json.Encoder(enc_hook=str)


@dataclass(frozen=True, slots=True)
class Message:
    """One piece of news of one run."""

    seq: int
    kind: str
    run: str
    encoded: bytes
    """JSON: seq, kind, run, at, and what the kind has beside."""


class Ring:
    """The last messages of this life of the server, bounded in count and bytes; the oldest are dropped.

    Every message has the next number; `life` names this life, so that numbers of another one are not taken
    for ours. Used by any thread.
    """

    def __init__(self, most_messages: int = MOST_MESSAGES, most_bytes: int = MOST_BYTES) -> None:
        self.life = secrets.token_hex(6)
        self._most_messages, self._most_bytes = most_messages, most_bytes
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._seq = 0
        self._lock = threading.Lock()

    @property
    def seq(self) -> int:
        """The number of the newest message; 0 before the first."""
        return self._seq

    def add(self, news: Iterable[tuple[str, str, dict[str, Any]]]) -> list[Message]:
        """Number, encode and keep (kind, run, body)s."""
        at = round(time.time(), 3)
        with self._lock:
            made = [self._make(kind, run, {"at": at, **body}) for kind, run, body in news]
            while self._bytes > self._most_bytes or len(self._messages) > self._most_messages:
                self._bytes -= len(self._messages.popleft().encoded)
        return made

    def after(self, seq: int) -> list[Message] | None:
        """What came after `seq`; None where some of it is no longer here, or `seq` was never given."""
        with self._lock:
            oldest = self._messages[0].seq if self._messages else self._seq + 1
            if not oldest - 1 <= seq <= self._seq:
                return None
            return [message for message in self._messages if message.seq > seq]

    def _make(self, kind: str, run: str, body: dict[str, Any]) -> Message:
        self._seq += 1
        encoded = _ENCODER.encode({"seq": self._seq, "kind": kind, "run": run, **body})
        message = Message(self._seq, kind, run, encoded)
        self._messages.append(message)
        self._bytes += len(encoded)
        return message
