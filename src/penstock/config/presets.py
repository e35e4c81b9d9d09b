"""Tuned settings that ship with the package, by environment and algorithm (`presets.toml`)."""

import copy
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

ANY = "any"
"""The part of an environment's presets that holds for every algorithm."""


def preset(environment: str, algorithm: str) -> dict[str, Any]:
    """A partial spec in file form; empty where nothing is known. The caller may change it."""
    found = presets().get(environment) or presets().get(environment.rsplit(":", 1)[-1]) or {}
    result = copy.deepcopy(found.get(ANY, {}))
    for group, values in copy.deepcopy(found.get(algorithm, {})).items():
        result[group] = {**result.get(group, {}), **values} if isinstance(values, dict) else values
    return result


@cache
def presets() -> dict[str, dict[str, dict[str, Any]]]:
    """Environment → algorithm (or `any`) → partial spec."""
    return tomllib.loads((files("penstock") / "presets.toml").read_text(encoding="utf-8"))
