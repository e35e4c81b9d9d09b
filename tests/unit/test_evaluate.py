"""Every checkpoint is judged on the same episodes; the best is remembered, a lost one never is."""

from itertools import pairwise

import numpy as np
import pytest

from penstock import config
from penstock.errors import ConfigError, Damaged
from penstock.loop import evaluate as module
from penstock.loop.evaluate import Player, evaluate, evaluate_checkpoint
from penstock.loop.media import MAX_FRAMES, Frames
from penstock.loop.runs import RunFolder
from tests.saved import checkpoint


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path, config.resolve("CartPole-v1"))


def test_a_good_policy_balances_and_a_bad_one_falls(folder):
    good, bad = checkpoint(folder, 1, 5.0), checkpoint(folder, 2, -5.0)
    better, worse = evaluate(folder, good, 3), evaluate(folder, bad, 3)
    assert better.mean > 150 > 20 > worse.mean
    assert better.lengths == tuple(int(total) for total in better.returns)
    assert better.std == pytest.approx(np.std(better.returns))


def test_seed_and_episode_decide_everything_with_exploration_too(folder):
    version = checkpoint(folder, 1, 0.5)
    first = evaluate(folder, version, 4, seed=3, greedy=False)
    assert evaluate(folder, version, 4, seed=3, greedy=False).returns == first.returns
    assert evaluate(folder, version, 4, seed=4, greedy=False).returns != first.returns
    with Player.of(folder, version, 3, greedy=False) as player:
        assert player.play(2).total_reward == first.returns[2]


def test_the_best_is_remembered_over_evaluations(folder):
    good, bad, equal = checkpoint(folder, 1, 5.0), checkpoint(folder, 2, -5.0), checkpoint(folder, 3, 5.0)
    evaluate_checkpoint(folder, bad, 2)
    assert folder.best() == bad
    evaluate_checkpoint(folder, good, 2)
    assert folder.best() == good
    evaluate_checkpoint(folder, bad, 2)
    assert folder.best() == good
    evaluate_checkpoint(folder, equal, 2)
    assert folder.best() == equal
    assert [line["checkpoint"] for line in folder.evaluations()] == ["1.2", "1.1", "1.2", "1.3"]


def test_a_checkpoint_that_was_let_go_is_not_the_best(folder, monkeypatch):
    version = checkpoint(folder, 1, 5.0)
    whole = evaluate(folder, version, 1)
    (folder.checkpoint_path(version) / "checkpoint.json").unlink()
    monkeypatch.setattr(module, "evaluate", lambda *_: whole)
    evaluate_checkpoint(folder, version, 1)
    assert folder.best() is None


def test_an_endless_episode_is_ended(folder, monkeypatch):
    monkeypatch.setattr(module, "MAX_STEPS", 20)
    assert evaluate(folder, checkpoint(folder, 1, 5.0), 1).lengths == (20,)


def test_nonsense_and_damage_are_refused(folder):
    version = checkpoint(folder, 1, 1.0)
    with pytest.raises(ConfigError, match="at least one episode"):
        evaluate(folder, version, 0)
    with pytest.raises(ConfigError, match="seed"):
        evaluate(folder, version, 1, seed=-1)
    (folder.checkpoint_path(version) / "policy.safetensors").write_bytes(b"")
    with pytest.raises(Damaged, match=r"policy\.safetensors"):
        evaluate(folder, version, 1)


def test_a_long_episode_becomes_a_short_film_at_even_distances():
    frames = Frames(frames_per_second=50)
    for number in range(10_000):
        frames.add(np.full((2, 2, 3), number % 256, np.uint8))
    assert MAX_FRAMES / 4 < len(frames.frames) <= MAX_FRAMES
    values = [int(frame[0, 0, 0]) for frame in frames.frames]
    distances = {(after - before) % 256 for before, after in pairwise(values)}
    assert len(distances) == 1


def test_wide_frames_are_made_smaller():
    frames = Frames(30)
    frames.add(np.zeros((800, 1200, 3), np.uint8))
    assert frames.frames[0].shape[1] <= 480
