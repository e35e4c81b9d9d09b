"""Workers kept alive: real processes that die in different ways."""

import sys
import time
from pathlib import Path

import pytest

from penstock.executors.base import Exit, WorkerSpec
from penstock.executors.local import LocalExecutor, LocalWorker, environment
from penstock.loop import supervise
from penstock.loop.beat import Beat, Phase, Pulse
from penstock.loop.supervise import Fault, Supervised


class ScriptExecutor(LocalExecutor):
    """Runs the arguments as a Python program: real processes without a run around them."""

    def launch(self, spec: WorkerSpec) -> LocalWorker:
        import subprocess

        with spec.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", *spec.arguments], stdout=log, stderr=log, start_new_session=True
            )
        return LocalWorker(spec, process)


def supervised(tmp_path: Path, program: str, budget: int = 2, pulse: Pulse | None = None) -> Supervised:
    spec = WorkerSpec("actor-0", (program,), tmp_path / "actor-0.log")
    return Supervised(ScriptExecutor(), spec, budget, pulse, 0.3)


def faults_until_ended(item: Supervised, seconds: float = 15.0) -> list[Fault]:
    found, until = [], time.monotonic() + seconds
    while item.ended is None and time.monotonic() < until:
        if fault := item.tick():
            found.append(fault)
        time.sleep(0.01)
    return found


def test_a_crash_is_restarted_within_its_budget_and_then_hopeless(tmp_path: Path):
    item = supervised(tmp_path, "import sys; print('error: the pole is gone', file=sys.stderr); sys.exit(13)")
    faults = faults_until_ended(item)
    assert [fault.hopeless for fault in faults] == [False, False, True]
    assert {fault.reason for fault in faults} == {"the pole is gone"}
    assert item.restarts == 2


def test_a_wrong_setting_is_not_tried_again(tmp_path: Path):
    item = supervised(tmp_path, f"import sys; sys.exit({int(Exit.HOPELESS)})")
    (fault,) = faults_until_ended(item)
    assert fault.hopeless
    assert item.restarts == 0


def test_waiting_for_brokers_costs_no_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(supervise, "UNREACHABLE_SECONDS", 0.05)
    item = supervised(tmp_path, f"import sys; sys.exit({int(Exit.UNREACHABLE)})", budget=0)
    faults = faults_until_ended(item, 2.0)
    assert len(faults) > 2
    assert not any(fault.hopeless for fault in faults)
    assert item.ended is None


@pytest.mark.parametrize("code", [Exit.FINISHED, Exit.DRAINED, Exit.REPLACED])
def test_an_end_as_it_should_be_is_no_fault(tmp_path: Path, code: Exit):
    item = supervised(tmp_path, f"import sys; sys.exit({int(code)})")
    assert faults_until_ended(item) == []
    assert item.ended == code


def test_death_by_signal_is_told(tmp_path: Path):
    item = supervised(tmp_path, "import os; os.kill(os.getpid(), 9)", budget=0)
    (fault,) = faults_until_ended(item)
    assert fault.reason == "killed by signal 9"


def test_a_heart_that_stands_still_is_ended_and_started_again(tmp_path: Path):
    beat = Beat(tmp_path / "beat")
    beat.enter(Phase.STEPPING)
    item = supervised(tmp_path, "import time; time.sleep(60)", budget=1, pulse=Pulse(tmp_path / "beat"))
    faults = faults_until_ended(item)
    assert "hung past 0.3 s" in faults[0].reason
    assert [fault.hopeless for fault in faults] == [False, True]


def test_waiting_is_never_a_fault(tmp_path: Path):
    beat = Beat(tmp_path / "beat")
    beat.enter(Phase.WAITING)
    pulse = Pulse(tmp_path / "beat")
    pulse.still_for()
    time.sleep(0.05)
    assert pulse.still_for() == 0.0
    beat.enter(Phase.STEPPING)
    assert pulse.still_for() == 0.0
    time.sleep(0.05)
    assert pulse.still_for() >= 0.05
    beat()
    assert pulse.still_for() == 0.0


def test_thread_counts_are_fixed_for_a_worker(tmp_path: Path):
    variables = environment(
        WorkerSpec("a", (), tmp_path / "log", threads=3, environment={"PENSTOCK_HOME": "x"})
    )
    assert variables["OMP_NUM_THREADS"] == "3"
    assert variables["PENSTOCK_HOME"] == "x"
