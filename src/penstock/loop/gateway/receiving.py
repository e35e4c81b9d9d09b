"""A client's message in, a checked trajectory out. Nothing is trusted: names, lengths, numbers."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.errors import Damaged
from penstock.loop.gateway.trajectory import Trajectory, TrajectoryFacts
from penstock.model.clients import MOST_ROWS
from penstock.model.codec import Array
from penstock.model.spaces import Column, Spaces
from penstock.model.version import Version

MOST_SEQUENCE = (1 << 63) - 1
MOST_REWARD = 1e9
"""A reward beyond it would end the run: values of that size leave the numbers when squared."""
LEAST_LOG_PROB = -80.0
"""For each part of an action: anything below is no choice a policy made, and its ratio would overflow."""
MOST_OFFSET = 1 << 30
"""Rows of one episode before a trajectory: at a thousand a second that is twelve days."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What trajectories of one run look like."""

    run: str
    spaces: Spaces
    off_policy: bool

    def check_run(self, run: str) -> None:
        """Raise Damaged where it was made for another run; nobody knows where it names none."""
        if run and run != self.run:
            raise Damaged(
                f"it was made for run {run[:80]!r}, and this policy is learned by run {self.run}, which counts its "
                "versions anew"
            )

    def read(self, message: Any, source: str, newest: Version) -> Trajectory:
        """Check a message and take its columns; raise Damaged with the reason it is refused."""
        length = message.length
        if not 1 <= length <= MOST_ROWS:
            raise Damaged(f"a trajectory has 1 to {MOST_ROWS} rows, not {length}")
        if not 1 <= message.sequence <= MOST_SEQUENCE:
            raise Damaged(f"sequences count from 1; {message.sequence} is none")
        version = Version(message.version.epoch, message.version.step)
        _check_version(version, newest)
        _check_before(message.offset, message.earlier_reward)
        facts = TrajectoryFacts(
            self.run, source, message.sequence, version, length, message.terminated, message.offset,
            message.earlier_reward, message.continues and not message.terminated, time.time(),
        )  # fmt: skip
        return Trajectory(facts, self._columns(message, length))

    def observation(self, given: Mapping[str, bytes], what: str, rows: int) -> dict[str, Array]:
        """The observation columns of `rows` rows; raise Damaged."""
        wanted = self.spaces.observation.columns
        if given.keys() != wanted.keys():
            raise Damaged(f"{what} has the columns {sorted(given)[:8]}, the policy sees {sorted(wanted)}")
        found = {name: _column(given[name], column, rows, what) for name, column in wanted.items()}
        for name, array in found.items():
            _refuse_nonfinite(array, what if name == "observations" else name)
        return found

    def mask(self, given: bytes, what: str, rows: int) -> Array | None:
        """Allowed actions of `rows` rows, at least one in each; None where the policy has no masks."""
        choices = self.spaces.action.choices
        if not self.spaces.action.masked:
            if given:
                raise Damaged(f"{what} came, but the policy has no masks; set masked: true")
            return None
        masks = _column(given, Column((choices,), "|u1"), rows, what)
        if masks.max(initial=0) > 1:
            raise Damaged(f"{what} holds other numbers than 0 and 1")
        if not masks.any(axis=1).all():
            raise Damaged(f"{what} allows no action in row {int(np.argmin(masks.any(axis=1)))}")
        return masks.astype(np.bool_)

    def _columns(self, message: Any, length: int) -> dict[str, Array]:
        columns = self.observation(message.observations, "observations", length)
        foreign = self._foreign(message.foreign, length)
        columns["actions"] = _column(message.actions, self.spaces.action.column, length, "actions")
        columns["log_probs"] = self._log_probs(message.log_probs, foreign, length)
        columns["rewards"] = _column(message.rewards, Column((), "<f4"), length, "rewards")
        _refuse_nonfinite(columns["rewards"], "rewards")
        if np.abs(columns["rewards"]).max() > MOST_REWARD:
            raise Damaged(f"rewards are within ±{MOST_REWARD:g}")
        masks = self.mask(message.masks, "masks", length)
        self._check_actions(columns["actions"], masks)
        if masks is not None:
            columns["masks"] = masks
        if foreign is not None:
            columns["foreign"] = foreign
        return columns | self._final(message)

    def _final(self, message: Any) -> dict[str, Array]:
        """What came after a trajectory that was cut off."""
        if message.terminated:
            return {}
        found = self.observation(message.final_observations, "final_observations", 1)
        final = {f"final/{name}": rows[0] for name, rows in found.items()}
        if self.spaces.action.masked:
            given = message.final_masks or b"\1" * self.spaces.action.choices
            masks = self.mask(given, "final_masks", 1)
            assert masks is not None
            final["final/masks"] = masks[0]
        return final

    def _foreign(self, given: bytes, length: int) -> Array | None:
        if not given:
            return None
        found = _column(given, Column((), "|u1"), length, "foreign")
        return found.astype(np.bool_) if found.any() else None

    def _log_probs(self, given: bytes, foreign: Array | None, length: int) -> Array:
        if not given and self.off_policy:
            return np.zeros(length, np.float32)
        found = _column(given, Column((), "<f4"), length, "log_probs")
        ours = found if foreign is None else np.where(foreign, np.float32(0), found)
        if self.off_policy:
            return np.nan_to_num(ours, nan=0.0, posinf=0.0, neginf=0.0)  # nobody looks at them
        _refuse_nonfinite(ours, "log_probs")
        action = self.spaces.action
        parts = max(1, len(action.sizes) or math.prod(action.shape))
        highest = 0.01 if action.sizes else -LEAST_LOG_PROB * parts
        if ours.max() > highest or ours.min() < LEAST_LOG_PROB * parts:
            raise Damaged(f"log_probs are within {LEAST_LOG_PROB * parts:g} and {highest:g} here")
        return np.asarray(ours)

    def _check_actions(self, actions: Array, masks: Array | None) -> None:
        action = self.spaces.action
        if action.kind == "box":
            _refuse_nonfinite(actions, "actions")
            return
        parts = actions.reshape(len(actions), -1)
        if (parts < 0).any() or (parts >= np.array(action.sizes)).any():
            raise Damaged(f"actions count from 0 and are below {list(action.sizes)}")
        if masks is not None:
            starts = np.cumsum((0, *action.sizes[:-1]))
            if not np.take_along_axis(masks, parts + starts, axis=1).all():
                raise Damaged("an action is not among those its mask allows")


def _check_version(version: Version, newest: Version) -> None:
    """Nobody has acted with a version that was never published; one with a high step would never go stale."""
    # a learner makes recorded updates again before it publishes: no older epoch has been further
    if version > newest or version.step > newest.step:
        raise Damaged(f"it claims version {version}, and the newest there is is {newest}")


def _check_before(offset: int, reward: float) -> None:
    """What came before a trajectory in its episode: within what so many rows can have earned."""
    if offset > MOST_OFFSET:
        raise Damaged(f"offset is at most {MOST_OFFSET}, not {offset}")
    if not abs(reward) <= MOST_REWARD * offset:  # also where it is not a number
        raise Damaged(
            f"earlier_reward is {reward:g}, which {offset} rows cannot have earned: rewards are within ±{MOST_REWARD:g}"
        )


def _column(given: bytes, column: Column, rows: int, what: str) -> Array:
    """The bytes as rows of this shape; their number is checked before anything is made of them."""
    dtype, size = np.dtype(column.dtype), math.prod(column.shape)
    if len(given) != rows * size * dtype.itemsize:
        raise Damaged(
            f"{what} has {len(given)} bytes; {rows} rows of {list(column.shape) or 'one number'} "
            f"({column.dtype.strip('<|')}) have {rows * size * dtype.itemsize}"
        )
    return np.frombuffer(given, dtype).reshape(rows, *column.shape)


def _refuse_nonfinite(array: Array, what: str) -> None:
    if not np.isfinite(array).all():
        raise Damaged(f"{what} holds numbers that are not finite")
