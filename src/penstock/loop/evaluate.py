"""Playing episodes with a checkpoint's policy: what evaluation, pictures and export have in common.

Every checkpoint of a run is judged on the same episodes: their seeds follow from `seed` alone.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np

from penstock.errors import ConfigError
from penstock.loop.checkpoint import load_policy
from penstock.loop.files import append_line
from penstock.loop.runs import RunFolder
from penstock.model.codec import Array
from penstock.model.policy import Policy
from penstock.model.spec import EnvironmentSpec
from penstock.model.version import Version
from penstock.policy.acting import Acting

MAX_STEPS = 100_000
"""An episode that nothing ends is ended here."""

SLOT = 0xE7A1
"""Noise and episode seeds of an evaluation come from a slot that no actor has."""

NOISE_STEPS = 256


class Outcome(msgspec.Struct, frozen=True):
    """One episode."""

    total_reward: float
    length: int


class Evaluation(msgspec.Struct, frozen=True):
    """How well a checkpoint does."""

    run: str
    checkpoint: str
    environment: str
    seed: int
    greedy: bool
    mean: float
    std: float
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    environment_steps: int
    """Steps of training behind the checkpoint."""
    seconds: float

    def text(self) -> str:
        """For people."""
        low, high = min(self.returns), max(self.returns)
        return (
            f"{self.run} {self.checkpoint} on {self.environment}: return {self.mean:,.2f} ± {self.std:,.2f} "
            f"({low:,.1f} to {high:,.1f}) over {len(self.returns)} episodes, "
            f"mean length {np.mean(self.lengths):,.1f}"
        )


class Moment(msgspec.Struct, frozen=True):
    """Where an episode stands: before a step, or, with `ended`, after the last one."""

    step: int
    total_reward: float
    ended: bool = False


class Player:
    """A policy and an environment, ready to play; use as a context manager."""

    def __init__(
        self,
        policy: Policy,
        environment: EnvironmentSpec,
        seed: int,
        greedy: bool = True,
        render: bool = False,
    ) -> None:
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # it would greet on standard output
        from penstock.envs.single import SingleEnvironment

        self._seed, self._greedy = seed, greedy
        self._environment = SingleEnvironment(environment, seed, render=render)
        self.load(policy)

    @classmethod
    def of(
        cls, folder: RunFolder, checkpoint: Version, seed: int, greedy: bool = True, render: bool = False
    ) -> "Player":
        """One that plays with a checkpoint of a run."""
        policy = load_policy(folder.checkpoint_path(checkpoint))
        return cls(policy, folder.spec().environment, seed, greedy, render)

    def load(self, policy: Policy) -> None:
        """Go on with this policy; call it between episodes."""
        self.facts = policy.facts
        self._acting = Acting(policy.facts.description)
        self._acting.load(policy.tensors)
        self._acting.epsilon = 0.0 if self._greedy else policy.facts.acting.get("epsilon", 0.0)

    @property
    def frames_per_second(self) -> float:
        return self._environment.frames_per_second

    def picture(self) -> Array:
        """What the environment shows now."""
        return self._environment.render()

    def play(self, episode: int, on_moment: Callable[[Moment], None] | None = None) -> Outcome:
        """Play one episode to its end; the same number gives the same episode. What `on_moment` raises ends it."""
        from penstock.envs.base import episode_seed

        environment = self._environment
        observation = environment.reset(episode_seed(self._seed, SLOT, 0, episode))
        total, length, ended = 0.0, 0, False
        while not ended and length < MAX_STEPS:
            if on_moment is not None:
                on_moment(Moment(length, total))
            action = self._decide(observation, environment.mask, episode, length)
            observation, reward, terminated, truncated = environment.step(action)
            ended = terminated or truncated
            total, length = total + reward, length + 1
        if on_moment is not None:
            on_moment(Moment(length, total, ended=True))
        return Outcome(total, length)

    def _decide(self, observation: dict[str, Array], mask: Array | None, episode: int, step: int) -> Any:
        if self._greedy:
            return self._acting.greedy(observation, mask)[0]
        part, row = divmod(step, NOISE_STEPS)
        if row == 0:
            key = (self._seed, SLOT, episode * (MAX_STEPS // NOISE_STEPS + 1) + part)
            self._noise = self._acting.noise(key, NOISE_STEPS, 1)
        actions, _ = self._acting.decide(observation, mask, self._noise[row])
        return actions[0]

    def close(self) -> None:
        self._environment.close()

    def __enter__(self) -> "Player":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def evaluate(
    folder: RunFolder, checkpoint: Version, episodes: int, seed: int = 0, greedy: bool = True
) -> Evaluation:
    """Play `episodes` and tell their returns; with `greedy` without exploration. Changes nothing."""
    if episodes < 1:
        raise ConfigError(f"an evaluation needs at least one episode, not {episodes}")
    if not 0 <= seed < 1 << 63:
        raise ConfigError(f"a seed is a whole number from 0 on, not {seed}")
    began = time.monotonic()
    with Player.of(folder, checkpoint, seed, greedy) as player:
        outcomes = [player.play(episode) for episode in range(episodes)]
        steps = player.facts.environment_steps
    returns = tuple(outcome.total_reward for outcome in outcomes)
    return Evaluation(
        folder.run,
        str(checkpoint),
        folder.spec().environment.id,
        seed,
        greedy,
        float(np.mean(returns)),
        float(np.std(returns)),
        returns,
        tuple(outcome.length for outcome in outcomes),
        steps,
        time.monotonic() - began,
    )


def evaluate_checkpoint(
    folder: RunFolder, checkpoint: Version, episodes: int, seed: int | None = None, id: str | None = None
) -> Evaluation:
    """Evaluate, write it down in `evaluations.jsonl`, and name the checkpoint `best` where it is.

    One that a command asked for has that command's id and its own seed; it names no best, because only
    evaluations on the same episodes can be compared.
    """
    with pinned(folder, checkpoint, id):
        result = evaluate(folder, checkpoint, episodes, folder.spec().seed if seed is None else seed)
    asked = {} if id is None else {"id": id}
    earlier = folder.evaluations()
    if id is not None and any(line.get("id") == id for line in earlier):
        return result  # a server that was killed meanwhile had asked before
    append_line(folder.evaluations_file, {"time": time.time(), **asked, **msgspec.to_builtins(result)})
    if id is None:
        _name_best(folder, checkpoint, result, earlier)
    return result


@contextmanager
def pinned(folder: RunFolder, checkpoint: Version, id: str | None = None) -> Iterator[None]:
    """Hold a checkpoint, so that it is not let go meanwhile; what a crash left is taken away by the next of that id."""
    pin = folder.pinned_file if id is None else folder.pinned_file.with_name(f"pinned-{id}")
    pin.write_text(f"{checkpoint}\n")
    try:
        yield
    finally:
        pin.unlink(missing_ok=True)


def _name_best(
    folder: RunFolder, checkpoint: Version, result: Evaluation, earlier: list[dict[str, Any]]
) -> None:
    """Of equals the newer one has seen more; one that was let go meanwhile cannot be the best."""
    best = folder.best()
    means = [line.get("mean") for line in earlier if line.get("checkpoint") == str(best) and "id" not in line]
    known = means[-1] if best is not None and means else None
    if checkpoint in folder.checkpoints() and (known is None or result.mean >= known):
        folder.save_best(checkpoint)
