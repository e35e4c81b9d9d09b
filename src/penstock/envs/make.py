"""An environment from its spec: a Gymnasium id, a class in a file, or a class in a package.

    CartPole-v1   ALE/Pong-v5   package:Env-v0        Gymnasium ids
    ./my_env.py:MyEnv   package.module:MyEnv          classes (see `envs.load`)

Every mistake a person can make in the spec is a ConfigError of one sentence; what the
environment's own constructor raises is an EnvironmentFault. Gymnasium is imported on first use.
"""

import importlib
import importlib.util
import inspect
import re
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from penstock.envs.load import environment_id, import_module, importing_environment, is_file, load
from penstock.errors import ConfigError, EnvironmentFault, PenstockError, nearest
from penstock.model.clients import is_client
from penstock.model.spec import EnvironmentSpec

if TYPE_CHECKING:
    import gymnasium

    from penstock.envs.base import Group

__all__ = ["environment_id", "importing_environment", "known_environments", "make", "make_group"]

PACKAGES = {
    "ALE/": ("ale_py", "ale-py"),
    "MiniGrid-": ("minigrid", "minigrid"),
    "BabyAI-": ("minigrid", "minigrid"),
    "MinAtar/": ("minatar.gym", "minatar"),
    "miniwob/": ("miniwob", "miniwob"),
    "highway-": ("highway_env", "highway-env"),
    "flappy_bird": ("flappy_bird_gymnasium", "flappy-bird-gymnasium"),
    "FlappyBird-": ("flappy_bird_gymnasium", "flappy-bird-gymnasium"),
    "Fetch": ("gymnasium_robotics", "gymnasium-robotics"),
    "Hand": ("gymnasium_robotics", "gymnasium-robotics"),
    "Adroit": ("gymnasium_robotics", "gymnasium-robotics"),
    "AntMaze_": ("gymnasium_robotics", "gymnasium-robotics"),
    "PointMaze_": ("gymnasium_robotics", "gymnasium-robotics"),
    "Panda": ("panda_gym", "panda-gym"),
}
"""Beginnings of ids → (module that registers them, package to install)."""

_HIDDEN = ("GymV21Environment", "GymV26Environment", "phys2d/", "tabular/")


def make_group(
    spec: EnvironmentSpec, count: int, seed: int, slot: int, beat: Callable[[], object] | None = None
) -> "Group":
    """`count` environments of `slot`, stepped together: native where the spec asks for it."""
    refuse_client(spec)
    if spec.native:
        from penstock.envs.native import NativeGroup

        return NativeGroup(spec, count, seed, slot, beat)
    from penstock.envs.group import EnvironmentGroup

    return EnvironmentGroup(spec, count, seed, slot, beat)


def refuse_client(spec: EnvironmentSpec) -> None:
    """A client's own system is nothing that can be made, stepped or drawn here."""
    if is_client(spec.id):
        raise ConfigError(
            f"{spec.id} is a running system that reaches Penstock through the gateway; there is no environment "
            "here to act in: look at its returns instead (penstock show RUN)"
        )


def known_environments() -> list[str]:
    """Ids that are registered now, oldest versions included; packages not yet imported are not seen."""
    import gymnasium

    return sorted(name for name in gymnasium.registry if not name.startswith(_HIDDEN))


def make(spec: EnvironmentSpec, render_mode: str | None = None) -> "gymnasium.Env[Any, Any]":
    """The environment with its time limit inside and the user's wrappers around it, innermost first."""
    import gymnasium

    refuse_client(spec)
    kwargs = dict(spec.kwargs) if render_mode is None else {**spec.kwargs, "render_mode": render_mode}
    if _is_class(spec.id):
        creator = load(spec.id)
        environment = _construct(spec.id, creator, creator, kwargs)
        if not isinstance(environment, gymnasium.Env):
            raise ConfigError(_no_environment(spec.id, environment))
        if spec.max_episode_steps is not None:
            environment = gymnasium.wrappers.TimeLimit(environment, spec.max_episode_steps)
    else:
        environment = _registered(spec, kwargs)
    for name in spec.wrappers:
        environment = _construct(name, load(name), None, {}, environment)
        if not isinstance(environment, gymnasium.Env):
            raise ConfigError(f"the wrapper {name!r} made a {type(environment).__name__}, not an environment")
    return cast("gymnasium.Env[Any, Any]", environment)


def _is_class(name: str) -> bool:
    """`package:Env-v0` is an id that Gymnasium finds after importing `package`; other colons are ours."""
    if is_file(name):
        return True
    module, colon, attribute = name.rpartition(":")
    if not colon or re.search(r"-v\d+$|/", attribute):
        return False
    if not re.fullmatch(r"\w+(\.\w+)*", module):
        raise ConfigError(
            f"{name!r} is no environment; write 'CartPole-v1', './file.py:Class' or 'package:Class'"
        )
    import_module(module)
    return not _find_registered(attribute)


def _find_registered(name: str) -> bool:
    import gymnasium

    return any(known == name or known.startswith(name + "-v") for known in gymnasium.registry)


def _registered(spec: EnvironmentSpec, kwargs: dict[str, Any]) -> "gymnasium.Env[Any, Any]":
    import gymnasium

    module, _, name = spec.id.rpartition(":")
    if module:
        import_module(module)
    _import_known_package(name)
    found = gymnasium.registry.get(_with_version(name))
    if found is None:
        raise ConfigError(_unknown(name))
    if found.entry_point is None:
        raise ConfigError(f"{name!r} is registered without an entry point; only its vector form exists")
    limit = {} if spec.max_episode_steps is None else {"max_episode_steps": spec.max_episode_steps}
    options = {**kwargs, **limit, "disable_env_checker": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whoever names an old version wants that version
        made: gymnasium.Env[Any, Any] = _construct(
            spec.id, gymnasium.make, _creator(found.entry_point), options, found
        )
    return made


def _with_version(name: str) -> str:
    """An id without a version means the highest, as in Gymnasium."""
    versions = [known for known in known_environments() if re.fullmatch(re.escape(name) + r"-v\d+", known)]
    return max(versions, key=lambda known: int(known.rpartition("-v")[2]), default=name)


def _import_known_package(name: str) -> None:
    for beginning, (module, _) in PACKAGES.items():
        if name.startswith(beginning) and not _find_registered(name):
            with suppress(ImportError):
                imported = importlib.import_module(module)
                getattr(imported, "register_envs", lambda: None)()


def _unknown(name: str) -> str:
    for beginning, (module, package) in PACKAGES.items():
        if name.startswith(beginning):
            if importlib.util.find_spec(module.partition(".")[0]) is None:
                return f"the environment {name!r} needs: pip install {package}"
            same = [known for known in known_environments() if known.startswith(beginning)]
            return f"{package} has no environment {name!r}{nearest(name, same)}"
    namespace, slash, _ = name.rpartition("/")
    names = known_environments()
    if slash and not any(known.startswith(namespace + "/") for known in names):
        return (
            f"nothing registers environments under {namespace!r}; install the package that does and write "
            f"'<its module>:{name}'"
        )
    stem = name.rpartition("-v")[0] or name
    for known in reversed(names):
        if known.rpartition("-v")[0].lower() == stem.lower():
            return f"there is no environment {name!r}; did you mean {known!r}?"
    return f"there is no environment {name!r}{nearest(name, names)}"


def _creator(entry_point: Any) -> Callable[..., Any] | None:
    """What Gymnasium will call, to explain wrong arguments; None where its import fails (make says why)."""
    if callable(entry_point):
        return entry_point  # type: ignore[no-any-return]
    with suppress(Exception):
        module, _, attribute = str(entry_point).partition(":")
        found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
        return found
    return None


def _construct(
    name: str,
    call: Callable[..., Any],
    creator: Callable[..., Any] | None,
    kwargs: dict[str, Any],
    *args: Any,
) -> Any:
    """Call a constructor and translate what it raises."""
    import gymnasium

    try:
        return call(*args, **kwargs)
    except PenstockError:
        raise
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        raise ConfigError(_missing(name, error)) from error
    except TypeError as error:
        wrong = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if wrong and wrong[1] == "render_mode":
            raise ConfigError(f"{name} cannot draw itself: it takes no argument 'render_mode'") from error
        if wrong and creator is not None and wrong[1] in kwargs:
            hint = nearest(wrong[1], _parameters(creator))
            raise ConfigError(f"the environment {name!r} takes no argument {wrong[1]!r}{hint}") from error
        raise EnvironmentFault(f"{name} raised TypeError in its constructor: {error}") from error
    except Exception as error:
        raise EnvironmentFault(f"{name} raised {type(error).__name__} in its constructor: {error}") from error


def _missing(name: str, error: Exception) -> str:
    text = " ".join(str(error).split())
    for word, fix in (("box2d", "'penstock[box2d]'"), ("pygame", "'penstock[classic]'")):
        if word in text.lower():
            return f"the environment {name!r} needs: pip install {fix}"
    if "gymnasium-robotics" in text:
        return f"{name!r} is an old version that left Gymnasium{nearest(name, _newest())}"
    if "mujoco" in text.lower():
        return f"the environment {name!r} needs: pip install 'gymnasium[mujoco]'"
    return f"the environment {name!r} cannot be made: {text}"


def _newest() -> list[str]:
    newest: dict[str, str] = {}
    for known in known_environments():
        newest[known.rpartition("-v")[0]] = known
    return list(newest.values())


def _parameters(creator: Callable[..., Any]) -> list[str]:
    try:
        return [name for name in inspect.signature(creator).parameters if name not in ("self", "kwargs")]
    except (TypeError, ValueError):
        return []


def _no_environment(name: str, made: object) -> str:
    if any(kind.__module__.split(".")[0] == "gym" for kind in type(made).__mro__):
        return f"{name} is an environment of the old gym package; derive it from gymnasium.Env instead"
    return f"{name} made a {type(made).__name__}; an environment must derive from gymnasium.Env"
