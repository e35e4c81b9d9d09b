"""The siege of the server, a seeded minute of it; `make faults` runs it at length."""

from pathlib import Path

import pytest

from penstock.broker import Broker
from tests.faults.commands import besieged


@pytest.mark.slow
def test_each_accepted_command_has_one_effect_though_the_server_is_killed(tmp_path: Path):
    siege = besieged(tmp_path, seed=11, kills=8, commands=160)
    assert siege.kills == 8
    assert siege.accepted == 160
    assert siege.sent > 160


@pytest.mark.slow
def test_the_same_on_kafka(tmp_path: Path, broker: Broker):
    url = f"kafka://{broker.bootstrap}/siege"
    assert besieged(tmp_path, seed=12, kills=3, commands=60, url=url).accepted == 60
