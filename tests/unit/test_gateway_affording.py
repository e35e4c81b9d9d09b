"""A configuration that no memory holds is refused by its key, before anything is started."""

from typing import Any

import pytest

from penstock.errors import ConfigError
from penstock.loop.gateway.affording import check_memory, memory_here
from penstock.loop.gateway.configuration import translate


def spec_of(algorithm: str, **parameters: Any) -> Any:
    given = {"act_dim": 4, "input_size": 8, **parameters}
    return translate("p", {"algorithm_name": algorithm, "algorithm_parameters": given})


def test_a_replay_memory_beyond_the_machine_is_refused_with_its_size() -> None:
    spec = spec_of("DQN", buf_size=1_000_000_000)
    with pytest.raises(
        ConfigError, match=r"buf_size needs 7\d\.\d GB of memory, and the gateway's machine has 8"
    ):
        check_memory(spec, 8_000_000_000)
    check_memory(spec, 80_000_000_000)


def test_a_network_beyond_the_machine_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"hidden_sizes .* needs 68\.7 GB"):
        check_memory(spec_of("PPO", hidden_sizes=[65536, 65536]), 8_000_000_000)


@pytest.mark.parametrize("algorithm", ["PPO", "IMPALA", "REINFORCE", "DQN", "SAC"])
def test_the_usual_settings_fit_a_small_machine(algorithm: str) -> None:
    check_memory(spec_of(algorithm), 1_000_000_000)


def test_this_machine_has_memory() -> None:
    assert memory_here() > 100_000_000
