"""The way to a gateway and back, with faults that only a gateway made for tests has."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from penstock import proto
from penstock.client import Agent, RL4SysAgent
from penstock.client import agent as agents
from penstock.errors import ConfigError, Conflict, Unavailable
from penstock.model.version import Version
from tests.unit.client_gateway import TOKEN, Gateway, description

APPLICATION = Path(__file__).with_name("forking_application.py")
DELTA, WHOLE = proto.FetchReply.DELTA, proto.FetchReply.WHOLE


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with Gateway() as running:
        yield running


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))


def configuration(address: str, **keys: Any) -> dict[str, Any]:
    return {
        "client_id": "pump", "algorithm_name": "PPO", "algorithm_parameters": {"act_dim": 4, "input_size": 8},
        "train_server_address": address, "token": TOKEN, "deadline_ms": 60_000, "send_frequency": 1,
        "flush_seconds": 0.1, "poll_seconds": 1, **keys,
    }  # fmt: skip


def until(condition: Callable[[], Any], what: str, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen in {seconds} s"
        time.sleep(0.01)


@contextlib.contextmanager
def acting(gateway: Gateway, **keys: Any) -> Iterator[RL4SysAgent]:
    """An agent that has its first policy."""
    with RL4SysAgent(configuration(gateway.address, **keys)) as agent:
        until(lambda: agent.version is not None, "the first policy")
        yield agent


def episode(agent: RL4SysAgent, steps: int = 3, **end: Any) -> None:
    trajectory = None
    for number in range(steps):
        trajectory, action = agent.request_for_action(trajectory, np.full(8, number))
        agent.add_to_trajectory(trajectory, action)
        action.update_reward(number + 1)
    assert trajectory is not None
    agent.mark_end_of_trajectory(trajectory, action, **end)


def column(message: bytes, kind: str = "<f4") -> list[float]:
    return np.frombuffer(message, kind).tolist()


# what is sent


def test_an_episode_arrives_as_it_was(gateway: Gateway):
    with acting(gateway) as agent:
        episode(agent)
        (sent,) = gateway.wait_for(1)
    assert (sent.sequence, sent.length, sent.terminated, sent.continues) == (1, 3, True, False)
    assert column(sent.rewards) == [1, 2, 3]
    assert column(sent.observations["observations"]) == [0] * 8 + [1] * 8 + [2] * 8
    assert all(action in range(4) for action in column(sent.actions, "<i4"))
    assert all(-10 < log_prob < 0 for log_prob in column(sent.log_probs))
    assert (sent.foreign, sent.masks, dict(sent.final_observations)) == (b"", b"", {})
    assert gateway.configurations[0]["algorithm_parameters"] == {"act_dim": 4, "input_size": 8}
    assert TOKEN not in str(gateway.configurations)


def test_an_episode_that_was_cut_off_says_what_came_next(gateway: Gateway):
    with acting(gateway) as agent:
        episode(agent, truncated=True, final_obs=[9] * 8)
        episode(agent, truncated=True)
        first, second = gateway.wait_for(2)
    assert (first.length, first.terminated) == (3, False)
    assert column(first.final_observations["observations"]) == [9] * 8
    assert (second.length, second.terminated) == (2, False)
    assert column(second.final_observations["observations"]) == [2] * 8


def test_decisions_of_a_fallback_are_marked(gateway: Gateway):
    with acting(gateway) as agent:
        agent.off()
        episode(agent)
        (sent,) = gateway.wait_for(1)
        figures = agent.figures()
    assert sent.foreign == b"\1\1\1"
    assert column(sent.log_probs) == [0, 0, 0]
    assert figures["fallbacks"] == {"safe": 3}


def test_masks_travel(tmp_path: Path):
    with Gateway(description(masked=True)) as gateway, acting(gateway, masked=True) as agent:
        trajectory, action = agent.request_for_action(None, np.zeros(8), [0, 1, 1, 0])
        action.update_reward(1)
        agent.mark_end_of_trajectory(trajectory, action)
        (sent,) = gateway.wait_for(1)
        assert sent.masks == b"\0\1\1\0"
        assert column(sent.actions, "<i4")[0] in (1, 2)


def test_a_trajectory_larger_than_a_message_travels_in_pieces(gateway: Gateway):
    with acting(gateway) as agent:
        agent._courier.outbox.max_bytes = 4096 + 70 * 4  # four rows of at most 70 bytes
        episode(agent, steps=10)
        pieces = gateway.wait_for(3)
    assert [piece.offset for piece in pieces] == [0, *np.cumsum([piece.length for piece in pieces])[:-1]]
    assert sum(piece.length for piece in pieces) == 10
    assert [piece.continues for piece in pieces] == [True] * (len(pieces) - 1) + [False]
    assert [piece.terminated for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert pieces[1].earlier_reward == sum(range(1, pieces[1].offset + 1))
    assert column(pieces[0].final_observations["observations"]) == [pieces[1].offset] * 8


def test_a_batch_waits_for_its_number_or_its_time(gateway: Gateway):
    with acting(gateway, send_frequency=3, flush_seconds=3600) as agent:
        for _ in range(5):
            episode(agent)
        gateway.wait_for(3)
        assert len(gateway.received) <= 5
    assert len(gateway.received) == 5, "close sends the rest"


def test_an_ended_trajectory_waits_for_a_later_reward_but_not_for_ever(gateway: Gateway):
    with acting(gateway, flush_seconds=0.5) as agent:
        trajectory, action = agent.request_for_action(None, np.zeros(8))
        action.update_reward(1)
        agent.mark_end_of_trajectory(trajectory, action)
        action.update_reward(11)
        (sent,) = gateway.wait_for(1)  # though nothing more is asked for
        assert column(sent.rewards) == [11]
        with pytest.raises(Conflict, match="too late"):
            action.update_reward(2)


def test_figures_tell_how_the_client_is_doing(gateway: Gateway):
    with acting(gateway) as agent:

        def told() -> bool:
            episode(agent)
            time.sleep(0.1)
            return bool(gateway.figures) and gateway.figures[-1].decisions > 0

        until(told, "figures")  # they are made anew once a second
    figures = gateway.figures[-1]
    assert (figures.pid, figures.decisions % 3) == (os.getpid(), 0)
    assert figures.memory_bytes > 1 << 20
    assert 0 < figures.decision_p50_us <= figures.decision_p99_us


# faults on the way out


def test_a_lost_acknowledgement_leads_to_a_second_delivery_of_the_same_trajectory(gateway: Gateway):
    with acting(gateway) as agent:
        gateway.lose_receipts = 2
        episode(agent)
        until(lambda: agent.figures()["sent"] == 1, "the second delivery")
        until(lambda: agent.figures()["waiting_trajectories"] == 0, "an empty spool")  # counted, then removed
    assert len(gateway.received) == 1
    assert gateway.deliveries >= 3


def test_a_full_gateway_makes_trajectories_wait_in_order(gateway: Gateway):
    with acting(gateway) as agent:
        gateway.later = 3
        for _ in range(6):
            episode(agent)
        gateway.wait_for(6)
    assert [sequence for _, sequence in gateway.received] == [1, 2, 3, 4, 5, 6]


def test_what_is_refused_is_dropped_and_counted(gateway: Gateway):
    gateway.refuse_lengths = {2}
    with acting(gateway) as agent:
        episode(agent, steps=2)
        episode(agent, steps=3)
        gateway.wait_for(1)
        until(lambda: agent.figures()["dropped"] == {"refused": 1}, "the refusal")


def test_a_gateway_that_goes_away_and_comes_back_gets_everything_once():
    first = Gateway()
    with acting(first) as agent:
        episode(agent)
        first.wait_for(1)
        first.stop()
        for _ in range(20):
            episode(agent)
        until(lambda: agent._courier.outbox.spool.trajectories == 20, "waiting on disk")
        with Gateway(port=first.port) as second:
            second.wait_for(20)
            episode(agent)
            second.wait_for(21)
            until(lambda: agent.figures()["waiting_trajectories"] == 0, "an empty spool")
            assert sorted(sequence for _, sequence in second.received) == list(range(2, 23))
            assert len({source for source, _ in second.received}) == 1


def test_what_a_client_left_is_delivered_by_the_next_under_its_own_source(gateway: Gateway):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with RL4SysAgent(configuration(f"127.0.0.1:{taken.getsockname()[1]}")) as away:
            episode(away)
            episode(away)
            source = away._courier.outbox.spool.source
    with acting(gateway) as agent:
        episode(agent)
        gateway.wait_for(3)
        own = agent._courier.outbox.spool.source
    assert {(source, 1), (source, 2), (own, 1)} == set(gateway.received)


def test_a_spool_that_cannot_be_written_is_said_at_once_and_nothing_is_lost_until_the_end(tmp_path: Path):
    (tmp_path / "file").write_text("not a folder")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with RL4SysAgent(configuration(address, spool={"folder": str(tmp_path / "file")})) as agent:
            until(lambda: agent.figures()["troubles"].get("disk"), "a warning")
            episode(agent)
            until(lambda: agent._courier.outbox._ready, "a packed trajectory")
            assert agent.figures()["waiting_trajectories"] == 1
            assert agent.figures()["dropped"] == {}
    assert agent.figures()["dropped"] == {"disk": 1}


def test_a_full_spool_drops_the_oldest_and_counts(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with RL4SysAgent(configuration(address, spool={"max_bytes": 1 << 16})) as agent:
            for _ in range(20):
                episode(agent, steps=100)
                time.sleep(0.01)
            until(lambda: agent.figures()["dropped"].get("spool_full", 0) > 0, "a counted loss")
            spool = agent._courier.outbox.spool  # a batch is written before the oldest goes
            until(lambda: not agent._courier.outbox._ready and spool.bytes <= 1 << 16, "being within bounds")


# versions


def test_versions_come_whole_then_as_deltas_and_are_the_very_same(gateway: Gateway):
    with acting(gateway) as agent:
        for step in range(1, 4):
            tensors = gateway.publish(Version(0, step), 0, change=1e-3 * step)
            until(lambda step=step: agent.version == Version(0, step), f"version {step}")
        held = agent._courier.newest
        assert held is not None
        assert all(np.array_equal(held.tensors[name], tensor) for name, tensor in tensors.items())
        assert agent.figures()["swaps"] == 4
    assert [kind for kind in gateway.kinds if kind in (DELTA, WHOLE)] == [WHOLE, DELTA, DELTA, DELTA]


def test_a_corrupted_delta_is_noticed_and_the_whole_is_fetched(gateway: Gateway):
    with acting(gateway) as agent:
        gateway.break_deltas = True
        gateway.publish(Version(0, 1), 0, change=1e-3)
        until(lambda: agent.version == Version(0, 1), "the version")
        assert agent.figures()["troubles"]["delta"] == 1
    assert [kind for kind in gateway.kinds if kind in (DELTA, WHOLE)] == [WHOLE, DELTA, WHOLE]


def test_versions_never_go_back(gateway: Gateway):
    with acting(gateway) as agent:
        gateway.publish(Version(2, 5), 0, change=1e-3)
        until(lambda: agent.version == Version(2, 5), "the version")
        with gateway._lock:
            del gateway._versions[Version(2, 5)]
        gateway.publish(Version(1, 9), 0, change=1e-3)
        asked = len(gateway.kinds)
        until(lambda: len(gateway.kinds) > asked + 1, "being asked again")
        assert agent.version == Version(2, 5)


@pytest.mark.parametrize("step", [0, 5])
def test_another_run_of_the_policy_is_noticed_and_followed(step: int, gateway: Gateway):
    """Also where it is at the same version: its weights are others."""
    with acting(gateway) as agent:
        if step:
            gateway.publish(Version(0, step), 0, change=1e-3)
            until(lambda: agent.version == Version(0, step), "the version")
        gateway.begin_again()
        until(lambda: agent.figures()["swaps"] == (3 if step else 2), "the other run's version")
        assert agent.version == Version(0, 0)
        assert agent._courier._run == gateway.run


def test_weights_that_are_not_finite_are_not_used(gateway: Gateway):
    with acting(gateway) as agent:
        gateway.publish(Version(0, 1), 0, change=float("nan"))
        until(lambda: agent.figures()["troubles"].get("damaged"), "a counted trouble")
        assert agent.version == Version(0, 0)
        episode(agent)
        assert agent.figures()["fallbacks"] == {}


def test_a_policy_of_another_shape_is_not_used(gateway: Gateway):
    with acting(gateway) as agent:
        gateway.description = description(observation=(9,))
        gateway.publish(Version(0, 1), seed=1)
        until(lambda: agent.figures()["troubles"].get("damaged"), "a counted trouble")
        assert agent.version == Version(0, 0)
        episode(agent)


def test_epsilon_comes_with_the_version():
    with Gateway(description(q=True)) as gateway:
        gateway.acting = {"epsilon": 1.0}
        with acting(gateway, algorithm_name="DQN") as agent:
            acts = {agent.request_for_action(None, np.ones(8))[1].act for _ in range(100)}
            assert acts == {0, 1, 2, 3}
            gateway.acting = {"epsilon": 0.0}
            gateway.publish(Version(0, 1), 0, change=1e-3)
            until(lambda: agent.version == Version(0, 1), "the version")
            assert len({agent.request_for_action(None, np.ones(8))[1].act for _ in range(100)}) == 1


# opening


@pytest.mark.parametrize(
    "code", ["INVALID_ARGUMENT", "FAILED_PRECONDITION", "UNAUTHENTICATED", "PERMISSION_DENIED"]
)
def test_a_refusal_at_the_start_is_raised(code: str, gateway: Gateway):
    gateway.refuse = (grpc.StatusCode[code], "gama is no parameter of PPO")
    with pytest.raises(ConfigError, match="gama is no parameter of PPO"):
        RL4SysAgent(configuration(gateway.address))


def test_without_shapes_the_gateways_own_words_are_passed_on(gateway: Gateway):
    gateway.refuse = (grpc.StatusCode.NOT_FOUND, "no policy 'pump' was opened here")
    with pytest.raises(Unavailable, match=r"no policy 'pump' was opened here.*give input_size and act_dim"):
        Agent(gateway.address, policy="pump", token=TOKEN)


def test_without_shapes_a_gateway_that_restarts_is_waited_for():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    came: list[Gateway] = []
    restart = threading.Timer(0.7, lambda: came.append(Gateway(port=port)))
    restart.start()
    try:
        with Agent(f"127.0.0.1:{port}", policy="pump", token=TOKEN) as agent:
            assert agent.act(np.zeros(8)) in range(4)
    finally:
        restart.join()
        came[0].stop()


def test_a_gateway_that_is_making_the_policy_is_not_called_unreachable(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(agents, "ANSWER_SECONDS", 0.3)
    gateway.making.clear()
    with RL4SysAgent(configuration(gateway.address)) as agent:
        assert agent.figures()["troubles"] == {"not_ready": 1}
        gateway.making.set()
        until(lambda: agent.version is not None, "a version")


def test_shapes_come_from_the_gateway(gateway: Gateway):
    with Agent(gateway.address, policy="pump", token=TOKEN) as agent:
        assert agent.act(np.zeros(8)) in range(4)


def test_an_agent_that_cannot_begin_leaves_no_threads(gateway: Gateway):
    """The safe action can only be checked once the gateway has told the shapes."""
    before = {thread for thread in threading.enumerate() if thread.name.startswith("penstock-")}
    with pytest.raises(ConfigError, match="whole number from 0 to 3"):
        Agent(gateway.address, policy="pump", token=TOKEN, fallback={"action": 9})
    left = {thread for thread in threading.enumerate() if thread.name.startswith("penstock-")}
    assert left <= before


def test_a_refusal_later_is_counted_and_never_raised(gateway: Gateway):
    with acting(gateway) as agent:
        gateway.refuse = (grpc.StatusCode.PERMISSION_DENIED, "the token was revoked")
        episode(agent)
        until(lambda: agent.figures()["troubles"].get("refused_by_gateway"), "a counted refusal")
        episode(agent)
        gateway.refuse = None
        gateway.wait_for(2)


def test_a_wrong_token_is_refused(gateway: Gateway):
    with pytest.raises(ConfigError, match="token is not known"):
        RL4SysAgent({**configuration(gateway.address), "token": "wrong"})


def test_another_protocol_is_refused(gateway: Gateway):
    gateway.protocol = 2
    with pytest.raises(ConfigError, match="speaks protocol 2, this client 1"):
        RL4SysAgent(configuration(gateway.address))


def test_a_configuration_that_disagrees_with_the_policy_is_refused(gateway: Gateway):
    with pytest.raises(ConfigError, match=r"number of actions 5, the policy at the gateway has 4"):
        RL4SysAgent(configuration(gateway.address, algorithm_parameters={"act_dim": 5, "input_size": 8}))


def test_a_gateway_that_comes_later_is_found():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with RL4SysAgent(configuration(f"127.0.0.1:{port}")) as agent:
        episode(agent)
        assert agent.version is None
        with Gateway(port=port) as gateway:
            until(lambda: agent.version is not None, "the first policy")
            (sent,) = gateway.wait_for(1)
            assert sent.foreign == b"\1\1\1"


def test_close_is_quick_while_a_fetch_waits(gateway: Gateway):
    with acting(gateway, poll_seconds=30) as agent:
        time.sleep(0.2)
        before = time.monotonic()
        agent.close()
        assert time.monotonic() - before < 10


def test_close_saves_what_a_call_that_hangs_was_carrying(gateway: Gateway, tmp_path: Path):
    with acting(gateway) as agent:
        gateway.hang.clear()
        episode(agent)
        until(lambda: gateway.deliveries, "a call that hangs")
        episode(agent)
        agent.close(seconds=0.3)
        assert not [thread for thread in agent._courier._threads if thread.is_alive()]
    batches = list((tmp_path / "clients" / "spool" / "pump").rglob("*.batch"))
    assert sum(int(batch.stem.split("-")[1]) for batch in batches) == 2


def test_a_disk_that_fails_at_the_end_does_not_keep_the_rest_from_it(gateway: Gateway, tmp_path: Path):
    with acting(gateway) as agent:
        outbox = agent._courier.outbox

        def fails(*_: object) -> None:
            raise OSError("no space left")

        outbox.send = fails  # type: ignore[method-assign]
        episode(agent)
    assert outbox.spool._locks == {}
    assert len(list((tmp_path / "clients" / "spool" / "pump").rglob("*.batch"))) == 1
    assert agent.figures()["troubles"]["disk"] >= 1


def test_close_ends_its_threads(gateway: Gateway):
    with acting(gateway):
        pass
    until(
        lambda: not [t for t in threading.enumerate() if t.name.startswith("penstock-")], "the threads' end"
    )


def test_the_file_switches_off_and_on(gateway: Gateway, tmp_path: Path):
    with acting(gateway) as agent:
        (tmp_path / "clients").mkdir(exist_ok=True)
        (tmp_path / "clients" / "pump.off").touch()
        until(lambda: agent.is_off, "being off")
        (tmp_path / "clients" / "pump.off").unlink()
        until(lambda: not agent.is_off, "being on")


def test_the_file_switches_off_while_a_call_hangs(gateway: Gateway, tmp_path: Path):
    with acting(gateway) as agent:
        gateway.hang.clear()
        episode(agent)
        until(lambda: gateway.deliveries, "a call that hangs")
        (tmp_path / "clients").mkdir(exist_ok=True)
        (tmp_path / "clients" / "off").touch()
        until(lambda: agent.is_off, "being off", 5)  # the call goes on for ten
        gateway.hang.set()


# remote inference


def test_the_gateway_decides_where_asked_to(gateway: Gateway):
    with RL4SysAgent(configuration(gateway.address, inference="remote")) as agent:
        episode(agent)
        (sent,) = gateway.wait_for(1)
    assert column(sent.actions, "<i4") == [1, 1, 1]
    assert column(sent.log_probs) == [-0.5, -0.5, -0.5]
    assert (sent.version.epoch, sent.version.step, sent.foreign) == (1, 7, b"")


def test_a_gateway_that_is_slow_to_decide_is_not_waited_for(gateway: Gateway):
    gateway.act_delay = 2.0
    keys = {"inference": "remote", "deadline_ms": 50, "fallback": {"action": 3}}
    with RL4SysAgent(configuration(gateway.address, **keys)) as agent:
        before = time.monotonic()
        acts = [agent.request_for_action(None, np.zeros(8))[1].act for _ in range(20)]
        assert time.monotonic() - before < 2.0, "one deadline was paid, not twenty"
        assert acts == [3] * 20
        assert agent.figures()["fallbacks"] == {"safe": 20}


# forks


def test_forked_children_go_on_by_themselves(gateway: Gateway, tmp_path: Path):
    """Each has the policy, a source and noise of its own; what was open stays with the parent.

    The application is a process of its own, because gRPC lets nobody fork who serves.
    """
    forks = 3
    done = subprocess.run(
        [sys.executable, APPLICATION, json.dumps(configuration(gateway.address)), str(forks)],
        env={**os.environ, "GRPC_VERBOSITY": "info", "PYTHONPATH": os.pathsep.join(map(str, sys.path))},
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout)
    assert told["children"] == [0] * forks, done.stderr[-4000:]
    assert told["troubles"] == {}, "a fork is no trouble of the gateway's"
    # where a thread is inside gRPC while another forks, the child may abort in its poller
    assert "skipping fork() handlers" not in done.stderr
    # what a child could not send before it ended lies in the spool, for whoever comes next
    left = [batch.parent.name for batch in tmp_path.glob("clients/spool/pump/*/*.batch")]
    sources = [source for source, _ in gateway.received] + left
    assert len(sources) == len(set(sources)) == forks + 1
