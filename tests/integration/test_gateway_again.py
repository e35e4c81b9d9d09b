"""A gateway that starts again: it goes on by itself where it was, and clients keep their run."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock import proto
from penstock.model.tensors import weights_sha256
from tests.gateways import Gateway
from tests.integration.harness import penstock
from tests.tiny_client import BANDIT, TinyClient


def eventually(condition: Callable[[], bool], gateway: Gateway, seconds: float = 150.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, gateway.log()
        time.sleep(0.2)


def test_it_learns_what_was_acknowledged_and_parks_the_learner_and_a_fork_does_not_take_its_clients(
    tmp_path: Path,
) -> None:
    with Gateway(tmp_path, ("--idle", "8")) as gateway:
        with gateway.calls() as calls:
            client = TinyClient(calls, "once")
            run = client.open(BANDIT).run
            client.fetch()
            receipts = client.send([client.play() for _ in range(64)]).receipts
        gateway.kill()
        assert {one.outcome for one in receipts} == {proto.SendReply.STORED}
        gateway.start()

        def told() -> dict[str, Any]:
            return dict(json.loads(penstock(tmp_path, "show", run, "--json").stdout))

        eventually(lambda: told()["steps"] > 0, gateway)
        events = tmp_path / "runs" / run / "events.jsonl"
        eventually(lambda: '"learner_parked"' in events.read_text(), gateway)

        fork = json.loads(
            penstock(tmp_path, "fork", run, "--at", "newest", "--no-train", "--json").stdout.splitlines()[-1]
        )
        assert fork["run"] != run
        assert fork["weights_sha256"] == told()["weights_sha256"], "its first version is its origin's"
        gateway.kill()
        gateway.start()
        with gateway.calls() as calls:
            again = TinyClient(calls, "once")
            assert again.open(BANDIT).run == run
            again.fetch()
            assert str(again.version) == told()["version"]
            assert weights_sha256(again.tensors) == told()["weights_sha256"]
