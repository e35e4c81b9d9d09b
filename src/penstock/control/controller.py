"""The controller: the one thread that writes commands to the log, applies them and repairs what differs.

A command is accepted once it is synced in `commands.control`. Then, in one transaction, its id, its effect
and the log's offset are stored: after a crash it is either not applied yet, and will be, or applied once.
"""

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from penstock.control.evaluations import Evaluations
from penstock.control.keepers import Keepers
from penstock.control.ledger import APPLY_SECONDS, Ledger
from penstock.control.reconcile import CONCERNED, Reconciler
from penstock.control.recordings import Recordings
from penstock.errors import PenstockError, Stale, Unavailable
from penstock.executors.base import Executor, Exit
from penstock.lineage.database import Lineage
from penstock.lineage.rows import CommandRow, RunQuery, RunRow
from penstock.logs import Log
from penstock.loop.runs import sweep
from penstock.model.commands import Command
from penstock.model.run import LIVE
from penstock.stream.base import Stream

TURN_SECONDS = 0.2
LOOK_SECONDS = 2.0
"""Between looks at all runs that nobody asked about."""
AT_ONCE = 100
"""Runs that one turn looks at besides those asked about."""


@dataclass(slots=True)
class Waiting:
    """Somebody who waits for an answer."""

    url: str
    command: Command
    revisions: frozenset[int] | None = None
    """What the run's row must still be at, one of these."""
    answer: "Future[CommandRow]" = field(default_factory=Future)
    accepted: bool = False


class Controller:
    """Start it with `start`, end it with `close`; `submit` may be called from any thread."""

    def __init__(
        self, home: Path, lineage: Lineage, open_stream: Callable[[str], Stream], url: str, executor: Executor,
        most_runs: int = 16, on_change: Callable[[str], None] = lambda run: None,
    ) -> None:  # fmt: skip
        self.home, self.lineage, self.url = home, lineage, url
        self.keepers = Keepers(home)
        self._ledger = Ledger(home, lineage, open_stream)
        self._reconciler = Reconciler(home, lineage, self.keepers, self._stream_of, most_runs)
        self._evaluations = Evaluations(home, lineage, executor)
        self._recordings = Recordings(home, executor)
        self._queue: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
        self._on_change = on_change
        self._log = Log(process="controller")
        self._dirty: set[str] = set()
        """Runs that changed though nobody asked anything of them: looked at in turns."""
        self._looked_at, self._live = float("-inf"), 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="controller", daemon=True)
        self.trouble: str | None = None
        """Why the last turn could not do its work."""
        self.turned_at = time.monotonic()

    # -- from other threads ----------------------------------------------------------------------

    def start(self) -> None:
        """Catch up with all that was accepted before, then go on in a thread; raise where that cannot be."""
        sweep(self.home)
        self._ledger.scan(full=True)
        self._ledger.inbox(self.url)
        with self.lineage.read() as reads:
            self._dirty |= set(reads.names())  # a command may be applied and its repair not begun
        self._thread.start()

    def submit(self, command: Command, url: str, revisions: frozenset[int] | None = None) -> CommandRow:
        """Write the command to that stream's log and apply it; raise Unavailable where either cannot be had.

        With `revisions` the run must still be at one of them: otherwise Stale is raised and nothing is written.
        """
        return self.submit_all([(command, url)], revisions)[0]

    def submit_all(
        self, given: list[tuple[Command, str]], revisions: frozenset[int] | None = None
    ) -> list[CommandRow]:
        """Several at once: they are written and applied together."""
        if not self._thread.is_alive():
            raise Unavailable("the controller has ended; start the server again: penstock up")
        waiting = [Waiting(url, command, revisions) for command, url in given]
        for one in waiting:
            self._queue.put(one)
        until = time.monotonic() + APPLY_SECONDS + 20.0
        try:
            return [one.answer.result(timeout=max(0.1, until - time.monotonic())) for one in waiting]
        except TimeoutError as error:
            raise Unavailable(
                f"command {waiting[0].command.id} was not applied in time; look later: penstock commands"
            ) from error

    def behind(self) -> int:
        """Commands that wait: here and in the logs."""
        return self._queue.qsize() + self._ledger.behind()

    @property
    def closing(self) -> bool:
        return self._closing.is_set()

    def close(self, stop_runs: bool) -> list[str]:
        """End the thread; with `stop_runs` let the runs save their work and end. Returns those that did not."""
        self._closing.set()
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout=30.0)
        left = self.keepers.stop_all(self._managed()) if stop_runs else []
        if stop_runs:
            self._ledger.scan()
        self._evaluations.close()
        self._recordings.close()
        self._ledger.close()
        return left

    # -- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing.is_set():
            waiting = self._wait()
            try:
                self._turn(waiting)
                self.trouble = None
            except Exception as error:  # whatever it is, the next turn may do better, and runs go on
                self._fail(waiting, error)
            self.turned_at = time.monotonic()

    def _turn(self, waiting: list[Waiting]) -> None:
        self._ledger.check()
        for one in waiting:
            self._accept(one)
        # before commands are applied: a run that was begun without us is there before its start
        self._scan()
        rows = self._ledger.apply({one.command.id for one in waiting if one.accepted})
        for one in waiting:
            if one.accepted:
                self._answer(one, rows)
        self._repair()
        self._evaluations.tick()
        self._recordings.tick()

    def _scan(self) -> None:
        changed = self._ledger.scan()
        self._dirty |= set(changed)
        for run in changed:
            self._on_change(run)

    def _wait(self) -> list[Waiting]:
        """Those who came within a turn; all that wait already are taken together."""
        found: list[Waiting] = []
        try:
            first = self._queue.get(timeout=TURN_SECONDS)
            while True:
                if first is not None:
                    found.append(first)
                first = self._queue.get_nowait()
        except queue.Empty:
            return found

    def _accept(self, one: Waiting) -> None:
        try:
            if one.revisions is not None:
                self._check_revision(one.command.run, one.revisions)
            self._ledger.give(one.command, one.url)
            one.accepted = True
        except PenstockError as error:
            one.answer.set_exception(error)

    def _check_revision(self, run: str, revisions: frozenset[int]) -> None:
        """Nobody else changes rows while this thread looks."""
        with self.lineage.read() as reads:
            row = reads.run(run)
        if row is None or row.revision not in revisions:
            raise Stale(f"run {run} has changed since you looked; look again and decide anew")

    def _answer(self, one: Waiting, rows: dict[str, CommandRow]) -> None:
        if row := rows.get(one.command.id):
            one.answer.set_result(row)
        else:
            one.answer.set_exception(_later(one.command, "it was not read back in time"))

    def _fail(self, waiting: list[Waiting], error: Exception) -> None:
        self.trouble = str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
        self._log.error("controller_turn_failed", reason=self.trouble, kind=type(error).__name__)
        known = isinstance(error, PenstockError)
        words = self.trouble if known else "the controller had an accident; its log tells more"
        for one in waiting:
            if not one.answer.done():
                refusal = _later(one.command, words) if one.accepted else Unavailable(words)
                one.answer.set_exception(refusal)
        self._closing.wait(1.0)

    # -- repair ----------------------------------------------------------------------------------

    def _repair(self) -> None:
        """Look at runs that were asked about or changed, and now and then at all that should go on."""
        for run, (code, words) in self.keepers.reap().items():
            self._dirty.add(run)
            if words:
                self._log.warning("keeper_ended", run=run, reason=words)
            if code == Exit.HOPELESS:
                self._reconciler.fail(run, words)
        if time.monotonic() - self._looked_at > LOOK_SECONDS:
            self._looked_at = time.monotonic()
            self._look_around()
        asked = list(self._ledger.touched)
        self._ledger.touched.clear()
        for run in [*asked, *sorted(self._dirty - set(asked))[:AT_ONCE]]:
            self._dirty.discard(run)
            self._repair_one(run)

    def _look_around(self) -> None:
        """Count who goes on; of those that wait, the oldest are looked at while there is room."""
        found = self._concerned()
        waiting = [row.run for row in found if row.state == "pending"]
        going = {row.run for row in found if row.state in LIVE and row.state != "pending"}
        self._live = len(going | self.keepers.running())
        room = max(0, self._reconciler.most_runs - self._live)
        self._dirty |= {row.run for row in found if row.state != "pending"} | set(waiting[:room])

    def _repair_one(self, run: str) -> None:
        try:
            self._live += self._reconciler.repair(run, self._live)
        except Unavailable:
            self._dirty.add(run)
            raise
        except PenstockError as error:  # one broken run holds up no other
            self._log.error("repair_failed", run=run, reason=str(error))
            self._reconciler.fail(run, str(error))

    # -- runs and streams ------------------------------------------------------------------------

    def _stream_of(self, row: RunRow) -> Stream:
        return self._ledger.inbox(row.stream).stream

    def _managed(self) -> list[str]:
        return [row.run for row in self._concerned() if row.managed]

    def _concerned(self) -> list[RunRow]:
        """Runs that may need a look though nobody asked, oldest first, page by page."""
        found: list[RunRow] = []
        cursor: str | None = None
        while True:
            with self.lineage.read() as reads:
                page = reads.runs(RunQuery(states=CONCERNED, limit=500, sort="created_at", cursor=cursor))
            found += page.items
            if (cursor := page.next) is None:
                return found


def _later(command: Command, why: str) -> Unavailable:
    return Unavailable(
        f"command {command.id} is accepted and will be applied once, but not yet ({why}); ask again only with the "
        "same Idempotency-Key"
    )
