"""Who does not say what a policy sees and does joins one that is there."""

from typing import Any

import pytest

from penstock.errors import ConfigError
from penstock.loop.gateway.configuration import differences, translate
from penstock.loop.gateway.joining import completed, joins, unknown

KNOWN: list[dict[str, Any]] = [
    {"algorithm_name": "PPO", "algorithm_parameters": {"act_dim": 4, "input_size": 8, "hidden_sizes": [16]}},
    {"algorithm_name": "SAC", "act_limit": 2.0, "algorithm_parameters": {"act_dim": 3, "input_size": 5}},
    {"continuous": True, "algorithm_parameters": {"act_dim": 3, "input_size": 5}},
    {"observation_shape": [12, 3], "masked": True, "algorithm_parameters": {"act_dim": 12}},
]


@pytest.mark.parametrize("known", KNOWN)
@pytest.mark.parametrize("given", [{}, {"client_id": "p", "mode": "shadow"}])
def test_a_bare_configuration_fits_whatever_is_there(known: dict[str, Any], given: dict[str, Any]) -> None:
    run = translate("p", known)
    assert joins(given)
    assert not joins(known)
    wrong, _ = differences(run, translate("p", completed(given, run)))
    assert not wrong


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"algorithm_name": "DQN"}, "algorithm_name is ppo"),
        ({"algorithm_name": "SAC"}, "algorithm_name is ppo"),
        ({"masked": True}, "sees and does"),
        ({"algorithm_parameters": {"hidden_sizes": [99]}}, "network"),
    ],
)
def test_what_is_said_all_the_same_must_fit(given: dict[str, Any], words: str) -> None:
    run = translate("p", KNOWN[0])
    wrong, _ = differences(run, translate("p", completed(given, run)))
    assert words in "; ".join(wrong)


@pytest.mark.parametrize(
    ("given", "words"),
    [({}, "does not exist yet; give observation and actions"), ({"algorithm_name": "PPO2"}, "PPO2"),
     ({"algoritm": 1}, "algoritm"), ({"algorithm_parameters": {"gama": 1}}, "gama")],
)  # fmt: skip
def test_where_nothing_is_there_to_join(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        raise unknown("p", given)
