"""What must hold of a policy that clients act for: the judge of gateways that are killed and crowded."""

import time
from collections import Counter
from pathlib import Path
from typing import Any

from penstock.loop.gateway.packing import accounted
from penstock.loop.gateway.queue import decode_facts
from penstock.model import topics
from penstock.model.codec import decode, open_frame
from penstock.model.rollout import Rollout, decode_experience
from penstock.model.spec import StreamSpec
from penstock.stream.base import Stream
from penstock.stream.records import RecordReader
from penstock.wiring import open_stream

Place = tuple[str, int]
"""Source and sequence of a trajectory."""
EMBEDDED = "embedded"
"""The log to judge, where nobody names another: both keep the same promise, so both have the same judge."""


def told(home: Path, run: str, count: int, seconds: float = 60.0, *, url: str = EMBEDDED) -> dict[str, float]:
    """The gateway's own figures, once they speak of everything that was acknowledged."""
    until, figures = time.monotonic() + seconds, dict[str, float]()
    while figures.get("gateway/received", -1) < count and time.monotonic() < until:
        stream = open_stream(home, StreamSpec(url=url))
        figures = _newest_figures(stream, run)
        stream.close()
        time.sleep(0.2)
    return figures


def check_accounts(
    home: Path, run: str, acknowledged: set[Place], received: float, *, url: str = EMBEDDED
) -> dict[str, int]:
    """Every acknowledged trajectory is stored once, and packed or dropped once; returns what was counted."""
    stream = open_stream(home, StreamSpec(url=url))
    try:
        stored = Counter[Place]()
        for batch in RecordReader(stream, topics.trajectories(run), decode_facts).drain():
            stored.update((facts.source, facts.sequence) for _, facts in batch)
        rollouts = list[Rollout]()
        for found in RecordReader(stream, topics.experiences(run), decode_experience).drain():
            rollouts += [item for _, item in found if isinstance(item, Rollout)]
    finally:
        stream.close()
    twice = [place for place, count in stored.items() if count > 1]
    assert not twice, f"{run}: stored twice: {twice[:3]}"
    lost = acknowledged - stored.keys()
    assert not lost, f"{run}: acknowledged and not in the log: {sorted(lost)[:3]}"
    rounds = [rollout.facts.round for rollout in rollouts]
    assert rounds == sorted(set(rounds)), f"{run}: a round was made twice"
    packed = rollouts[-1].facts.packed
    assert packed is not None
    assert accounted(packed.counts) == packed.position[0], f"{run}: counts do not speak of what was packed"
    assert sum(rollout.facts.steps for rollout in rollouts) == packed.counts["rows"]
    episodes = [episode.index for rollout in rollouts for episode in rollout.facts.episodes]
    assert episodes == list(range(len(episodes))), f"{run}: an episode was packed twice, or lost"
    assert received == len(stored), (
        f"{run}: the gateway tells of {received:g} trajectories, {len(stored)} are stored"
    )
    return {
        "acknowledged": len(acknowledged),
        "stored": len(stored),
        "rollouts": len(rollouts),
        "accounted": accounted(packed.counts),
        **{name: packed.counts.get(name, 0) for name in ("packed", "stale", "foreign", "rows")},
    }


def _newest_figures(stream: Stream, run: str) -> dict[str, Any]:
    for record in stream.backwards(topics.METRICS_ACTORS, run):
        report = decode(open_frame(record.value), dict[str, Any])
        if "gateway" in report:
            return dict(report["gateway"])
    return {}
