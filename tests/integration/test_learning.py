"""Every algorithm learns, in the real loop: a quick form of `make bench ARGS=learn`.

Each target is far above what acting at random gives (CartPole 22, Pendulum -1,200).
"""

import json
from pathlib import Path

import pytest

from tests.integration.harness import penstock


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "environment", "target", "steps"),
    [
        ("ppo", "CartPole-v1", 475, 400_000),
        ("impala", "CartPole-v1", 150, 600_000),
        ("dqn", "CartPole-v1", 150, 200_000),
        ("reinforce", "CartPole-v1", 100, 600_000),
        ("sac", "Pendulum-v1", -500, 100_000),
    ],
)
def test_it_learns(tmp_path: Path, algorithm: str, environment: str, target: float, steps: int):
    done = penstock(
        tmp_path, "train", environment, "--algorithm", algorithm, "--target", str(target), "--steps", str(steps),
        "--seed", "3", "--json", timeout=250,
    )  # fmt: skip
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["mean_return"] >= target, result["reason"]
