"""Which run learns a client's policy: the one that was begun for it, until that is deleted.

Reads from: `runs`. A fork or a replay is a run of its own and never the clients': what they act with does not change
because somebody tries something.
"""

import contextlib

from penstock.errors import Damaged
from penstock.loop.registry import RunRecord, registered
from penstock.model.clients import is_client, policy_of
from penstock.model.codec import decode, open_frame
from penstock.stream.base import Stream


def owners(stream: Stream) -> dict[str, list[RunRecord]]:
    """Policy → its runs that clients could be served by, in the order of the log; usually one."""
    found: dict[str, list[RunRecord]] = {}
    for record in sorted(registered(stream).values(), key=lambda record: record.offset):
        with contextlib.suppress(Damaged):
            run = decode(open_frame(record.value), RunRecord)
            if is_client(run.spec.environment.id) and run.spec.origin is None:
                found.setdefault(policy_of(run.spec.environment.id), []).append(run)
    return found


def owner(runs: list[RunRecord], served: str | None) -> RunRecord | None:
    """The one that was served last, else the first of the log: no clock is asked, so it stays the same."""
    return next((run for run in runs if run.run == served), runs[0] if runs else None)
