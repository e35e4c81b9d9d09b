"""A class by its name: `./my_env.py:MyEnv`, `/abs/my_env.py:MyEnv` or `package.module:Class`.

A file is imported once per process, under a name of its own, with its folder at the end of
`sys.path` so that it can import its neighbours. Nothing is imported until it is named.
"""

import ast
import importlib
import importlib.util
import inspect
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.errors import ConfigError, nearest

_importing = 0


def is_file(name: str) -> bool:
    """Whether `name` has the form `file.py:Class`."""
    path, colon, _ = name.rpartition(":")
    return bool(colon) and path.endswith(".py")


def load(name: str) -> Callable[..., Any]:
    """The class (or function) called `name`; raise ConfigError that says which part is wrong."""
    path, colon, attribute = name.rpartition(":")
    if not colon or not path:
        raise ConfigError(f"{name!r} names no class; write './file.py:Class' or 'package.module:Class'")
    module = _import_file(path) if path.endswith(".py") else import_module(path)
    found = getattr(module, attribute, None)
    if found is None:
        raise ConfigError(f"{path} has no {attribute!r}{nearest(attribute, classes(module))}")
    if not callable(found):
        raise ConfigError(f"{attribute!r} in {path} is a {type(found).__name__}, not a class")
    return found  # type: ignore[no-any-return]


def import_module(name: str) -> ModuleType:
    """Import `name`, also from the current folder."""
    _append_to_path(os.getcwd())
    try:
        with _marked():
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name + ".").startswith(error.name + "."):
            raise _does_not_import(name, error) from error
        raise ConfigError(
            f"there is no Python module {error.name!r}; install the package that holds {name!r}, "
            f"or name the file as './{name.replace('.', '/')}.py:Class'"
        ) from error
    except Exception as error:
        raise _does_not_import(name, error) from error


def classes(module: ModuleType) -> list[str]:
    """Names of the classes defined in `module` itself."""
    return [
        name
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__
    ]


def importing_environment() -> bool:
    """True while a user's file is being imported to find a class in it.

    A script that starts training at its top level would start it again in every actor: whoever
    starts runs should refuse while this is true and ask for `if __name__ == "__main__":`.
    """
    return _importing > 0


def environment_id(thing: Any) -> str:
    """The id by which another process finds `thing`: a string as it is, a class as `path.py:Class`.

    Raise ConfigError for what only exists in this process: a class typed into a notebook or a
    prompt, a class inside a function, an instance.
    """
    if isinstance(thing, str):
        return thing
    name = getattr(thing, "__qualname__", None)
    if not isinstance(name, str) or not callable(thing):
        kind = type(thing).__name__
        raise ConfigError(
            f"an environment is its id or its class, not an instance of {kind}; pass {kind} itself"
        )
    if "." in name:
        raise ConfigError(
            f"{name!r} is defined inside a function or a class; move it to the top level of a file, "
            "because actors import it in processes of their own"
        )
    module = sys.modules.get(thing.__module__)
    file = getattr(module, "__file__", None)
    if thing.__module__ == "__main__":
        if file is None or not _defines(Path(file), name):
            raise ConfigError(
                f"{name!r} exists only in this notebook or prompt, and actors are processes of their own; "
                f"write it to a file (begin the cell with %%writefile my_env.py), pass './my_env.py:{name}'"
            )
        return f"{Path(file).resolve()}:{name}"
    local = file is not None and "." not in thing.__module__ and "site-packages" not in file
    return f"{Path(file).resolve()}:{name}" if local and file else f"{thing.__module__}:{name}"


def _defines(file: Path, name: str) -> bool:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    return any(isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name for node in tree.body)


def _import_file(written: str) -> ModuleType:
    path = Path(written).expanduser().resolve()
    if not path.is_file():
        neighbours = [str(other) for other in path.parent.glob("*.py")] if path.parent.is_dir() else []
        hint = nearest(str(path), neighbours) if neighbours else ""
        raise ConfigError(f"there is no file {path}{hint}")
    name = f"{path.stem}_{zlib.crc32(os.fsencode(path)):08x}"
    if name in sys.modules:
        return sys.modules[name]
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise ConfigError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(found)
    _append_to_path(str(path.parent))
    sys.modules[name] = module  # dataclasses and typing look their module up while it is being imported
    try:
        with _marked():
            found.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, Exception | SystemExit):
            raise _does_not_import(str(path), error) from error
        raise
    return module


def _does_not_import(name: str, error: BaseException) -> ConfigError:
    if isinstance(error, ConfigError):
        return error
    if isinstance(error, SyntaxError):
        return ConfigError(f"{error.filename or name}, line {error.lineno}: {error.msg}")
    where = ""
    frame = error.__traceback__
    while frame is not None:
        if not frame.tb_frame.f_code.co_filename.startswith("<frozen"):
            where = f" at {frame.tb_frame.f_code.co_filename}, line {frame.tb_lineno}"
        frame = frame.tb_next
    return ConfigError(f"{name} cannot be imported: {type(error).__name__}: {error}{where}")


def _append_to_path(folder: str) -> None:
    # at the end: a user's random.py must not shadow the standard library's
    if folder not in sys.path:
        sys.path.append(folder)


@contextmanager
def _marked() -> Iterator[None]:
    global _importing
    _importing += 1
    try:
        yield
    finally:
        _importing -= 1
