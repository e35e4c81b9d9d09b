"""What is done when no policy can decide: the user's heuristic, else the safe action. Each is counted."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

import numpy as np

from penstock.client.deciding import Decider, Heuristic
from penstock.client.figures import Counters
from penstock.client.layout import Layout
from penstock.client.trajectory import Trajectory


class Fallback:
    """Never raises: whatever the heuristic does, there is an action."""

    def __init__(
        self, layout: Layout, heuristic: Heuristic | None, safe_action: Any, counters: Counters
    ) -> None:
        self._layout, self._heuristic, self._counters = layout, heuristic, counters
        self._safe = layout.foreign_action(_default(layout) if safe_action is None else safe_action)

    def decide(self, trajectory: Trajectory, row: int) -> Any:
        """Write a foreign action into `row` and return what to do."""
        mask = None if trajectory.masks is None else trajectory.masks[row]
        action, how = self._chosen(trajectory, row, mask)
        self._counters.fell_back(how)
        trajectory.actions[row] = action
        trajectory.foreign[row] = 1
        return int(action) if self._layout.discrete else np.array(action, np.float32)

    def _chosen(self, trajectory: Trajectory, row: int, mask: Any) -> tuple[Any, str]:
        if self._heuristic is not None:
            try:
                action = self._layout.foreign_action(
                    self._heuristic(trajectory.observations[row].copy(), mask)
                )
                if mask is None or mask[action]:
                    return action, "heuristic"
                self._counters.trouble("heuristic", f"the heuristic chose the masked action {action}")
            except Exception as error:  # user code: anything may come out of it
                self._counters.trouble("heuristic", f"the heuristic failed: {type(error).__name__}: {error}")
        if mask is not None and not mask[self._safe]:
            return int(mask.argmax()), "safe"
        return self._safe, "safe"


class StepBack:
    """What comes after the newest policy: the one before it, else the fallback; until a moment, then `again`."""

    def __init__(
        self,
        before: Decider | None,
        fallback: Fallback,
        counters: Counters,
        until: float,
        again: Callable[[], None],
    ) -> None:
        self._before, self._fallback, self._counters = before, fallback, counters
        self._until, self._again = until, again

    def decide(self, trajectory: Trajectory, row: int) -> Any:
        if monotonic() > self._until:
            self._again()
        if self._before is not None:
            try:
                act = self._before.decide(trajectory, row)
                self._counters.fell_back("previous")
                return act
            except Exception as error:  # whatever is wrong with it, there is still the fallback
                self._counters.trouble("policy", f"version {self._before.version} failed: {error}")
        return self._fallback.decide(trajectory, row)


def _default(layout: Layout) -> Any:
    """The first choice, or numbers of zero."""
    return 0 if layout.discrete else [0.0] * layout.choices
