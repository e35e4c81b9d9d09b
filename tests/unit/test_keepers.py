"""Keepers that a server asks to end."""

import time
from pathlib import Path

import msgspec

from penstock import config
from penstock.control.keepers import Keepers
from penstock.loop.runs import RunFolder
from penstock.model.run import RunState


def test_a_run_that_has_not_begun_is_not_waited_for(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, config.resolve({"environment": "CartPole-v1"}), "young")
    folder.save_status(msgspec.structs.replace(folder.status(), managed=True, keeper=None))
    assert folder.status().state is RunState.PENDING
    began = time.monotonic()
    assert Keepers(tmp_path).stop_all(["young"], patience_seconds=30.0) == []
    assert time.monotonic() - began < 15.0
