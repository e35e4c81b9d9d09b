"""Variants by name: entry points in, classes out. Ours come in by the same door as a stranger's.

Nothing is imported until it is named, so one broken plugin cannot break `penstock --help`.
"""

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from penstock.errors import ConfigError, NotFound, nearest

Kind = Literal["algorithms", "settings"]


@cache
def installed(kind: Kind) -> dict[str, EntryPoint]:
    """All plugins of the entry-point group `penstock.<kind>`, by name; none of them is imported.

    Where two packages register one name, ours wins: installing a package must not change runs.
    """
    points = sorted(entry_points(group=f"penstock.{kind}"), key=lambda point: (point.name, point.value))
    found = {point.name: point for point in points}
    return found | {point.name: point for point in points if point.value.startswith("penstock.")}


def load(kind: Kind, name: str) -> Any:
    """The object registered as `name` under `penstock.<kind>`.

    Raises NotFound with the nearest installed name, ConfigError where its package cannot be imported.
    """
    found = installed(kind)
    if name not in found:
        raise NotFound(
            f"no algorithm named {name!r} is installed{nearest(name, found)} "
            f"(others come with: pip install their package)"
        )
    point = found[name]
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        missing = getattr(error, "name", None) or point.module
        raise ConfigError(
            f"the {kind} plugin {name!r} ({point.value}) cannot be imported: {error}; "
            f"try: pip install {_package(point, missing)}"
        ) from error


def _package(point: EntryPoint, missing: str) -> str:
    """What to install: the missing module's own name, or the plugin's package again if that is broken."""
    if point.module.split(".")[0] == missing.split(".")[0]:
        return point.dist.name if point.dist is not None else missing.split(".")[0]
    return missing.split(".")[0]
