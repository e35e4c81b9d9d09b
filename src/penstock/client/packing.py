"""Ended trajectories become messages; runs in the courier's thread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock import proto
from penstock.client.deciding import Decider
from penstock.client.layout import OBSERVATIONS
from penstock.client.trajectory import Trajectory
from penstock.client.wire import map_entry
from penstock.model.tensors import Array
from penstock.model.version import Version


class Unfit(Exception):
    """A trajectory that cannot be sent; the text is the reason it is counted under."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A message without its sequence and its observations, which are most of it, and these."""

    message: Any
    observations: Array

    def numbered(self, sequence: int) -> bytes:
        """The whole message as it travels. The observations are copied once, here."""
        self.message.sequence = sequence
        rows = np.ascontiguousarray(self.observations, self.observations.dtype.newbyteorder("<"))
        entry = map_entry(_OBSERVATIONS, OBSERVATIONS, rows.nbytes)
        return b"".join((self.message.SerializeToString(), entry, rows.data))


def pack(trajectory: Trajectory, max_bytes: int) -> Iterator[Piece]:
    """Pieces whose messages are below `max_bytes`; raise Unfit before the first one.

    What they hold is the trajectory's: each must be `numbered` before its arrays are used again.
    """
    _take_final_from_last_row(trajectory)
    length = trajectory.length
    if not length:
        raise Unfit("empty")
    if None in trajectory.rewards[:length]:
        raise Unfit("no_reward")
    rewards = np.array(trajectory.rewards[:length], np.float32)
    log_probs = _log_probs(trajectory)
    columns = (trajectory.observations[:length], rewards, log_probs, trajectory.actions[:length])
    if not all(np.isfinite(column).all() for column in columns):
        raise Unfit("not_finite")
    if trajectory.final is not None and not np.isfinite(trajectory.final).all():
        raise Unfit("not_finite")
    rows = max(1, (max_bytes - 4096) // trajectory.layout.row_bytes)
    for start in range(0, length, rows):
        end = min(start + rows, length)
        yield Piece(_message(trajectory, rewards, log_probs, start, end), trajectory.observations[start:end])


def _take_final_from_last_row(trajectory: Trajectory) -> None:
    """Cut off without a word of what came next: then the last observation is what came after the row before."""
    if not trajectory.terminated and trajectory.final is None and trajectory.length:
        trajectory.length -= 1
        trajectory.final = trajectory.observations[trajectory.length].copy()
        if trajectory.masks is not None:
            trajectory.final_mask = trajectory.masks[trajectory.length].copy()


def _log_probs(trajectory: Trajectory) -> Array:
    length = trajectory.length
    foreign = np.frombuffer(trajectory.foreign, np.bool_)[:length]
    if trajectory.log_probs is not None:
        known = trajectory.log_probs[:length]
    elif isinstance(trajectory.decider, Decider):
        masks = None if trajectory.masks is None else trajectory.masks[:length]
        # rows of a fallback hold what an earlier trajectory left; they are not used, so they may be anything
        with np.errstate(all="ignore"):
            known = trajectory.decider.log_probs(
                trajectory.outputs[:length], trajectory.actions[:length], masks
            )
    else:
        known = np.zeros(length, np.float32)
    return np.where(foreign, np.float32(0), known).astype(np.float32, copy=False)


def _message(trajectory: Trajectory, rewards: Array, log_probs: Array, start: int, end: int) -> Any:
    last = end == trajectory.length
    masks = trajectory.masks
    foreign = bytes(trajectory.foreign[start:end])
    version = trajectory.version or Version(0, 0)
    message = proto.Trajectory(
        version=proto.Version(epoch=version.epoch, step=version.step),
        length=end - start,
        actions=_little(trajectory.actions[start:end]),
        log_probs=_little(log_probs[start:end]),
        rewards=_little(rewards[start:end]),
        masks=b"" if masks is None else masks[start:end].tobytes(),
        foreign=foreign if 1 in foreign else b"",
        terminated=last and trajectory.terminated,
        offset=start,
        earlier_reward=float(rewards[:start].sum(dtype=np.float64)),
        continues=not last,
    )
    final, final_mask = (trajectory.final, trajectory.final_mask)
    if not last:
        final = trajectory.observations[end]
        final_mask = None if masks is None else masks[end]
    if not message.terminated and final is not None:
        message.final_observations[OBSERVATIONS] = _little(final)
        if masks is not None:
            message.final_masks = b"\1" * masks.shape[1] if final_mask is None else final_mask.tobytes()
    return message


_OBSERVATIONS = proto.Trajectory.DESCRIPTOR.fields_by_name["observations"].number


def _little(array: Array) -> bytes:
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
