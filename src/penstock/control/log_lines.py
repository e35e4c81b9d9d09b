"""Log lines in bounded answers, followed by a cursor that remembers how far each file was read."""

import base64
import binascii
from pathlib import Path

import msgspec

from penstock.control.views import LogLine, Logs
from penstock.errors import ConfigError
from penstock.loop.logfiles import last_lines, log_files, read_on
from penstock.loop.runs import RunFolder

MOST_LINES = 2000
MOST_BYTES = 1 << 20
"""Of one answer."""
LONGEST_LINE = 8192
MOST_FILES = 64

Ends = dict[str, int]
"""Process → where the next line begins."""


def read_logs(folder: RunFolder, process: str | None, lines: int, after: str | None) -> Logs:
    """The last `lines` of each log, or what was added since the answer whose `next` is `after`.

    What does not fit into one answer comes with the next. Raises NotFound for a process without a log,
    ConfigError for a cursor that is none of ours.
    """
    if lines < 0:
        raise ConfigError(f"lines is {lines}; ask for 0 or more")
    files = log_files(folder, process)[:MOST_FILES]
    known = {} if after is None else _decode(after)
    found: list[LogLine] = []
    room, budget = min(lines, MOST_LINES), MOST_BYTES
    for number, path in enumerate(files):
        share = room // (len(files) - number), budget // (len(files) - number)
        told, known[path.stem] = _read(path, known.get(path.stem, None if after is None else 0), *share)
        found += told
        room, budget = room - len(told), budget - sum(len(line.text) for line in told)
    everybody = [path.stem for path in log_files(folder, None)[:MOST_FILES]]
    return Logs(run=folder.run, processes=everybody, lines=found, next=_encode(known))


def _read(path: Path, position: int | None, most: int, most_bytes: int) -> tuple[list[LogLine], int]:
    """Lines that fit, and where the next begins: nothing is passed over but the cut part of a long line."""
    if position is None:
        texts, end = last_lines(path, most, most_bytes)
    else:
        texts, end = read_on(path, position, most_bytes, most)
    return [LogLine(process=path.stem, text=_short(text)) for text in texts], end


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE]}…"


def _encode(ends: Ends) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(ends)).decode().rstrip("=")


def _decode(text: str) -> Ends:
    try:
        content = base64.urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
        ends = msgspec.json.decode(content, type=dict[str, int])
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise ConfigError(
            "after is none of our cursors; leave it out, then pass on `next` as it is"
        ) from error
    if any(not 0 <= end < 1 << 62 for end in ends.values()) or len(ends) > 2 * MOST_FILES:
        raise ConfigError("after is none of our cursors; leave it out, then pass on `next` as it is")
    return ends
