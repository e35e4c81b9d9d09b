"""Gateways that are killed and crowded, for seconds; at length: `make faults`."""

from pathlib import Path

from tests.faults.applications import killed_beside
from tests.faults.crowd import crowded


def test_an_application_goes_on_while_its_gateway_is_killed(tmp_path: Path) -> None:
    outcome = killed_beside(tmp_path, seed=1, kills=3)
    assert outcome.facts["accounted"] > 0
    assert outcome.facts["epochs"] == 1, "the learner was not to notice either"


def test_a_crowd_is_served_and_everything_is_accounted_for(tmp_path: Path) -> None:
    outcome = crowded(tmp_path, seed=1, connections=40, seconds=20, policies=2)
    assert outcome.calls["DELTA"] > 0, "versions travel as deltas"
    assert outcome.calls["STORED"] == outcome.facts["acknowledged"] == outcome.facts["stored"]
