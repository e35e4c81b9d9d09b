"""What callers see: decisions, fallbacks, clear errors for their mistakes; no gateway needed."""

import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.client import Action, Agent, RL4SysAgent, Trajectory
from penstock.client import agent as agents
from penstock.client.deciding import Decider
from penstock.client.description import read
from penstock.errors import ConfigError, Conflict, Unavailable
from penstock.model.version import Version
from penstock.policy import networks
from tests.unit.client_gateway import description, encoded


@pytest.fixture
def nowhere() -> Iterator[str]:
    """An address that refuses connections: bound, not listening."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def configuration(nowhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    return {
        "client_id": "pump", "algorithm_name": "PPO", "algorithm_parameters": {"act_dim": 4, "input_size": 8},
        "train_server_address": nowhere, "deadline_ms": 60_000, "flush_seconds": 60,
    }  # fmt: skip


@pytest.fixture
def agent(configuration: dict[str, Any]) -> Iterator[RL4SysAgent]:
    with RL4SysAgent(configuration) as made:
        yield made


def decider(step: int = 1, **kind: Any) -> Decider:
    described = description(**kind)
    tensors = networks.initial(described, np.random.default_rng(step))
    return Decider(read(encoded(described)), tensors, Version(1, step), {}, seed=step)


def step(agent: RL4SysAgent, trajectory: Trajectory | None, reward: float = 1.0) -> tuple[Trajectory, Action]:
    trajectory, action = agent.request_for_action(trajectory, np.ones(8))
    agent.add_to_trajectory(trajectory, action)
    action.update_reward(reward)
    return trajectory, action


class Tensor:
    """What a client sees of a torch tensor that hangs on a graph: only `detach().cpu().numpy()` works."""

    def __init__(self, values: list[float]) -> None:
        self._values = values

    def __array__(self, *_: object, **__: object) -> None:
        raise RuntimeError("can't call numpy() on a tensor that requires grad")

    def detach(self) -> "Tensor":
        return self

    cpu = detach

    def numpy(self) -> np.ndarray:
        return np.array(self._values, np.float32)


# the gateway is away


def test_without_a_gateway_the_safe_action_is_taken_and_counted(agent: RL4SysAgent):
    _, action = step(agent, None)
    assert action.act == 0
    assert action.foreign
    assert agent.figures()["fallbacks"] == {"safe": 1}
    assert agent.version is None


def test_a_heuristic_comes_before_the_safe_action(configuration: dict[str, Any]):
    with RL4SysAgent(configuration, heuristic=lambda seen, mask: int(seen.sum()) % 4) as agent:
        _, action = agent.request_for_action(None, [1, 1, 1, 0, 0, 0, 0, 0])
        assert action.act == 3
        assert agent.figures()["fallbacks"] == {"heuristic": 1}


@pytest.mark.parametrize("answer", [17, "x", None, float("nan"), [1, 2]])
def test_a_heuristic_that_answers_nonsense_is_passed_over(answer: Any, configuration: dict[str, Any]):
    configuration["fallback"] = {"action": 2}
    with RL4SysAgent(configuration, heuristic=lambda seen, mask: answer) as agent:
        assert agent.request_for_action(None, np.zeros(8))[1].act == 2
        assert agent.figures()["troubles"]["heuristic"] == 1


def test_a_heuristic_that_raises_does_not_reach_the_application(configuration: dict[str, Any]):
    def broken(seen: Any, mask: Any) -> int:
        raise ZeroDivisionError("oh")

    with RL4SysAgent(configuration, heuristic=broken) as agent:
        assert agent.request_for_action(None, np.zeros(8))[1].act == 0


def test_a_safe_action_that_is_masked_gives_way_to_the_first_allowed(configuration: dict[str, Any]):
    configuration |= {"masked": True, "fallback": {"action": 1}}
    with RL4SysAgent(configuration) as agent:
        assert agent.request_for_action(None, np.zeros(8), [0, 0, 1, 1])[1].act == 2
        assert agent.request_for_action(None, np.zeros(8), [0, 1, 1, 1])[1].act == 1


def test_numbers_fall_back_to_zeros(configuration: dict[str, Any]):
    with RL4SysAgent({**configuration, "continuous": True}) as agent:
        assert agent.request_for_action(None, np.zeros(8))[1].act.tolist() == [0, 0, 0, 0]


def test_without_shapes_and_gateway_there_is_nothing_to_act_with(
    nowhere: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(agents, "SHAPES_SECONDS", 0.5)
    with pytest.raises(Unavailable, match="input_size and act_dim"):
        Agent(nowhere, policy="pump")


# the policy decides


def test_a_version_is_used_from_the_next_decision_on(agent: RL4SysAgent):
    trajectory, _ = step(agent, None)
    agent._chooser.swap(decider(step=3))
    trajectory, action = step(agent, trajectory)
    assert not action.foreign
    assert agent.version == Version(1, 3)
    agent._chooser.swap(decider(step=5))
    step(agent, trajectory)
    assert trajectory.version == Version(1, 3), "a trajectory has the oldest version that decided in it"


def test_what_is_written_down_gives_the_probabilities_of_what_was_done(agent: RL4SysAgent):
    policy = decider()
    agent._chooser.swap(policy)
    trajectory = None
    for _ in range(300):  # more than one block of noise
        trajectory, action = step(agent, trajectory)
        assert trajectory.actions[trajectory.length - 1] == action.act
    assert trajectory is not None
    n = trajectory.length
    got = policy.log_probs(trajectory.outputs[:n], trajectory.actions[:n], None)
    logits = trajectory.outputs[0] - np.log(np.exp(trajectory.outputs[0]).sum())
    np.testing.assert_allclose(got, logits[trajectory.actions[:n]], atol=1e-5)
    assert len(set(trajectory.actions[:n].tolist())) == 4, "noise makes it explore"


def test_masked_actions_are_never_taken(configuration: dict[str, Any]):
    with RL4SysAgent({**configuration, "masked": True}) as agent:
        agent._chooser.swap(decider(masked=True))
        acts = {
            agent.request_for_action(None, np.ones(8), [False, True, False, True])[1].act for _ in range(64)
        }
        assert acts == {1, 3}


def test_numbers_are_clipped_for_the_system_and_kept_raw_for_the_learner(configuration: dict[str, Any]):
    with RL4SysAgent({**configuration, "continuous": True}) as agent:
        agent._chooser.swap(decider(box=True))
        trajectory = None
        for _ in range(64):
            trajectory, action = step(agent, trajectory)
            assert np.abs(action.act).max() <= 1
        assert trajectory is not None
        assert np.abs(trajectory.actions[:64]).max() > 1


def test_the_same_seed_explores_alike_and_another_does_not(configuration: dict[str, Any]):
    def acts(seed: int) -> list[int]:
        described = description()
        tensors = networks.initial(described, np.random.default_rng(0))
        with RL4SysAgent(configuration) as agent:
            agent._chooser.swap(Decider(read(encoded(described)), tensors, Version(1, 0), {}, seed))
            return [agent.request_for_action(None, np.ones(8))[1].act for _ in range(40)]

    assert acts(1) == acts(1) != acts(2)


def test_a_policy_that_fails_gives_way_to_the_one_before_it(agent: RL4SysAgent):
    agent._chooser.swap(decider(step=1))
    broken = decider(step=2)
    agent._chooser.swap(broken)
    broken._acting = None  # type: ignore[assignment]  # whatever the reason, it cannot decide any more
    _, action = step(agent, None)
    assert not action.foreign
    assert action._trajectory.version == Version(1, 1)
    assert agent.figures()["fallbacks"] == {"previous": 1}


@pytest.mark.parametrize("q", [False, True])
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_choices_by_numbers_that_are_not_finite_are_not_the_policys(
    number: float, q: bool, configuration: dict[str, Any]
):
    with RL4SysAgent(configuration, heuristic=lambda *_: 3) as agent:
        broken = decider(step=2, q=q)
        broken._acting._last[-1, 2] = number  # a bias; as where sums overflow
        agent._chooser.swap(broken)
        _, action = step(agent, None)
        assert (action.act, action.foreign) == (3, True)
        assert agent.figures()["fallbacks"] == {"heuristic": 1}
        assert agent.figures()["troubles"]["policy"] == 1


def test_a_policy_that_is_late_again_and_again_rests(configuration: dict[str, Any]):
    with RL4SysAgent({**configuration, "deadline_ms": 1e-4}) as agent:  # nobody is that fast
        agent._chooser.swap(decider())
        foreign = [agent.request_for_action(None, np.zeros(8))[1].foreign for _ in range(10)]
        assert foreign == [False] * 8 + [True] * 2
        assert agent.figures()["late"] == 10


def test_the_kill_switch_works_at_once_and_back(agent: RL4SysAgent):
    agent._chooser.swap(decider())
    trajectory, _ = step(agent, None)
    agent.off()
    agent._chooser.swap(decider(step=2))
    trajectory, action = step(agent, trajectory)
    assert action.foreign
    assert agent.is_off
    agent.on()
    assert not step(agent, trajectory)[1].foreign


def test_the_environment_switches_off(configuration: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PENSTOCK_CLIENT_OFF", "1")
    with RL4SysAgent(configuration) as agent:
        agent._chooser.swap(decider())
        agent.on()
        assert step(agent, None)[1].foreign


def test_shadow_mode_proposes_and_is_told(configuration: dict[str, Any]):
    with RL4SysAgent({**configuration, "mode": "shadow"}) as agent:
        agent._chooser.swap(decider())
        trajectory, action = agent.request_for_action(None, np.zeros(8))
        assert action.act in range(4)
        with pytest.raises(Conflict, match=r"action\.did"):
            agent.add_to_trajectory(trajectory, action)
        action.did(2)
        agent.add_to_trajectory(trajectory, action)
        assert (trajectory.actions[0], trajectory.foreign[0]) == (2, 1)
        assert agent.figures()["shadow"] == {"agreed": int(action.act == 2), "differed": int(action.act != 2)}
        with pytest.raises(ConfigError, match="whole number from 0 to 3"):
            action.did(4)


# observations as they come


@pytest.mark.parametrize(
    "seen",
    [[1, 2, 3, 4, 5, 6, 7, 8], tuple(range(1, 9)), np.arange(1, 9), np.arange(1.0, 9.0).reshape(1, 8),
     Tensor([1, 2, 3, 4, 5, 6, 7, 8])],
    ids=["list", "tuple", "integers", "row", "tensor"],
)  # fmt: skip
def test_observations_come_in_many_forms(seen: Any, agent: RL4SysAgent):
    trajectory, _ = agent.request_for_action(None, seen)
    assert trajectory.observations[0].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_matrix_keeps_its_shape(configuration: dict[str, Any]):
    configuration |= {"observation_shape": [4, 2], "algorithm_parameters": {"act_dim": 4}}
    with RL4SysAgent(configuration) as agent:
        agent._chooser.swap(decider(observation=(4, 2)))
        trajectory, action = agent.request_for_action(None, list(range(8)))
        assert trajectory.observations[0].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
        assert not action.foreign


@pytest.mark.parametrize(
    ("seen", "sentence"),
    [([1, 2, 3], "3 numbers where this policy sees 8"), (5, "1 numbers"), ("text", "8 numbers"), (None, "numbers"),
     ([[1], [2, 3]], "8 numbers"), (np.array(["a"] * 8), "8 numbers"), (np.array([{}] * 8), "8 numbers"),
     ([1, 2, 3, 4, 5, 6, 7, float("nan")], "entry 7"),
     (np.full(8, 1e300), "finite"), ([0, float("inf"), 0, 0, 0, 0, 0, 0], "entry 1")],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:overflow")
def test_an_observation_that_does_not_fit_is_the_callers_mistake(
    seen: Any, sentence: str, agent: RL4SysAgent
):
    with pytest.raises(ConfigError, match=sentence):
        agent.request_for_action(None, seen)


def test_a_final_observation_is_checked_and_kept(agent: RL4SysAgent):
    trajectory, action = step(agent, None)
    with pytest.raises(ConfigError, match="entry 0"):
        agent.mark_end_of_trajectory(trajectory, action, truncated=True, final_obs=[float("nan")] * 8)
    seen = np.full(8, 5, np.float32)
    agent.mark_end_of_trajectory(trajectory, action, truncated=True, final_obs=seen)
    seen[:] = 6  # a system may use its array again
    assert trajectory.final is not None
    assert trajectory.final.tolist() == [5] * 8


def test_large_finite_numbers_are_fine(agent: RL4SysAgent):
    assert agent.request_for_action(None, np.full(8, 1e30))[1].act == 0


def test_masks_that_do_not_fit(configuration: dict[str, Any], agent: RL4SysAgent):
    with pytest.raises(ConfigError, match='"masked": true'):
        agent.request_for_action(None, np.zeros(8), [1, 1, 1, 1])
    with RL4SysAgent({**configuration, "masked": True}) as masked:
        with pytest.raises(ConfigError, match="3 flags where there are 4"):
            masked.request_for_action(None, np.zeros(8), [1, 1, 1])
        with pytest.raises(ConfigError, match="allows no action"):
            masked.request_for_action(None, np.zeros(8), [0, 0, 0, 0])


# the order of calls


def test_a_missing_reward_is_said_at_the_next_request_and_can_be_mended(agent: RL4SysAgent):
    trajectory, action = agent.request_for_action(None, np.zeros(8))
    agent.add_to_trajectory(trajectory, action)
    with pytest.raises(Conflict, match="step 0 of this trajectory has no reward"):
        agent.request_for_action(trajectory, np.zeros(8))
    action.update_reward(1)
    assert agent.request_for_action(trajectory, np.zeros(8))[0] is trajectory


def test_a_reward_may_come_after_the_end_but_not_after_the_next_request(agent: RL4SysAgent):
    trajectory, action = agent.request_for_action(None, np.zeros(8))
    agent.mark_end_of_trajectory(trajectory, action)
    action.update_reward(2)
    following, _ = agent.request_for_action(trajectory, np.zeros(8))
    assert following is not trajectory
    assert agent.figures()["waiting_trajectories"] == 1
    with pytest.raises(Conflict, match="too late"):
        action.update_reward(3)


def test_a_reward_after_the_end_may_replace_one_that_came_before(agent: RL4SysAgent):
    trajectory, action = step(agent, None)
    agent.mark_end_of_trajectory(trajectory, action)
    action.update_reward(10)
    assert agent.figures()["waiting_trajectories"] == 1
    agent.request_for_action(trajectory, np.zeros(8))
    with pytest.raises(Conflict, match="too late"):
        action.update_reward(20)
    assert trajectory.rewards[0] == 10


def test_a_trajectory_beside_it_does_not_end_the_time_for_a_reward(agent: RL4SysAgent):
    first, action = step(agent, None)
    second, last = step(agent, None)
    agent.mark_end_of_trajectory(first, action)
    agent.mark_end_of_trajectory(second, last)
    agent.request_for_action(second, np.zeros(8))
    action.update_reward(10)
    assert first.rewards[0] == 10


def test_a_trajectory_of_another_agent_is_refused(agent: RL4SysAgent, configuration: dict[str, Any]):
    with RL4SysAgent(configuration) as other:
        trajectory, action = step(other, None)
        with pytest.raises(Conflict, match="another agent"):
            agent.request_for_action(trajectory, np.zeros(8))
        with pytest.raises(Conflict, match="another agent"):
            agent.mark_end_of_trajectory(trajectory, action)


def test_an_ended_trajectory_without_its_last_reward_is_dropped_once_and_said(agent: RL4SysAgent):
    trajectory, action = agent.request_for_action(None, np.zeros(8))
    agent.mark_end_of_trajectory(trajectory, action)
    with pytest.raises(Conflict, match="has no reward, so it was dropped"):
        agent.request_for_action(trajectory, np.zeros(8))
    agent.request_for_action(None, np.zeros(8))
    assert agent.figures()["dropped"] == {"no_reward": 1}


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), 1e10, None, "x", np.zeros(2), 10**400])
def test_a_reward_that_is_no_number_is_refused(reward: Any, agent: RL4SysAgent):
    _, action = agent.request_for_action(None, np.zeros(8))
    with pytest.raises(Conflict, match="must be a number within"):
        action.update_reward(reward)


def test_actions_belong_to_their_trajectory_and_are_added_once(agent: RL4SysAgent):
    trajectory, action = step(agent, None)
    with pytest.raises(Conflict, match="added before"):
        agent.add_to_trajectory(trajectory, action)
    other, _ = agent.request_for_action(None, np.zeros(8))
    with pytest.raises(Conflict, match="another trajectory"):
        agent.add_to_trajectory(other, action)
    agent.mark_end_of_trajectory(trajectory, action)
    with pytest.raises(Conflict, match="has ended"):
        agent.add_to_trajectory(trajectory, action)
    with pytest.raises(Conflict, match="ended already"):
        agent.mark_end_of_trajectory(trajectory, action)


def test_an_action_that_is_not_added_is_forgotten(agent: RL4SysAgent):
    trajectory, _ = step(agent, None, 1.0)
    _, lost = agent.request_for_action(trajectory, np.zeros(8))
    lost.update_reward(50.0)
    trajectory, _ = step(agent, trajectory, 2.0)
    assert trajectory.length == 2
    assert trajectory.rewards[:2] == [1.0, 2.0]


def test_an_action_with_a_newer_one_after_it_neither_is_kept_nor_pays_for_it(agent: RL4SysAgent):
    trajectory, old = agent.request_for_action(None, np.zeros(8))
    trajectory, new = agent.request_for_action(trajectory, np.ones(8))
    with pytest.raises(Conflict, match="a newer one was asked for since"):
        agent.add_to_trajectory(trajectory, old)
    with pytest.raises(Conflict, match="a newer one was asked for since"):
        agent.mark_end_of_trajectory(trajectory, old)
    for stale in (lambda: old.update_reward(5), lambda: old.did(1), lambda: old.reward, lambda: old.foreign):
        with pytest.raises(Conflict, match="its step is forgotten"):
            stale()
    agent.add_to_trajectory(trajectory, new)
    with pytest.raises(Conflict, match="its step is forgotten"):
        old.update_reward(5)
    new.update_reward(1)
    agent.request_for_action(trajectory, np.zeros(8))
    new.update_reward(2)  # a step that was kept is still its own
    assert trajectory.rewards[:2] == [2.0, None]


def test_a_request_that_fails_takes_the_row_all_the_same(agent: RL4SysAgent):
    trajectory, action = agent.request_for_action(None, np.zeros(8))
    with pytest.raises(ConfigError, match="entry 0"):
        agent.request_for_action(trajectory, np.full(8, np.nan))
    with pytest.raises(Conflict, match="a newer one"):
        agent.add_to_trajectory(trajectory, action)


def test_an_end_with_an_action_of_another_trajectory_is_refused(agent: RL4SysAgent):
    _, action = step(agent, None)
    other, _ = step(agent, None)
    with pytest.raises(Conflict, match="another trajectory"):
        agent.mark_end_of_trajectory(other, action)
    assert not other.ended


def test_trajectories_that_are_never_ended_do_not_pile_up(agent: RL4SysAgent):
    for _ in range(100):
        agent.request_for_action(None, np.zeros(8))
    assert len(agent._episodes._open) <= 1


def test_several_trajectories_are_open_at_once(agent: RL4SysAgent):
    pairs = [step(agent, None, reward) for reward in (1.0, 2.0, 3.0)]
    pairs = [step(agent, trajectory, 10.0) for trajectory, _ in pairs]
    assert [trajectory.rewards[:2] for trajectory, _ in pairs] == [[1, 10], [2, 10], [3, 10]]
    assert len({id(trajectory.observations) for trajectory, _ in pairs}) == 3


def test_the_longest_trajectory_is_cut_off_by_the_next_request(configuration: dict[str, Any]):
    with RL4SysAgent({**configuration, "max_traj_length": 3}) as agent:
        first = trajectory = step(agent, None)[0]
        for _ in range(3):
            trajectory, _ = step(agent, trajectory)
        assert trajectory is not first
        assert (first.length, first.ended, first.terminated) == (3, True, False)
        assert first.final is not None
        assert first.final.tolist() == [1] * 8
        assert trajectory.length == 1


def test_a_long_trajectory_grows(configuration: dict[str, Any]):
    size = 1 << 16
    configuration |= {"max_traj_length": 5000, "algorithm_parameters": {"act_dim": 4, "input_size": size}}
    with RL4SysAgent(configuration) as agent:
        trajectory, action = agent.request_for_action(None, np.full(size, 0.5))
        first = trajectory.capacity
        for number in range(first + 10):
            agent.add_to_trajectory(trajectory, action)
            action.update_reward(number)
            trajectory, action = agent.request_for_action(trajectory, np.full(size, number))
        assert first < trajectory.capacity <= 5000
        assert trajectory.observations[first + 1, 0] == first
        assert trajectory.rewards[first + 5] == first + 5


def test_a_closed_agent_says_so_and_closes_twice(agent: RL4SysAgent):
    trajectory, _ = step(agent, None)
    agent.close()
    agent.close()
    with pytest.raises(Conflict, match="closed"):
        agent.request_for_action(trajectory, np.zeros(8))
    assert agent.figures()["dropped"] == {"not_ended": 1}


def test_what_has_ended_waits_on_disk_after_close(configuration: dict[str, Any], tmp_path: Path):
    with RL4SysAgent(configuration) as agent:
        agent.mark_end_of_trajectory(*step(agent, None))
    assert len(list((tmp_path / "clients" / "spool" / "pump").rglob("*.batch"))) == 1
    assert agent.figures()["waiting_trajectories"] == 1
    assert agent.figures()["sent"] == 0


# the short form


def test_the_short_form(configuration: dict[str, Any], nowhere: str):
    with Agent(nowhere, policy="pump", observation=8, actions=4, flush_seconds=60) as agent:
        with pytest.raises(Conflict, match="comes after act"):
            agent.reward(1)
        for _ in range(2):
            for _ in range(3):
                assert agent.act(np.zeros(8)) == 0
                agent.reward(0.5)
                agent.reward(0.5)
            agent.end()
            agent.reward(10)  # for having arrived
        assert agent.figures()["waiting_trajectories"] == 2
        assert agent._trajectory is not None
        assert agent._trajectory.rewards[:3] == [1, 1, 11]


@pytest.mark.parametrize("size", [np.int64(8), (8,), [np.int32(8)], 8.0])
def test_the_short_form_takes_any_whole_number_for_a_size(
    size: Any, configuration: dict[str, Any], nowhere: str
):
    with Agent(nowhere, policy="pump", observation=size, actions=np.int8(4)) as agent:
        assert agent.act(np.zeros(8)) == 0


@pytest.mark.parametrize("size", ["x", np.array([8]), 8.5, True])
def test_the_short_form_refuses_any_other_size(size: Any, nowhere: str):
    with pytest.raises(ConfigError, match="input_size must be a whole number"):
        Agent(nowhere, policy="pump", observation=size, actions=4)


def test_the_short_form_in_the_shadow(configuration: dict[str, Any], nowhere: str):
    with Agent(nowhere, policy="pump", observation=8, actions=4, mode="shadow") as agent:
        agent.act(np.zeros(8))
        agent.did(3)
        agent.reward(1)
        agent.act(np.zeros(8))
        assert agent._trajectory is not None
        assert agent._trajectory.actions[0] == 3


def test_a_log_that_nobody_reads_holds_up_neither_decisions_nor_close(
    configuration: dict[str, Any], tmp_path: Path
):
    free = threading.Event()

    class Full(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            free.wait(30)

    handler = Full()
    logging.getLogger("penstock.client").addHandler(handler)
    try:
        before = time.monotonic()
        with RL4SysAgent(configuration, heuristic=lambda seen, mask: 17) as agent:
            agent.mark_end_of_trajectory(*step(agent, None))
            assert agent.figures()["troubles"]["heuristic"] == 1
        assert time.monotonic() - before < 25, "it waited for the log"
        assert len(list((tmp_path / "clients" / "spool" / "pump").rglob("*.batch"))) == 1
    finally:
        free.set()
        logging.getLogger("penstock.client").removeHandler(handler)


def test_no_token_in_logs(configuration: dict[str, Any], caplog: pytest.LogCaptureFixture):
    with (
        caplog.at_level(logging.DEBUG),
        RL4SysAgent({**configuration, "token": "very-secret"}, debug=True) as agent,
    ):
        step(agent, None)
    assert caplog.text
    assert "very-secret" not in caplog.text
