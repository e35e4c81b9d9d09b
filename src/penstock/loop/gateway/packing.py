"""Trajectories of any length in, rollouts of few lengths out. Pure: no stream, no clock.

Rows keep the order of the log. A rollout's end may cut a trajectory, whose rest begins the next rollout. What
became of trajectories is counted in the order of the log too, and only once all before them are accounted for:
so the counts in a rollout speak of exactly what lies before its position, and whoever goes on from there
counts nothing twice.
"""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from penstock.loop.gateway.sizes import SMALLEST, most_rows, rollout_size
from penstock.loop.gateway.trajectory import Trajectory
from penstock.model.codec import Array
from penstock.model.rollout import Block, Episode, Packed, Start
from penstock.model.spaces import Spaces
from penstock.model.spec import ActorsSpec
from penstock.model.version import Version
from penstock.stream.base import Position

Place = tuple[int, int]
"""Partition and offset of a record."""
OUTCOMES = ("packed", "stale", "foreign", "duplicate")
"""What can become of a trajectory in the log; a duplicate is the copy of one that lies before it."""


class Due(NamedTuple):
    """A rollout that can be made."""

    steps: int
    counted: int
    """How many of the trajectories that wait count for it."""


@dataclass(slots=True)
class Waiting:
    """A trajectory with rows that are in no rollout yet."""

    place: Place
    trajectory: Trajectory
    row: int
    """The first row that is not used."""
    usable: list[tuple[int, int]]
    """Stretches of rows that can be learned from, without those before `row`."""
    dropped: str | None = None
    """Why it is not packed; it is counted when all before it are."""

    @property
    def rows(self) -> int:
        return sum(stop - start for start, stop in self.usable)


@dataclass(slots=True)
class Packer:
    """Packs the trajectories of one run."""

    spaces: Spaces
    actors: ActorsSpec
    on_policy: bool
    position: Position = field(default_factory=dict)
    """Behind the last trajectory that was added."""
    counts: Counter[str] = field(default_factory=Counter)
    waiting: deque[Waiting] = field(default_factory=deque)
    carried: int = 0
    first_row: int = 0
    """Rows of the first trajectory that an earlier gateway has packed."""

    @classmethod
    def go_on(cls, spaces: Spaces, actors: ActorsSpec, on_policy: bool, packed: Packed | None) -> "Packer":
        """Where the rollout that carried `packed` ended; feed it the log from that position on."""
        if packed is None:
            return cls(spaces, actors, on_policy)
        return cls(
            spaces, actors, on_policy, dict(packed.position), Counter(packed.counts), carried=packed.carried,
            first_row=packed.row,
        )  # fmt: skip

    def add(self, place: Place, trajectory: Trajectory, *, duplicate: bool = False) -> None:
        """The next trajectory of the log."""
        row, self.first_row = self.first_row, 0
        usable = [(max(row, start), stop) for start, stop in self._stretches(trajectory) if stop > row]
        item = Waiting(place, trajectory, row, usable)
        if duplicate or not usable:
            item.dropped = "duplicate" if duplicate else "foreign"
        self.waiting.append(item)
        self.position = self.position | {place[0]: place[1] + 1}
        self._count_dropped()

    def drop_stale(self, round: int, max_lag: int) -> None:
        """Let go of what would be too old for this round's update."""
        for item in self.waiting:
            if item.dropped is None and round - item.trajectory.facts.version.step > max_lag:
                item.dropped = "stale"
        self._count_dropped()

    def due(self) -> Due | None:
        """The next rollout, where enough has come; it depends on the order of trajectories alone."""
        most, wanted = most_rows(self.spaces), self.actors.trajectories
        if wanted is None:
            most = min(most, self.actors.rollout)
        rows = new = 0
        for index, item in enumerate(self.waiting):
            if item.dropped is not None:
                continue
            rows += item.rows
            new += index >= self.carried
            if rows >= most:
                return Due(most, index + 1)
            if wanted is not None and new >= wanted and rows >= SMALLEST:
                return Due(rollout_size(rows), index + 1)
        return None

    @property
    def full(self) -> bool:
        """Whether there is enough to go on with: then nothing more need be held in memory."""
        return self.due() is not None

    def pack(self, due: Due) -> "Pack":
        """Make the rollout that is due."""
        filling = _Filling(Block.allocate(self.spaces, due.steps, 1), self._start())
        self.carried = due.counted
        while filling.at < due.steps:
            item = self.waiting[0]
            if item.dropped is None:
                filling.take(item, self.counts["episodes"])
                if item.usable:
                    break
            self._let_go()
        self.counts["rows"] += due.steps
        self._count_dropped()
        return filling.finished(self.packed())

    def packed(self) -> Packed:
        """Where the next one goes on."""
        position, row = dict(self.position), 0
        if self.waiting:
            partition, offset = self.waiting[0].place
            position[partition], row = offset, self.waiting[0].row
        return Packed(position, row, self.carried, dict(self.counts))

    def outcomes(self) -> dict[str, int]:
        """What became of trajectories so far, those that still wait included."""
        dropped = Counter(item.dropped for item in self.waiting if item.dropped is not None)
        return {name: self.counts[name] + dropped[name] for name in OUTCOMES}

    def _stretches(self, trajectory: Trajectory) -> list[tuple[int, int]]:
        """Rows that can be learned from: all, or for an on-policy algorithm those that its policy decided."""
        foreign = trajectory.columns.get("foreign")
        if foreign is None or not self.on_policy:
            return [(0, trajectory.facts.length)]
        edges = np.flatnonzero(np.diff(np.concatenate(([True], foreign, [True]))))
        return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]

    def _start(self) -> Start:
        """Where the first row stands in its episode."""
        item = next(item for item in self.waiting if item.dropped is None)
        facts, row = item.trajectory.facts, item.usable[0][0]
        reward = facts.earlier_reward + float(item.trajectory.columns["rewards"][:row].sum(dtype=np.float64))
        return Start(self.counts["episodes"], facts.offset + row, reward)

    def _count_dropped(self) -> None:
        """Count those at the head that are not packed."""
        while self.waiting and self.waiting[0].dropped is not None:
            self._let_go()

    def _let_go(self) -> None:
        """The first trajectory is accounted for."""
        item = self.waiting.popleft()
        self.carried = max(0, self.carried - 1)
        self.counts[item.dropped or "packed"] += 1
        if item.dropped is None and not item.trajectory.facts.continues:
            self.counts["episodes"] += 1


@dataclass(frozen=True, slots=True)
class Pack:
    """One rollout, but for what only the process that writes it knows."""

    columns: dict[str, Array]
    steps: int
    version: Version
    """The oldest that decided in it."""
    start: Start
    episodes: tuple[Episode, ...]
    packed: Packed


@dataclass(slots=True)
class _Filling:
    """A block that is filled row by row."""

    block: Block
    start: Start
    at: int = 0
    version: Version | None = None

    def take(self, item: Waiting, episode: int) -> None:
        """As many rows of it as fit."""
        facts = item.trajectory.facts
        self.version = facts.version if self.version is None else min(self.version, facts.version)
        while item.usable and self.at < self.block.steps:
            start, stop = item.usable.pop(0)
            end = start + min(stop - start, self.block.steps - self.at)
            self._copy(item.trajectory, start, end)
            item.row = end
            if end < stop:
                item.usable.insert(0, (end, stop))
                self._show_last(item.trajectory, end)
                return
            self._end(item.trajectory, stop)
        if not item.usable and not facts.continues:
            rewards = item.trajectory.columns["rewards"].sum(dtype=np.float64)
            total, length = facts.earlier_reward + float(rewards), facts.offset + facts.length
            self.block.episodes.append(Episode(0, episode, total, length, self.at - 1))

    def finished(self, packed: Packed) -> Pack:
        assert self.version is not None
        columns, episodes = self.block.columns(), tuple(self.block.episodes)
        return Pack(columns, self.block.steps, self.version, self.start, episodes, packed)

    def _copy(self, trajectory: Trajectory, start: int, end: int) -> None:
        block, columns, here = self.block, trajectory.columns, slice(self.at, self.at + end - start)
        for name, rows in block.observations.items():
            rows[here, 0] = columns[name][start:end]
        for name in ("actions", "log_probs", "rewards"):
            getattr(block, name)[here, 0] = columns[name][start:end]
        if block.masks is not None:
            block.masks[here, 0] = columns["masks"][start:end]
        self.at = here.stop

    def _end(self, trajectory: Trajectory, stop: int) -> None:
        """The row before this one ended a stretch: its task ended, or it was cut off."""
        t, facts = self.at - 1, trajectory.facts
        if stop == facts.length and facts.terminated:
            self.block.terminated[t, 0] = True
            self._show_last(trajectory, stop - 1)  # nobody looks at it
            return
        observation, mask = _seen(trajectory, stop, self.block)
        self.block.truncated[t, 0] = True
        self.block.finals.append((t, 0, observation, mask))
        self._show_last(trajectory, stop)

    def _show_last(self, trajectory: Trajectory, row: int) -> None:
        """What comes after the newest row, in case it is the rollout's last."""
        if self.at == self.block.steps:
            observation, mask = _seen(trajectory, row, self.block)
            for name, rows in self.block.observations.items():
                rows[self.at, 0] = observation[name]
            if self.block.masks is not None:
                self.block.masks[self.at, 0] = mask


def _seen(trajectory: Trajectory, row: int, block: Block) -> tuple[dict[str, Array], Array | None]:
    """What the policy saw, or would have seen, in this row; the one behind the last is the final one."""
    columns, is_final = trajectory.columns, row == trajectory.facts.length

    def look(name: str) -> Array:
        return columns[f"final/{name}"] if is_final else columns[name][row]

    mask = None if block.masks is None else look("masks")
    return {name: look(name) for name in block.observations}, mask


def accounted(counts: Mapping[str, int]) -> int:
    """How many trajectories these counts speak of."""
    return sum(counts.get(name, 0) for name in OUTCOMES)
