"""What can be trained and with what: environments, algorithms, and the schema of a spec."""

import importlib.util
import threading
from functools import cache
from typing import Any, cast

import msgspec

from penstock import config
from penstock.algorithms.fitting import GYMNASIUM
from penstock.algorithms.settings import Settings
from penstock.config.presets import presets
from penstock.config.schema import installed_settings
from penstock.control.describe import describe
from penstock.control.views import AlgorithmDetail, AlgorithmView, EnvironmentDetail, EnvironmentView
from penstock.envs.make import PACKAGES, known_environments
from penstock.errors import ConfigError, NotFound, Unavailable, nearest

PARTS = {
    "gymnasium.envs.box2d": ("Box2D", "pip install 'penstock[box2d]'"),
    "gymnasium.envs.mujoco": ("mujoco", "pip install 'gymnasium[mujoco]'"),
}
"""Beginnings of entry points → (module they need, how to get it)."""


class Catalog:
    """Used by many threads. What it has made once it remembers."""

    def __init__(self) -> None:
        self._making = threading.Semaphore(2)
        self._made: dict[str, dict[str, Any]] = {}

    def environments(self, search: str | None) -> list[EnvironmentView]:
        """Ids that Gymnasium knows or that have tuned settings; `search` is part of an id, whatever its case."""
        word = (search or "").lower()
        return [environment_view(id) for id in environment_ids() if word in id.lower()]

    def environment(self, id: str) -> EnvironmentDetail:
        """One of them with its spaces; raise NotFound. Its code runs in a child process, one at a time."""
        known = environment_ids()
        if id not in known:
            raise NotFound(
                f"Gymnasium knows no environment {id!r} (one of your own, as ./file.py:Class, can be trained but "
                f"is not listed){nearest(id, known)}"
            )
        view = environment_view(id)
        told: dict[str, Any] = {}
        if view.installed:
            try:
                told = self._describe(id)
            except ConfigError as error:
                view = view.model_copy(update={"installed": False, "missing": str(error)})
        return EnvironmentDetail(**view.model_dump(), **told, defaults=resolve({"environment": id}))

    def _describe(self, id: str) -> dict[str, Any]:
        if id not in self._made:
            if not self._making.acquire(blocking=False):
                raise Unavailable("other environments are being looked at; ask again in a few seconds")
            try:
                self._made[id] = describe(id)
            finally:
                self._making.release()
        return self._made[id]

    def algorithms(self) -> list[AlgorithmView]:
        """All that are installed and can be imported."""
        return [_algorithm_view(name, kind) for name, kind in _algorithms().items()]

    def algorithm(self, name: str) -> AlgorithmDetail:
        """Raise NotFound with the nearest."""
        kind = _algorithms().get(name)
        if kind is None:
            raise NotFound(f"there is no algorithm {name!r}{nearest(name, _algorithms())}")
        view = _algorithm_view(name, kind)
        defaults = msgspec.to_builtins(kind())
        return AlgorithmDetail(**view.model_dump(), schema=_settings_schema(name), defaults=defaults)


def resolve(spec: dict[str, Any]) -> dict[str, Any]:
    """The whole spec, every default written out; raise ConfigError, NotFound for an unknown algorithm."""
    return config.to_mapping(config.resolve(spec))


@cache
def spec_schema() -> dict[str, Any]:
    return config.schema()


@cache
def environment_ids() -> list[str]:
    return sorted({*known_environments(), *presets()})


@cache
def environment_view(id: str) -> EnvironmentView:
    missing = _missing(id)
    return EnvironmentView(id=id, installed=missing is None, missing=missing, preset=id in presets())


def check_environment(id: str) -> None:
    """Raise ConfigError for one that cannot be made here; what only its own package knows is left to the actor."""
    if ":" in id:  # a module or a file is user code: it is not for this process to import
        return
    if (fix := _missing(id)) is not None:
        raise ConfigError(f"environment {id} cannot be made here: {fix}")
    if "/" not in id and id not in environment_ids():
        raise ConfigError(f"there is no environment {id!r}{nearest(id, environment_ids())}")


def _missing(id: str) -> str | None:
    """What must be installed first, from what is registered alone: nothing is imported."""
    import gymnasium

    registered = gymnasium.registry.get(id)
    if registered is None:
        found = [package for beginning, package in PACKAGES.items() if id.startswith(beginning)]
        return f"pip install {found[0][1]}" if found and not _is_here(found[0][0]) else None
    if not isinstance(registered.entry_point, str):
        return f"an old version that left Gymnasium{nearest(id, _makeable())}"
    for beginning, (module, fix) in PARTS.items():
        if registered.entry_point.startswith(beginning) and not _is_here(module):
            return fix
    return None


def _makeable() -> list[str]:
    import gymnasium

    return [id for id in known_environments() if isinstance(gymnasium.registry[id].entry_point, str)]


def _is_here(module: str) -> bool:
    try:
        return importlib.util.find_spec(module.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False


def _algorithms() -> dict[str, type[Settings]]:
    return cast(dict[str, type[Settings]], installed_settings())


def live_settings(algorithm: str) -> list[str]:
    """Settings that may change while a run goes on; none of an algorithm that is not installed."""
    kind = _algorithms().get(algorithm)
    return sorted(kind.live) if kind is not None else []


def _algorithm_view(name: str, kind: type[Settings]) -> AlgorithmView:
    summary = (kind.__doc__ or "").strip().partition("\n")[0]
    actions = [GYMNASIUM[action] for action in kind.actions]
    return AlgorithmView(name=name, summary=summary, live=sorted(kind.live), actions=actions)


def _settings_schema(name: str) -> dict[str, Any]:
    """The part of the spec's schema that is this algorithm's, with what it refers to."""
    whole = spec_schema()
    reference = whole["properties"][name]["$ref"].rsplit("/", 1)[-1]
    schema: dict[str, Any] = dict(whole["$defs"][reference])
    if "$ref" in str(schema):
        schema["$defs"] = whole["$defs"]
    return schema
