"""Rollouts in (newest first), the unfinished episode of every environment out.

Of the observations only digests are kept: an episode of images would not fit into memory.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import groupby

import numpy as np

from penstock.model.codec import Array
from penstock.model.rollout import Rollout
from penstock.model.spaces import Spaces


@dataclass(slots=True)
class Trail:
    """One unfinished episode: its number, its actions [elapsed, …] and elapsed+1 digests."""

    episode: int
    elapsed: int
    actions: Array
    digests: list[bytes]
    problem: str = ""
    """Why it cannot be replayed, or nothing."""


@dataclass(slots=True)
class _Search:
    """A trail being gathered backwards; `missing` steps have not been found yet."""

    episode: int
    elapsed: int
    missing: int
    digests: list[bytes]
    chunks: list[Array] = field(default_factory=list)
    problem: str = ""


def read_trails(newest_first: Iterator[Rollout], spaces: Spaces, environments: int) -> list[Trail]:
    """The trail of each environment, reading no further back than the oldest unfinished episode.

    Empty without any rollout. Of several records of a round the one written first counts, as it does
    for the learner.
    """
    searches: list[_Search] | None = None
    for rollout in _first_of_each_round(newest_first):
        if searches is None:
            searches = [_begin(rollout, spaces, b) for b in range(environments)]
        for b, search in enumerate(searches):
            if search.missing and not search.problem:
                _extend(search, rollout, spaces, b)
        if not any(search.missing and not search.problem for search in searches):
            break
    return [_trail(search, spaces) for search in searches or ()]


def row_digest(rows: Mapping[str, Array], masks: Array | None, b: int) -> bytes:
    """A digest of what environment `b` shows, to the bit."""
    digest = blake2b(digest_size=8)
    for name in rows:
        digest.update(rows[name][b].tobytes())
    if masks is not None:
        digest.update(masks[b].tobytes())
    return digest.digest()


def _first_of_each_round(newest_first: Iterator[Rollout]) -> Iterator[Rollout]:
    for _, same in groupby(newest_first, lambda rollout: rollout.facts.round):
        *_, first = same
        yield first


def _begin(rollout: Rollout, spaces: Spaces, b: int) -> _Search:
    """Where environment `b` stood after `rollout`."""
    if b >= rollout.facts.environments:
        return _Search(-1, 0, 0, [], problem="the log has fewer environments")
    episode, elapsed = _after(rollout, b)
    search = _Search(episode, elapsed, elapsed, [])
    last = {name: rollout.columns.get(f"last/{name}") for name in spaces.observation.columns}
    masks = rollout.columns.get("last/masks")
    if any(column is None for column in last.values()) or (spaces.action.masked and masks is None):
        search.problem = "the log was written with other spaces"
        return search
    rows = {name: column for name, column in last.items() if column is not None}
    search.digests.append(row_digest(rows, masks, b))
    return search


def _after(rollout: Rollout, b: int) -> tuple[int, int]:
    """Episode and steps made in it, after the last row."""
    start = rollout.facts.starts[b]
    ends = np.flatnonzero(rollout.columns["terminated"][:, b] | rollout.columns["truncated"][:, b])
    if len(ends):
        return start.episode + len(ends), rollout.facts.steps - 1 - int(ends[-1])
    return start.episode, start.elapsed + rollout.facts.steps


def _extend(search: _Search, rollout: Rollout, spaces: Spaces, b: int) -> None:
    """Take the rows of `rollout` that belong to the end of what is still missing."""
    if b >= rollout.facts.environments or _after(rollout, b) != (search.episode, search.missing):
        search.problem = f"the log has a gap within episode {search.episode}"
        return
    columns = {name: rollout.columns.get(name) for name in spaces.observation.columns}
    masks = rollout.columns.get("masks")
    if any(column is None for column in columns.values()) or (spaces.action.masked and masks is None):
        search.problem = "the log was written with other spaces"
        return
    steps = rollout.facts.steps
    first = max(0, steps - search.missing)
    search.chunks.append(rollout.columns["actions"][first:, b].copy())
    for t in reversed(range(first, steps)):
        rows = {name: column[t] for name, column in columns.items() if column is not None}
        search.digests.append(row_digest(rows, None if masks is None else masks[t], b))
    search.missing -= steps - first


def _no_actions(spaces: Spaces) -> Array:
    column = spaces.action.column
    return np.zeros((0, *column.shape), column.dtype)


def _trail(search: _Search, spaces: Spaces) -> Trail:
    problem = search.problem
    if search.missing and not problem:
        problem = f"the log begins within episode {search.episode}"
    actions = np.concatenate([_no_actions(spaces), *reversed(search.chunks)])
    return Trail(search.episode, search.elapsed, actions, search.digests[::-1], problem)
