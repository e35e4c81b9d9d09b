"""The JSON Schema of the spec's file form, for editors, forms and assistants."""

import ast
import inspect
import textwrap
from itertools import pairwise
from typing import Any, get_args

import msgspec

from penstock import plugins
from penstock.config.checks import field_types
from penstock.errors import PenstockError
from penstock.model.spec import Spec

Json = dict[str, Any]


def schema() -> Json:
    """JSON Schema (2020-12) with one property per installed algorithm; every setting is described."""
    algorithms = installed_settings()
    kinds: list[type[msgspec.Struct]] = [Spec, *_groups(Spec), *algorithms.values()]
    references, definitions = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    for kind, reference in zip(kinds, references, strict=True):
        definition = definitions[reference["$ref"].rsplit("/", 1)[-1]]
        for name, text in described(kind).items():
            if name in definition.get("properties", {}):
                definition["properties"][name]["description"] = text
    named = dict(zip(algorithms, references[len(kinds) - len(algorithms) :], strict=True))
    return _file_form(definitions.pop("Spec"), named, definitions)


def described(kind: type) -> dict[str, str]:
    """Field → the docstring under it, over all bases; empty where the source is not at hand."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not issubclass(base, msgspec.Struct) or base is msgspec.Struct:
            continue
        try:
            (body,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError, SyntaxError, ValueError):
            continue  # a zipped or frozen plugin: the schema is still right, only without words
        found |= _attribute_docstrings(body)
    return found


def _attribute_docstrings(body: ast.stmt) -> dict[str, str]:
    statements = body.body if isinstance(body, ast.ClassDef) else []
    found = {}
    for statement, after in pairwise(statements):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            found[statement.target.id] = inspect.cleandoc(after.value.value)
    return found


def installed_settings() -> dict[str, type[msgspec.Struct]]:
    """Settings by algorithm; a plugin that cannot be imported is left out."""
    found = {}
    for name in plugins.installed("settings"):
        try:
            found[name] = plugins.load("settings", name)
        except PenstockError:
            continue
    return found


def _groups(kind: type[msgspec.Struct]) -> list[type[msgspec.Struct]]:
    """The groups in a group, and in those."""
    parts = [part for field in field_types(kind).values() for part in (get_args(field) or (field,))]
    found = [part for part in parts if isinstance(part, type) and issubclass(part, msgspec.Struct)]
    return [*found, *(deeper for group in found for deeper in _groups(group))]


def _file_form(
    spec: dict[str, Any], algorithms: dict[str, Any], definitions: dict[str, Any]
) -> dict[str, Any]:
    properties = spec["properties"]
    del properties["settings"]
    for name, (short, example) in {
        "environment": ("string", "CartPole-v1"),
        "actors": ("integer", 2),
    }.items():
        group = properties[name]
        properties[name] = {
            "anyOf": [{"type": short, "examples": [example]}, {"$ref": group["$ref"]}],
            "description": definitions[group["$ref"].rsplit("/", 1)[-1]]["description"],
        }
    properties["algorithm"]["examples"] = list(algorithms)
    for name, reference in algorithms.items():
        text = definitions[reference["$ref"].rsplit("/", 1)[-1]].get("description", "")
        properties[name] = {**reference, "description": text}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **spec,
        "title": "Penstock spec",
        "$defs": definitions,
    }
