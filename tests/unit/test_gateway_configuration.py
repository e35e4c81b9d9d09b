"""A client's configuration: every key has its effect on the spec, or is refused by name."""

import json
from copy import deepcopy
from typing import Any

import pytest

from penstock.errors import ConfigError
from penstock.loop.gateway.configuration import OF_THE_CLIENT, differences, translate
from penstock.loop.gateway.parameters import MEANINGS
from penstock.model.clients import ClientShape, shape_of
from penstock.model.spec import Spec
from tests.tiny_client import luna


def ppo(**parameters: Any) -> Spec:
    return translate("p", {"algorithm_parameters": {"act_dim": 4, "input_size": 8, **parameters}})


def of(algorithm: str, top: dict[str, Any] | None = None, **parameters: Any) -> Spec:
    given = {"act_dim": 2, "input_size": 3, **parameters}
    return translate("p", {"algorithm_name": algorithm, "algorithm_parameters": given, **(top or {})})


def test_the_example_of_rl4sys_means_what_it_says() -> None:
    spec = translate("luna-landing", luna())
    assert spec.environment.id == "client:luna-landing"
    assert spec.environment.kwargs == {"observation": [8], "actions": 4, "masked": False}
    assert (spec.actors.count, spec.actors.environments, spec.actors.trajectories) == (0, 1, 256)
    assert (spec.learner.count, spec.evaluation.every_seconds, spec.seed) == (0, 0.0, 0)
    wanted = {
        "minibatch": 512, "clip_range": 0.2, "gamma": 0.99, "gae_lambda": 0.95, "learning_rate": 3e-4,
        "value_learning_rate": 1e-3, "gradient_steps": 80, "value_gradient_steps": 80, "target_kl": None,
        "separate": True,
    }  # fmt: skip
    assert {name: spec.settings[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("algorithm", "parameter", "value", "setting", "ours"),
    [
        ("PPO", "batch_size", 128, "minibatch", 128), ("PPO", "clip_ratio", 0.1, "clip_range", 0.1),
        ("PPO", "gamma", 0.9, "gamma", 0.9), ("PPO", "lam", 0.8, "gae_lambda", 0.8),
        ("PPO", "pi_lr", 1e-3, "learning_rate", 1e-3), ("PPO", "vf_lr", 2e-3, "value_learning_rate", 2e-3),
        ("PPO", "train_pi_iters", 7, "gradient_steps", 7), ("PPO", "train_v_iters", 9, "value_gradient_steps", 9),
        ("PPO", "target_kl", 0.01, "target_kl", 0.01), ("PPO", "target_kl", None, "target_kl", None),
        ("PPO", "ent_coef", 0.02, "entropy", 0.02), ("PPO", "entropy", 0.02, "entropy", 0.02),
        ("ppo", "epochs", 3, "epochs", 3), ("PPO", "pi_lr", "lin_1e-3", "learning_rate", "lin_1e-3"),
        ("IMPALA", "pi_lr", 1e-3, "learning_rate", 1e-3), ("IMPALA", "lam", 0.9, "vtrace_lambda", 0.9),
        ("IMPALA", "ent_coef", 0.1, "entropy", 0.1), ("REINFORCE", "pi_lr", 1e-3, "learning_rate", 1e-3),
        ("REINFORCE", "ent_coef", 0.1, "entropy", 0.1),
        ("DQN", "batch_size", 32, "batch", 32), ("DQN", "q_lr", 1e-3, "learning_rate", 1e-3),
        ("DQN", "train_q_iters", 5, "gradient_steps", 5), ("DQN", "buf_size", 5000, "buffer", 5000),
        ("DQN", "buf_size", 500, "learning_starts", 500), ("DQN", "buf_size", 5000, "learning_starts", 1000),
        ("DQN", "polyak", 0.75, "target_rate", 0.25), ("DQN", "target_rate", 0.1, "target_rate", 0.1),
        ("DQN", "epsilon", 0.5, "epsilon_start", 0.5), ("DQN", "epsilon_min", 0.1, "epsilon_end", 0.1),
        ("DQN", "epsilon_decay_steps", 100.0, "epsilon_steps", 100),
        ("SAC", "batch_size", 32, "batch", 32), ("SAC", "pi_lr", 1e-4, "learning_rate", 1e-4),
        ("SAC", "q_lr", 1e-4, "learning_rate", 1e-4), ("SAC", "train_q_iters", 5, "gradient_steps", 5),
        ("SAC", "buf_size", 5000, "buffer", 5000), ("SAC", "polyak", 0.75, "target_rate", 0.25),
    ],
)  # fmt: skip
def test_each_parameter_has_its_effect(
    algorithm: str, parameter: str, value: Any, setting: str, ours: Any
) -> None:
    assert of(algorithm, **{parameter: value}).settings[setting] == ours


def test_every_translated_parameter_is_tested_above() -> None:
    marks = test_each_parameter_has_its_effect.pytestmark  # type: ignore[attr-defined]
    tried = {(case[0].lower(), case[1]) for case in marks[0].args[1]}
    assert {(algorithm, name) for algorithm, names in MEANINGS.items() for name in names} <= tried


def test_a_value_network_is_trained_apart_only_where_it_is_spoken_of() -> None:
    assert ppo().settings["separate"] is False
    assert ppo(vf_lr=1e-3).settings["separate"] is True
    assert ppo(train_v_iters=3).settings["separate"] is True


def test_what_is_no_hyperparameter() -> None:
    spec = ppo(seed=5, traj_per_epoch=12, hidden_sizes=[32, 16], activation="relu")
    assert (spec.seed, spec.actors.trajectories) == (5, 12)
    assert (spec.network.hidden, spec.network.activation) == ((32, 16), "relu")
    assert ppo().actors.trajectories is None
    assert ppo().actors.rollout == 2048
    assert of("DQN").actors.rollout == 256
    assert of("DQN").pace.max_lag > ppo().pace.max_lag


def shape(top: dict[str, Any], **parameters: Any) -> ClientShape:
    spec = translate("p", {"algorithm_parameters": {"act_dim": 4, **parameters}, **top})
    return shape_of(spec.environment.kwargs)


def test_what_a_policy_sees_and_does() -> None:
    assert shape({}, input_size=8).observation == (8,)
    items = translate(
        "p", {"observation_shape": [128, 8], "masked": True, "algorithm_parameters": {"act_dim": 128}}
    )
    assert items.environment.kwargs == {"observation": [128, 8], "actions": 128, "masked": True}
    assert items.network.body == "items"
    numbers = of("SAC", {"act_limit": 2.0})
    assert numbers.environment.kwargs["actions"] == {"box": 2, "limit": 2.0}
    assert of("PPO", {"continuous": True}).environment.kwargs["actions"] == {"box": 2, "limit": 1.0}
    network = translate(
        "p",
        {"network": {"hidden": [8], "body": "mlp"}, "algorithm_parameters": {"act_dim": 2, "input_size": 2}},
    )
    assert (network.network.hidden, network.network.body) == ((8,), "mlp")


def test_keys_of_the_client_change_nothing_here() -> None:
    plain = {"algorithm_parameters": {"act_dim": 2, "input_size": 2}}
    more = plain | dict.fromkeys(OF_THE_CLIENT - {"client_id"}, "anything")
    assert translate("p", more) == translate("p", plain)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"algorithm_name": "PP0"}, "did you mean 'PPO'"), ({"algorithm_name": 3}, "algorithm_name is 3"),
        ({"algorithm_parameters": []}, "algorithm_parameters is []"), ({"type": "offpolicy"}, "PPO is onpolicy"),
        ({"type": "online"}, "onpolicy or offpolicy"), ({"act_limt": 1}, "did you mean 'act_limit'"),
        ({"client_id": "other"}, "client_id is 'other'"), ({"masked": "yes"}, "masked is 'yes'"),
        ({"continuous": 1}, "continuous is 1"), ({"network": {"hiden": [1]}}, "did you mean 'hidden'"),
        ({"network": {"hidden": "wide"}}, "network.hidden is 'wide'"), ({"network": 3}, "network is 3"),
        ({"observation_shape": "8"}, "observation_shape is '8'"), ({"observation_shape": [1, 2, 3]}, "one or two"),
        ({"observation_shape": [4, 4]}, "leave one out"), ({"observation_shape": [0]}, "observation_shape is 0"),
        ({"continuous": True, "act_limit": -1}, "limit"), ({"act_limit": "far"}, "act_limit is 'far'"),
        ({"continuous": True, "masked": True}, "masks say which choices"),
        ({"algorithm_name": "DQN", "type": "offpolicy", "continuous": True}, "DQN chooses among actions"),
        ({"algorithm_name": "SAC", "type": "offpolicy", "continuous": False}, "SAC's actions are numbers"),
    ],
)  # fmt: skip
def test_a_wrong_key_is_named(change: dict[str, Any], words: str) -> None:
    configuration = {"algorithm_parameters": {"act_dim": 4, "input_size": 8}} | change
    with pytest.raises(ConfigError) as caught:
        translate("p", configuration)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("algorithm", "parameters", "words"),
    [
        ("PPO", {"buf_size": 10}, "PPO has no parameter 'buf_size'"),
        ("PPO", {"epsilon": 0.1}, "no parameter 'epsilon'"),
        ("PPO", {"clip_ration": 0.1}, "did you mean 'clip_ratio'"), ("DQN", {"lam": 0.1}, "DQN has no parameter 'lam'"),
        ("PPO", {"batch_size": 0}, "algorithm_parameters.batch_size is 0"),
        ("PPO", {"batch_size": 2.5}, "algorithm_parameters.batch_size is 2.5"),
        ("PPO", {"gamma": 1.5}, "algorithm_parameters.gamma is 1.5"),
        ("PPO", {"pi_lr": -1}, "algorithm_parameters.pi_lr is -1"),
        ("PPO", {"pi_lr": 1e-3, "learning_rate": 1e-4}, "both set ppo.learning_rate"),
        ("SAC", {"pi_lr": 1e-3, "q_lr": 1e-4}, "both set sac.learning_rate"),
        ("PPO", {"seed": -1}, "algorithm_parameters.seed is -1"), ("PPO", {"seed": True}, "seed is True"),
        ("PPO", {"traj_per_epoch": 0}, "algorithm_parameters.traj_per_epoch is 0"),
        ("PPO", {"act_dim": 0}, "algorithm_parameters.act_dim is 0"),
        ("PPO", {"act_dim": "4"}, "algorithm_parameters.act_dim is '4'"),
        ("PPO", {"input_size": 1 << 40}, "observation"), ("PPO", {"hidden_sizes": 64}, "hidden_sizes is 64"),
        ("PPO", {"hidden_sizes": [0]}, "positive"), ("PPO", {"activation": "gelu"}, "activation is 'gelu'"),
        ("DQN", {"polyak": 1.5}, "algorithm_parameters.polyak"),
        ("DQN", {"epsilon_decay": 0.99}, "epsilon_decay_steps"),
        ("DQN", {"buf_size": 10, "batch_size": 100}, "smaller than"),
    ],
)  # fmt: skip
def test_a_wrong_parameter_is_named(algorithm: str, parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        of(algorithm, **parameters)
    assert words in str(caught.value)


@pytest.mark.parametrize("missing", ["act_dim", "input_size"])
def test_what_must_be_said(missing: str) -> None:
    given = {"act_dim": 4, "input_size": 8}
    del given[missing]
    with pytest.raises(ConfigError, match=missing):
        translate("p", {"algorithm_parameters": given})


@pytest.mark.parametrize("name", ["", "../x", "a/b", "-x", "x" * 65, "x y", "x\n", ".x", "client:x"])
def test_a_name_is_a_name(name: str) -> None:
    with pytest.raises(ConfigError, match="policy's name"):
        translate(name, {"algorithm_parameters": {"act_dim": 4, "input_size": 8}})


def test_what_a_known_run_cannot_become_and_what_it_decides_itself() -> None:
    known = translate("luna-landing", luna())
    wanted = deepcopy(luna())
    assert differences(known, translate("luna-landing", wanted)) == ([], [])
    wanted["algorithm_parameters"] |= {"pi_lr": 1e-4, "seed": 9, "traj_per_epoch": 3}
    wrong, loose = differences(known, translate("luna-landing", wanted))
    assert wrong == []
    assert loose == ["ppo.learning_rate stays 0.0003", "seed stays 0", "traj_per_epoch stays 256"]
    wanted["algorithm_parameters"] |= {"act_dim": 5, "hidden_sizes": [8]}
    wrong, _ = differences(known, translate("luna-landing", wanted))
    assert len(wrong) == 2
    other = json.loads(json.dumps(luna()).replace("PPO", "IMPALA"))
    other["algorithm_parameters"] = {"act_dim": 4, "input_size": 8}
    wrong, loose = differences(known, translate("luna-landing", other))
    assert "algorithm_name is ppo, not impala" in wrong
