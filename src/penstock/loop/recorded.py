"""What of a run's past can be had again: which versions lie on its line, and where to begin for each.

Reads from: `history.<run>`, `experiences.<run>` and the names of the run's checkpoints. A version can be
had from a checkpoint at or before it, as long as the history and the log hold every update between.
The beginning of a run is a checkpoint too: fresh weights, which follow from its seed.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from penstock.errors import ConfigError, NotFound
from penstock.loop.runs import RunFolder
from penstock.model import topics
from penstock.model.codec import Frame, Schema, decode_columns
from penstock.model.history import Claim, Entry, Update, decode_entry, lineage
from penstock.model.version import Version
from penstock.stream.base import Position, Stream
from penstock.stream.records import RecordReader

BATCH = 64
"""Rollouts read at a time: some may be megabytes."""


def read_history(stream: Stream, run: str) -> list[Entry]:
    """Every claim and update, oldest first."""
    reader = RecordReader(stream, topics.history(run), decode_entry)
    try:
        return [entry for batch in reader.drain(1024) for _, entry in batch]
    finally:
        reader.close()


class Place(msgspec.Struct, frozen=True):
    """Of a recorded rollout, what tells it from all others."""

    slot: int
    round: int
    version: Version


@dataclass(frozen=True, slots=True)
class Past:
    """One run's line of updates and the checkpoints on it."""

    run: str
    updates: tuple[Update, ...]
    """Oldest first, without gaps; the first may be gone."""
    checkpoints: tuple[Version, ...]
    """Those on the line, by step."""
    bases: frozenset[Version] = frozenset()
    """Versions that a learner published when it started: those it went on from, under its own epoch."""
    begins: bool = True
    """Whether step 0 follows from the seed; that of a fork does not."""

    @property
    def newest(self) -> Version:
        """The greatest version; raise NotFound where nothing was learned yet."""
        known = [update.version for update in self.updates[-1:]] + list(self.checkpoints)
        if not known:
            raise NotFound(f"run {self.run} has recorded no update yet; there is nothing to go back to")
        return max(known, key=lambda version: (version.step, version.epoch))

    def find(self, text: str, best: Version | None = None) -> Version:
        """`newest`, `best`, STEP or EPOCH.STEP as a version of the line; raise with what there is instead."""
        newest = self.newest
        if text == "newest" or (text == "best" and best is None):
            return newest
        text = str(best) if text == "best" else text
        if not re.fullmatch(r"([0-9]{1,9}\.)?[0-9]{1,9}", text):
            raise ConfigError(
                f"{text!r} is not a version; write EPOCH.STEP, as in {newest}, or just the step, as in {newest.step}"
            )
        step = int(text.rpartition(".")[2])
        there = self.at(step)
        if step > newest.step:
            raise NotFound(f"run {self.run} has learned up to version {newest}, not yet to {text}")
        if there is None and not self.begins and self.checkpoints and step < self.checkpoints[0].step:
            raise NotFound(
                f"{self.run} is a fork and begins at {self.checkpoints[0]}; {text} is its origin's"
            )
        if there is None:
            raise NotFound(f"the history of {self.run} no longer holds version {text}")
        if "." in text and not self._holds(Version.parse(text)):
            raise NotFound(f"version {text} is off the line of {self.run}, which has {there} at that step")
        return there

    def at(self, step: int) -> Version | None:
        """The version of that step."""
        if self.updates and 0 < (place := step - self.updates[0].version.step + 1) <= len(self.updates):
            return self.updates[place - 1].version
        if kept := [version for version in self.checkpoints if version.step == step]:
            return kept[-1]
        if step == 0 and self._whole:
            return Version(self.updates[0].version.epoch if self.updates else 0, 0)
        return None

    def update(self, step: int) -> Update | None:
        """The update that made that step."""
        return next((update for update in self.updates if update.version.step == step), None)

    def between(self, start: int, end: int) -> list[Update]:
        """The updates behind step `start`, up to `end`."""
        return [update for update in self.updates if start < update.version.step <= end]

    def starts(self, step: int) -> list[Version | None]:
        """Where one may begin for that step, nearest first; None is the beginning of the run."""
        first = self.updates[0].version.step - 1 if self.updates else step
        kept = [
            version for version in self.checkpoints if first <= version.step <= step or version.step == step
        ]
        return [*reversed(kept), *([None] if self._whole else [])]

    def had(self, missing: Collection[int]) -> list[tuple[Version, Version]]:
        """First and last version of each stretch that can be had, where these steps cannot be made again."""
        kept = {version.step for version in self.checkpoints} | ({0} if self._whole else set())
        recorded = {update.version.step for update in self.updates}
        stretches: list[tuple[Version, Version]] = []
        reached = -2  # before anything, also before step 0
        for step in sorted(kept | recorded):
            version = self.at(step)
            made = step - 1 == reached and step in recorded and step not in missing
            if version is None or not (step in kept or made):
                continue
            if step - 1 == reached:
                stretches[-1] = (stretches[-1][0], version)
            else:
                stretches.append((version, version))
            reached = step
        return stretches

    @property
    def _whole(self) -> bool:
        return self.begins and (not self.updates or self.updates[0].version.step == 1)

    def _holds(self, version: Version) -> bool:
        known = {self.at(version.step), *self.checkpoints, *self.bases}
        return version in known or (version.step == 0 and version.epoch == 0)


def read_past(stream: Stream, folder: RunFolder) -> Past:
    """A run's past as it is now; the run may be live."""
    return past_of(
        folder.run, read_history(stream, folder.run), folder.checkpoints(), folder.spec().origin is None
    )


def past_of(run: str, entries: Sequence[Entry], checkpoints: Iterable[Version], begins: bool) -> Past:
    line = lineage(entries)
    kept = sorted(filter(line.holds, checkpoints), key=lambda version: (version.step, version.epoch))
    bases = {Version(entry.epoch, entry.base) for entry in entries if isinstance(entry, Claim)}
    return Past(run, line.updates, tuple(kept), frozenset(filter(line.holds, bases)), begins)


def missing_steps(stream: Stream, run: str, updates: Iterable[Update], start: Position | None) -> set[int]:
    """The updates among these whose rollouts the log does not hold behind `start`; reads no further than needed."""
    wanted = {
        Place(used.slot, used.round, used.version): update.version.step
        for update in updates
        for used in update.used
    }
    if not wanted:
        return set()
    reader = RecordReader(stream, topics.experiences(run), _place, start)
    try:
        for batch in reader.drain(BATCH):
            for _, place in batch:
                if place is not None:
                    wanted.pop(place, None)
            if not wanted:
                break
    finally:
        reader.close()
    return set(wanted.values())


def told(stretches: list[tuple[Version, Version]]) -> str:
    """What can be had, for people: `versions 1.0 to 1.17 and 1.40 to 2.250 can be had`."""
    if not stretches:
        return "no version of it can be had any more"
    words = [f"{first} to {last}" if first != last else str(first) for first, last in stretches]
    listed = " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
    single = len(stretches) == 1 and stretches[0][0] == stretches[0][1]
    return f"version{'' if single else 's'} {listed} can be had"


def _place(frame: Frame) -> Place | None:
    return decode_columns(frame, Place)[0] if frame.schema is Schema.ROLLOUT else None
