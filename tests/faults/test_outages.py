"""The outage campaigns, in a short form; `make faults` runs them at length."""

from pathlib import Path

import pytest

from penstock.broker import Broker
from tests.faults.outages import broker_killed, link_cut, one_of_three
from tests.faults.poison import poisoned


@pytest.mark.slow
def test_a_broker_that_dies_and_returns_costs_only_time(tmp_path: Path):
    outage = broker_killed(tmp_path, seed=1, kills=2, away_seconds=4.0)
    assert outage.strikes == len(outage.recoveries) == 2
    assert outage.facts["restarts"] == 0


@pytest.mark.slow
def test_one_of_three_brokers_may_die(tmp_path: Path):
    assert one_of_three(tmp_path, seed=2, kills=1, away_seconds=4.0).strikes == 1


@pytest.mark.slow
def test_a_cut_link_costs_only_time(tmp_path: Path):
    assert link_cut(tmp_path, seed=3, cuts=2, cut_seconds=12.0).facts["restarts"] == 0


@pytest.mark.slow
def test_records_that_nobody_can_read_become_dead_letters(tmp_path: Path, broker: Broker):
    facts = poisoned(tmp_path, broker, good=5_000, bad=50, updates=100)
    assert facts["reasons"] >= 5
