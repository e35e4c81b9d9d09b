"""The control plane in one object: what REST, WebSocket, MCP and `penstock up` hold in their hands."""

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from penstock.control.commander import Commander
from penstock.control.controller import Controller
from penstock.control.feed import Feed
from penstock.control.plays import Plays
from penstock.control.pulse import Pulse
from penstock.control.reads import Reads
from penstock.control.tokens import Tokens
from penstock.control.views import ServerView
from penstock.errors import PenstockError
from penstock.executors.base import Executor
from penstock.lineage.database import Lineage
from penstock.model.spec import Spec
from penstock.stream.base import Stream

STUCK_SECONDS = 30.0


@dataclass(slots=True)
class Control:
    """Open with `open_control`; close it when done."""

    home: Path
    version: str
    lineage: Lineage
    controller: Controller
    reads: Reads
    commander: Commander
    tokens: Tokens
    feed: Feed
    plays: Plays
    pulse: Pulse
    executor: Executor
    started_at: float = field(default_factory=time.time)

    def server(self) -> ServerView:
        """What this server is and how it does."""
        with self.lineage.read() as reads:
            runs = reads.count_by_state()
        return ServerView(
            version=self.version, started_at=self.started_at, host=os.uname().nodename, pid=os.getpid(),
            home=str(self.home), executor=self.executor.place, stream=self.controller.url,
            stream_seconds=self.pulse.seconds, database=self.lineage.shown_url, runs=runs,
            commands_behind=self.controller.behind(), disk_free_bytes=shutil.disk_usage(self.home).free,
            viewers=self.feed.viewers, checks=self.ready(),
        )  # fmt: skip

    def ready(self) -> dict[str, str]:
        """Part → ok, or what is wrong."""
        return {
            "database": self._database(),
            "controller": self._controller(),
            "stream": self.pulse.check(),
        }

    def close(self, stop_runs: bool) -> list[str]:
        """End it; with `stop_runs` runs save their work and end too. Returns those that did not in time."""
        self.plays.close()
        self.pulse.close()
        self.feed.close()
        left = self.controller.close(stop_runs)
        self.lineage.close()
        return left

    def _database(self) -> str:
        try:
            with self.lineage.read() as reads:
                reads.revision()
        except PenstockError as error:
            return str(error)
        return "ok"

    def _controller(self) -> str:
        still = time.monotonic() - self.controller.turned_at
        if still > STUCK_SECONDS:
            return f"it has not turned for {still:.0f} s; its log or its database may be away"
        return self.controller.trouble or "ok"


def open_control(
    home: Path, version: str, database: str, url: str, open_stream: Callable[[str], Stream],
    open_run_stream: Callable[[Spec], Stream], executor: Executor, most_runs: int,
) -> Control:  # fmt: skip
    """Open the database, catch up with the log, begin to keep runs going."""
    lineage = Lineage(database)
    try:
        feed = Feed(home)
        controller = Controller(home, lineage, open_stream, url, executor, most_runs, feed.changed)
        tokens = Tokens(home, lineage)
        commander = Commander(home, controller, tokens, open_run_stream)
        reads = Reads(home, lineage)
        controller.start()
    except BaseException:
        lineage.close()
        raise
    plays = Plays(home, executor)
    pulse = Pulse(lambda: open_stream(url))
    pulse.start()
    return Control(home, version, lineage, controller, reads, commander, tokens, feed, plays, pulse, executor)
