"""What an actor asks of the environments of its slot, and how their episodes are seeded."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

from penstock.model.codec import Array
from penstock.model.rollout import Block, Rollout, Start
from penstock.model.spaces import Spaces


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What became of the unfinished episodes in the log."""

    mismatches: tuple[int, ...]
    """Environments that did not come back to the recorded state; each began a new episode."""
    reasons: tuple[str, ...]
    """Why, one sentence for each of `mismatches`."""
    replayed: int
    """Steps that were made again."""


class Group(Protocol):
    """Several environments of one slot, stepped together into a block. Used by one thread."""

    @property
    def spaces(self) -> Spaces: ...

    def start(self, block: Block) -> None:
        """Begin the first episode of every environment; write row 0."""

    def step(self, t: int, actions: Array, block: Block) -> None:
        """Step every environment once: rewards, ends of row t, and what it shows next in row t+1.

        Rows are filled in order, from 0.

        An episode that ended is replaced by the next one in the same step: row t+1 then shows its
        first observation. Where it was truncated, its final observation is in `block.finals`.
        """

    def starts(self) -> tuple[Start, ...]:
        """Where each environment stands before the next row."""

    def rebuild(self, newest_first: Iterator[Rollout], block: Block) -> Rebuilt:
        """Stand again where the newest rollout ended; write row 0. Reads no more than it needs."""

    def check(self, block: Block) -> None:
        """Raise EnvironmentFault where a filled block holds NaN or infinity."""

    def close(self) -> None: ...


def episode_seed(run_seed: int, slot: int, environment: int, episode: int) -> int:
    """The seed given to `reset`: the first 31 bits of blake2b over "run/slot/environment/episode".

    31 bits, because environments hand it to C. It is part of what a result promises: never change it.
    """
    words = f"{run_seed}/{slot}/{environment}/{episode}".encode()
    return int.from_bytes(blake2b(words, digest_size=4).digest(), "little") & 0x7FFF_FFFF
