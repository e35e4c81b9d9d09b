"""The database, open: one writer at a time, any number of readers, in any number of threads and processes."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import ConfigError, Damaged, Unavailable
from penstock.lineage import engines, urls
from penstock.lineage.asking import Specs
from penstock.lineage.faults import translated
from penstock.lineage.migrate import migrate
from penstock.lineage.reading import Reader
from penstock.lineage.writing import Writer


class Lineage:
    """Opening brings the tables to this version. Threads may share one; a forked child opens its own.

    Raises ConfigError where the address, the file or its version is wrong, Unavailable where the database
    is away or locked.
    """

    def __init__(self, url: str) -> None:
        self._url = urls.parse(url)
        self.shown_url = urls.shown(self._url)
        """Its address as it may be printed."""
        is_file = self._url.get_backend_name() == "sqlite"
        self._file = Path(str(self._url.database)) if is_file else None
        self._open()

    def _open(self) -> None:
        if self._file is not None:
            _make_private(self._file)
        self._writes = engines.engine(self._url, writes=True)
        self._reads = engines.engine(self._url, writes=False)
        self._specs: Specs = {}
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise
        self._opened = _identity(self._file)

    def _prepare(self) -> None:
        try:
            with translated(self.shown_url):
                if self._file is not None:
                    engines.set_wal(self._writes)
                migrate(self._writes, self.shown_url)
        except Damaged as error:  # nothing was lost yet: a person chose this file
            raise ConfigError(str(error)) from error

    @contextlib.contextmanager
    def write(self) -> Iterator[Writer]:
        """One transaction: all of it is stored at the end, nothing where something is raised.

        Waits for other writers some seconds, then raises Unavailable. Not to be nested.
        """
        self._refuse_lost()
        with translated(self.shown_url), self._writes.begin() as connection:
            yield Writer(connection, self.shown_url, self._specs)

    @contextlib.contextmanager
    def read(self) -> Iterator[Reader]:
        """One snapshot; writers neither wait for it nor are seen in it."""
        self._refuse_lost()
        with translated(self.shown_url), self._reads.begin() as connection:
            yield Reader(connection, self.shown_url, self._specs)

    def lost(self) -> bool:
        """Whether its file was removed or replaced: it must be opened anew, and the index be made again."""
        return self._file is not None and _identity(self._file) != self._opened

    def reopen(self) -> None:
        """Open what is there now, after it was lost; an empty one where nothing is. Other threads may go on."""
        before = (self._writes, self._reads)
        self._open()
        for engine in before:
            engine.dispose()

    def close(self) -> None:
        """Give all connections back; those in use end with their transaction."""
        self._writes.dispose()
        self._reads.dispose()

    def _refuse_lost(self) -> None:
        """What was written into a removed file would be gone without a word."""
        if self.lost():
            raise Unavailable(
                f"the database {self.shown_url} was removed or replaced; it is being made again"
            )


def _make_private(file: Path) -> None:
    """The file, for its owner only; SQLite gives those beside it the same mode."""
    try:
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
        if file.stat().st_mode & 0o077:
            file.chmod(0o600)
    except OSError as error:
        raise ConfigError(f"the database {file} cannot be opened: {error.strerror or error}") from error


def _identity(file: Path | None) -> tuple[int, int] | None:
    try:
        found = None if file is None else os.stat(file)
    except OSError:
        return None
    return None if found is None else (found.st_dev, found.st_ino)
