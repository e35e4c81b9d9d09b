"""A client's configuration in, the spec of its run out. Every key has an effect or is refused by name.

The keys are those of RL4Sys (docs/client.md); both clients send them as they are, so they mean one thing.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock import config, plugins
from penstock.config.checks import field_types, fitting
from penstock.errors import ConfigError, NotFound, nearest
from penstock.loop.gateway import parameters
from penstock.loop.gateway.parameters import MEANINGS, OF_THE_RUN
from penstock.loop.gateway.sizes import most_rows
from penstock.model.clients import PREFIX, policy_of, shape_of
from penstock.model.policy import NetworkSpec
from penstock.model.spec import ActorsSpec, Spec

OF_THE_CLIENT = frozenset(
    {"client_id", "train_server_address", "send_frequency", "max_traj_length", "token", "token_file", "tls",
     "insecure", "deadline_ms", "spool", "fallback", "mode", "inference", "flush_seconds", "poll_seconds"}
)  # fmt: skip
"""Keys that only the client itself obeys."""
OF_THE_POLICY = frozenset(
    {"algorithm_name", "algorithm_parameters", "act_limit", "type", "masked", "network", "observation_shape",
     "continuous"}
)  # fmt: skip
KINDS = ("onpolicy", "offpolicy")
ROLLOUT_ON_POLICY, ROLLOUT_OFF_POLICY = 2048, 256
ANY_LAG = 1_000_000
"""Replay memory does not mind how old experience is."""


def translate(policy: str, configuration: Mapping[str, Any], stream_url: str = "embedded") -> Spec:
    """The spec of the run that learns this policy; raise ConfigError that names the key."""
    environment = PREFIX + policy
    policy_of(environment)
    _check_keys(configuration)
    if configuration.get("client_id", policy) != policy:
        raise ConfigError(
            f"client_id is {configuration['client_id']!r}, but the policy asked for is {policy!r}"
        )
    given = _group(configuration, "algorithm_parameters")
    algorithm = _algorithm(configuration)
    off_policy = is_off_policy(algorithm)
    _check_type(configuration, algorithm, off_policy)
    kwargs = _shape(configuration, given, algorithm)
    row = most_rows(shape_of(kwargs).spaces())
    usual = ROLLOUT_OFF_POLICY if off_policy else ROLLOUT_ON_POLICY
    spec = {
        "environment": {"id": environment, "kwargs": kwargs},
        "algorithm": algorithm,
        algorithm: _settings(algorithm, given),
        "network": _network(configuration, given),
        "actors": {"count": 0, "environments": 1, "rollout": min(usual, row), **_trajectories(given)},
        "learner": {"count": 0},
        "evaluation": {"every_seconds": 0},
        "stream": {"url": stream_url},
    }
    if "seed" in given:
        spec["seed"] = _checked(given["seed"], field_types(Spec)["seed"], "algorithm_parameters.seed")
    if off_policy:
        spec["pace"] = {"max_lag": ANY_LAG}
    return config.resolve(spec)


def is_off_policy(algorithm: str) -> bool:
    """Whether it learns from replay memory, and so from experience of any age and origin."""
    return "buffer" in field_types(plugins.load("settings", algorithm))


def differences(known: Spec, wanted: Spec) -> tuple[list[str], list[str]]:
    """What a configuration wants otherwise than the run has it: what cannot be, and what the run decides."""
    fixed = [
        ("algorithm_name", known.algorithm, wanted.algorithm),
        ("what it sees and does", known.environment.kwargs, wanted.environment.kwargs),
        ("network", known.network, wanted.network),
    ]
    wrong = [f"{name} is {_plain(have)}, not {_plain(want)}" for name, have, want in fixed if have != want]
    if known.algorithm != wanted.algorithm:
        return wrong, []
    loose = [
        f"{known.algorithm}.{name} stays {known.settings.get(name)!r}"
        for name, value in wanted.settings.items()
        if known.settings.get(name) != value
    ]
    loose += [f"seed stays {known.seed}"] if known.seed != wanted.seed else []
    if known.actors.trajectories != wanted.actors.trajectories:
        loose.append(f"traj_per_epoch stays {known.actors.trajectories}")
    return wrong, loose


def _check_keys(configuration: Mapping[str, Any]) -> None:
    known = OF_THE_CLIENT | OF_THE_POLICY
    for key in configuration:
        if key not in known:
            raise ConfigError(f"the configuration has no key {key!r}{nearest(key, known)}")


def _group(configuration: Mapping[str, Any], name: str) -> dict[str, Any]:
    group = configuration.get(name, {})
    if not isinstance(group, dict) or not all(isinstance(key, str) for key in group):
        raise ConfigError(f"{name} is {group!r:.80}; write a group of settings")
    return group


def _algorithm(configuration: Mapping[str, Any]) -> str:
    name = configuration.get("algorithm_name", "PPO")
    if not isinstance(name, str):
        raise ConfigError(f"algorithm_name is {name!r:.80}; write a name such as PPO")
    try:
        plugins.load("settings", name.lower())
    except NotFound as error:
        installed = [known.upper() for known in plugins.installed("settings")]
        raise ConfigError(
            f"algorithm_name {name[:80]!r} is not installed{nearest(name.upper(), installed)}"
        ) from error
    return name.lower()


def _check_type(configuration: Mapping[str, Any], algorithm: str, off_policy: bool) -> None:
    right = KINDS[off_policy]
    said = configuration.get("type", right)
    if said not in KINDS:
        raise ConfigError(f"type is {said!r:.80}; write onpolicy or offpolicy, or leave it out")
    if said != right:
        raise ConfigError(f"type is {said}, but {algorithm.upper()} is {right}; change it, or leave it out")


def _shape(configuration: Mapping[str, Any], given: Mapping[str, Any], algorithm: str) -> dict[str, Any]:
    """`environment.kwargs`: what the policy sees and does."""
    continuous = _flag(configuration, "continuous", algorithm == "sac")
    if continuous and algorithm == "dqn":
        raise ConfigError("continuous is true, but DQN chooses among actions; use SAC or PPO")
    if not continuous and algorithm == "sac":
        raise ConfigError("continuous is false, but SAC's actions are numbers; use PPO or DQN")
    if "act_dim" not in given:
        raise ConfigError("algorithm_parameters.act_dim is missing: how many actions, or numbers in one")
    count = _whole(given["act_dim"], "algorithm_parameters.act_dim")
    limit = _checked(configuration.get("act_limit", 1.0), float, "act_limit")
    masked = _flag(configuration, "masked", False)
    actions = {"box": count, "limit": float(limit)} if continuous else count
    kwargs = {"observation": _observation(configuration, given), "actions": actions, "masked": masked}
    shape_of(kwargs)
    return kwargs


def _observation(configuration: Mapping[str, Any], given: Mapping[str, Any]) -> list[int]:
    shape = configuration.get("observation_shape")
    if shape is None:
        if "input_size" not in given:
            raise ConfigError(
                "algorithm_parameters.input_size is missing: how many numbers an observation has "
                "(or observation_shape, as in [128, 8])"
            )
        return [_whole(given["input_size"], "algorithm_parameters.input_size")]
    if not isinstance(shape, list) or not 1 <= len(shape) <= 2:
        raise ConfigError(f"observation_shape is {shape!r:.80}; write one or two numbers, as in [128, 8]")
    sizes = [_whole(size, "observation_shape") for size in shape]
    total = sizes[0] * sizes[-1] if len(sizes) == 2 else sizes[0]
    if "input_size" in given and given["input_size"] != total:
        raise ConfigError(
            f"algorithm_parameters.input_size is {given['input_size']!r:.40} and observation_shape has {total} "
            "numbers; leave one out"
        )
    return sizes


def _network(configuration: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    network = dict(_group(configuration, "network"))
    known = field_types(NetworkSpec)
    for name, value in network.items():
        if name not in known:
            raise ConfigError(f"network has no setting {name!r}{nearest(name, known)}")
        network[name] = _checked(value, known[name], f"network.{name}")
    for parameter, name in (("hidden_sizes", "hidden"), ("activation", "activation")):
        if parameter in given:
            if name in network:
                raise ConfigError(
                    f"algorithm_parameters.{parameter} and network.{name} say the same; leave one out"
                )
            network[name] = _checked(given[parameter], known[name], f"algorithm_parameters.{parameter}")
    shape = configuration.get("observation_shape")
    if isinstance(shape, list) and len(shape) == 2:
        network.setdefault("body", "items")  # one shared network over the rows: what two axes are for
    return network


def _trajectories(given: Mapping[str, Any]) -> dict[str, Any]:
    if given.get("traj_per_epoch") is None:
        return {}
    expected = field_types(ActorsSpec)["trajectories"]
    return {
        "trajectories": _checked(given["traj_per_epoch"], expected, "algorithm_parameters.traj_per_epoch")
    }


def _settings(algorithm: str, given: Mapping[str, Any]) -> dict[str, Any]:
    types, meanings = field_types(plugins.load("settings", algorithm)), MEANINGS.get(algorithm, {})
    settings, said_as = dict[str, Any](), dict[str, str]()
    for name, value in given.items():
        if name in OF_THE_RUN:
            continue
        if name not in meanings and name not in types:
            known = {*meanings, *types, *OF_THE_RUN}
            raise ConfigError(f"{algorithm.upper()} has no parameter {name!r}{nearest(name, known)}")
        setting, turned = meanings.get(name, parameters.Meaning(name))
        place = f"algorithm_parameters.{name}"
        ours = turned(_checked(value, float, place)) if turned else value
        ours = _checked(ours, types[setting], place)
        if setting in settings and settings[setting] != ours:
            raise ConfigError(
                f"{place} and algorithm_parameters.{said_as[setting]} both set {algorithm}.{setting}; leave one out"
            )
        settings[setting], said_as[setting] = ours, name
    if "buffer" in settings and "learning_starts" in types:  # a small memory would never be full enough
        usual = next(f.default for f in msgspec.structs.fields(plugins.load("settings", algorithm))
                     if f.name == "learning_starts")  # fmt: skip
        settings.setdefault("learning_starts", min(usual, settings["buffer"]))
    return parameters.implied(algorithm, given) | settings


def _checked(value: Any, expected: Any, place: str) -> Any:
    return fitting(value, expected, place)


def _whole(value: Any, place: str) -> int:
    return int(_checked(value, field_types(ActorsSpec)["rollout"], place))  # at least 1


def _flag(configuration: Mapping[str, Any], name: str, default: bool) -> bool:
    return bool(_checked(configuration.get(name, default), bool, name))


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value)
