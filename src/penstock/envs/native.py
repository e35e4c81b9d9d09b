"""Environments stepped by envpool: C++ threads behind the same methods as `EnvironmentGroup`.

envpool resets an ended environment in the *next* step, whose action it ignores and whose reward is 0:
a transition that never happened. So what ended is reset here at once, by number, and the row after an
end shows the first observation of the next episode, as everywhere in Penstock. Seeds belong to envpool,
so `spaces.exact` is False and a resumed run begins new episodes.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gymnasium import spaces as gym_spaces

from penstock.envs.base import Rebuilt, episode_seed
from penstock.envs.encode import Encoder
from penstock.envs.faults import check_block
from penstock.envs.layout import action_layout, observation_layout
from penstock.errors import ConfigError, EnvironmentFault, nearest
from penstock.model.codec import Array
from penstock.model.rollout import Block, Episode, Rollout, Start
from penstock.model.spaces import OBSERVATIONS, Spaces
from penstock.model.spec import EnvironmentSpec


class NativeGroup:
    """`count` environments in one envpool; see `Group`. `num_threads` in kwargs is 1 unless set."""

    def __init__(
        self,
        spec: EnvironmentSpec,
        count: int,
        seed: int,
        slot: int,
        beat: Callable[[], object] | None = None,
    ) -> None:
        if spec.wrappers:
            raise ConfigError("envpool environments take no wrappers; leave out `native` or `wrappers`")
        self._spec, self._count, self._seed, self._slot = spec, count, seed, slot
        self._beat = beat or (lambda: None)
        self._pool = self._make(first_episode=0)
        layout = observation_layout(self._pool.observation_space, spec.id)
        self.spaces = Spaces(layout, action_layout(self._pool.action_space, spec.id), exact=False)
        self._encoder = Encoder(layout)
        self._prepare = _preparer(self._pool.action_space)
        self._episodes = np.zeros(count, np.int64)
        self._elapsed = np.zeros(count, np.int64)
        self._totals = np.zeros(count, np.float64)

    def start(self, block: Block) -> None:
        """Begin an episode in every environment; write row 0."""
        self._reset(np.arange(self._count, dtype=np.int32), 0, block)

    def starts(self) -> tuple[Start, ...]:
        """Where each environment stands before the next row."""
        states = zip(self._episodes.tolist(), self._elapsed.tolist(), self._totals.tolist(), strict=True)
        return tuple(Start(*state) for state in states)

    def step(self, t: int, actions: Array, block: Block) -> None:
        """Step every environment once; see `Group.step`."""
        observation, reward, terminated, truncated, info = self._call("step", self._prepare(actions))
        order = info["env_id"]
        self._write(observation, order, t + 1, block)
        block.rewards[t, order] = reward
        block.terminated[t, order] = terminated
        block.truncated[t, order] = truncated & ~terminated
        self._elapsed += 1
        self._totals[order] += reward
        ended = np.flatnonzero(block.terminated[t] | block.truncated[t]).astype(np.int32)
        if len(ended):
            self._end(t, ended, block)
        self._beat()

    def _end(self, t: int, ended: Array, block: Block) -> None:
        for b in ended.tolist():
            total, length = float(self._totals[b]), int(self._elapsed[b])
            block.episodes.append(Episode(b, int(self._episodes[b]), total, length, t))
            if block.truncated[t, b]:
                final = {name: column[t + 1, b].copy() for name, column in block.observations.items()}
                block.finals.append((t, b, final, None))
        self._episodes[ended] += 1
        self._reset(ended, t + 1, block)

    def _reset(self, which: Array, row: int, block: Block) -> None:
        observation, info = self._call("reset", which)
        self._write(observation, info["env_id"], row, block)
        self._elapsed[which] = 0
        self._totals[which] = 0.0
        self._beat()

    def _write(self, observation: Any, order: Array, row: int, block: Block) -> None:
        if self._encoder.plain_shape is not None:
            block.observations[OBSERVATIONS][row, order] = observation
            return
        rows = {name: column[row] for name, column in block.observations.items()}
        for i, b in enumerate(order.tolist()):
            self._encoder.write(_pick(observation, i), rows, b)

    def rebuild(self, newest_first: Iterator[Rollout], block: Block) -> Rebuilt:
        """Begin new episodes, numbered after those in the log and seeded apart from them."""
        newest = next(newest_first, None)
        if newest is None:
            self.start(block)
            return Rebuilt((), (), 0)
        ends = newest.columns["terminated"].sum(0) + newest.columns["truncated"].sum(0)
        known = [start.episode + int(ended) for start, ended in zip(newest.facts.starts, ends, strict=True)]
        self._episodes[:] = max(known, default=-1) + 1
        self._pool.close()
        self._pool = self._make(int(self._episodes[0]))
        self.start(block)
        everyone = tuple(range(self._count))
        return Rebuilt(everyone, tuple("envpool cannot be rebuilt from the log" for _ in everyone), 0)

    def check(self, block: Block) -> None:
        """Raise EnvironmentFault where the block holds NaN or infinity, naming the place."""
        check_block(block, lambda b: f"environment {b} of slot {self._slot} ({self._spec.id}, envpool)")

    def close(self) -> None:
        self._pool.close()

    def _call(self, method: str, argument: Array) -> Any:
        try:
            return getattr(self._pool, method)(argument)
        except Exception as error:
            kind = type(error).__name__
            raise EnvironmentFault(
                f"envpool's {self._spec.id} in slot {self._slot} raised {kind} in {method}: {error}"
            ) from error

    def _make(self, first_episode: int) -> Any:
        try:
            import envpool
        except ImportError as error:
            raise ConfigError(
                "`environment.native` needs envpool: pip install 'penstock[envpool]'"
            ) from error
        name = self._spec.id.removeprefix("ALE/")
        known = set(envpool.list_all_envs())
        if name not in known:
            raise ConfigError(f"envpool has no {name!r}{nearest(name, known)}; or leave out `native`")
        options: dict[str, Any] = {"num_threads": 1, **self._spec.kwargs}
        if self._spec.max_episode_steps is not None:
            options["max_episode_steps"] = self._spec.max_episode_steps
        seed = episode_seed(self._seed, self._slot, 0, first_episode)
        try:
            return envpool.make(name, env_type="gymnasium", num_envs=self._count, seed=seed, **options)
        except Exception as error:
            raise ConfigError(f"envpool cannot make {name!r} with {options}: {error}") from error


def _preparer(space: gym_spaces.Space[Any]) -> Callable[[Array], Array]:
    """As `envs.actions`, but for all environments in one array."""
    if isinstance(space, gym_spaces.Box):
        low, high, dtype = space.low, space.high, space.dtype
        return lambda actions: np.minimum(np.maximum(actions, low), high).astype(dtype)
    assert isinstance(space, gym_spaces.Discrete | gym_spaces.MultiDiscrete)
    first = np.asarray(space.start).astype(np.int32)
    return lambda actions: (actions + first).astype(np.int32)


def _pick(observation: Any, i: int) -> Any:
    """Environment i's part of a batched observation."""
    if isinstance(observation, dict):
        return {key: _pick(value, i) for key, value in observation.items()}
    if isinstance(observation, tuple):
        return tuple(_pick(value, i) for value in observation)
    return observation[i]
