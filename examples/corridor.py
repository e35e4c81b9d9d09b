"""An environment of your own: walk to the end of a corridor. Train it with

penstock train ./examples/corridor.py:Corridor --set environment.kwargs.length=12 --target 0.9
"""

from typing import Any

import gymnasium as gym
import numpy as np


class Corridor(gym.Env[np.ndarray, int]):
    """Left or right, one cell at a time; each step costs a little, the far end pays 1."""

    def __init__(self, length: int = 8) -> None:
        self.length = length
        self.observation_space = gym.spaces.Box(0.0, 1.0, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.cell = int(self.np_random.integers(self.length // 2))
        self.steps = 0
        return self._see(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.cell = max(0, self.cell + (1 if action == 1 else -1))
        self.steps += 1
        arrived = self.cell >= self.length
        return self._see(), 1.0 if arrived else -0.01, arrived, self.steps >= 10 * self.length, {}

    def _see(self) -> np.ndarray:
        return np.array([self.cell / self.length, 1.0], np.float32)
