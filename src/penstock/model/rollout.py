"""A rollout: T steps of B environments as columns, stamped with the version that made it.

Columns (T steps, B environments, K truncated ends):

    observations…      [T, B, …]     what the policy saw
    actions            [T, B, …]     what it chose, before clipping
    log_probs          [T, B]        of the choice, under the version that made it
    rewards            [T, B]        float32
    terminated         [T, B]        the task ended: nothing follows
    truncated          [T, B]        a limit ended the episode: bootstrap from the final observation
    masks              [T, B, A]     allowed actions, only where the environment tells
    last/observations… [B, …]        what comes after the last step (the next rollout's first)
    last/masks         [B, A]
    final/index        [K, 2]        (t, b) of each truncated end
    final/observations…[K, …]        what the environment showed last there
    final/masks        [K, A]
"""

from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from penstock.errors import Damaged
from penstock.model.codec import Array, Frame, Schema, decode, decode_columns, encode_columns
from penstock.model.spaces import Spaces
from penstock.model.version import Version


class Episode(msgspec.Struct, frozen=True, array_like=True):
    """One finished episode, for people and stop conditions."""

    environment: int
    index: int
    total_reward: float
    length: int
    step: int
    """The row of this rollout in which it ended."""


class Start(msgspec.Struct, frozen=True, array_like=True):
    """Where one environment stands before the first row: enough to rebuild it from the log."""

    episode: int
    elapsed: int
    total_reward: float


class Packed(msgspec.Struct, frozen=True):
    """How far the gateway had packed a client's trajectories when it wrote a rollout: there it goes on."""

    position: dict[int, int]
    """Partition → offset of the first trajectory that is not used up."""
    row: int
    """Rows of that trajectory that are used."""
    carried: int
    """Trajectories from there on that counted for this rollout and did not fit into it."""
    counts: dict[str, int]
    """What became of all trajectories before: outcome → number. And `episodes`, so that they go on counting."""


class RolloutFacts(msgspec.Struct, frozen=True):
    """All of a rollout that is not a column."""

    run: str
    slot: int
    round: int
    incarnation: str
    version: Version
    steps: int
    environments: int
    starts: tuple[Start, ...]
    episodes: tuple[Episode, ...]
    seconds: dict[str, float]
    """Where the time went: environment, policy, stream, waiting."""
    written_at: float
    packed: Packed | None = None
    """Of a rollout made from clients' trajectories."""


@dataclass(frozen=True, slots=True)
class Rollout:
    facts: RolloutFacts
    columns: dict[str, Array]

    def encode(self) -> bytearray:
        return encode_columns(Schema.ROLLOUT, self.facts, self.columns)

    @classmethod
    def decode(cls, frame: Frame) -> "Rollout":
        """Read-only views into the frame; raise Damaged where shapes disagree with the facts."""
        facts, columns = decode_columns(frame, RolloutFacts)
        block = (facts.steps, facts.environments)
        for name in ("actions", "log_probs", "rewards", "terminated", "truncated"):
            if name not in columns or columns[name].shape[:2] != block:
                raise Damaged(
                    f"rollout {facts.slot}/{facts.round} has no {name} of {block} steps × environments"
                )
        return cls(facts, columns)


class Hello(msgspec.Struct, frozen=True):
    """What an actor says when it starts and, as a sign of life, while it waits or takes long.

    The learner puts a slot that it did not expect into the roster. It comes behind all rollouts up to
    `last_round` in the log, so a round that the learner has not seen by then is lost.
    """

    run: str
    slot: int
    incarnation: str
    spaces: Spaces
    pid: int
    host: str
    last_round: int = -1
    leaving: bool = False
    """A goodbye: nobody need wait for this slot any more."""


def decode_experience(frame: Frame) -> Rollout | Hello:
    """What a topic of experiences may hold; raise Damaged for anything else."""
    if frame.schema is Schema.ROLLOUT:
        return Rollout.decode(frame)
    if frame.schema is Schema.HELLO:
        return decode(frame, Hello)
    raise Damaged(f"a {frame.schema.name.lower()} does not belong into a topic of experiences")


@dataclass(slots=True)
class Block:
    """Preallocated arrays an actor fills; `observations` has one row more than `steps`.

    Row t of `observations` is what the policy sees before step t; row T is carried to the next round.
    """

    steps: int
    environments: int
    observations: dict[str, Array]
    actions: Array
    log_probs: Array
    rewards: Array
    terminated: Array
    truncated: Array
    masks: Array | None
    finals: list[tuple[int, int, dict[str, Array], Array | None]] = field(default_factory=list)
    """(t, b, observation columns, mask) of each truncated end."""
    episodes: list[Episode] = field(default_factory=list)

    @classmethod
    def allocate(cls, spaces: Spaces, steps: int, environments: int) -> "Block":
        block = (steps, environments)
        action = spaces.action.column
        return cls(
            steps,
            environments,
            {
                name: np.zeros((steps + 1, environments, *column.shape), column.dtype)
                for name, column in spaces.observation.columns.items()
            },
            np.zeros((*block, *action.shape), action.dtype),
            np.zeros(block, np.float32),
            np.zeros(block, np.float32),
            np.zeros(block, np.bool_),
            np.zeros(block, np.bool_),
            np.ones((steps + 1, environments, spaces.action.choices), np.bool_)
            if spaces.action.masked
            else None,
        )

    def next_round(self) -> None:
        """Carry the last row to the front and forget what was recorded."""
        for column in self.observations.values():
            column[0] = column[self.steps]
        if self.masks is not None:
            self.masks[0] = self.masks[self.steps]
        self.finals.clear()
        self.episodes.clear()

    def columns(self) -> dict[str, Array]:
        """The columns of a rollout; views, so encode before the next step."""
        result: dict[str, Array] = {name: rows[: self.steps] for name, rows in self.observations.items()}
        result |= {
            "actions": self.actions,
            "log_probs": self.log_probs,
            "rewards": self.rewards,
            "terminated": self.terminated,
            "truncated": self.truncated,
        }
        result |= {f"last/{name}": rows[self.steps] for name, rows in self.observations.items()}
        result["final/index"] = np.array([(t, b) for t, b, *_ in self.finals], np.int32).reshape(-1, 2)
        for name, rows in self.observations.items():
            shape = (len(self.finals), *rows.shape[2:])
            final = np.array([observation[name] for _, _, observation, _ in self.finals], rows.dtype)
            result[f"final/{name}"] = final.reshape(shape)
        if self.masks is not None:
            result["masks"] = self.masks[: self.steps]
            result["last/masks"] = self.masks[self.steps]
            masks = np.array([mask for *_, mask in self.finals], np.bool_)
            result["final/masks"] = masks.reshape(len(self.finals), self.masks.shape[2])
        return result


def fits(rollout: Rollout, expected: dict[str, Array]) -> bool:
    """Whether every column has the shape and type of `expected`, the columns of a block of 1 × 1."""
    facts, columns = rollout.facts, rollout.columns
    leads = {"last/": (facts.environments,), "final/": (len(columns.get("final/index", ())),)}
    for name, like in expected.items():
        lead = next(
            (lead for start, lead in leads.items() if name.startswith(start)),
            (facts.steps, facts.environments),
        )
        rest = like.shape[1:] if name.startswith(("last/", "final/")) else like.shape[2:]
        if name not in columns or columns[name].shape != (*lead, *rest) or columns[name].dtype != like.dtype:
            return False
    index = columns["final/index"]
    return bool(
        columns.keys() == expected.keys()
        and ((index >= 0) & (index < (facts.steps, facts.environments))).all()
    )


def join(rollouts: list[Rollout]) -> dict[str, Array]:
    """Columns of several rollouts side by side, in the order given: [T, B₁+B₂+…, …].

    `final/index` is shifted so that it points into the joined block.
    """
    joined: dict[str, Any] = {}
    for name in rollouts[0].columns:
        if name == "final/index":
            offset, parts = 0, []
            for rollout in rollouts:
                parts.append(rollout.columns[name] + np.array([0, offset], np.int32))
                offset += rollout.facts.environments
            joined[name] = np.concatenate(parts)
        else:
            axis = 0 if name.startswith(("last/", "final/")) else 1
            joined[name] = np.concatenate([rollout.columns[name] for rollout in rollouts], axis)
    return joined
