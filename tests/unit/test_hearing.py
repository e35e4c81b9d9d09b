"""What a keeper writes down of what it hears: clients are heard also while nobody learns."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.loop import hearing
from penstock.loop.gateway.configuration import translate
from penstock.loop.hearing import Hearing
from penstock.loop.runs import RunFolder
from penstock.model import topics
from penstock.model.codec import Schema, encode
from penstock.stream.base import Stream
from penstock.wiring import open_stream

RUN = "luna-k3v9"


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    spec = translate("luna", {"algorithm_parameters": {"act_dim": 2, "input_size": 4}}, "embedded")
    return RunFolder.create(tmp_path, spec, RUN)


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[Stream]:
    opened = open_stream(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def heard(stream: Stream, folder: RunFolder) -> Iterator[Hearing]:
    made = Hearing(stream, folder, False, lambda *_: None)
    yield made
    made.close()


def learner_tells(stream: Stream, at: float) -> None:
    words = {"steps": 64, "seconds": 2.0, "time": at, "episodes": 8, "updates": 3, "version": (1, 3)}
    report = {**words, "values": {"charts/SPS": 32.0, "losses/policy": 0.5}}
    stream.writer(topics.METRICS_TRAINING).write(RUN, encode(Schema.REPORT, report))


def gateway_tells(stream: Stream, at: float, clients: int) -> None:
    report = {"slot": 1000, "time": at, "gateway": {"gateway/clients": clients, "clients/decisions": 10 * at}}
    stream.writer(topics.METRICS_ACTORS).write(RUN, encode(Schema.REPORT, report))


def lines(folder: RunFolder) -> list[dict[str, Any]]:
    return [json.loads(line) for line in folder.metrics_file.read_text().splitlines()]


def test_clients_are_written_down_while_the_learner_is_parked(
    stream: Stream, folder: RunFolder, heard: Hearing, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway_tells(stream, 1.0, clients=1)
    heard.listen(1.0)
    assert lines(folder) == [], "before the learner's first report there is no place on the axes"
    learner_tells(stream, 2.0)
    gateway_tells(stream, 3.0, clients=1)
    heard.listen(1.0)
    (first,) = lines(folder)
    assert first["losses/policy"] == 0.5
    monkeypatch.setattr(hearing, "QUIET_SECONDS", 0.0)
    for at, clients in ((4.0, 2), (5.0, 0), (6.0, 0)):
        gateway_tells(stream, at, clients)
        heard.listen(0.2)
    alone = lines(folder)[1:]
    assert [(line["time"], line["gateway/clients"]) for line in alone] == [(4.0, 2), (5.0, 0)]
    assert alone[0]["clients/decisions"] == 40.0
    assert [(line["steps"], line["seconds"], line["updates"]) for line in alone] == [(64, 2.0, 3)] * 2
    assert "losses/policy" not in alone[0], "nothing was learned since"
