"""States follow a table; ids are short, safe names."""

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Conflict
from penstock.model.run import LIVE, NEXT, RUN_ID, RunState, RunStatus, run_id

STATUS = RunStatus(
    run="cartpole-k3v9",
    state=RunState.PENDING,
    environment="CartPole-v1",
    algorithm="ppo",
    seed=1,
    created_at=1.0,
)


def test_a_run_goes_its_way():
    running = STATUS.to(RunState.RUNNING)
    assert running.to(RunState.DONE, "475.0 reached").reason == "475.0 reached"


def test_a_step_outside_the_table_is_a_conflict():
    with pytest.raises(Conflict, match="cartpole-k3v9 is pending; it cannot become done"):
        STATUS.to(RunState.DONE)


@pytest.mark.parametrize("state", list(RunState))
def test_exactly_what_is_not_live_can_be_resumed(state):
    assert (RunState.PENDING in NEXT[state]) == (state not in LIVE)
    assert state.live == (state in LIVE)
    assert set(NEXT) == set(RunState)


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ("CartPole-v1", "cartpole-"),
        ("ALE/Pong-v5", "pong-"),
        ("package:LunarLander-v3", "lunarlander-"),
        ("/home/me/my_env.py:MyEnv", "myenv-"),
        ("…", "run-"),
    ],
)
def test_an_id_begins_with_the_environment(environment, name):
    assert run_id(environment, random.Random(1)).startswith(name)


@given(st.text(), st.integers())
def test_an_id_is_always_a_safe_folder_name(environment, seed):
    assert RUN_ID.fullmatch(run_id(environment, random.Random(seed)))


def test_a_status_survives_json_and_ignores_what_a_newer_one_added():
    content = msgspec.json.encode(STATUS)
    assert msgspec.json.decode(content, type=RunStatus) == STATUS
    newer = msgspec.json.encode({**msgspec.json.decode(content), "colour": "red"})
    assert msgspec.json.decode(newer, type=RunStatus) == STATUS
