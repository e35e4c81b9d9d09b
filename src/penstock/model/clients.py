"""A policy whose environment is somebody's running system: what stands in a spec instead of an environment.

`environment.id` is `client:<policy>`, and `environment.kwargs` say what the policy sees and does:

    {"observation": [8], "actions": 4, "masked": false}
    {"observation": [128, 8], "actions": 128, "masked": true}
    {"observation": [3], "actions": {"box": 1, "limit": 2.0}}
"""

import re
from collections.abc import Mapping
from math import prod
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock.errors import ConfigError
from penstock.model.spaces import OBSERVATIONS, ActionLayout, Column, Leaf, ObservationLayout, Spaces

PREFIX = "client:"
POLICY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MOST_NUMBERS = 1 << 16
"""In one observation: a row of more would not fit a rollout of any use."""
MOST_ROWS = 65_536
"""Of one rollout of such a run, whose length varies."""

Size = Annotated[int, Meta(ge=1, le=MOST_NUMBERS)]


class Box(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Numbers within ± limit."""

    box: Annotated[int, Meta(ge=1, le=4096)]
    limit: Annotated[float, Meta(gt=0, le=1e6)] = 1.0


class ClientShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a client's policy sees and does."""

    observation: Annotated[tuple[Size, ...], Meta(min_length=1, max_length=2)]
    """One axis: a vector. Two: a set of items, one a row."""
    actions: Annotated[int, Meta(ge=1, le=MOST_NUMBERS)] | Box
    masked: bool = False
    """Whether each observation comes with the actions that are allowed."""

    def spaces(self) -> Spaces:
        """The same in the words that actors and learners use; a running system cannot be rebuilt from a seed."""
        flat = self.observation[0] if len(self.observation) == 1 else 0
        leaf = Leaf((), "box", OBSERVATIONS, 0, flat, shape=self.observation)
        observation = ObservationLayout({OBSERVATIONS: Column(self.observation, "<f4")}, (leaf,))
        return Spaces(observation, self._action(), exact=False)

    def _action(self) -> ActionLayout:
        if isinstance(self.actions, int):
            return ActionLayout("discrete", sizes=(self.actions,), start=(0,), masked=self.masked)
        count, limit = self.actions.box, self.actions.limit
        return ActionLayout("box", shape=(count,), low=(-limit,) * count, high=(limit,) * count)


def is_client(environment: str) -> bool:
    return environment.startswith(PREFIX)


def policy_of(environment: str) -> str:
    """The policy's name; raise ConfigError where it is none."""
    name = environment.removeprefix(PREFIX)
    if not is_client(environment) or not POLICY_NAME.fullmatch(name):
        raise ConfigError(
            f"{name[:80]!r} cannot be a policy's name; use up to 64 letters, digits, dots, dashes and _"
        )
    return name


def shape_of(kwargs: Mapping[str, Any]) -> ClientShape:
    """The shape that a spec's `environment.kwargs` describe; raise ConfigError."""
    try:
        shape = msgspec.convert(dict(kwargs), ClientShape)
    except msgspec.ValidationError as error:
        reason = str(error).replace("`", "").replace("Expected", "expected")
        raise ConfigError(f"environment.kwargs of a client's policy: {reason}") from error
    if prod(shape.observation) > MOST_NUMBERS:
        raise ConfigError(
            f"an observation of {prod(shape.observation)} numbers is over the limit of {MOST_NUMBERS}"
        )
    if shape.masked and not isinstance(shape.actions, int):
        raise ConfigError("masks say which choices are allowed; actions that are numbers have none")
    return shape
