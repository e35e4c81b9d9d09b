"""The kill campaigns, in a short seeded form; `make faults` runs them at length."""

from pathlib import Path

import pytest

from tests.faults.campaign import overlapped, synchronous


@pytest.mark.slow
def test_a_synchronous_run_killed_at_random_ends_with_the_same_weights(tmp_path: Path):
    outcome = synchronous(tmp_path, seed=7, kills=4, updates=120)
    assert sum(outcome.kills.values()) >= 3


@pytest.mark.slow
def test_an_overlapped_run_killed_at_random_accounts_for_every_rollout(tmp_path: Path):
    outcome = overlapped(tmp_path, seed=8, kills=5, updates=200)
    assert outcome.facts["used"] >= outcome.facts["updates"]
