"""What a spec may say: keys and values of one layer, and what contradicts itself in the whole."""

from typing import Any, get_type_hints

import msgspec

from penstock.errors import ConfigError, nearest
from penstock.model.clients import MOST_ROWS, is_client, policy_of, shape_of
from penstock.model.spec import KAFKA_URL, Spec, shown_url


def field_types(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Name → type of each field, with its bounds."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.encode_name: hints[field.name] for field in msgspec.structs.fields(kind)}


def check_group(kind: type[msgspec.Struct], values: Any, path: str, place: str) -> None:
    """Check the keys and values that are given (nothing is required); descend into groups.

    An integral number such as `1e6` is written back as an integer where one is wanted.
    """
    prefix = f"{place}: " if place else ""
    if not isinstance(values, dict):
        raise ConfigError(f"{prefix}{path} is {values!r}; write a group of settings")
    known = field_types(kind)
    for name, value in values.items():
        if name not in known:
            raise ConfigError(f"{prefix}{path or 'a spec'} has no setting {name!r}{nearest(name, known)}")
        here = f"{path}.{name}" if path else name
        expected = known[name]
        if isinstance(expected, type) and issubclass(expected, msgspec.Struct):
            check_group(expected, value, here, place)
        else:
            values[name] = fitting(value, expected, f"{prefix}{here}")


def fitting(value: Any, expected: Any, place: str) -> Any:
    """The value as the type wants it; raise ConfigError that names the place."""
    candidates = [value]
    if isinstance(value, float) and value.is_integer():
        candidates.append(int(value))  # `steps: 1e6` is what people write
    failure: Exception | None = None
    for candidate in candidates:
        try:
            msgspec.convert(candidate, expected)
        except msgspec.ValidationError as error:
            failure = failure or error
        else:
            return candidate
    reason = str(failure).replace("`", "").replace("Expected", "expected")
    raise ConfigError(f"{place} is {value!r}, but {reason}") from failure


def check_contradictions(spec: Spec, prefix: str) -> None:
    """Refuse what can be known to be wrong without the environment."""
    if is_client(spec.environment.id):
        policy_of(spec.environment.id)
        shape_of(spec.environment.kwargs)
    for wrong, reason in _contradictions(spec):
        if wrong:
            raise ConfigError(f"{prefix}{reason}")


def _contradictions(spec: Spec) -> list[tuple[bool, str]]:
    pace, stream, network, settings = spec.pace, spec.stream, spec.network, spec.settings
    convolutions = [number for layer in network.convolutions for number in layer]
    buffer, batch = settings.get("buffer"), settings.get("batch")
    is_clients = is_client(spec.environment.id)
    return [
        (
            is_clients and (spec.actors.count, spec.actors.environments) != (0, 1),
            "a client's policy has no actors of its own; set actors.count to 0 and actors.environments to 1",
        ),
        (
            is_clients and spec.actors.rollout > MOST_ROWS,
            f"actors.rollout of a client's policy is at most {MOST_ROWS}, not {spec.actors.rollout}",
        ),
        (
            not is_clients and spec.actors.trajectories is not None,
            "actors.trajectories is for policies of clients; actors make rollouts of actors.rollout steps",
        ),
        (
            pace.max_lag < pace.lead,
            f"pace.max_lag is {pace.max_lag} and pace.lead is {pace.lead}: every rollout made ahead would be "
            "dropped; raise pace.max_lag or lower pace.lead",
        ),
        (
            stream.budget_bytes < stream.retention_bytes,
            f"stream.budget_bytes ({stream.budget_bytes}) is less than stream.retention_bytes "
            f"({stream.retention_bytes}); writers would wait for ever",
        ),
        (
            stream.url != "embedded" and not KAFKA_URL.fullmatch(stream.url),
            f"stream.url {shown_url(stream.url)!r} is no known stream; use 'embedded' or 'kafka://HOST:PORT'",
        ),
        (
            min(network.hidden, default=1) < 1 or min(convolutions, default=1) < 1,
            "network.hidden and network.convolutions must be positive numbers",
        ),
        (
            network.body == "cnn" and not network.convolutions,
            "network.body is cnn and network.convolutions is empty; give it a layer or use mlp",
        ),
        (
            isinstance(buffer, int) and isinstance(batch, int) and buffer < batch,
            f"{spec.algorithm}.buffer ({buffer}) is smaller than {spec.algorithm}.batch ({batch})",
        ),
    ]
