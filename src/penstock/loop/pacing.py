"""How fast an episode is shown: at its own speed, and never more pictures a second than a person needs."""

import math
import time
from collections.abc import Callable

MOST_FRAMES_PER_SECOND = 15.0


class Pace:
    """Says which steps are shown and waits until it is their time; a player that is late does not hurry after."""

    def __init__(
        self,
        steps_per_second: float,
        most: float = MOST_FRAMES_PER_SECOND,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._step_seconds = 1 / max(steps_per_second, 1.0)  # nobody waits longer for a picture
        self._least_seconds = 1 / most
        self._every = max(1, math.ceil(steps_per_second / most - 1e-9))
        self._clock, self._sleep = clock, sleep
        self._due, self._step = clock(), 0

    def shows(self, step: int, ended: bool) -> bool:
        """Whether this step is worth a picture; the end always is."""
        return ended or step % self._every == 0

    def wait(self, step: int) -> None:
        """Return when the picture of this step, later than the one before, may be shown."""
        steps = step - self._step if step > self._step else 0
        self._due += max(steps * self._step_seconds, self._least_seconds)
        left = self._due - self._clock()
        if left > 0:
            self._sleep(left)
        else:
            self._due = self._clock()
        self._step = step
