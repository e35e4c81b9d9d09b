"""Metrics as columns: followed while they grow, thinned where they are many, cut where a run went back."""

import json
import os
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from penstock.control import series
from penstock.control.measuring import read_metrics
from penstock.control.series import Series, SeriesStore
from penstock.control.views import Metrics
from penstock.errors import ConfigError
from penstock.loop.metrics import read_metrics as read_all


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def add(file: Path, *rows: dict[str, Any]) -> None:
    with file.open("a") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)


def rows(first: int, last: int, **values: float) -> list[dict[str, Any]]:
    return [
        {"steps": step, "seconds": step / 2, "time": step + 0.5, "loss": step * 1.0, **values}
        for step in range(first, last)
    ]


class Asker:
    def __init__(self, file: Path) -> None:
        self._file, self._store = file, SeriesStore()

    def __call__(self, *names: str, since: float | None = None, points: int | None = None) -> Metrics:
        return read_metrics(self._store, self._file, "pole", list(names) or None, since, points)


@pytest.fixture
def ask(file: Path) -> Asker:
    return Asker(file)


def test_columns_are_of_equal_length_with_null_where_a_number_lacks(file: Path, ask: Asker) -> None:
    assert ask().model_dump() == {
        "run": "pole", "names": [], "columns": {"steps": [], "seconds": [], "time": []}, "total": 0, "last_step": None,
    }  # fmt: skip
    add(
        file,
        {"steps": 1, "loss": 0.5},
        {"steps": 2, "seconds": 3.0, "time": 4.0, "kl": 1, "word": "x", "flag": True},
    )
    found = ask()
    assert found.names == ["loss", "kl"]
    assert found.columns == {
        "steps": [1, 2], "seconds": [None, 3], "time": [None, 4], "loss": [0.5, None], "kl": [None, 1],
    }  # fmt: skip
    assert (found.total, found.last_step) == (2, 2)


def test_it_reads_what_the_file_reader_reads(file: Path, ask: Asker) -> None:
    add(file, *rows(0, 50), *rows(20, 30, kl=0.1), *rows(30, 31), *rows(5, 6), {"loss": 1}, *rows(7, 9))
    with file.open("a") as out:
        out.write('not json\n[1]\n{"steps": "x"}\n{"steps": null}\n{"steps": 10, "loss": 1')
    assert ask().columns == read_all(file.parent)


def test_what_is_added_is_found_and_a_torn_line_waits_for_its_end(file: Path, ask: Asker) -> None:
    add(file, *rows(0, 3))
    assert ask("loss").columns["steps"] == [0, 1, 2]
    with file.open("a") as out:
        out.write('{"steps": 3, "lo')
    assert ask("loss").columns["steps"] == [0, 1, 2]
    with file.open("a") as out:
        out.write('ss": 9.5}\n')
    add(file, {"steps": 4, "loss": 1.0, "new": 2.0})
    found = ask("loss", "new")
    assert found.columns["loss"] == [0, 1, 2, 9.5, 1]
    assert found.columns["new"] == [None, None, None, None, 2]


def test_a_run_that_went_back_leaves_out_what_came_after(file: Path, ask: Asker) -> None:
    add(file, *rows(0, 10))
    assert len(ask("loss").columns["steps"]) == 10
    add(file, {"steps": 4, "loss": -1.0}, {"steps": 5, "loss": -2.0})
    assert ask("loss").columns["loss"] == [0, 1, 2, 3, 4, -1, -2]
    add(file, {"steps": -1, "loss": 7.0})
    assert ask("loss").columns["loss"] == [7]


def test_since_gives_only_what_is_new(file: Path, ask: Asker) -> None:
    add(file, *rows(0, 10))
    found = ask("loss", since=6.0)
    assert (found.columns["steps"], found.total, found.last_step) == ([7, 8, 9], 3, 9)
    again = ask("loss", since=found.last_step)
    assert (again.columns["steps"], again.total, again.last_step) == ([], 0, 9)
    add(file, *rows(10, 12))
    assert ask("loss", since=again.last_step).columns["loss"] == [10, 11]


def test_names_may_be_short_and_unknown_ones_are_refused_with_the_nearest(file: Path, ask: Asker) -> None:
    assert ask("anything").columns["anything"] == []  # nothing was reported yet
    add(file, {"steps": 1, "charts/episodic_return": 5.0, "ppo/loss": 1.0})
    found = ask("mean_return", "charts/episodic_return", "steps", "mean_return")
    assert found.columns["mean_return"] == found.columns["charts/episodic_return"] == [5.0]
    assert list(found.columns) == ["steps", "seconds", "time", "mean_return", "charts/episodic_return"]
    with pytest.raises(ConfigError, match=r"'ppo/los'.*'ppo/loss'"):
        ask("ppo/los")
    with pytest.raises(ConfigError, match="'lag'"):
        ask("lag")  # a short name of what this run does not report


def test_one_name_keeps_its_peaks_and_several_are_thinned_evenly(file: Path, ask: Asker) -> None:
    add(
        file,
        *(
            {"steps": step, "loss": float(step == 777) - float(step == 333), "other": step}
            for step in range(1000)
        ),
    )
    found = ask("loss", points=20)
    assert len(found.columns["steps"]) <= 20
    assert (found.columns["steps"][0], found.columns["steps"][-1]) == (0, 999)
    assert {777.0, 333.0} <= set(found.columns["steps"])
    assert (max(found.columns["loss"]), min(found.columns["loss"])) == (1, -1)
    assert found.total == 1000
    both = ask("loss", "other", points=11)
    assert both.columns["other"] == both.columns["steps"]
    gaps = [after - before for before, after in pairwise(both.columns["steps"])]
    assert max(gaps) - min(gaps) <= 1
    assert (both.columns["steps"][0], both.columns["steps"][-1]) == (0, 999)
    for points in (2, 3, 999, 1000, 1001):
        assert len(ask("loss", points=points).columns["steps"]) <= points
        assert len(ask(points=points).columns["steps"]) <= points


@pytest.mark.parametrize("points", [1, 0, -5, 20_001])
def test_points_out_of_range_are_refused(ask: Asker, points: int) -> None:
    with pytest.raises(ConfigError, match="points"):
        ask(points=points)


def test_a_column_without_numbers_is_thinned_too(file: Path, ask: Asker) -> None:
    add(file, *({"steps": step} for step in range(100)), {"steps": 100, "loss": 3.0})
    found = ask("loss", points=10)
    assert found.columns["loss"][-1] == 3.0
    assert len(found.columns["loss"]) <= 10


def test_a_file_that_was_replaced_cut_or_removed_is_read_anew(file: Path, ask: Asker) -> None:
    add(file, *rows(0, 10))
    ask()
    other = file.with_name("other")
    add(other, *rows(0, 50))
    other.replace(file)
    assert len(ask().columns["steps"]) == 50
    file.write_text("")
    assert ask().columns["steps"] == []
    add(file, *rows(0, 2))
    assert len(ask().columns["steps"]) == 2
    file.unlink()
    assert ask().columns["steps"] == []


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that a test reaches in no time."""
    monkeypatch.setattr(series, "MOST_REPORTS", 400)
    monkeypatch.setattr(series, "DENSE_REPORTS", 100)


def kept(one: Series) -> list[float]:
    with one.lock:
        one.follow()
        return list(one.column("steps"))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("at_once", [True, False])
def test_many_reports_are_thinned_evenly_and_the_newest_stay(file: Path, at_once: bool) -> None:
    one = Series(file)
    for start in range(0, 6000, 6000 if at_once else 50):
        add(file, *rows(start, start + (6000 if at_once else 50)))
        found = kept(one)
        assert len(found) <= 400
        assert (found[0], found[-1]) == (0, start + (5999 if at_once else 49))
        assert found[-50:] == list(range(int(found[-1]) - 49, int(found[-1]) + 1))[-len(found) :]
    older = found[:-100]
    gaps = {after - before for before, after in pairwise(older)}
    assert len(older) > 50
    assert max(gaps) <= 64
    assert one.total(0) == 6000
    assert one.total(one.after(5899.0)) == 100


@pytest.mark.usefixtures("small")
def test_a_thinned_run_that_goes_back_goes_on_right(file: Path) -> None:
    one = Series(file)
    add(file, *rows(0, 3000))
    kept(one)
    add(file, *rows(1000, 1200))
    found = kept(one)
    assert found == sorted(found)
    assert found[-200:] == list(range(1000, 1200))
    fresh = Series(file)
    again = kept(fresh)
    assert again[-100:] == found[-100:]
    assert max(again) == 1199
    assert again == sorted(again)


def test_many_runs_share_a_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MOST_RUNS", 4)
    store = SeriesStore()
    first = store.of(tmp_path / "0")
    for number in range(1, 4):
        store.of(tmp_path / str(number))
    assert store.of(tmp_path / "0") is first
    store.of(tmp_path / "4")
    assert store.of(tmp_path / "0") is first  # asked about lately
    monkeypatch.setattr(series, "MOST_BYTES", 100)
    add(tmp_path / "9", *rows(0, 10))
    large = store.of(tmp_path / "9")
    kept(large)
    store.of(tmp_path / "0")
    assert store.of(tmp_path / "9") is not large


def test_a_hundred_megabytes_are_read_in_seconds_and_then_in_milliseconds(file: Path, ask: Asker) -> None:
    names = [f"group/name_{number}" for number in range(30)]
    with file.open("w") as out:
        for step in range(80_000):
            values = ", ".join(f'"{name}": {step * 0.001234567:.6f}' for name in names)
            out.write(
                f'{{"steps": {step}, "seconds": {step}.5, "time": 1e9, {values}, "loss": {step % 100}}}\n'
            )
    assert file.stat().st_size > 50 << 20
    began = time.perf_counter()
    found = ask("loss", points=500)
    first = time.perf_counter() - began
    assert found.total == 80_000
    assert found.last_step == 79_999
    began = time.perf_counter()
    add(file, *rows(80_000, 80_010))
    assert ask("loss", since=79_999).columns["steps"] == list(range(80_000, 80_010))
    again = time.perf_counter() - began
    assert first < 15
    assert again < 0.5
    assert os.path.getsize(file) > 50 << 20


def test_threads_may_ask_while_it_grows(file: Path, ask: Asker) -> None:
    stop, wrong = threading.Event(), []

    def look() -> None:
        while not stop.is_set():
            found = ask()
            lengths = {len(column) for column in found.columns.values()}
            if len(lengths) != 1 or found.columns["steps"] != sorted(found.columns["steps"]):
                wrong.append(found)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for start in range(0, 2000, 20):
        add(file, *rows(start, start + 20, **{f"extra{start % 7}": 1.0}))
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert ask("loss").total == 2000
