"""Reports become lines and scalars, cheaply, and read back as columns."""

import json
import math
import time
from pathlib import Path

import pytest

from penstock.loop.metrics import MetricsWriter, read_metrics


def report(steps, **values):
    return {"steps": steps, "seconds": steps / 100, "time": 1e9 + steps, **values}


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard would read, without installing it."""
    from tensorboardX.proto.event_pb2 import Event

    found: dict[str, list[tuple[int, float]]] = {}
    for path in sorted((folder / "tensorboard").iterdir()):
        content, at = path.read_bytes(), 0
        while at < len(content):
            size = int.from_bytes(content[at : at + 8], "little")
            event = Event.FromString(content[at + 12 : at + 12 + size])
            at += 12 + size + 4
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def test_reports_read_back_as_columns_with_gaps(tmp_path):
    with MetricsWriter(tmp_path, tensorboard=False) as writer:
        writer.write(report(100, **{"charts/episodic_return": 1.0}))
        writer.write(report(200, **{"losses/policy_loss": 0.5}))
    columns = read_metrics(tmp_path)
    assert columns["steps"] == [100, 200]
    assert columns["charts/episodic_return"] == [1.0, None]
    assert read_metrics(tmp_path, ["x"]) == {
        "steps": [100, 200], "seconds": [1.0, 2.0], "time": [1e9 + 100, 1e9 + 200], "x": [None, None]
    }  # fmt: skip
    assert not (tmp_path / "tensorboard").exists()


def test_nested_values_are_taken_and_words_left_out(tmp_path):
    with MetricsWriter(tmp_path, tensorboard=False) as writer:
        writer.write(report(1, version="1.2", final=False, values={"charts/SPS": 10.0, "bad": math.nan}))
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == report(1, **{"charts/SPS": 10.0})


def test_tensorboard_has_cleanrls_names_and_sb3s_against_steps(tmp_path):
    with MetricsWriter(tmp_path, tensorboard=True) as writer:
        writer.write(report(500, **{"charts/episodic_return": 9.0, "charts/SPS": 7.0, "updates": 3}))
    found = scalars(tmp_path)
    assert found["charts/episodic_return"] == found["rollout/ep_rew_mean"] == [(500, 9.0)]
    assert found["time/fps"] == [(500, 7.0)]
    assert found["run/updates"] == [(500, 3.0)]
    assert "steps" not in found


def test_a_hundred_reports_a_second_cost_little_and_are_coalesced(tmp_path):
    spent = 0.0
    with MetricsWriter(tmp_path, tensorboard=True) as writer:
        for index in range(50):
            before = time.perf_counter()
            writer.write(report(index, **{f"losses/{name}": 1.0 for name in range(20)}))
            spent += time.perf_counter() - before
            time.sleep(0.01)
    assert len(read_metrics(tmp_path)["steps"]) == 50
    points = scalars(tmp_path)["losses/1"]
    assert len(points) < 50
    assert points[-1] == (49, 1.0)
    assert spent / 50 < 0.005


def test_what_was_reported_beyond_a_resumption_is_left_out(tmp_path):
    for first, steps in ((1.0, (10, 20, 30)), (2.0, (20, 30, 40))):
        with MetricsWriter(tmp_path, tensorboard=False) as writer:
            for step in steps:
                writer.write(report(step, loss=first))
    columns = read_metrics(tmp_path, ["loss"])
    assert columns["steps"] == [10, 20, 20, 30, 40]
    assert columns["loss"] == [1.0, 1.0, 2.0, 2.0, 2.0]


def test_a_torn_line_is_skipped_and_a_missing_file_is_empty(tmp_path):
    assert read_metrics(tmp_path) == {}
    (tmp_path / "metrics.jsonl").write_text('{"steps": 1, "a": 2}\n{"steps": 2, "a"')
    assert read_metrics(tmp_path, ["a"])["a"] == [2]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_counted_and_stops_nothing(tmp_path):
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with MetricsWriter(tmp_path, tensorboard=False) as writer:
        writer.write(report(1))
        assert writer.dropped == 1
