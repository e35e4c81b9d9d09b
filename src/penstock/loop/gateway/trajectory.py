"""One trajectory, as it lies in `trajectories.<run>`: what a client experienced, checked, as columns.

Columns of L rows: the observations, actions, log_probs, rewards; masks and foreign where there are any;
`final/…`, without rows, where it was cut off.
"""

from dataclasses import dataclass

import msgspec

from penstock.errors import Damaged
from penstock.model.codec import Array, Frame, Schema, decode_columns, encode_columns
from penstock.model.version import Version


class TrajectoryFacts(msgspec.Struct, frozen=True):
    """All of a trajectory that is not a column."""

    run: str
    source: str
    """Who sent it: one spool of one client."""
    sequence: int
    """Its number there, from 1."""
    version: Version
    """The oldest version that decided in it."""
    length: int
    terminated: bool
    """The task ended with the last row; otherwise it was cut off there."""
    offset: int
    """Rows of the same episode that travelled before."""
    earlier_reward: float
    continues: bool
    """Whether the episode goes on in the source's next trajectory."""
    received_at: float


@dataclass(frozen=True, slots=True)
class Trajectory:
    facts: TrajectoryFacts
    columns: dict[str, Array]

    def encode(self) -> bytearray:
        return encode_columns(Schema.TRAJECTORY, self.facts, self.columns)

    @classmethod
    def decode(cls, frame: Frame) -> "Trajectory":
        if frame.schema is not Schema.TRAJECTORY:
            raise Damaged(f"a {frame.schema.name.lower()} does not belong into a topic of trajectories")
        facts, columns = decode_columns(frame, TrajectoryFacts)
        if facts.length < 1 or any(
            len(columns.get(name, ())) != facts.length for name in ("actions", "log_probs", "rewards")
        ):
            raise Damaged(
                f"trajectory {facts.source}/{facts.sequence} has not the {facts.length} rows it claims"
            )
        return cls(facts, columns)
