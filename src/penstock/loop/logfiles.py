"""Logs of a run's processes: their last lines, and what is added to them, in bounded pieces."""

from pathlib import Path

from penstock.errors import NotFound, nearest
from penstock.loop.runs import RunFolder

READ_BYTES = 1 << 20
"""The most that is read of one file at once."""


def log_files(folder: RunFolder, process: str | None) -> list[Path]:
    """The logs asked for; raise NotFound with the nearest name."""
    found = sorted(folder.logs.glob("*.log"))
    if process is None:
        return found
    if not (chosen := [path for path in found if path.stem == process]):
        known = [path.stem for path in found]
        raise NotFound(f"run {folder.run} has no log of {process!r}{nearest(process, known)}")
    return chosen


def read_on(
    path: Path, position: int, most_bytes: int = READ_BYTES, most_lines: int | None = None
) -> tuple[list[str], int]:
    """Whole lines from `position` on, and where the next begins; a file that became shorter is read from its start.

    A line longer than `most_bytes` comes in pieces.
    """
    try:
        with path.open("rb") as file:
            if file.seek(0, 2) < position:
                position = 0
            file.seek(position)
            content = file.read(most_bytes)
    except OSError:
        return [], position
    end = content.rfind(b"\n") + 1
    if end == 0 and len(content) == most_bytes:
        end = most_bytes
    lines = content[:end].removesuffix(b"\n").split(b"\n") if end else []
    if most_lines is not None and len(lines) > most_lines:
        lines = lines[:most_lines]
        end = sum(len(line) + 1 for line in lines)
    return [_text(line) for line in lines], position + end


def last_lines(path: Path, count: int, most_bytes: int = READ_BYTES) -> tuple[list[str], int]:
    """At most `count` lines from the end, and where the next begins."""
    try:
        start = max(0, path.stat().st_size - most_bytes)
    except OSError:
        return [], 0
    lines, position = read_on(path, start, most_bytes)
    if start:
        lines = lines[1:]  # the first one is cut
    return lines[-count:] if count > 0 else [], position


def _text(line: bytes) -> str:
    """Only a line feed ends a line: what an environment prints may hold any other letter."""
    return line.removesuffix(b"\r").decode(errors="replace")
