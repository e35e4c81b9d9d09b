"""The run's history: what each update used and what came out. Pure data, and the rule to read it.

A learner that starts writes a `Claim`: its epoch and the step it went on from. Whatever an older
epoch wrote past that step, before or after, is off the line. So a learner that was stopped,
replaced and continued changes nothing, whatever it still writes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.model.codec import Frame, Schema, decode, encode
from penstock.model.version import Version


class Claim(msgspec.Struct, frozen=True, tag="claim"):
    """A learner took the next epoch and goes on from `base`."""

    epoch: int
    base: int
    at: float


class Used(msgspec.Struct, frozen=True, array_like=True):
    """A rollout and the version that made it."""

    slot: int
    round: int
    version: Version


class Dropped(msgspec.Struct, frozen=True, array_like=True):
    """A rollout that was not learned from, and why: duplicate, stale, not_rostered, misfit."""

    slot: int
    round: int
    reason: str


class Update(msgspec.Struct, frozen=True, tag="update"):
    """One update: the version it made, from what, under which settings."""

    version: Version
    used: tuple[Used, ...]
    dropped: tuple[Dropped, ...]
    roster: dict[int, int]
    """The roster published with this version."""
    overrides: dict[str, Any]
    """Settings changed while running, as they were in this update."""
    weights_sha256: str
    environment_steps: int
    commands: dict[int, int]
    """Position in `commands.control` behind the last command applied."""
    at: float


Entry = Claim | Update


def encode_entry(entry: Entry) -> bytes:
    return encode(Schema.HISTORY, entry)


def decode_entry(frame: Frame) -> Entry:
    return decode(frame, Entry)  # type: ignore[arg-type]  # msgspec takes unions, its types do not say so


@dataclass(frozen=True, slots=True)
class Lineage:
    """The updates that led to the newest version, oldest first, and how far each epoch counts."""

    updates: tuple[Update, ...]
    bounds: dict[int, int]
    """Epoch → the last step of it that a later epoch went on from."""

    def holds(self, version: Version) -> bool:
        """Whether a version (or a checkpoint of it) lies on the line."""
        return all(version.step <= base for epoch, base in self.bounds.items() if epoch >= version.epoch)

    def after(self, step: int) -> list[Update]:
        """The updates behind `step`: what a learner restored there must make again."""
        return [update for update in self.updates if update.version.step > step]


def lineage(entries: Iterable[Entry]) -> Lineage:
    """Read a history by the rule above."""
    epoch, line, bounds = 0, list[Update](), dict[int, int]()
    for entry in entries:
        if isinstance(entry, Claim):
            if entry.epoch > epoch:
                bounds[epoch] = entry.base
                epoch = entry.epoch
                line = [update for update in line if update.version.step <= entry.base]
            continue
        if not epoch:  # retention has eaten the beginning, and with it the claim
            epoch = entry.version.epoch
        if entry.version.epoch == epoch and (not line or entry.version.step == line[-1].version.step + 1):
            line.append(entry)
    return Lineage(tuple(line), bounds)
