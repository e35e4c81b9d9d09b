"""The shapes of rows: what is written down for each decision, and how what callers give becomes that."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from penstock.client.description import Description
from penstock.client.settings import Shape
from penstock.errors import ConfigError
from penstock.model.tensors import Array

OBSERVATIONS = "observations"


@dataclass(frozen=True, slots=True, eq=True)
class Layout:
    """Shapes of one row. Two versions of a policy have the same."""

    observation: tuple[int, ...]
    discrete: bool
    action: tuple[int, ...]
    """Shape of one action: () for one choice."""
    choices: int
    """Choices, or numbers where not discrete."""
    masked: bool
    limit: float
    width: int
    """Numbers the network gives."""
    remote: bool = False

    @property
    def size(self) -> int:
        return prod(self.observation)

    @property
    def action_type(self) -> Any:
        return np.int32 if self.discrete else np.float32

    @property
    def row_bytes(self) -> int:
        """Bytes of a row as it is kept; about what travels."""
        return 4 * (self.size + max(1, prod(self.action)) + self.width + 2) + self.masked * self.choices + 1

    def flat(self, observation: Any) -> Array:
        """A caller's list, array or tensor as float32 in this shape; raise ConfigError where it does not fit."""
        given = observation
        if hasattr(given, "detach"):  # a torch tensor, which may hang on a graph or lie on a device
            given = given.detach().cpu().numpy()
        try:
            array = np.asarray(given, np.float32)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"an observation must be {self.size} numbers: {error}") from error
        if array.size != self.size:
            raise ConfigError(
                f"an observation has {array.size} numbers where this policy sees {self.size} "
                f"(input_size or observation_shape of the configuration)"
            )
        return array.reshape(self.observation)

    def final(self, observation: Any) -> Array:
        """What ends a trajectory: a copy in this shape; raise ConfigError where it does not fit."""
        numbers = self.flat(observation).copy()
        self.check_finite(numbers)
        return numbers

    def check_finite(self, numbers: Array) -> None:
        if not np.isfinite(numbers).all():
            at = int(np.argmin(np.isfinite(numbers)))
            raise ConfigError(
                f"entry {at} of an observation is not a finite number; replace what is missing first"
            )

    def mask(self, mask: Any) -> Array:
        """A caller's mask as flags; raise ConfigError where it does not fit or allows nothing."""
        if not self.masked:
            raise ConfigError('a mask was given, but the configuration does not say "masked": true')
        if hasattr(mask, "detach"):
            mask = mask.detach().cpu().numpy()
        try:
            flags = np.asarray(mask).astype(np.bool_).reshape(-1)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"a mask must be {self.choices} flags: {error}") from error
        if flags.size != self.choices:
            raise ConfigError(f"a mask has {flags.size} flags where there are {self.choices} actions")
        if not flags.any():
            raise ConfigError("a mask allows no action at all; allow at least one")
        return flags

    def foreign_action(self, action: Any) -> Any:
        """An action that the policy did not choose, as it is written down; raise ConfigError where it does not fit."""
        try:
            array = np.asarray(action, np.float64).reshape(self.action)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"an action must be {self._wanted()}, not {action!r}") from error
        fits = np.isfinite(array).all()
        if self.discrete:
            fits = fits and ((array == np.floor(array)) & (array >= 0) & (array < self.choices)).all()
        if not fits:
            raise ConfigError(f"an action must be {self._wanted()}, not {action!r}")
        return int(array) if self.discrete else array.astype(np.float32)

    def _wanted(self) -> str:
        return f"a whole number from 0 to {self.choices - 1}" if self.discrete else f"{self.choices} numbers"


def of_shape(shape: Shape, remote: bool) -> Layout:
    """What the configuration says, before any policy is known."""
    return Layout(
        observation=shape.observation,
        discrete=not shape.continuous,
        action=(shape.actions,) if shape.continuous else (),
        choices=shape.actions,
        masked=shape.masked,
        limit=shape.limit,
        width=0 if remote else shape.actions * (2 if shape.continuous else 1),
        remote=remote,
    )


def of_description(description: Description, remote: bool) -> Layout:
    """What the gateway says; raise ConfigError where this client cannot write such rows."""
    spaces = description.spaces
    columns, action = spaces.observation.columns, spaces.action
    column = columns.get(OBSERVATIONS)
    if column is None or len(columns) != 1 or not column.dtype.endswith("f4"):
        raise ConfigError("this policy sees more than one array of numbers; the client cannot act for it")
    if action.kind == "multi_discrete" or (action.kind == "box" and len(action.shape) != 1):
        raise ConfigError(f"this policy takes {action.kind} actions, which the client does not know")
    discrete = action.kind == "discrete"
    choices = action.choices if discrete else action.shape[0]
    return Layout(
        observation=column.shape,
        discrete=discrete,
        action=() if discrete else (choices,),
        choices=choices,
        masked=action.masked,
        limit=1.0 if discrete else max(abs(bound) for bound in (*action.low, *action.high)),
        width=0 if remote else choices * (1 if discrete else 2),
        remote=remote,
    )


def disagreement(here: Layout, there: Layout) -> str:
    """One sentence where configuration and policy differ, else nothing."""
    for what, mine, theirs in (
        ("observations of shape", here.observation, there.observation),
        ("discrete actions:", here.discrete, there.discrete),
        ("number of actions", here.choices, there.choices),
        ("masked actions:", here.masked, there.masked),
    ):
        if mine != theirs:
            return f"the configuration says {what} {mine}, the policy at the gateway has {theirs}"
    return ""
