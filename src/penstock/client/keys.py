"""Every key of a client's configuration: what kind of value it takes, from where to where.

The C++ client reads the same file; its table is made from this one (`clients/cpp/keys.py`). What is trained is
checked again by the gateway, which knows the algorithms.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from penstock.errors import ConfigError, nearest

MANY = 1 << 40


@dataclass(frozen=True, slots=True)
class Key:
    """The values one key may have; both ends of a range belong to it."""

    kind: Literal["text", "whole", "number", "flag", "shape", "group", "any"]
    low: float = 0
    high: float = MANY
    choices: tuple[str, ...] = ()
    null: bool = False
    above: bool = False
    """Whether `low` itself is not allowed."""


def text(*choices: str) -> Key:
    return Key("text", choices=choices)


def whole(low: float, high: float = MANY) -> Key:
    return Key("whole", low, high)


def number(low: float, high: float = 1e9, null: bool = False, above: bool = False) -> Key:
    return Key("number", low, high, null=null, above=above)


FLAG, SHAPE, GROUP = Key("flag"), Key("shape", 1, 1 << 20), Key("group")
ACTIVATIONS = ("tanh", "relu")

PARAMETERS: dict[str, Key] = {
    "batch_size": whole(1, 1 << 20),
    "act_dim": whole(1, 1 << 16),
    "input_size": whole(1, 1 << 20),
    "seed": whole(0, 2**63 - 1),
    "traj_per_epoch": whole(1, 1 << 20),
    "clip_ratio": number(0, 1, above=True),
    "gamma": number(0, 1),
    "lam": number(0, 1),
    "pi_lr": number(0, 1, above=True),
    "vf_lr": number(0, 1, above=True),
    "q_lr": number(0, 1, above=True),
    "train_pi_iters": whole(1, 100_000),
    "train_v_iters": whole(1, 100_000),
    "train_q_iters": whole(1, 100_000),
    "target_kl": number(0, 1e3, null=True, above=True),
    "buf_size": whole(1, 1 << 30),
    "epsilon": number(0, 1),
    "epsilon_min": number(0, 1),
    "epsilon_decay_steps": whole(1),
    "polyak": number(0, 1),
    "target_rate": number(0, 1, above=True),
    "hidden_sizes": SHAPE,
    "activation": text(*ACTIVATIONS),
    "entropy": number(0, 1e3),
    "ent_coef": number(0, 1e3),
}
"""RL4Sys' names; which algorithm has which is the gateway's to say."""

OWN_NAMES = (
    "automatic_temperature", "batch", "buffer", "clip_range", "double", "duelling", "epochs", "epsilon_end",
    "epsilon_spread", "epsilon_start", "epsilon_steps", "gae_lambda", "gradient_steps", "initial_temperature",
    "learning_rate", "learning_starts", "max_grad_norm", "minibatch", "minibatches", "n_step",
    "normalize_advantages", "normalize_rewards", "prioritised", "priority_alpha", "priority_beta", "rho_clip",
    "schedule_steps", "separate", "target_entropy_scale", "trace_clip", "value_coefficient", "value_epochs",
    "value_gradient_steps", "value_learning_rate", "vtrace_lambda",
)  # fmt: skip
"""Our own names of settings, which the gateway understands and checks as well."""

ALL_PARAMETERS = PARAMETERS | {name: Key("any") for name in OWN_NAMES}

SHAPE_PARAMETERS = ("act_dim", "input_size")
"""Parameters that the client itself reads, whatever the algorithm."""

GROUPS: dict[str, dict[str, Key]] = {
    "spool": {"folder": text(), "max_bytes": whole(1 << 16)},
    "fallback": {"action": Key("any")},
    "tls": {"ca": text(), "cert": text(), "key": text()},
    "network": {
        "body": text("auto", "mlp", "cnn", "items"),
        "hidden": SHAPE,
        "activation": text(*ACTIVATIONS),
        "convolutions": Key("any"),
        "shared": FLAG,
        "normalize_observations": FLAG,
    },
}

TOP: dict[str, Key] = {
    "client_id": text(),
    "algorithm_name": text(),
    "algorithm_parameters": GROUP,
    "act_limit": number(0, 1e6, above=True),
    "max_traj_length": whole(1, 65_536),
    "type": text("onpolicy", "offpolicy"),
    "train_server_address": text(),
    "send_frequency": whole(1, 10_000),
    "token": text(),
    "token_file": text(),
    "tls": GROUP,
    "insecure": FLAG,
    "deadline_ms": number(0, 60_000, above=True),
    "spool": GROUP,
    "fallback": GROUP,
    "mode": text("act", "shadow", "off"),
    "inference": text("local", "remote"),
    "flush_seconds": number(0.05, 3600),
    "poll_seconds": number(0.05, 30),
    "masked": FLAG,
    "network": GROUP,
    "observation_shape": SHAPE,
    "continuous": FLAG,
}

TRAINED = (
    "client_id", "algorithm_name", "algorithm_parameters", "act_limit", "max_traj_length", "type", "masked",
    "network", "observation_shape", "continuous",
)  # fmt: skip
"""What the gateway is told. Everything else, tokens above all, stays here."""


def check(raw: Any, where: str) -> dict[str, Any]:
    """The configuration as it is; raise ConfigError for an unknown key or a value outside its range."""
    if not isinstance(raw, Mapping):
        raise ConfigError(f"{where} must hold one object with keys such as 'client_id', not {shown(raw)}")
    _check_group(raw, TOP, where, "")
    for group, table in GROUPS.items():
        _check_group(raw.get(group) or {}, table, where, f"{group}.")
    parameters = raw.get("algorithm_parameters") or {}
    if str(raw.get("algorithm_name", "ppo")).lower() not in ALGORITHMS:
        parameters = {name: parameters[name] for name in SHAPE_PARAMETERS if name in parameters}
    _check_group(parameters, ALL_PARAMETERS, where, "algorithm_parameters.")
    return dict(raw)


ALGORITHMS = ("ppo", "dqn", "sac", "impala", "reinforce")
"""Those whose parameters are known here; a stranger's plugin names its own and the gateway checks them."""


def _check_group(raw: Mapping[Any, Any], table: Mapping[str, Key], where: str, prefix: str) -> None:
    for name, value in raw.items():
        if name not in table:
            raise ConfigError(f"{where}: there is no key {prefix}{name}{nearest(str(name), table)}")
        if not _fits(value, table[name]):
            # a secret does not belong into an error
            found = "what stands there" if name == "token" else shown(value)
            raise ConfigError(f"{where}: {prefix}{name} must be {_wanted(table[name])}, not {found}")


def _fits(value: Any, key: Key) -> bool:
    if key.kind == "any" or (value is None and key.null):
        return True
    if key.kind == "text":
        return isinstance(value, str) and bool(value) and (not key.choices or value in key.choices)
    if key.kind == "flag":
        return isinstance(value, bool)
    if key.kind == "group":
        return isinstance(value, Mapping)
    if key.kind == "shape":
        return (
            isinstance(value, list | tuple)
            and 1 <= len(value) <= 8
            and all(_number(n, key, True) for n in value)
        )
    return _number(value, key, key.kind == "whole")


def _number(value: Any, key: Key, is_whole: bool) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if is_whole and isinstance(value, float) and not value.is_integer():
        return False
    return bool(key.low < value <= key.high if key.above else key.low <= value <= key.high)


def _wanted(key: Key) -> str:
    if key.kind == "text":
        return f"one of {', '.join(key.choices)}" if key.choices else "a text"
    if key.kind == "flag":
        return "true or false"
    if key.kind == "group":
        return "an object"
    numbers = "a list of whole numbers" if key.kind == "shape" else "a number"
    low = f"above {_plain(key.low)}" if key.above else f"from {_plain(key.low)}"
    upper = "" if key.high >= MANY else f" to {_plain(key.high)}"
    return ("a whole number" if key.kind == "whole" else numbers) + f" {low}{upper}" + (" or null" * key.null)


def _plain(value: float) -> str:
    return f"{value:g}" if value < 1e6 and value != int(value) else str(int(value))


def shown(value: Any) -> str:
    """A value in an error: not all of it where it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of more than 4,300 digits
        return "a number that is far too long"
    return text if len(text) <= 60 else text[:57] + "..."
