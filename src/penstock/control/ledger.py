"""Commands of all streams: written to their logs, and applied to the database once.

Effects, ids and a log's offset are stored in one transaction. Whatever goes wrong in between, the log is read
again from where the database stands, so what was accepted is applied later, once, and nothing is passed over.
"""

import time
from collections.abc import Callable
from pathlib import Path

from penstock.control.applying import Applying
from penstock.control.inbox import Inbox
from penstock.control.index import Indexer
from penstock.lineage.database import Lineage
from penstock.lineage.rows import CommandRow
from penstock.logs import Log
from penstock.model.commands import Command
from penstock.stream.base import Position, Record, Stream

APPLY_SECONDS = 10.0
"""How long the answer to a command may wait for its application."""

Batches = list[list[tuple[Record, Command]]]


class Ledger:
    """Used by the controller's thread alone."""

    def __init__(self, home: Path, lineage: Lineage, open_stream: Callable[[str], Stream]) -> None:
        self._home, self._lineage, self._open_stream = home, lineage, open_stream
        self._inboxes: dict[str, Inbox] = {}
        self._indexer = Indexer(home, lineage)
        self._whole = True
        """Whether the database holds all that was applied; not while it is being made again."""
        self.touched: dict[str, None] = {}
        """Runs that commands were applied to, in that order; whoever looks at them clears it."""

    def scan(self, full: bool = False) -> list[str]:
        """Bring what changed in runs' folders into the database; returns those runs."""
        return self._indexer.scan(full)

    def give(self, command: Command, url: str) -> None:
        """Write a command to a stream's log; it is accepted once this returns."""
        self.inbox(url).give(command)

    def check(self) -> None:
        """Raise Unavailable where the database could not take a command now, so that none is accepted."""
        if self._lineage.lost() or not self._whole:
            self._rebuild()
        with self._lineage.write():
            pass

    def apply(self, asked: set[str]) -> dict[str, CommandRow]:
        """Apply what came in all streams, and wait a little for what was `asked` just now."""
        rows: dict[str, CommandRow] = {}
        until = time.monotonic() + APPLY_SECONDS
        while True:
            found = [
                self._apply_some(inbox, rows, 0.02 if asked - rows.keys() else 0) for inbox in self._all()
            ]
            if not any(found) and (not asked - rows.keys() or time.monotonic() > until):
                return rows

    def behind(self) -> int:
        """Commands in the logs that wait to be applied."""
        return sum(inbox.behind() for inbox in self._all())

    def inbox(self, url: str) -> Inbox:
        """The commands of a stream; met for the first time, all that it holds is history."""
        if url not in self._inboxes:
            inbox = Inbox(self._open_stream(url), lambda: self._position(url))
            try:
                self._store(inbox, inbox.history(), {}, past=self._position(url) is None)
            except BaseException:
                inbox.close()
                raise
            self._inboxes[url] = inbox
        return self._inboxes[url]

    def close(self) -> None:
        for inbox in self._all():
            inbox.close()

    def _position(self, url: str) -> Position | None:
        with self._lineage.read() as reads:
            return reads.position(url)

    def _all(self) -> list[Inbox]:
        return list(self._inboxes.values())

    def _apply_some(self, inbox: Inbox, rows: dict[str, CommandRow], timeout: float) -> bool:
        records = inbox.read(timeout)
        if records:
            self._store(inbox, [records], rows, past=False)
        return bool(records)

    def _store(self, inbox: Inbox, batches: Batches, rows: dict[str, CommandRow], past: bool) -> None:
        """Effects, ids and offset: all of them, or none and they are read again."""
        applied: dict[str, CommandRow] = {}
        try:
            with self._lineage.write() as writer:
                applying = Applying(writer, self._home, inbox.url, past)
                for batch in batches:
                    for record, command in batch:
                        applied[command.id] = applying.apply(record, command)
                writer.set_position(inbox.url, inbox.position())
        except BaseException:
            inbox.forget()  # where it stands is in the database; it is asked when reading goes on
            raise
        rows |= applied
        self.touched |= dict.fromkeys(row.run for row in applied.values())

    def _rebuild(self) -> None:
        """The database is gone: make it again from the folders and the logs, as often as it takes."""
        Log(process="controller").warning("database_rebuilt", database=self._lineage.shown_url)
        self._whole = False
        if self._lineage.lost():
            self._lineage.reopen()
        self._indexer = Indexer(self._home, self._lineage)
        self._indexer.scan(full=True)
        for inbox in self._all():
            inbox.rewind(None)
            self._store(inbox, inbox.history(), {}, past=True)
        self._whole = True
