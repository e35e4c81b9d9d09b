"""Small real environments for tests: `penstock.testing.environments:Counter` and its neighbours.

Each one shows one thing: a kind of space, a way to end, a way to break.
"""

import time
from typing import Any

import numpy as np
from gymnasium import Env, spaces

Reset = tuple[Any, dict[str, Any]]
Step = tuple[Any, Any, bool, bool, dict[str, Any]]


class Counter(Env[Any, Any]):
    """Shows the number of steps made; reward is that number; ends after `length` steps.

    `end`: terminated, truncated, both, or never. `offset` is added to what is shown.
    """

    observation_space: spaces.Space[Any] = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(3)

    def __init__(self, length: int = 3, end: str = "terminated", offset: float = 0.0) -> None:
        self.length, self.end, self.offset = length, end, offset
        self.count, self.action = 0, -1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.count, self.action = 0, -1
        return self.observe(), self.info()

    def step(self, action: Any) -> Step:
        self.count += 1
        self.action = action
        over = self.count >= self.length
        terminated = over and self.end in ("terminated", "both")
        truncated = over and self.end in ("truncated", "both")
        return self.observe(), self.reward(), terminated, truncated, self.info()

    def observe(self) -> Any:
        return np.array([self.count + self.offset, self.action], np.float32)

    def reward(self) -> Any:
        return float(self.count)

    def info(self) -> dict[str, Any]:
        return {}


class Blind(Counter):
    """Accepts a render mode, but offers none."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()
        self.render_mode = render_mode


class Walk(Counter):
    """A noisy walk: `np_random` is drawn from in `reset` and in every step."""

    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, length: int = 40) -> None:
        super().__init__(length, "truncated")
        self.place = np.zeros(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.place = self.np_random.normal(size=2)
        return self.observe(), {}

    def step(self, action: Any) -> Step:
        self.place = self.place + action + self.np_random.normal(size=2)
        _, _, terminated, truncated, info = super().step(action)
        return self.observe(), self.reward(), terminated or self.np_random.random() < 0.02, truncated, info

    def observe(self) -> Any:
        return self.place.copy()  # float64 on purpose: it becomes float32

    def reward(self) -> Any:
        return np.float64(-np.abs(self.place).sum())


class Drifting(Counter):
    """Not determined by its seed: every reset shows something else. Such runs cannot be resumed exactly."""

    resets = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        Drifting.resets += 1
        self.offset = float(Drifting.resets)
        return super().reset(seed=seed)


class Named(Counter):
    """A Dict with a vector, a category, switches and a small picture, nested."""

    observation_space = spaces.Dict(
        {
            "place": spaces.Box(-1, 1, (2,), np.float64),
            "state": spaces.Dict({"mode": spaces.Discrete(3, start=1), "on": spaces.MultiBinary(2)}),
            "view": spaces.Box(0, 255, (4, 5, 3), np.uint8),
        }
    )

    def observe(self) -> Any:
        return {
            "place": np.array([self.count, 0.5]),
            "state": {"mode": 1 + self.count % 3, "on": np.array([1, self.count % 2], np.int8)},
            "view": np.full((4, 5, 3), self.count, np.uint8),
        }


class Pair(Counter):
    """A Tuple of a category, a MultiDiscrete and a lone number; MultiDiscrete actions that start at 1."""

    observation_space = spaces.Tuple(
        (spaces.Discrete(4), spaces.MultiDiscrete([2, 3], start=[5, 0]), spaces.Box(0, 9, (), np.float32))
    )
    action_space = spaces.MultiDiscrete([3, 2], start=[1, 1])

    def observe(self) -> Any:
        return self.count % 4, np.array([5 + self.count % 2, self.count % 3]), np.float32(self.count)

    def reward(self) -> Any:
        return int(np.sum(self.action))


class Category(Counter):
    """One Discrete observation; Discrete actions that start at 10, given back as the reward."""

    observation_space = spaces.Discrete(5, start=-1)
    action_space = spaces.Discrete(3, start=10)

    def observe(self) -> Any:
        return np.int64(self.count % 5 - 1)

    def reward(self) -> Any:
        assert type(self.action) is int
        return self.action


class Force(Counter):
    """Box actions with bounds of their own, given back as the observation."""

    action_space = spaces.Box(np.array([-1.0, 0.0]), np.array([1.0, np.inf]), (2,), np.float64)

    def observe(self) -> Any:
        return np.zeros(2) if isinstance(self.action, int) else np.array(self.action)


class Picture(Counter):
    """A tiny picture; `layout` is `last`, `first` or `grey`."""

    def __init__(self, layout: str = "last", length: int = 3) -> None:
        shape = {"last": (6, 5, 3), "first": (3, 6, 5), "grey": (36, 40)}[layout]
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        super().__init__(length)

    def observe(self) -> Any:
        shape = self.observation_space.shape
        assert shape is not None
        return (np.arange(np.prod(shape)).reshape(shape) + self.count).astype(np.uint8)


class Masked(Counter):
    """Tells which action is allowed (the one that equals the count, modulo 3), in one of three places."""

    def __init__(self, place: str = "info", length: int = 3, end: str = "truncated") -> None:
        self.place = place
        if place == "observation":
            self.observation_space = spaces.Dict(
                {"action_mask": spaces.MultiBinary(3), "seen": spaces.Box(-9, 9, (2,), np.float32)}
            )
        if place == "method":
            self.action_masks = self.allowed
        super().__init__(length, end)

    def allowed(self) -> Any:
        return np.arange(3) == self.count % 3

    def observe(self) -> Any:
        seen = super().observe()
        return {"action_mask": self.allowed(), "seen": seen} if self.place == "observation" else seen

    def info(self) -> dict[str, Any]:
        return {"action_mask": self.allowed().astype(np.int8)} if self.place == "info" else {}


class Jobs(Env[Any, Any]):
    """A set of items: rows are jobs (size, waiting, present); serve the smallest present one.

    Reward is minus the size of the job served; free rows are masked out.
    """

    def __init__(self, rows: int = 6, length: int = 20) -> None:
        self.observation_space = spaces.Box(0, np.inf, (rows, 3), np.float32)
        self.action_space = spaces.Discrete(rows)
        self.rows, self.length, self.count = rows, length, 0
        self.jobs = np.zeros((rows, 3), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        super().reset(seed=seed)
        self.count = 0
        self.jobs[:] = 0
        self._arrive()
        return self.jobs.copy(), {"action_mask": self.jobs[:, 2] > 0}

    def step(self, action: Any) -> Step:
        size = float(self.jobs[action, 0])
        self.jobs[action] = 0
        self.jobs[:, 1] += self.jobs[:, 2]
        self._arrive()
        self.count += 1
        return self.jobs.copy(), -size, False, self.count >= self.length, {"action_mask": self.jobs[:, 2] > 0}

    def _arrive(self) -> None:
        free = np.flatnonzero(self.jobs[:, 2] == 0)[:2]
        self.jobs[free, 0] = self.np_random.uniform(0.1, 1.0, len(free))
        self.jobs[free, 2] = 1


class Faulty(Counter):
    """Breaks in step `at`, counted over all episodes: see the names in `step`. A hang lasts `seconds`."""

    def __init__(self, fault: str, at: int = 2, seconds: float = 3600.0, length: int = 100) -> None:
        super().__init__(length)
        self.fault, self.at, self.seconds, self.made = fault, at, seconds, 0

    def step(self, action: Any) -> Any:
        self.made += 1
        observation, reward, terminated, truncated, info = super().step(action)
        if self.made != self.at:
            return observation, reward, terminated, truncated, info
        if self.fault == "raises":
            raise ValueError("the lander is gone")
        if self.fault == "hangs":
            time.sleep(self.seconds)
        if self.fault == "four":
            return observation, reward, terminated, info
        broken: dict[str, tuple[Any, Any]] = {
            "nan": (np.array([np.nan, 0], np.float32), reward),
            "infinite_reward": (observation, np.inf),
            "shape": (np.zeros(1, np.float32), reward),
            "words": ("left", reward),
            "array_reward": (observation, np.ones(2)),
            "no_reward": (observation, None),
        }
        observation, reward = broken.get(self.fault, (observation, reward))
        return observation, reward, terminated, truncated, info


class OldApi(Counter):
    """As Gym was before 0.26: no seed for reset, and no info from it."""

    def reset(self) -> Any:  # type: ignore[override]
        self.count = 0
        return self.observe()


class OldReset(Counter):
    """Takes a seed, but returns the observation alone."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return super().reset(seed=seed)[0]


class Unbuildable(Counter):
    """Raises in its constructor."""

    def __init__(self) -> None:
        raise RuntimeError("no simulator on this machine")
