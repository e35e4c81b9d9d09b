"""Whether the server's stream answers, asked every few seconds by a thread of its own.

Nobody waits for the answer: a stream that is away lets a question wait for a minute, and neither commands nor those
who ask how the server does may wait that long. What was heard last is kept, and a question that waits is told of.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock.errors import PenstockError
from penstock.logs import Log
from penstock.model import topics
from penstock.stream.base import Stream

EVERY_SECONDS = 5.0
SLOW_SECONDS = 10.0
"""A question that waits longer says that the stream is away."""
END_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Heard:
    """How the last question went."""

    words: str = "ok"
    seconds: float | None = None
    """How long the answer took; None where there was none."""


class Pulse:
    """Start it with `start`, end it with `close`; `check` and `seconds` may be asked by any thread."""

    def __init__(self, open_stream: Callable[[], Stream], every_seconds: float = EVERY_SECONDS) -> None:
        self._open, self._every = open_stream, every_seconds
        self._heard = Heard()
        self._asked_at: float | None = None
        """When the question that waits was asked."""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def check(self) -> str:
        """`ok`, or what is wrong."""
        heard, asked_at = self._heard, self._asked_at
        waiting = 0.0 if asked_at is None else time.monotonic() - asked_at
        if heard.words == "ok" and waiting > SLOW_SECONDS:
            return f"the stream has not answered for {waiting:.0f} s; its brokers or its disk may be away"
        return heard.words

    @property
    def seconds(self) -> float | None:
        """How long its last answer took; None where it gave none."""
        return self._heard.seconds if self.check() == "ok" else None

    def close(self) -> None:
        """A question that waits is left behind: its thread ends with the process."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(END_SECONDS)

    def _run(self) -> None:
        stream: Stream | None = None
        while not self._closing.is_set():
            self._asked_at = begun = time.monotonic()
            try:
                stream = stream or self._open()
                stream.end(topics.COMMANDS)
                heard = Heard(seconds=time.monotonic() - begun)
            except PenstockError as error:
                heard = Heard(str(error))
            except Exception as error:  # whatever it is, it is asked again
                heard = Heard(f"{type(error).__name__}: {error}")
            if heard.words != self._heard.words:
                log = Log(process="pulse")
                (log.info if heard.words == "ok" else log.warning)("stream_heard", words=heard.words)
            self._heard, self._asked_at = heard, None
            self._closing.wait(self._every)
        if stream is not None:
            stream.close()
