"""What must hold of a run's log, read from outside: the judge of the kill campaigns.

It trusts nobody: it reads the topics themselves and compares what actors were acknowledged, what the
log holds and what the history says was used. `test_checker.py` proves it with planted bugs.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

from penstock.model import topics
from penstock.model.codec import Frame, Schema, decode
from penstock.model.history import Claim, Entry, Update, decode_entry, lineage
from penstock.model.rollout import Hello, Rollout
from penstock.model.spec import StreamSpec
from penstock.stream.records import RecordReader
from penstock.wiring import open_stream

Place = tuple[int, int]


def check_run(
    home: Path,
    run: str,
    url: str = "embedded",
    acknowledged: Iterable[Place] = (),
    dead_letters: int = 0,
) -> dict[str, Any]:
    """Read a run's log and judge it; returns what was counted."""
    stream = open_stream(home, StreamSpec(url=url))
    entries = [entry for _, entry in _all(RecordReader(stream, topics.history(run), decode_entry))]
    reader = RecordReader(stream, topics.experiences(run), _rollout)
    places = [value for _, value in _all(reader) if value is not None]
    facts = judge(entries, places, acknowledged)
    damaged = reader.dead_letters
    assert damaged == dead_letters, f"{damaged} records of {run} are damaged, {dead_letters} were expected"
    stream.close()
    return facts


def judge(
    entries: Iterable[Entry], written: Iterable[Place], acknowledged: Iterable[Place] = ()
) -> dict[str, Any]:
    """The promises about history, log and acknowledgements; raise AssertionError where one is broken."""
    entries, rounds, promised = list(entries), Counter(written), Counter(acknowledged)
    gone = [place for place in promised if place not in rounds]
    assert not gone, f"rollouts acknowledged and not in the log: {gone[:3]}"
    again = [place for place, count in promised.items() if count > 1]
    assert not again, f"rollouts made and acknowledged twice: {again[:3]}"
    check_versions(entries)
    line = lineage(entries).updates
    used = [(item.slot, item.round) for update in line for item in update.used]
    steps = [update.version.step for update in line]
    assert steps == list(range(1, len(steps) + 1)), "the line of updates has a gap"
    twice = [place for place, count in Counter(used).items() if count > 1]
    assert not twice, f"rollouts learned from twice: {twice[:3]}"
    dropped = {
        (item.slot, item.round) for update in line for item in update.dropped if item.reason != "duplicate"
    }
    unknown = [place for place in used if place not in rounds]
    assert not unknown, f"rollouts learned from that are not in the log: {unknown[:3]}"
    lost = [place for place in rounds if place not in set(used) | dropped and place[1] < len(steps)]
    assert not lost, f"rollouts neither learned from nor dropped: {lost[:3]}"
    joined = {(slot, first) for update in line for slot, first in update.roster.items()}
    for slot in {slot for slot, _ in rounds}:
        mine = sorted(round for other, round in rounds if other == slot)
        for before, after in pairwise(mine):
            back = any(other == slot and before < first <= after for other, first in joined)
            assert after == before + 1 or back, f"slot {slot} has a gap in its rounds behind {before}"
    return {
        "updates": len(line),
        "acknowledged": len(promised),
        "rollouts": len(rounds),
        "used": len(used),
        "duplicates": sum(rounds.values()) - len(rounds),
        "epochs": max((entry.epoch for entry in entries if isinstance(entry, Claim)), default=0),
    }


def check_versions(entries: list[Entry]) -> None:
    """Epochs grow with every claim; within an epoch steps grow by one."""
    claims = [entry.epoch for entry in entries if isinstance(entry, Claim)]
    assert claims == sorted(set(claims)), "an epoch was claimed twice or out of order"
    last: dict[int, int] = {entry.epoch: entry.base for entry in entries if isinstance(entry, Claim)}
    for entry in entries:
        if isinstance(entry, Update):
            epoch, step = entry.version
            assert step == last[epoch] + 1, f"version {entry.version} follows step {last[epoch]}"
            last[epoch] = step


def _all(reader: Any) -> list[Any]:
    found = [item for batch in reader.drain() for item in batch]
    reader.close()
    return found


def _rollout(frame: Frame) -> Place | None:
    if frame.schema is Schema.HELLO:
        decode(frame, Hello)
        return None
    facts = Rollout.decode(frame).facts
    return facts.slot, facts.round
