"""Many ways to say what to train, one answer: a complete, checked `Spec`.

Built-in defaults < preset for (environment, algorithm) < spec file or mapping < overrides.
Misspelt keys are refused at every level, with the place and the nearest right word.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock import plugins
from penstock.config import files
from penstock.config.checks import check_contradictions, check_group, field_types
from penstock.config.presets import preset
from penstock.config.schema import schema
from penstock.errors import ConfigError, Damaged, nearest
from penstock.model.spec import FORMAT, Spec

if TYPE_CHECKING:
    from penstock.algorithms.settings import Settings

__all__ = ["from_mapping", "home", "preset", "resolve", "schema", "settings_of", "to_mapping", "to_yaml"]

SPEC_SUFFIXES = (".yaml", ".yml", ".json")
DOTTED = ("stream.kafka.options", "stream.kafka.topic_config")
SHORTHANDS = {"environment": "id", "actors": "count"}
"""Groups that may be written as one value: `environment: CartPole-v1`, `actors: 2`."""


def resolve(source: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> Spec:
    """The spec of a run from an environment id, a `file.py:Class`, a spec file or a mapping.

    `overrides` are dotted paths (`pace.lead`, `ppo.learning_rate`, `environment.kwargs.continuous`);
    values that are text are read as YAML. Raises ConfigError, or NotFound for an unknown algorithm.
    """
    said, place, folder = _read(source)
    _anchor_paths(said, folder)
    more = _nested(overrides or {})
    _anchor_paths(more, Path.cwd())
    for layer, where in ((said, place), (more, "")):
        _check_format(layer, where)
    algorithm = more.get("algorithm", said.get("algorithm", "ppo"))
    for layer, where in ((said, place), (more, "")):
        _check_layer(layer, algorithm, where)
    user = _merged(said, more)
    environment = user.get("environment", {}).get("id")
    if not environment:
        raise ConfigError(f"{_prefix(place)}environment is missing; only it is required (CartPole-v1, say)")
    tuned = preset(environment, algorithm)
    _check_layer(tuned, algorithm, f"presets.toml, {environment}")
    return _complete(_merged(tuned, user), algorithm, place)


def settings_of(spec: Spec) -> "Settings":
    """The hyperparameters of a spec, typed; complete after `resolve`."""
    kind: type[Settings] = plugins.load("settings", spec.algorithm)
    check_group(kind, spec.settings, spec.algorithm, "")
    return msgspec.convert(spec.settings, kind)


def to_mapping(spec: Spec) -> dict[str, Any]:
    """The file form of a spec: everything it says, hyperparameters under the algorithm's name."""
    values: dict[str, Any] = msgspec.to_builtins(spec, builtin_types=())
    return {(spec.algorithm if name == "settings" else name): _lists(value) for name, value in values.items()}


def to_yaml(spec: Spec) -> str:
    """`to_mapping` as YAML; `resolve` reads an equal spec back."""
    return files.dump(to_mapping(spec))


def from_mapping(values: Mapping[str, Any], place: str) -> Spec:
    """A stored spec exactly as it was: no presets, no look at files or plugins. Raises Damaged."""
    if values.get("format", FORMAT) != FORMAT:
        raise Damaged(f"{place} has format {values['format']}, this penstock reads {FORMAT}; upgrade it")
    try:
        algorithm = values.get("algorithm", "ppo")
        named = {("settings" if key == algorithm else key): value for key, value in values.items()}
        return msgspec.convert(named, Spec)
    except (msgspec.ValidationError, TypeError) as error:
        raise Damaged(f"{place} does not read as a spec: {error}") from error


def home() -> Path:
    """Where state lives: PENSTOCK_HOME or ~/.penstock, made with mode 700 where it is missing."""
    path = Path(os.environ.get("PENSTOCK_HOME") or Path.home() / ".penstock").expanduser().absolute()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"PENSTOCK_HOME {path} cannot be made: {error.strerror or error}") from error
    return path


def _read(source: str | Path | Mapping[str, Any]) -> tuple[dict[str, Any], str, Path]:
    """What the source says, the name errors give it, and the folder its relative paths start from."""
    if isinstance(source, Mapping):
        return _spread(files.mapping(source, "spec"), "spec"), "", Path.cwd()
    text = os.fspath(source)
    path = Path(text)
    if path.suffix.lower() in SPEC_SUFFIXES or (isinstance(source, Path) and path.suffix != ".py"):
        return _spread(files.read(path), text), text, path.absolute().parent
    if path.suffix == ".toml":
        raise ConfigError(f"{text} is TOML; a spec file is YAML or JSON")
    if path.suffix == ".py":
        raise ConfigError(f"{text} is a file of Python; name the class in it, as in {text}:MyEnv")
    return {"environment": {"id": text}}, "", Path.cwd()


def _nested(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted paths as nested groups."""
    tree: dict[str, Any] = {}
    for path, value in overrides.items():
        names = _names(path)
        if not all(names):
            raise ConfigError(f"{path!r} is not a path of settings; write GROUP.NAME, as in pace.lead")
        read = files.plain(files.scalar(value, path), path)
        for name in reversed(names):
            read = {name: read}
        tree = _merged(tree, _spread(read, ""))
    return tree


def _names(path: str) -> list[str]:
    """The groups and the name in a path; the names of Kafka's own settings have dots themselves."""
    for group in DOTTED:
        if path.startswith(f"{group}."):
            return [*group.split("."), path.removeprefix(f"{group}.")]
    return path.split(".")


def _spread(values: dict[str, Any], place: str) -> dict[str, Any]:
    """Write shorthands out: `actors: 2` becomes `actors: {count: 2}`."""
    for group, name in SHORTHANDS.items():
        if group in values and not isinstance(values[group], dict):
            if values[group] is None:
                raise ConfigError(f"{_prefix(place)}{group} is empty; leave it out or give it a value")
            values[group] = {name: values[group]}
    return values


def _anchor_paths(values: dict[str, Any], folder: Path) -> None:
    """Make `./my_env.py:MyEnv` absolute, so that a process in another folder finds it; it must exist."""
    environment = values.get("environment", {})
    if isinstance(environment.get("id"), str):
        environment["id"] = _anchored(environment["id"], folder)
    if isinstance(environment.get("wrappers"), list):
        environment["wrappers"] = [_anchored(wrapper, folder) for wrapper in environment["wrappers"]]


def _anchored(name: Any, folder: Path) -> Any:
    if not isinstance(name, str) or ".py:" not in name:
        return name
    path, class_name = name.rsplit(":", 1)
    file = (folder / Path(path).expanduser()).resolve()
    if not file.is_file():
        raise ConfigError(f"there is no file {file}; an environment of your own is written as file.py:Class")
    if not class_name.isidentifier():
        raise ConfigError(f"{name!r} names no class; write {path}:MyEnv")
    return f"{file}:{class_name}"


def _check_format(values: Mapping[str, Any], place: str) -> None:
    number = values.get("format", FORMAT)
    if isinstance(number, int) and number > FORMAT:
        raise ConfigError(
            f"{_prefix(place)}format {number} is newer than this penstock reads ({FORMAT}); upgrade it"
        )


def _check_layer(values: dict[str, Any], algorithm: Any, place: str) -> None:
    """Check one layer by itself, so that an error can name where the setting was written."""
    if not isinstance(algorithm, str):
        raise ConfigError(f"{_prefix(place)}algorithm is {algorithm!r}; write a name such as ppo")
    kind = plugins.load("settings", algorithm)
    groups = field_types(Spec)
    groups.pop("settings")
    for name in values:
        if name not in groups and name != algorithm:
            raise ConfigError(f"{_prefix(place)}{_unknown(name, algorithm, groups)}")
    own = values.get(algorithm, {})
    check_group(kind, own, algorithm, place)
    whole = {name: value for name, value in values.items() if name != algorithm}
    check_group(Spec, whole, "", place)
    values |= whole  # where a number became an integer


def _unknown(name: str, algorithm: str, groups: Mapping[str, Any]) -> str:
    if name in plugins.installed("settings"):
        return (
            f"the group {name!r} belongs to another algorithm, and this run's is {algorithm}; "
            f"remove it or set algorithm: {name}"
        )
    return f"a spec has no setting {name!r}{nearest(name, [*groups, algorithm])}"


def _complete(values: dict[str, Any], algorithm: str, place: str) -> Spec:
    kind = plugins.load("settings", algorithm)
    settings = msgspec.convert(values.pop(algorithm, {}), kind)
    spec = msgspec.convert({**values, "algorithm": algorithm, "settings": {}}, Spec)
    spec = msgspec.structs.replace(spec, settings=_lists(msgspec.to_builtins(settings)))
    check_contradictions(spec, _prefix(place))
    return spec


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Groups are merged; of single values the upper one wins, also when it is null."""
    result = dict(below)
    for name, value in above.items():
        old = result.get(name)
        result[name] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


def _lists(value: Any) -> Any:
    """Tuples as lists: what YAML and JSON give back."""
    if isinstance(value, dict):
        return {name: _lists(part) for name, part in value.items()}
    return [_lists(part) for part in value] if isinstance(value, list | tuple) else value


def _prefix(place: str) -> str:
    return f"{place}: " if place else ""
