"""The face that RL4Sys documents: request, add, mark the end; everything else happens beside the application.

Use one agent in one thread. Several trajectories may be open in it at once.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Mapping
from time import perf_counter
from typing import Any

import numpy as np

from penstock.client import forking
from penstock.client import layout as layouts
from penstock.client.aside import switched_off_by_environment
from penstock.client.choosing import Chooser
from penstock.client.courier import Courier
from penstock.client.deciding import Heuristic
from penstock.client.episodes import Episodes
from penstock.client.fallback import Fallback
from penstock.client.figures import KEPT, Counters
from penstock.client.remote import RemoteDecider
from penstock.client.settings import Settings, load, settings
from penstock.client.trajectory import Action, Trajectory
from penstock.errors import Conflict, Unavailable
from penstock.model.version import Version

ANSWER_SECONDS = 2.0
"""How long a new agent waits to hear that its configuration is refused."""

SHAPES_SECONDS = 30.0
"""And how long to hear what the policy sees and does, where only the gateway knows."""

CLOSE_SECONDS = 5.0
ANOTHERS = "this trajectory belongs to another agent; use each in the agent that began it"
_TIMES = KEPT - 1


class RL4SysAgent:
    """Acts for one policy. Only mistakes of the caller raise; the network never does.

    `conf_path` is a JSON or YAML file (docs/client.md) or its content. `heuristic(observation, mask)` decides while
    no policy can. `seed` makes the noise of decisions repeatable.
    """

    def __init__(
        self,
        conf_path: str | os.PathLike[str] | Mapping[str, Any],
        debug: bool = False,
        *,
        heuristic: Heuristic | None = None,
        seed: int | None = None,
    ) -> None:
        if debug:
            logging.getLogger("penstock.client").setLevel(logging.DEBUG)
        self.settings: Settings = settings(conf_path) if isinstance(conf_path, Mapping) else load(conf_path)
        self.counters = Counters()
        self._heuristic, self._seed = heuristic, seed
        self._deadline = self.settings.deadline
        self._shadow = self.settings.mode == "shadow"
        off = {"caller": self.settings.mode == "off", "environment": switched_off_by_environment()}
        self._chooser = Chooser(self.counters, off)
        self._started = self._closed = False
        self._courier = self._new_courier()
        self._begin_work()
        forking.watch(self)
        atexit.register(self.close)

    # what the application calls for every decision

    def request_for_action(
        self, traj: Trajectory | None, obs: Any, mask: Any = None
    ) -> tuple[Trajectory, Action]:
        """Decide; `traj` is None (or one that ended) at the beginning of an episode."""
        started = perf_counter()
        if traj is None or traj.ended:
            traj = self._begin(traj)
        elif traj.layout is not self._layout:
            raise Conflict(ANOTHERS)
        row = traj.length
        if row and traj.rewards[row - 1] is None:
            raise Conflict(
                f"step {row - 1} of this trajectory has no reward; call action.update_reward before the next request"
            )
        if row == traj.capacity:
            traj = self._make_room(traj, obs, mask)
            row = traj.length
        if type(obs) is not np.ndarray or obs.shape != self._shape:
            obs = self._layout.flat(obs)
        traj.requests += 1  # from here on the row is this request's
        numbers = traj.observations[row]
        try:
            numbers[...] = obs
        except (TypeError, ValueError):  # an array of texts or objects
            numbers[...] = self._layout.flat(obs)
        if np.isfinite(numbers, self._finite).tobytes() != self._all_finite:
            self._layout.check_finite(numbers)
        if traj.masks is not None:
            traj.masks[row] = True if mask is None else self._layout.mask(mask)
        elif mask is not None:
            self._layout.mask(mask)
        traj.rewards[row] = None
        traj.foreign[row] = 0
        chooser = self._chooser
        decider = chooser.decider  # read once: the swap is one assignment
        try:
            act = decider.decide(traj, row)
        except Exception as error:  # nothing a policy or a network does may reach the application
            act = chooser.decide_otherwise(traj, row, decider, error)
        action = Action(act, traj, row, not self._shadow)
        counters, elapsed = self.counters, perf_counter() - started
        counters.times[counters.decisions & _TIMES] = elapsed
        counters.decisions += 1
        if elapsed > self._deadline:
            chooser.was_late(decider)
        elif chooser.late_in_a_row:
            chooser.late_in_a_row = 0
        return traj, action

    def add_to_trajectory(self, traj: Trajectory, action: Action) -> None:
        """Keep this step; one that is not added is forgotten at the next request."""
        if action._trajectory is not traj:
            raise Conflict("this action belongs to another trajectory")
        if traj.ended:
            raise Conflict("this trajectory has ended; request_for_action begins the next one")
        if action.added or not action.newest:
            raise Conflict("this action was added before, or a newer one was asked for since")
        if not action.told:
            raise Conflict("in shadow mode say what was done first: action.did(…)")
        if self._shadow:
            same = np.array_equal(action.act, traj.actions[action._row])
            self.counters.shadow["agreed" if same else "differed"] += 1
        action.added = True
        traj.length += 1

    def mark_end_of_trajectory(
        self, traj: Trajectory, action: Action | None = None, truncated: bool = False, final_obs: Any = None
    ) -> None:
        """The episode is over. `truncated`: it was cut off, and `final_obs` is what would have come next.

        Without `final_obs` the last step serves as that and is not learned from itself.
        """
        if traj.ended:
            raise Conflict("this trajectory has ended already")
        if traj.layout is not self._layout:
            raise Conflict(ANOTHERS)
        if action is not None and not (action.added and action._trajectory is traj):
            self.add_to_trajectory(traj, action)
        final = self._layout.final(final_obs) if truncated and final_obs is not None else None
        traj.terminated, traj.final = not truncated, final
        self._episodes.end(traj)

    # steering

    def off(self) -> None:
        """The kill switch: from the next decision on the policy has no say."""
        self._chooser.switch("caller", True)

    def on(self) -> None:
        """Give the policy its say again, unless a file or the environment keeps it off."""
        self._chooser.switch("caller", False)

    @property
    def is_off(self) -> bool:
        return self._chooser.is_off

    @property
    def version(self) -> Version | None:
        """Of the newest policy that is here, or None."""
        return self._chooser.version

    def figures(self) -> dict[str, Any]:
        """How this client is doing: decisions, their times, fallbacks, what waits and what was dropped."""
        counters = self.counters
        p50, p99 = counters.percentiles_us()
        trajectories, size = self._courier.outbox.waiting()
        return {
            "decisions": counters.decisions, "decision_p50_us": p50, "decision_p99_us": p99, "late": counters.late,
            "fallbacks": dict(counters.fallbacks), "dropped": dict(counters.dropped),
            "troubles": dict(counters.troubles), "shadow": dict(counters.shadow),
            "sent": counters.sent, "swaps": counters.swaps,
            "waiting_trajectories": trajectories, "waiting_bytes": size, "off": self.is_off,
            "version": None if self.version is None else str(self.version),
        }  # fmt: skip

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Send what has ended, or leave it in the spool; open trajectories are dropped. Returns in time."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        self._episodes.close()
        if self._started:
            self._courier.close(seconds)

    def __enter__(self) -> RL4SysAgent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # beside the hot path

    def _new_courier(self) -> Courier:
        chooser = self._chooser
        return Courier(
            self.settings, self.counters, chooser.swap, lambda off: chooser.switch("file", off), self._seed
        )

    def _begin_work(self) -> None:
        """Start the courier; hear whether the gateway refuses; know the shapes."""
        remote = self.settings.inference == "remote"
        known = None if self.settings.shape is None else layouts.of_shape(self.settings.shape, remote)
        self._courier.start(known)
        self._started = True
        try:
            self._hear(known)
        except BaseException:
            self._courier.close(0.5)
            raise

    def _hear(self, known: layouts.Layout | None) -> None:
        answered = self._courier.wait_for_answer(SHAPES_SECONDS if known is None else ANSWER_SECONDS)
        layout = known or self._courier.layout
        if layout is None:
            reason = self._courier.failure or f"the gateway at {self.settings.address} does not answer"
            raise Unavailable(
                f"{reason}; the configuration does not say what the policy sees and does either: give input_size "
                "and act_dim"
            )
        if not answered and not self._courier.failure:  # what failed was said by the courier
            self.counters.trouble(
                "not_ready",
                f"the gateway at {self.settings.address} has not answered yet; it takes some seconds to make a new "
                "policy; acting with fallbacks until then",
            )
        self._use_layout(layout)

    def _use_layout(self, layout: layouts.Layout) -> None:
        self._layout, self._shape = layout, layout.observation
        self._episodes = Episodes(layout, self.settings.max_traj_length, self._courier, self.counters)
        self._finite = np.ones(layout.observation, np.bool_)
        self._all_finite = self._finite.tobytes()
        fallback = Fallback(layout, self._heuristic, self.settings.safe_action, self.counters)
        asks = (
            RemoteDecider(self._courier.link, self.settings.policy, self._deadline) if layout.remote else None
        )
        self._chooser.begin(fallback, asks)

    def _begin(self, old: Trajectory | None) -> Trajectory:
        if self._closed:
            raise Conflict("this agent is closed")
        if not self._started:
            self._courier.start(self._layout)
            self._started = True
        return self._episodes.begin(old)

    def _make_room(self, traj: Trajectory, obs: Any, mask: Any) -> Trajectory:
        """More rows, or beyond `max_traj_length` a new trajectory: what is seen now ends the old one."""
        if traj.capacity < traj.limit:
            traj.grow()
            return traj
        self._episodes.cut_off(traj, obs, mask)
        return self._begin(traj)

    def before_fork(self) -> None:
        self._courier.link.pause()

    def after_fork_in_parent(self) -> None:
        self._courier.link.resume()

    def after_fork(self) -> None:
        """In the child: what is open belongs to the parent; a courier of our own starts with the next episode."""
        self._episodes.let_go()
        forking.keep(self._courier)
        self._courier.outbox.spool.abandon()
        self.counters = Counters()
        self._seed = None
        self._chooser.forked(self.counters)
        self._courier = self._new_courier()
        self._started = False
        self._use_layout(self._layout)
