"""Who serves a policy on a log of either kind: the last who took it, and a home that starts again goes on."""

import uuid
from pathlib import Path

import pytest

from penstock.errors import Conflict
from penstock.loop.gateway.holding import FILE, Holdings, Lost
from penstock.stream.base import Stream


@pytest.fixture
def policy() -> str:
    return f"p-{uuid.uuid4().hex[:6]}"


def home(tmp_path: Path, name: str) -> Path:
    (tmp_path / name).mkdir(exist_ok=True)
    return tmp_path / name


def test_of_two_that_begin_a_policy_at_once_the_last_has_it(
    stream: Stream, policy: str, tmp_path: Path
) -> None:
    first = Holdings(home(tmp_path, "a"), stream).take(policy, None)
    first.check()
    second = Holdings(home(tmp_path, "b"), stream).take(policy, None)
    with pytest.raises(Lost, match=f"another gateway on this log has taken policy {policy}"):
        first.check()
    second.check()


def test_a_home_that_starts_again_goes_on_without_a_word(stream: Stream, policy: str, tmp_path: Path) -> None:
    place = home(tmp_path, "a")
    before = Holdings(place, stream)
    holding = before.take(policy, None)
    before.remember(policy, "r-1", holding)
    again = Holdings(place, stream).take(policy, "r-1")
    assert again.epoch == holding.epoch
    other_run = Holdings(home(tmp_path, "b"), stream).take(policy, None)
    assert other_run.epoch == holding.epoch + 1
    with pytest.raises(Lost):
        again.check()


def test_a_file_that_cannot_be_read_costs_an_epoch_and_nothing_else(
    stream: Stream, policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.loop.gateway.holding.SILENT_SECONDS", 0.2)
    place = home(tmp_path, "a")
    before = Holdings(place, stream)
    holding = before.take(policy, None)
    before.remember(policy, "r-1", holding)
    (place / FILE).write_bytes(b"\xff{")
    again = Holdings(place, stream).take(policy, "r-1")
    assert again.epoch == holding.epoch + 1
    assert issubclass(Lost, Conflict), "clients are told FAILED_PRECONDITION"
