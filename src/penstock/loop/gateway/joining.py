"""A configuration that does not say what its policy sees and does: it joins a policy that is there."""

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.errors import ConfigError
from penstock.loop.gateway.configuration import translate
from penstock.model.spec import Spec

_ANY_SHAPE = {"act_dim": 1, "input_size": 1}


def joins(configuration: Mapping[str, Any]) -> bool:
    """Whether it leaves out all that says what the policy sees and does."""
    given = configuration.get("algorithm_parameters", {})
    return (
        "observation_shape" not in configuration
        and isinstance(given, dict)
        and not given.keys() & {"act_dim", "input_size"}
    )


def completed(configuration: Mapping[str, Any], known: Spec) -> dict[str, Any]:
    """The same with the shape, algorithm and network of the policy that it joins, where it leaves them out."""
    kwargs, given = known.environment.kwargs, configuration.get("algorithm_parameters", {})
    actions = kwargs["actions"]
    box = actions if isinstance(actions, dict) else None
    usual: dict[str, Any] = {"algorithm_name": known.algorithm, "masked": kwargs.get("masked", False)}
    if str(configuration.get("algorithm_name", known.algorithm)).lower() == known.algorithm:
        usual["continuous"] = box is not None  # of another algorithm it would only hide what is wrong
    if box is not None:
        usual["act_limit"] = box.get("limit", 1.0)
    if not given.keys() & {"hidden_sizes", "activation"}:
        usual["network"] = msgspec.to_builtins(known.network)
    return {
        **usual,
        **configuration,
        "observation_shape": list(kwargs["observation"]),
        "algorithm_parameters": {**given, "act_dim": actions if box is None else box["box"]},
    }


def unknown(policy: str, configuration: Mapping[str, Any]) -> ConfigError:
    """Why there is nothing to join; raises what else is wrong with the configuration first."""
    given = configuration.get("algorithm_parameters", {})
    translate(policy, {**configuration, "algorithm_parameters": {**given, **_ANY_SHAPE}})
    return ConfigError(
        f"policy {policy!r} does not exist yet; give observation and actions (algorithm_parameters.input_size and "
        "act_dim), or open it elsewhere first"
    )
