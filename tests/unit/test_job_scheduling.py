"""The scheduling example: its file format, its workload model and its cluster, against what can be known by hand."""

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

sys.path.append(str(Path(__file__).parents[2] / "examples" / "job_scheduling"))

import baselines
import lublin
import swf
from baselines import f1, fcfs, saf, scheduled, sjf, slowdowns, uniform
from cluster import VISIBLE, Cluster, Rules, bounded_slowdown
from environment import EVALUATION_SEEDS, FEATURES, TRAINING_SEEDS, Scheduling
from evaluate import cases
from intervals import paired
from report import LEARNED, table
from workload import Workload


def jobs(processors: int, *rows: tuple[float, float, int], request: list[float] | None = None) -> Workload:
    """A workload of (submit, run, processors)."""
    submit, run, procs = (np.array(column, float) for column in zip(*rows, strict=True))
    wanted = run if request is None else np.array(request)
    return Workload(processors, submit, run, wanted, procs.astype(np.int64))


COMMIT, EASY = Rules(commit=True), Rules(backfill=True)
RULES = [Rules(), COMMIT, EASY, Rules(commit=True, backfill=True)]


def started(workload: Workload, choose: baselines.Choose, rules: Rules = COMMIT) -> list[float]:
    cluster = Cluster(workload, rules)
    while not cluster.done:
        cluster.name(choose(cluster))
    return cluster.started.tolist()


class TestSwf:
    def test_what_is_written_is_read_again(self, tmp_path: Path):
        made = lublin.generate(300, seed=1, processors=64, load=0.7, overestimate=3.0)
        swf.write(tmp_path / "made.swf", made, note="from a\nmodel")
        log = swf.read(tmp_path / "made.swf")
        assert log.workload.processors == 64
        for name in ("submit", "run", "request", "procs"):
            np.testing.assert_allclose(getattr(log.workload, name), getattr(made, name), rtol=1e-14)
        assert log.header["Note"] == "from a model"
        assert log.dropped.total == 0

    def test_unknown_fields_fall_back_and_unusable_jobs_are_counted(self, tmp_path: Path):
        file = tmp_path / "log.swf"
        file.write_text(
            "; Version: 2.2\n; MaxProcs: 16 (of 20)\n;\n"
            "1 0 5 100 4 -1 -1 -1 -1 -1 1 3 -1 -1 -1 -1 -1 -1\n"
            "2 9 5 50 4 -1 -1 8 60 -1 1 3 -1 -1 -1 -1 -1 -1\n"
            "\n"
            "3 5 5 1.5 1 -1 -1 2 -1 -1 1 3 -1 -1 -1 -1 -1 -1\n"
            "4 9 5 -1 4 -1 -1 8 60 -1 5 3 -1 -1 -1 -1 -1 -1\n"
            "5 9 5 0 4 -1 -1 8 60 -1 5 3 -1 -1 -1 -1 -1 -1\n"
            "6 9 5 10 -1 -1 -1 -1 60 -1 1 3 -1 -1 -1 -1 -1 -1\n"
            "7 9 5 10 17 -1 -1 17 60 -1 1 3 -1 -1 -1 -1 -1 -1\n"
        )
        log = swf.read(file)
        assert log.dropped == swf.Dropped(no_runtime=2, no_processors=1, too_large=1)
        assert log.workload.submit.tolist() == [0, 5, 9]  # sorted
        assert log.workload.procs.tolist() == [4, 2, 8]
        assert log.workload.request.tolist() == [100, 1.5, 60]
        assert len(swf.read(file, processors=17).workload) == 4

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("; MaxProcs: 4\n1 0 0 1 1\n", r"line 2: 5 fields; a job has 18"),
            ("1 0 5 x 4 -1 -1 -1 -1 -1 1 3 -1 -1 -1 -1 -1 -1\n", r"line 1: a field is no number"),
            ("1 0 5 nan 4 -1 -1 -1 -1 -1 1 3 -1 -1 -1 -1 -1 -1\n", r"line 1: a field is not finite"),
            ("1 -1 5 9 4 -1 -1 -1 -1 -1 1 3 -1 -1 -1 -1 -1 -1\n", r"line 1: the submit time"),
            ("1 0 5 9 4.5 -1 -1 -1 -1 -1 1 3 -1 -1 -1 -1 -1 -1\n", r"line 1: 4.5 processors"),
            ("1 0 5 9 4 -1 -1 -1 -1 -1 1 3 -1 -1 -1 -1 -1 -1\n", "add '; MaxProcs: N'"),
            ("; MaxProcs: 2\n1 0 5 9 4 -1 -1 -1 -1 -1 1 3 -1 -1 -1 -1 -1 -1\n", "no job that can run on 2"),
            (";" + "x" * 5000, r"line 1: 5001 characters"),
        ],
    )
    def test_a_bad_file_is_one_sentence_that_names_the_place(self, tmp_path: Path, text: str, says: str):
        (tmp_path / "bad.swf").write_text(text)
        with pytest.raises(swf.SwfError, match=says):
            swf.read(tmp_path / "bad.swf")


class TestLublin:
    """Moments of the published distributions, by integration here and by sampling there."""

    MODEL = lublin.Batch()

    def test_sizes(self):
        m = self.MODEL
        drawn = lublin.sizes(m, 200_000, np.random.default_rng(1))
        stages = ((m.u_prob, m.u_low, m.u_med), (1 - m.u_prob, m.u_med, m.u_high))

        def share(low: float, high: float) -> float:
            """P(low ≤ exponent < high)"""
            return sum(w * max(0.0, min(high, b) - max(low, a)) / (b - a) for w, a, b in stages)

        powers = sum(share(k - 0.5, k + 0.5) * 2**k for k in range(1, 8))
        others = sum(share(np.log2(n - 0.5), np.log2(n + 0.5)) * n for n in range(2, 129))
        mean = m.serial + m.power_of_two * powers + (1 - m.serial - m.power_of_two) * others
        assert drawn.mean() == pytest.approx(mean, rel=0.02)
        assert (drawn == 1).mean() == pytest.approx(0.2927, abs=0.005)
        odd = 1 - m.serial - m.power_of_two
        fours = m.power_of_two * share(1.5, 2.5) + odd * share(np.log2(3.5), np.log2(4.5))
        assert (drawn == 4).mean() == pytest.approx(fours, abs=0.005)
        assert drawn.max() == 128

    @pytest.mark.parametrize("size", [1, 32, 128])
    def test_runtimes_depend_on_size(self, size: int):
        m = self.MODEL
        drawn = np.log(lublin.runtimes(m, np.full(200_000, size), np.random.default_rng(2)))
        p = m.pa * size + m.pb
        gammas = ((p, m.a1, m.b1), (1 - p, m.a2, m.b2))
        kept = sum(w * stats.gamma.cdf(12, a, scale=b) for w, a, b in gammas)
        mean = sum(w * a * b * stats.gamma.cdf(12, a + 1, scale=b) for w, a, b in gammas) / kept
        assert drawn.mean() == pytest.approx(mean, rel=0.01)  # whole seconds cost a little of it
        middle = sum(w * stats.gamma.cdf(8, a, scale=b) for w, a, b in gammas) / kept
        assert (drawn <= 8).mean() == pytest.approx(middle, abs=0.005)
        assert drawn.max() <= 12

    def test_arrivals(self):
        m = self.MODEL
        submit = lublin.arrivals(m, 400_000, np.random.default_rng(3))
        # E[e^g | g < 13] of a gamma is again a gamma, with another scale
        a, b = m.a_arr, m.b_arr
        inside = stats.gamma.cdf(13, a, scale=b / (1 - b)) / stats.gamma.cdf(13, a, scale=b)
        assert submit[-1] / len(submit) == pytest.approx((1 - b) ** -a * inside, rel=0.03)
        counts = np.bincount((submit // 1800).astype(int) % 48, minlength=48) / len(submit)
        weights = lublin.daily_cycle(m)
        assert np.abs(counts - weights / 48).max() < 0.004
        assert (np.diff(submit) >= 0).all()

    def test_the_daily_cycle_is_the_gamma_moved_to_noon(self):
        weights = lublin.daily_cycle(self.MODEL)
        slots = np.arange(11, 59)
        gamma = stats.gamma(6.1271, scale=5.2740)
        expected = np.zeros(48)
        expected[(slots - 1) % 48] = gamma.cdf(slots + 0.5) - gamma.cdf(slots - 0.5)
        np.testing.assert_allclose(weights, expected / expected.mean(), rtol=1e-9)

    def test_the_load_is_the_one_asked_for_and_jobs_stay(self):
        plain, dense = lublin.generate(2000, 5), lublin.generate(2000, 5, load=0.85)
        assert dense.load == pytest.approx(0.85)
        assert (plain.run == dense.run).all()
        assert (plain.procs == dense.procs).all()
        again, other = lublin.generate(2000, 5, load=0.85), lublin.generate(2000, 6, load=0.85)
        assert (again.submit == dense.submit).all()
        assert (other.run != dense.run).any()

    def test_users_overestimate_within_the_factor(self):
        made = lublin.generate(5000, 7, overestimate=4.0)
        factor = made.request / made.run
        assert factor.min() >= 1
        assert np.median(factor[made.run > 100]) == pytest.approx(2.5, abs=0.1)


class TestCluster:
    def test_first_come_first_served_by_hand(self):
        workload = jobs(4, (0, 100, 4), (1, 100, 2), (2, 10, 2), (3, 10, 4))
        assert started(workload, fcfs) == [0, 100, 100, 200]
        assert slowdowns(workload, fcfs).tolist() == pytest.approx([1, 1.99, 10.8, 20.7])

    def test_shortest_first_by_hand(self):
        workload = jobs(4, (0, 100, 4), (5, 80, 4), (6, 60, 4), (7, 20, 4))
        # asked again whenever one arrives, it names the shortest of three at second 100
        assert started(workload, sjf, Rules()) == [0, 180, 120, 100]
        # by RLScheduler's rules job 1, named at second 5 when it was alone, keeps its promise
        assert started(workload, sjf, COMMIT) == [0, 100, 200, 180]

    def test_for_first_come_first_served_a_promise_changes_nothing(self):
        workload = lublin.generate(300, 11, load=1.0)
        assert started(workload, fcfs, COMMIT) == started(workload, fcfs, Rules())

    def test_a_job_that_does_not_fit_holds_up_the_rest(self):
        workload = jobs(4, (0, 100, 3), (1, 50, 4), (2, 20, 1), (3, 200, 1))
        assert started(workload, fcfs) == [0, 100, 150, 150]

    def test_easy_fills_the_hole_without_delaying_the_promise(self):
        workload = jobs(4, (0, 100, 3), (1, 50, 4), (2, 20, 1), (3, 200, 1))
        # job 2 ends before second 100; job 3 would not, and nothing is spare beside job 1
        assert started(workload, fcfs, EASY) == [0, 100, 2, 150]
        spare = jobs(4, (0, 100, 3), (1, 50, 3), (2, 200, 1))
        assert started(spare, fcfs, EASY) == [0, 100, 2]

    def test_decisions_use_requests_and_the_machine_uses_run_times(self):
        workload = jobs(2, (0, 10, 2), (1, 5, 2), (1, 90, 2), (1, 7, 2), request=[99, 60, 30, 40])
        # three came at once; the one that asks for least runs longest
        assert started(workload, sjf) == [0, 107, 10, 100]

    def test_waits_and_utilisation_by_hand(self):
        cluster = scheduled(jobs(4, (0, 100, 4), (50, 100, 2)), fcfs)
        assert cluster.waits().tolist() == [0, 50]
        assert cluster.utilisation() == pytest.approx(600 / 800)

    def test_bounded_slowdown(self):
        wait, run = np.array([0.0, 0.0, 5.0, 90.0, 100.0]), np.array([1.0, 50.0, 1.0, 1.0, 50.0])
        assert bounded_slowdown(wait, run).tolist() == [1, 1, 1, 9.1, 3]

    def test_a_place_without_a_job_is_refused(self):
        cluster = Cluster(jobs(4, (0, 1, 1), (1, 1, 1)))
        with pytest.raises(IndexError, match="place 1 of the queue is empty"):
            cluster.name(1)
        with pytest.raises(RuntimeError, match="1 jobs still wait"):
            cluster.slowdowns()

    @pytest.mark.parametrize("rules", RULES)
    @pytest.mark.parametrize("choose", [fcfs, sjf, f1, saf, uniform(3)])
    def test_every_job_runs_once_and_processors_are_never_oversubscribed(
        self, choose: baselines.Choose, rules: Rules
    ):
        for seed in range(3):
            workload = lublin.generate(400, seed, processors=64, load=1.2, overestimate=2.0)
            begin = np.array(started(workload, choose, rules))
            assert np.isfinite(begin).all()
            assert (begin >= workload.submit).all()
            times = np.concatenate((begin, begin + workload.run))
            change = np.concatenate((workload.procs, -workload.procs))
            order = np.lexsort((change, times))  # at the same moment ends come first
            used = np.cumsum(change[order])
            assert used.max() <= 64
            assert used[-1] == 0

    def test_a_promise_is_kept_when_users_know_their_jobs(self):
        workload = lublin.generate(400, 9, load=1.1)
        cluster = Cluster(workload, Rules(commit=True, backfill=True))
        while not cluster.done:
            job = int(cluster.visible[sjf(cluster)])
            promised = cluster.now + float(cluster.until_fits(workload.procs[[job]])[0])
            cluster.name(sjf(cluster))
            assert cluster.started[job] <= promised + 1e-6

    def test_a_scheduler_sees_128_jobs(self):
        workload = jobs(1, *((0, 10, 1) for _ in range(200)))
        cluster = Cluster(workload)
        assert len(cluster.visible) == VISIBLE
        assert len(cluster.waiting) == 200

    def test_f1_is_the_published_formula(self):
        workload = jobs(
            128, (0, 10_000, 128), (1, 1, 128), (10**3, 10_000, 100), (10**3.4, 100, 1), (10**3.41, 10, 2)
        )
        cluster = Cluster(workload, COMMIT)
        cluster.name(0)
        cluster.name(0)  # it waits for the first to end; meanwhile the three others arrive
        assert cluster.visible.tolist() == [2, 3, 4]
        # by hand: 4·100 + 870·3 = 3010, 2·1 + 870·3.4 = 2960, 1·2 + 870·3.41 = 2968.7
        assert (fcfs(cluster), f1(cluster), sjf(cluster)) == (0, 1, 2)
        assert saf(cluster) == 2


class TestEnvironment:
    @pytest.mark.parametrize("rules", RULES)
    def test_rewards_sum_to_the_average_slowdown(self, rules: Rules):
        env = Scheduling(jobs=96, processors=64, commit=rules.commit, backfill=rules.backfill)
        rng = np.random.default_rng(0)
        for seed in range(3):
            observation, info = env.reset(seed=seed)
            total, over, scale = 0.0, False, slowdowns(env.cluster.workload, sjf, rules).mean()
            while not over:
                assert observation in env.observation_space
                filled = observation.any(axis=1)
                assert (filled == info["action_mask"]).all()
                action = int(rng.choice(np.flatnonzero(info["action_mask"])))
                observation, reward, over, _, info = env.step(action)
                total += reward
            assert total * scale == pytest.approx(1 - info["bounded_slowdown"], rel=1e-9)
            assert not observation.any()

    def test_waiting_may_cost_too_as_a_share_of_what_it_costs_the_shortest_first(self):
        env = Scheduling(processors=4, wait_weight=0.5)
        workload = jobs(4, (0, 4000, 4), (0, 2000, 4), (0, 1000, 4))
        env.reset(options={"workload": workload})
        total, over = 0.0, False
        while not over:
            _, reward, over, _, _ = env.step(0)
            total += reward
        # in order of arrival the others wait 4000 and 6000 s; shortest first it would be 1000 and 3000 s
        slow, slow_of_sjf = 4000 / 2000 + 6000 / 1000, 3 + 1000 / 2000 + 3000 / 4000
        assert total == pytest.approx(-slow / slow_of_sjf - 0.5 * 10_000 / 4000)

    def test_rows_say_what_the_queue_is(self):
        env = Scheduling(processors=4)
        workload = jobs(4, (0, 100, 3), (0, 50, 4), (0, 20, 1), request=[864_000, 50, 20])
        env.reset(options={"workload": workload})
        rows, *_ = env.step(0)
        longest = np.log1p(864_000.0)
        second = [np.log1p(50) / longest, 1, 0, 0, 1, 0.25, 2 / 128, 0]
        third = [np.log1p(20) / longest, 0, 0, 1, 0, 0.25, 2 / 128, 1 / 128]
        np.testing.assert_allclose(rows[:2], [second, third], rtol=1e-6)
        assert rows.shape == (VISIBLE, FEATURES)

    def test_a_seed_is_an_episode(self):
        one, other = Scheduling(jobs=32), Scheduling(jobs=32)
        a, b = one.reset(seed=4)[0], other.reset(seed=4)[0]
        assert (a == b).all()
        assert (one.cluster.workload.submit == other.cluster.workload.submit).all()
        one.reset(seed=5)
        assert len(one.cluster.workload) == 32
        assert (one.cluster.workload.run != other.cluster.workload.run).any()

    def test_it_draws_from_a_log_too(self, tmp_path: Path):
        swf.write(tmp_path / "made.swf", lublin.generate(200, 1, processors=32, load=0.9))
        env = Scheduling(jobs=50, log=str(tmp_path / "made.swf"))
        env.reset(seed=1)
        assert env.cluster.processors == 32
        assert len(env.cluster.workload) == 50


class TestEvaluation:
    def test_workloads_are_twenty_and_none_of_training(self):
        given = cases(jobs=64)
        assert len({case.name for case in given}) == 20
        seeds = [int(case.name.rsplit(" ", 1)[1]) for case in given]
        assert min(seeds) == EVALUATION_SEEDS > TRAINING_SEEDS
        assert [round(case.workload.load, 6) for case in given[::5]] == [0.6, 0.7, 0.8, 0.9]

    def test_intervals_are_those_of_scipy(self):
        rng = np.random.default_rng(0)
        a, b = rng.normal(10, 2, 20), rng.normal(12, 2, 20)
        found = paired(a, b)
        known = stats.ttest_rel(a, b).confidence_interval(0.95)
        assert found.t == pytest.approx((known.low, known.high), abs=2e-3)
        resampled = stats.bootstrap((a - b,), np.mean, method="percentile", rng=1).confidence_interval
        assert found.bootstrap == pytest.approx((resampled.low, resampled.high), abs=0.1)
        assert found.verdict == "better"
        assert paired(b, a).verdict == "worse"
        assert paired(a, a + rng.normal(0, 5, 20)).verdict == "not told apart"

    def test_the_table_puts_the_best_first(self):
        scores = {LEARNED: np.array([3.0, 4, 5]), "A": np.array([1.0, 2.5, 3]), "B": np.array([9.0, 9.5, 12])}
        names = [line.split("|")[1].strip() for line in table(scores).splitlines()[2:]]
        assert names == ["A", LEARNED, "B"]
