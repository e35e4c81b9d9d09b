"""What is added to a file, line by line, by someone who holds no descriptor and no more than a little of it."""

import contextlib
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

READ_BYTES = 256 << 10
"""The most that is read at once; where more was added, the newest is taken and the rest counted."""

MOST_LOGS = 64
"""Log files of one run that are followed."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Whole lines without their ends, and what was passed over to reach them."""

    lines: list[bytes] = field(default_factory=list)
    skipped: int = 0
    """Bytes that were left out because too much was added."""
    end: int = 0
    """Where in the file the next line begins."""


class Tail:
    """Follows one file from its end, or from its start. A file that shrank or was replaced begins anew."""

    def __init__(self, path: Path, *, from_start: bool) -> None:
        self._path = os.fspath(path)
        self._position, self._inode = 0, 0
        self._torn = False
        """Whether the position is inside a line whose beginning was not read."""
        if not from_start:
            self._to_end()

    def read(self) -> Lines:
        """What was added since the last call; nothing where the file is gone or is no file."""
        try:
            now = os.stat(self._path)
        except OSError:
            return Lines(end=self._position)
        if now.st_size == self._position and now.st_ino == self._inode:
            return Lines(end=self._position)
        if not stat.S_ISREG(now.st_mode):
            return Lines(end=self._position)
        if now.st_ino != self._inode or now.st_size < self._position:
            self._position, self._torn = 0, False
        self._inode = now.st_ino
        return self._read_on(now.st_size)

    def _read_on(self, size: int) -> Lines:
        skipped = max(0, size - self._position - READ_BYTES)
        if skipped:
            self._position, self._torn = self._position + skipped, True
        content = self._content()
        if self._torn and content:
            cut = content.find(b"\n") + 1
            if cut == 0 and len(content) < READ_BYTES:
                return Lines(skipped=skipped, end=self._position)  # the rest of that line is not there yet
            cut = cut or len(content)
            self._torn = not content[:cut].endswith(b"\n")
            self._position, content, skipped = self._position + cut, content[cut:], skipped + cut
        end = content.rfind(b"\n") + 1
        if end == 0 and len(content) >= READ_BYTES:  # no line is that long: pass over it
            self._position, self._torn = self._position + len(content), True
            return Lines(skipped=skipped + len(content), end=self._position)
        self._position += end
        return Lines(content[:end].split(b"\n")[:-1], skipped, self._position)

    def _content(self) -> bytes:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return b""
        try:
            return os.pread(descriptor, READ_BYTES, self._position)
        except OSError:
            return b""
        finally:
            os.close(descriptor)

    def _to_end(self) -> None:
        with contextlib.suppress(OSError):
            now = os.stat(self._path)
            if not stat.S_ISREG(now.st_mode):
                return
            self._inode, self._position = now.st_ino, max(0, now.st_size - 1)
            before = self._content()[:1]  # the byte before the end tells whether a line is unfinished
            self._position, self._torn = now.st_size, before not in (b"", b"\n")


class LogTails:
    """Follows every log of a folder; logs that appear later are read from their start."""

    def __init__(self, folder: Path, *, from_start: bool) -> None:
        self._folder = folder
        self._tails: dict[str, Tail] = {}
        self._find(from_start=from_start)

    def read(self) -> dict[str, Lines]:
        """Process → its new lines; processes without any are left out."""
        self._find(from_start=True)
        found = {name: tail.read() for name, tail in self._tails.items()}
        return {name: lines for name, lines in found.items() if lines.lines or lines.skipped}

    def _find(self, *, from_start: bool) -> None:
        try:
            names = [name for name in os.listdir(self._folder) if name.endswith(".log")]
        except OSError:
            return
        for name in sorted(names)[:MOST_LOGS]:
            process = name.removesuffix(".log")
            if process not in self._tails and len(self._tails) < MOST_LOGS:
                self._tails[process] = Tail(self._folder / name, from_start=from_start)
