"""A spec file in, a plain mapping out. Data is never code: no tags, no aliases, no constructors.

YAML is read as people write it: `1e-3` is a number, and a key given twice is an error.
"""

import math
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from penstock.errors import ConfigError

MAX_BYTES = 1 << 20
_INT64 = 1 << 63
_SCALARS = {
    "null": (r"^(~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    "bool": (r"^(yes|Yes|no|No|true|True|TRUE|false|False|FALSE|on|On|off|Off)$", list("yYnNtTfFoO")),
    "int": (r"^[-+]?(0|[1-9][0-9_]*|0x[0-9a-fA-F]+)$", list("-+0123456789")),
    "float": (
        r"^[-+]?((\d[\d_]*\.[\d_]*|\.\d[\d_]*)([eE][-+]?\d+)?|\d[\d_]*[eE][-+]?\d+|\.(inf|Inf|INF))$|^\.(nan|NaN|NAN)$",
        list("-+.0123456789"),
    ),
}
"""What is not text: YAML 1.1 without dates and base 60, with `1e-3` as a number."""


def read(path: Path) -> dict[str, Any]:
    """The mapping in a YAML or JSON file; raise ConfigError that names the file and the line."""
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ConfigError(f"{path}: {size} bytes are too many for a spec; the limit is {MAX_BYTES}")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"there is no spec file {path}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text, so neither YAML nor JSON: {error}") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    return mapping(parse(text, str(path)), str(path))


def parse(text: str, place: str) -> Any:
    """YAML (JSON is a part of it) as plain values."""
    import yaml

    try:
        loader = _loader()(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{place}, line {mark.line + 1}" if mark is not None else place
        raise ConfigError(f"{where}: not YAML or JSON: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{place}: not YAML or JSON: {reason}") from error
    except RecursionError as error:
        raise ConfigError(f"{place}: nested too deeply for a spec") from error


def scalar(value: Any, place: str) -> Any:
    """A flag's value: text is read as YAML (`0.5`, `true`, `[64, 64]`), anything else is kept."""
    return parse(value, place) if isinstance(value, str) else value


def mapping(value: Any, place: str) -> dict[str, Any]:
    """Check that `value` is a mapping of plain values, and copy it."""
    if not isinstance(value, Mapping):
        found = "nothing" if value is None else f"a {type(value).__name__}"
        raise ConfigError(f"{place}: a spec is a mapping such as `environment: CartPole-v1`, not {found}")
    return {key: plain(part, f"{place}: {key}") for key, part in _named(value, place)}


def plain(value: Any, place: str) -> Any:
    """A copy made of JSON's types only, with finite numbers; anything else is a ConfigError."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        if not -_INT64 <= value < _INT64:
            raise ConfigError(f"{place} is {value}; numbers must fit into 64 bits")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ConfigError(f"{place} is {value}; numbers must be finite")
        return float(value)
    if isinstance(value, list | tuple):
        return [plain(part, f"{place}[{index}]") for index, part in enumerate(value)]
    if isinstance(value, Mapping):
        return {key: plain(part, f"{place}.{key}") for key, part in _named(value, place)}
    raise ConfigError(f"{place} is a {type(value).__name__}; write text, a number, a list or a mapping")


def _named(value: Mapping[Any, Any], place: str) -> list[tuple[str, Any]]:
    for key in value:
        if not isinstance(key, str):
            raise ConfigError(f"{place} has the key {key!r}, which is not text; quote it")
    return list(value.items())


def dump(value: Any) -> str:
    """Plain values as YAML that `parse` reads back; groups in blocks, lists in one line."""
    import yaml

    class Dumper(yaml.SafeDumper):
        yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 - as PyYAML declares it

        def ignore_aliases(self, data: Any) -> bool:
            return True

    _resolve_scalars(Dumper)
    Dumper.add_representer(
        list, lambda dumper, part: dumper.represent_sequence("tag:yaml.org,2002:seq", part, flow_style=True)
    )
    Dumper.add_representer(str, _written)
    text: str = yaml.dump(
        value, Dumper=Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True, width=100
    )
    return text


def _written(dumper: Any, text: str) -> Any:
    """Text with line breaks only YAML knows (U+0085 …) is escaped: single quotes would fold it away."""
    style = None if text.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


@cache
def _loader() -> Any:
    """A SafeLoader that refuses aliases (they can multiply) and doubled keys."""
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 - as PyYAML declares it

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                mark = self.get_event().start_mark  # type: ignore[no-untyped-call]
                raise yaml.composer.ComposerError(None, None, "aliases (*name) are not part of a spec", mark)
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            names = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            for index, key in enumerate(names):
                if any(key.value == other.value for other in names[:index]):
                    text = f"the key {key.value!r} is given twice"
                    raise yaml.constructor.ConstructorError(None, None, text, key.start_mark)
            return super().construct_mapping(node, deep)

    _resolve_scalars(Loader)
    return Loader


def _resolve_scalars(kind: Any) -> None:
    for name, (pattern, first) in _SCALARS.items():
        kind.add_implicit_resolver(f"tag:yaml.org,2002:{name}", re.compile(pattern), first)
