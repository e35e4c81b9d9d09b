"""Log lines: an event name and fields, one JSON object a line, on standard error.

Written here and not with structlog, whose import (0.2 s) every actor and learner would pay at start.
"""

import sys
import time
from typing import Any

import msgspec


class Log:
    """Binds fields that every line of one process carries."""

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def info(self, event: str, **fields: Any) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._write("error", event, fields)

    def _write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + f".{int(time.time() * 1000) % 1000:03d}Z"
        line = {"at": stamp, "level": level, "event": event, **self._fields, **fields}
        sys.stderr.write(msgspec.json.encode(line, enc_hook=str).decode() + "\n")
        sys.stderr.flush()
