"""One environment for evaluation and for watching: encoded observations in, actions of a policy out."""

from types import TracebackType
from typing import Any

import numpy as np

from penstock.envs.actions import preparer
from penstock.envs.encode import Encoder, scalar, write_mask
from penstock.envs.faults import NOTHING, explain, wrong_reset
from penstock.envs.layout import MASK, describe
from penstock.envs.make import make
from penstock.errors import ConfigError, EnvironmentFault, PenstockError
from penstock.model.codec import Array
from penstock.model.spec import EnvironmentSpec

Observation = dict[str, Array]
"""Columns with one row: [1, …], as `policy` wants them."""


class SingleEnvironment:
    """Steps like Gymnasium, but on columns and with actions that count from 0.

    `mask` [1, A] says which actions are allowed now, or is None. Never resets by itself: whoever sees
    the end of an episode calls `reset`. Usable in a `with` statement.
    """

    def __init__(self, spec: EnvironmentSpec, seed: int, render: bool = False) -> None:
        self._spec = spec
        self._environment = make(spec, "rgb_array") if render else make(spec)
        if render:
            self._must_render()
        _, info = self._call("reset", seed=seed)
        self.spaces, self._mask_source = describe(self._environment, info, spec.id)
        self._encoder = Encoder(self.spaces.observation)
        self._prepare = preparer(self._environment.action_space, self.spaces.action)
        self._mask_parts = np.cumsum((0, *self.spaces.action.sizes))[:-1]
        self.mask: Array | None = None

    def reset(self, seed: int) -> Observation:
        """Begin an episode; return what it shows first."""
        observation, info = self._call("reset", seed=seed)
        return self._encode(observation, info, ended=False)

    def step(self, action: Array) -> tuple[Observation, float, bool, bool]:
        """(observation, reward, terminated, truncated) after one action of a policy."""
        prepared = self._prepare(np.asarray(action)[None])[0]
        observation, reward, terminated, truncated, info = self._call("step", prepared)
        columns = self._encode(observation, info, ended=bool(terminated or truncated))
        try:
            return columns, scalar(reward), bool(terminated), bool(truncated)
        except Exception as error:
            raise self._fault("step", error, NOTHING) from error

    def render(self) -> Array:
        """A picture [height, width, 3], uint8."""
        picture = np.asarray(self._call("render"))
        if picture.ndim != 3 or picture.shape[2] != 3:
            raise EnvironmentFault(
                f"{self._spec.id} rendered an array of shape {picture.shape}, not a picture"
            )
        return picture.astype(np.uint8, copy=False)

    @property
    def frames_per_second(self) -> float:
        """The pace at which the environment wants to be watched."""
        return float(self._environment.metadata.get("render_fps") or 30)

    def close(self) -> None:
        self._environment.close()

    def __enter__(self) -> "SingleEnvironment":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _must_render(self) -> None:
        modes = list(self._environment.metadata.get("render_modes") or ())
        if "rgb_array" not in modes or self._environment.render_mode != "rgb_array":
            self._environment.close()
            raise ConfigError(
                f"{self._spec.id} cannot draw itself: it has no render mode 'rgb_array' "
                f"(it has {', '.join(map(str, modes)) or 'none'})"
            )

    def _encode(self, observation: Any, info: Any, ended: bool) -> Observation:
        columns = {
            name: np.zeros((1, *column.shape), column.dtype)
            for name, column in self.spaces.observation.columns.items()
        }
        try:
            self._encoder.write(observation, columns, 0)
            self.mask = self._read_mask(observation, info, ended)
        except Exception as error:
            raise self._fault("observation", error, NOTHING) from error
        return columns

    def _read_mask(self, observation: Any, info: Any, ended: bool) -> Array | None:
        if self._mask_source == "none":
            return None
        row = np.ones((1, self.spaces.action.choices), np.bool_)
        if self._mask_source == "observation":
            mask = observation[MASK]
        elif self._mask_source == "method":
            mask = self._environment.get_wrapper_attr("action_masks")()
        else:
            mask = info.get(MASK, row[0] if ended else None)
        write_mask(mask, row, 0, self._mask_parts, may_be_empty=ended)
        return row

    def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        returned: Any = NOTHING
        try:
            returned = getattr(self._environment, method)(*arguments, **options)
            if method == "step":
                _, _, _, _, _ = returned
        except PenstockError:
            raise
        except Exception as error:
            raise self._fault(method, error, returned) from error
        if method == "reset" and (problem := wrong_reset(returned)):
            raise EnvironmentFault(f"{self._spec.id} {problem}")
        return returned

    def _fault(self, method: str, error: Exception, returned: Any) -> EnvironmentFault:
        return EnvironmentFault(f"{self._spec.id} {explain(error, f'in {method}', returned)}")
