"""The quick form of the benchmark: its arithmetic, and that what it measures can be measured."""

import math

from bench import limit, micro, report, sustained
from bench.race import Outcome, median_time, summary


def outcome(who: str, seconds: float, reached: bool = True, stopped: bool = False) -> Outcome:
    return Outcome(who, "CartPole-v1", 1, reached, stopped, seconds, 1000, 100.0, 100, 480.0, 1.0, 100.0)


def test_a_stopped_run_in_the_middle_makes_the_median_a_lower_bound():
    runs = [outcome("sb3", 10), outcome("sb3", 40, False, True), outcome("sb3", 40, False, True)]
    assert median_time(runs) == (40, True)


def test_a_median_of_runs_that_reached_the_target_is_exact_beside_a_slow_one():
    assert median_time([outcome("sb3", 40, False, True), outcome("sb3", 10), outcome("sb3", 12)]) == (
        12,
        False,
    )


def test_a_training_that_ended_short_of_the_target_is_never_fast():
    runs = [outcome("sb3", 5, reached=False), outcome("sb3", 5, reached=False), outcome("sb3", 9)]
    assert median_time(runs)[0] == math.inf


def test_the_verdict_compares_a_peer_with_what_is_promised_over_it():
    runs = [outcome("penstock", 10), outcome("sb3", 49), outcome("sbx", 11)]
    verdicts = report.verdicts({"race": {"summary": summary(runs), "runs": []}})
    assert [row[3] for row in verdicts] == ["NO", "yes"]


def test_we_are_not_ahead_of_anybody_unless_most_of_our_own_runs_arrived():
    runs = [outcome("penstock", 10, reached=False), outcome("sbx", 90)]
    assert report.verdicts({"race": {"summary": summary(runs), "runs": []}})[0][3] == "NO"


def test_no_speed_is_promised_from_a_busy_machine():
    runs = [outcome("penstock", 10), outcome("sb3", 90)]
    facts = {"race": {"summary": summary(runs), "runs": []}, "machine": {"load_before": 12.0}}
    assert report.verdicts(facts)[0][3] == "not valid"
    facts["machine"]["load_before"] = 0.1
    facts["race"]["summary"][1]["others"] = 0.4
    assert report.verdicts(facts)[0][3] == "not valid"


def test_more_than_the_physical_limit_is_a_wrong_measurement():
    assert report.verdicts({"sustained": {"ratio": 2.11}})[0][3] == "not valid"


def test_sustained_speed_leaves_out_the_warm_up():
    points = [(0.0, 5.0), (10.0, 10.0), (100.0, 15.0), (1100.0, 25.0)]
    assert sustained.speed(points) == 100.0


def test_the_small_measurements_give_plausible_numbers(tmp_path):
    facts = micro.measure(tmp_path, quick=True)
    assert 1 < facts["decision_us"] < 500
    assert 0 < facts["version_loaded_p99_ms"] < 1000


def test_the_limit_is_measured_on_all_cores():
    assert limit.measure("CartPole-v1", 0.2)["steps_per_second"] > 1000


def test_the_clients_promises_are_compared_with_what_was_measured():
    measured = {
        "added_us": 6.0, "decision_p50_us": 26.0, "decision_p99_us": 150.0, "share_of_random": 0.59,
        "times_sampler": {"rllib": 4.4, "torchrl": 2.9},
    }  # fmt: skip
    rows = report.verdicts({"client": measured})
    assert [row[3] for row in rows] == ["yes", "NO", "yes", "NO", "yes", "NO"]
