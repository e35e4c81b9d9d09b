"""Several environments of one slot, stepped in a plain loop into a preallocated block.

This is the hot path of an actor. Where Gymnasium's own wrappers only keep order and count steps, the
environment below them is stepped and the time limit is kept here: a loop over bare environments is
20–35 % faster than a vector wrapper. With wrappers of the user, the outermost is stepped.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from gymnasium import Env

from penstock.envs.actions import preparer
from penstock.envs.bare import peel, world_of
from penstock.envs.base import Group as Group
from penstock.envs.base import Rebuilt, episode_seed
from penstock.envs.encode import Encoder, Rows, fit, scalar, write_mask
from penstock.envs.faults import NOTHING, check_block, explain, wrong_reset
from penstock.envs.layout import MASK, describe
from penstock.envs.make import make
from penstock.envs.rebuild import Trail, read_trails, row_digest
from penstock.errors import EnvironmentFault, PenstockError
from penstock.model.codec import Array
from penstock.model.rollout import Block, Episode, Rollout, Start
from penstock.model.spaces import OBSERVATIONS
from penstock.model.spec import EnvironmentSpec

SLOW_ROW_SECONDS = 1.0
_NEVER = sys.maxsize


class EnvironmentGroup:
    """`count` copies of one environment; environment b of the slot is reset with its own seeds.

    Raise EnvironmentFault when one of them raises or breaks its promise; the group is then of no more use.
    `beat` is called after every row, and after every single step while rows are slow: a watchdog may
    take its silence for a hung environment.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        count: int,
        seed: int,
        slot: int,
        beat: Callable[[], object] | None = None,
    ) -> None:
        self._spec, self._seed, self._slot = spec, seed, slot
        self._beat = beat or (lambda: None)
        self._slow = True  # until the first row has shown how long one takes
        self._whole: list[Env[Any, Any]] = []
        for _ in range(count):
            self._whole.append(make(spec))
            self._beat()
        peeled = [peel(environment) for environment in self._whole]
        self._environments = [environment for environment, _ in peeled]
        self._limit = peeled[0][1]
        self._steps = [environment.step for environment in self._environments]
        self._now = 0
        self._episodes, self._began, self._deadlines = [0] * count, [0] * count, [_NEVER] * count
        self._totals, self._rewards = [0.0] * count, [0.0] * count
        # where masks are told is only known once an environment has been reset
        self._remade, world = False, world_of(self._environments[0])
        _, info = self._reset(0, 0)
        self._remade = world is not None and world is world_of(self._environments[0])
        self.spaces, self._mask_source = describe(self._whole[0], info, spec.id)
        self._encoder = Encoder(self.spaces.observation)
        self._prepare = preparer(self._whole[0].action_space, self.spaces.action)
        self._mask_parts = np.cumsum((0, *self.spaces.action.sizes))[:-1]
        self._plain = self._encoder.plain_shape is not None and self._mask_source == "none"
        self._shape = self._encoder.plain_shape or ()

    def start(self, block: Block) -> None:
        """Begin episode 0 of every environment; write row 0."""
        for b in range(len(self._steps)):
            self._begin(b, 0, 0, block)

    def starts(self) -> tuple[Start, ...]:
        """Where each environment stands before the next row."""
        return tuple(
            Start(episode, self._now - began, total)
            for episode, began, total in zip(self._episodes, self._began, self._totals, strict=True)
        )

    def step(self, t: int, actions: Array, block: Block) -> None:
        """Step every environment once with `actions` [B, …]; see `Group.step`."""
        before = time.perf_counter()
        if t == 0:  # rows are filled in order: clearing each of them costs more than all at once
            block.terminated.fill(False)
            block.truncated.fill(False)
        self._now += 1
        if self._plain:
            self._step_plain(t, self._prepare(actions), block)
        else:
            self._step_encoded(t, self._prepare(actions), block)
        block.rewards[t] = self._rewards
        self._beat()
        self._slow = time.perf_counter() - before > SLOW_ROW_SECONDS

    def _step_plain(self, t: int, actions: list[Any], block: Block) -> None:
        """The fast path: the observation is one float array, laid down as it is."""
        following, shape, ndarray = block.observations[OBSERVATIONS][t + 1], self._shape, np.ndarray
        rewards, totals, deadlines = self._rewards, self._totals, self._deadlines
        now, slow = self._now, self._slow
        b, returned = 0, NOTHING
        try:
            for b, step in enumerate(self._steps):
                returned = step(actions[b])
                observation, reward, terminated, truncated, _ = returned
                if type(reward) is not float:
                    reward = float(reward) if type(reward) is np.float64 else scalar(reward)
                # NumPy would broadcast a shape that does not fit without a word
                if type(observation) is not ndarray or observation.shape != shape:
                    observation = fit(observation, shape)
                following[b] = observation
                rewards[b] = reward
                totals[b] += reward
                if terminated or truncated or now >= deadlines[b]:
                    self._end(t, b, bool(terminated), block)
                if slow:
                    self._beat()
        except PenstockError:
            raise
        except Exception as error:
            raise self._fault(b, f"step {now - self._began[b]}", error, returned) from error

    def _step_encoded(self, t: int, actions: list[Any], block: Block) -> None:
        """Any other observation, and masks."""
        rows = {name: column[t + 1] for name, column in block.observations.items()}
        masks = None if block.masks is None else block.masks[t + 1]
        write = self._write
        rewards, totals, deadlines = self._rewards, self._totals, self._deadlines
        now, slow = self._now, self._slow
        b, returned = 0, NOTHING
        try:
            for b, step in enumerate(self._steps):
                returned = step(actions[b])
                observation, reward, terminated, truncated, info = returned
                if type(reward) is not float:
                    reward = float(reward) if type(reward) is np.float64 else scalar(reward)
                ended = terminated or truncated or now >= deadlines[b]
                write(b, observation, info, rows, masks, bool(ended))
                rewards[b] = reward
                totals[b] += reward
                if ended:
                    self._end(t, b, bool(terminated), block)
                if slow:
                    self._beat()
        except PenstockError:
            raise
        except Exception as error:
            raise self._fault(b, f"step {now - self._began[b]}", error, returned) from error

    def _write(
        self, b: int, observation: Any, info: Any, rows: Rows, masks: Array | None, ended: bool = False
    ) -> None:
        """Encode one observation and its mask into row `b`; a mask may be empty once the episode ended."""
        self._encoder.write(observation, rows, b)
        if masks is None:
            return
        if self._mask_source == "observation":
            mask = observation[MASK]
        elif self._mask_source == "method":
            mask = self._whole[b].get_wrapper_attr("action_masks")()
        else:
            mask = info.get(MASK)
            if mask is None and ended:
                mask = np.ones(masks.shape[1], np.bool_)
        write_mask(mask, masks, b, self._mask_parts, may_be_empty=ended)

    def _end(self, t: int, b: int, terminated: bool, block: Block) -> None:
        """Close the episode whose last observation stands in row t+1, and begin the next in its place."""
        length = self._now - self._began[b]
        block.episodes.append(Episode(b, self._episodes[b], self._totals[b], length, t))
        if terminated:
            block.terminated[t, b] = True
        else:
            block.truncated[t, b] = True
            final = {name: column[t + 1, b].copy() for name, column in block.observations.items()}
            mask = None if block.masks is None else block.masks[t + 1, b].copy()
            block.finals.append((t, b, final, mask))
        self._begin(b, self._episodes[b] + 1, t + 1, block)

    def _begin(self, b: int, episode: int, row: int, block: Block) -> None:
        """Reset environment `b` with the seed of `episode` and write what it shows into `row`."""
        observation, info = self._reset(b, episode)
        try:
            if self._plain:
                if type(observation) is not np.ndarray or observation.shape != self._shape:
                    observation = fit(observation, self._shape)
                block.observations[OBSERVATIONS][row, b] = observation
            else:
                rows = {name: column[row] for name, column in block.observations.items()}
                self._write(b, observation, info, rows, None if block.masks is None else block.masks[row])
        except Exception as error:
            raise self._fault(b, "reset", error, NOTHING) from error
        self._totals[b], self._began[b] = 0.0, self._now
        self._deadlines[b] = _NEVER if self._limit is None else self._now + self._limit
        self._beat()

    def _reset(self, b: int, episode: int) -> tuple[Any, Any]:
        self._episodes[b] = episode
        if self._remade:
            self._remake(b)
        try:
            returned = self._environments[b].reset(seed=episode_seed(self._seed, self._slot, b, episode))
        except Exception as error:
            raise self._fault(b, "reset", error, NOTHING) from error
        if problem := wrong_reset(returned):
            raise EnvironmentFault(f"{self._name(b)} {problem}")
        return returned

    def _remake(self, b: int) -> None:
        """A new environment for every episode, where a reset keeps its Box2D world.

        The order in which such a world solves contacts depends on all the bodies it ever held: a seed alone
        does not determine an episode of BipedalWalker (five of twelve differed); LunarLander renews it.
        """
        with suppress(Exception):
            self._whole[b].close()
        self._whole[b] = make(self._spec)
        self._environments[b], _ = peel(self._whole[b])
        self._steps[b] = self._environments[b].step

    def rebuild(self, newest_first: Iterator[Rollout], block: Block) -> Rebuilt:
        """Stand where the newest rollout of this slot ended, by replaying what is unfinished in the log.

        Every observation on the way is compared with the recorded one, bit by bit. An environment that
        does not come back to it, or whose episode began before the log does, begins a new episode.
        """
        trails = read_trails(newest_first, self.spaces, len(self._steps))
        mismatches, reasons, replayed = [], [], 0
        if not trails:
            self.start(block)
        for b, trail in enumerate(trails):
            reason = trail.problem or self._replay(b, trail, block)
            if reason:
                mismatches.append(b)
                reasons.append(f"{self._name(b)}: {reason}")
                self._begin(b, trail.episode + 1, 0, block)
            else:
                replayed += trail.elapsed
        return Rebuilt(tuple(mismatches), tuple(reasons), replayed)

    def _replay(self, b: int, trail: Trail, block: Block) -> str:
        """Play a trail again in row 0; say what differs, or nothing."""
        rows = {name: column[0] for name, column in block.observations.items()}
        masks = None if block.masks is None else block.masks[0]
        actions = self._prepare(trail.actions) if trail.elapsed else []
        try:
            self._begin(b, trail.episode, 0, block)
            for i, action in enumerate(actions):
                if row_digest(rows, masks, b) != trail.digests[i]:
                    return f"observation {i} of episode {trail.episode} differs from the log"
                observation, reward, terminated, truncated, info = self._steps[b](action)
                if terminated or truncated:
                    return f"episode {trail.episode} ended at step {i + 1}, but not in the log"
                self._write(b, observation, info, rows, masks)
                self._totals[b] += scalar(reward)
                self._beat()
        except Exception as error:
            return f"episode {trail.episode} raised {type(error).__name__} while it was replayed: {error}"
        if row_digest(rows, masks, b) != trail.digests[-1]:
            return f"observation {trail.elapsed} of episode {trail.episode} differs from the log"
        self._began[b] -= trail.elapsed
        self._deadlines[b] -= 0 if self._limit is None else trail.elapsed
        return ""

    def check(self, block: Block) -> None:
        """Raise EnvironmentFault where the block holds NaN or infinity, naming the place."""
        check_block(block, self._name)

    def close(self) -> None:
        """Close every environment; one that cannot be closed does not keep the others open."""
        for environment in self._whole:
            with suppress(Exception):
                environment.close()

    def _name(self, b: int) -> str:
        return f"environment {b} of slot {self._slot} ({self._spec.id})"

    def _fault(self, b: int, moment: str, error: Exception, returned: Any) -> EnvironmentFault:
        place = f"in {moment} of episode {self._episodes[b]}"
        return EnvironmentFault(f"{self._name(b)} {explain(error, place, returned)}")
