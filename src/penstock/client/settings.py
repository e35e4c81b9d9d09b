"""A configuration file, checked and turned into what the client works with."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite, prod
from pathlib import Path
from typing import Any

from penstock.client import keys
from penstock.client.token import check_secrecy, find_token, home
from penstock.errors import ConfigError

MAX_FILE = 1 << 20
DEFAULT_ADDRESS = "localhost:50051"
POLICY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
MAX_ADDRESS = 300
MAX_OBSERVATION = 1 << 20
"""Numbers in one, as `input_size` has it."""
MAX_DEPTH = 32
"""Of objects and lists in a file, as the C++ client reads it."""
_EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")


@dataclass(frozen=True, slots=True)
class Tls:
    """In PEM form: who may be trusted, and who we are where the gateway asks. Read once: a fork needs them again."""

    ca: bytes | None
    cert: bytes | None
    key: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Shape:
    """What the policy sees and does, as far as the configuration says it."""

    observation: tuple[int, ...]
    actions: int
    """Choices, or numbers where `continuous`."""
    continuous: bool
    masked: bool
    limit: float


@dataclass(frozen=True, slots=True)
class Settings:
    """All a client needs; times in seconds."""

    policy: str
    address: str
    shape: Shape | None
    """None where only the gateway knows: then it must answer at the start."""
    trained: str
    """JSON for the gateway: `keys.TRAINED` and nothing else."""
    token: str = field(repr=False)
    tls: Tls | None
    max_traj_length: int
    send_frequency: int
    flush_seconds: float
    poll_seconds: float
    deadline: float
    mode: str
    inference: str
    spool_folder: Path
    spool_bytes: int
    safe_action: Any


def load(path: str | os.PathLike[str]) -> Settings:
    """Read a JSON or YAML file; raise ConfigError that names the file and the key."""
    file = Path(path)
    try:
        if file.stat().st_size > MAX_FILE:
            raise ConfigError(f"{file} is larger than {MAX_FILE} bytes; it is not a client's configuration")
        content = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error
    raw = _yaml(content, file) if file.suffix in (".yaml", ".yml") else _json(content, file)
    return settings(raw, str(file))


def settings(raw: Any, where: str = "the configuration") -> Settings:
    """Check a configuration given as an object."""
    raw = keys.check(raw, where)
    policy = raw.get("client_id")
    if not policy or not POLICY_NAME.fullmatch(policy):
        raise ConfigError(
            f"{where}: client_id must name the policy with 1 to 64 letters, digits, '.', '_' or '-', "
            f"beginning with a letter or digit, not {policy!r}"
        )
    shape = _shape(raw, where)
    address = raw.get("train_server_address", DEFAULT_ADDRESS)
    if not _is_address(address):
        raise ConfigError(f"{where}: train_server_address must be HOST:PORT, not {address!r}")
    spool = raw.get("spool") or {}
    token, tls = find_token(raw, address, where), _tls(raw.get("tls"), where)
    check_secrecy(token, address, tls is not None, bool(raw.get("insecure", False)), where)
    return Settings(
        policy=policy,
        address=address,
        shape=shape,
        trained=json.dumps({key: raw[key] for key in keys.TRAINED if key in raw}),
        token=token,
        tls=tls,
        max_traj_length=int(raw.get("max_traj_length", 1000)),
        send_frequency=int(raw.get("send_frequency", 10)),
        flush_seconds=float(raw.get("flush_seconds", 5.0)),
        poll_seconds=float(raw.get("poll_seconds", 20.0)),
        deadline=float(raw.get("deadline_ms", 5.0)) / 1000,
        mode=raw.get("mode", "act"),
        inference=raw.get("inference", "local"),
        spool_folder=Path(spool.get("folder") or home() / "clients" / "spool").expanduser() / policy,
        spool_bytes=int(spool.get("max_bytes", 64 << 20)),
        safe_action=_safe_action((raw.get("fallback") or {}).get("action"), shape, where),
    )


def _is_address(text: str) -> bool:
    found = ADDRESS.fullmatch(text)
    return found is not None and len(text) <= MAX_ADDRESS and 1 <= int(found[2]) <= 65_535


def _shape(raw: Mapping[str, Any], where: str) -> Shape | None:
    parameters = raw.get("algorithm_parameters") or {}
    size, actions = parameters.get("input_size"), parameters.get("act_dim")
    observation = raw.get("observation_shape")
    if observation is not None and prod(map(int, observation)) > MAX_OBSERVATION:
        raise ConfigError(
            f"{where}: observation_shape must have at most {MAX_OBSERVATION} entries in all, not {observation!r}"
        )
    if size is not None and observation is not None and int(size) != prod(map(int, observation)):
        raise ConfigError(
            f"{where}: algorithm_parameters.input_size is {size}, but observation_shape has "
            f"{prod(map(int, observation))} entries; leave one out"
        )
    if (size is None and observation is None) != (actions is None):
        missing = "algorithm_parameters.act_dim" if actions is None else "algorithm_parameters.input_size"
        raise ConfigError(f"{where}: {missing} is missing; it says what the policy sees and does")
    if actions is None:
        return None
    sac = str(raw.get("algorithm_name", "")).lower() == "sac"
    if sac and raw.get("continuous") is False:
        raise ConfigError(f"{where}: SAC acts with numbers; leave continuous out or write true")
    continuous, masked = bool(raw.get("continuous", sac)), bool(raw.get("masked", False))
    if continuous and masked:
        raise ConfigError(f"{where}: masked is for choices; with continuous actions leave it out")
    seen = tuple(int(n) for n in observation) if observation is not None else (int(size or 0),)
    return Shape(seen, int(actions), continuous, masked, float(raw.get("act_limit", 1.0)))


def _safe_action(action: Any, shape: Shape | None, where: str) -> Any:
    if action is None:
        return action
    numbers = action if isinstance(action, list | tuple) else [action]
    fits = bool(numbers) and all(isinstance(n, int | float) and not isinstance(n, bool) for n in numbers)
    wanted = "a number or a list of numbers"
    if shape is not None and shape.continuous:
        fits = fits and len(numbers) == shape.actions and all(abs(n) <= shape.limit for n in numbers)
        wanted = f"{shape.actions} numbers within ±{shape.limit:g} (act_limit)"
    elif shape is not None:
        fits = fits and isinstance(action, int) and 0 <= action < shape.actions
        wanted = f"a whole number from 0 to {shape.actions - 1}"
    if not fits:
        raise ConfigError(f"{where}: fallback.action must be {wanted}, not {keys.shown(action)}")
    return action


def _tls(raw: Mapping[str, str] | None, where: str) -> Tls | None:
    if raw is None:
        return None
    if ("cert" in raw) != ("key" in raw):
        raise ConfigError(f"{where}: tls.cert and tls.key belong together; give both or neither")
    contents = {
        key: _pem(Path(value).expanduser(), PEM[key], f"{where}: tls.{key}") for key, value in raw.items()
    }
    return Tls(contents.get("ca"), contents.get("cert"), contents.get("key"))


PEM = {"ca": "CERTIFICATE", "cert": "CERTIFICATE", "key": "PRIVATE KEY"}
"""What each file must hold, as PEM names it."""


def _pem(file: Path, kind: str, where: str) -> bytes:
    if not file.is_file():
        raise ConfigError(f"{where} names {file}, which is not a file")
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_FILE + 1)
    except OSError as error:
        raise ConfigError(f"{where} names {file}, which cannot be read: {error}") from error
    if len(content) > MAX_FILE:
        raise ConfigError(f"{where} names {file}, which is too large for a certificate or key")
    if f"{kind}-----".encode() not in content:
        raise ConfigError(f"{where} names {file}, which holds no {kind} in PEM")
    return content


def _json(content: str, file: Path) -> Any:
    try:
        raw = json.loads(content, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is not JSON: {error}") from error
    if _is_deeper(raw, MAX_DEPTH):
        raise ConfigError(f"{file} is not JSON: it is nested more than {MAX_DEPTH} deep")
    return raw


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text} is no finite number")
    return number


def _is_deeper(value: Any, depth: int) -> bool:
    entries = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return bool(entries) and (depth == 0 or any(_is_deeper(entry, depth - 1) for entry in entries))


def _yaml(content: str, file: Path) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise ConfigError(f"{file} is YAML: pip install pyyaml, or write it as JSON") from error
    try:
        return _numbers(yaml.safe_load(content))
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{file} is not YAML: {' '.join(str(error).split())}") from error


def _numbers(value: Any) -> Any:
    """YAML 1.1 takes 3e-4 for a text; nobody means that."""
    if isinstance(value, dict):
        return {key: _numbers(entry) for key, entry in value.items()}
    return float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value) else value
