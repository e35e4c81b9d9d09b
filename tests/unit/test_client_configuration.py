"""Every key of a client's configuration has its effect or is refused with a sentence that names it."""

import json
import sys
from pathlib import Path

import msgspec
import pytest

from penstock import plugins
from penstock.client import keys
from penstock.client.settings import load, settings
from penstock.errors import ConfigError
from penstock.loop.gateway.configuration import OF_THE_CLIENT, OF_THE_POLICY, translate
from penstock.loop.gateway.parameters import MEANINGS, OF_THE_RUN
from penstock.model.policy import NetworkSpec

LUNA = Path(__file__).parents[2] / "examples" / "lunar" / "luna_conf.json"
BASE = {
    "client_id": "pump",
    "algorithm_name": "PPO",
    "algorithm_parameters": {"act_dim": 4, "input_size": 8},
}


def with_(**changes: object) -> dict[str, object]:
    return {**BASE, **changes}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    monkeypatch.delenv("PENSTOCK_TOKEN", raising=False)


def test_the_example_of_rl4sys_is_read_as_it_is():
    got = load(LUNA)
    assert (got.policy, got.address) == ("luna-landing", "localhost:50051")
    assert (got.max_traj_length, got.send_frequency) == (1000, 10)
    assert got.shape is not None
    assert (got.shape.observation, got.shape.actions, got.shape.continuous) == ((8,), 4, False)
    assert json.loads(got.trained)["algorithm_parameters"]["target_kl"] is None


def test_our_keys_have_their_effect(tmp_path: Path):
    got = settings(
        with_(
            deadline_ms=2, spool={"folder": str(tmp_path), "max_bytes": 100_000}, fallback={"action": 3}, mode="shadow",
            inference="remote", flush_seconds=1, poll_seconds=3, masked=True, train_server_address="[::1]:7",
        )
    )  # fmt: skip
    assert (got.deadline, got.mode, got.inference) == (0.002, "shadow", "remote")
    assert (got.flush_seconds, got.poll_seconds, got.safe_action) == (1, 3, 3)
    assert (got.spool_folder, got.spool_bytes) == (tmp_path / "pump", 100_000)
    assert got.shape is not None
    assert got.shape.masked


def test_sac_acts_with_numbers_within_the_limit():
    got = settings(with_(algorithm_name="SAC", act_limit=2.0, fallback={"action": [0, 0, 2, -2]})).shape
    assert got is not None
    assert (got.continuous, got.limit) == (True, 2.0)


@pytest.mark.parametrize("name", ["luna_conf.json", "luna_dqn.json"])
def test_what_the_client_sends_of_its_examples_is_understood_by_the_gateway(name: str):
    got = load(LUNA.parent / name)
    assert translate(got.policy, json.loads(got.trained)).environment.id == f"client:{got.policy}"


def test_the_gateway_is_told_what_is_trained_and_no_secret():
    got = settings(with_(token="very-secret", spool={"max_bytes": 1 << 20}))
    assert set(json.loads(got.trained)) <= set(keys.TRAINED)
    assert "very-secret" not in got.trained
    assert "very-secret" not in repr(got)


WRONG = [
    ({"client_id": "../up"}, "client_id"),
    ({"client_id": None}, "client_id"),
    ({"clientid": "x"}, "did you mean 'client_id'"),
    ({"send_frequency": 0}, "send_frequency must be a whole number from 1"),
    ({"send_frequency": 2.5}, "send_frequency must be a whole number"),
    ({"send_frequency": True}, "send_frequency"),
    ({"send_frequency": 10**400}, "send_frequency must be a whole number"),
    ({"max_traj_length": 10**9}, "max_traj_length must be a whole number from 1 to 65536"),
    ({"act_limit": 0}, "act_limit must be a number above 0"),
    ({"act_limit": float("nan")}, "act_limit"),
    ({"type": "both"}, "type must be one of onpolicy, offpolicy"),
    ({"train_server_address": "http://x"}, "train_server_address must be HOST:PORT"),
    ({"algorithm_parameters": [1]}, "algorithm_parameters must be an object"),
    ({"algorithm_parameters": {"act_dim": 4}}, "input_size is missing"),
    ({"algorithm_parameters": {"input_size": 4}}, "act_dim is missing"),
    ({"algorithm_parameters": {"act_dim": 4, "input_size": 8, "gama": 0.9}}, "did you mean 'gamma'"),
    (
        {"algorithm_parameters": {"act_dim": 4, "input_size": 8, "gamma": 1.5}},
        "gamma must be a number from 0 to 1",
    ),
    ({"algorithm_parameters": {"act_dim": 4, "input_size": 8, "pi_lr": "fast"}}, "pi_lr"),
    (
        {"algorithm_parameters": {"act_dim": 4, "input_size": 8, "seed": 10**400}},
        "seed must be a whole number",
    ),
    ({"algorithm_parameters": {"act_dim": 4, "input_size": 8, "seed": 10**5000}}, "far too long"),
    ({"fallback": {"action": 10**5000}}, "far too long"),
    ({"observation_shape": [2, 2]}, "leave one out"),
    ({"observation_shape": [0]}, "observation_shape"),
    ({"deadline_ms": -1}, "deadline_ms"),
    ({"spool": {"max_byte": 1}}, "did you mean 'max_bytes'"),
    ({"spool": {"max_bytes": 10}}, "spool.max_bytes"),
    ({"fallback": {"action": 4}}, "fallback.action must be a whole number from 0 to 3"),
    ({"mode": "on"}, "mode must be one of act, shadow, off"),
    ({"inference": "gpu"}, "inference must be one of"),
    ({"poll_seconds": 31}, "poll_seconds"),
    ({"flush_seconds": 0}, "flush_seconds"),
    ({"masked": 1}, "masked must be true or false"),
    ({"masked": True, "continuous": True}, "masked is for choices"),
    ({"algorithm_name": "SAC", "continuous": False}, "SAC acts with numbers"),
    ({"network": {"activation": "gelu"}}, "network.activation must be one of tanh, relu"),
    ({"tls": {"ca": "/nowhere.pem"}}, "tls.ca names /nowhere.pem"),
    ({"token": "a", "token_file": "b"}, "both given"),
    ({"token_file": "/nowhere"}, "token_file names /nowhere"),
    ({"token": "line\nbreak"}, "does not hold a token"),
]


@pytest.mark.parametrize(("change", "sentence"), WRONG)
def test_a_wrong_value_is_refused_by_name(change: dict[str, object], sentence: str):
    with pytest.raises(ConfigError, match=sentence.replace(".", r"\.")):
        settings(with_(**change), "pump.json")


def test_every_key_is_refused_with_a_wrong_type():
    """So that no key goes unchecked: an object where a number or text belongs, a text where an object does."""
    for name, key in keys.TOP.items():
        with pytest.raises(ConfigError, match=name):
            settings(with_(**{name: 3 if key.kind == "group" else {"a": 1}}))
    for name in keys.PARAMETERS:
        with pytest.raises(ConfigError, match=name):
            settings(with_(algorithm_parameters={"act_dim": 4, "input_size": 8, name: {"a": 1}}))


def test_a_strangers_algorithm_may_name_parameters_of_its_own():
    parameters = {"act_dim": 4, "input_size": 8, "temperature": 0.5}
    got = settings(with_(algorithm_name="mine", algorithm_parameters=parameters))
    assert json.loads(got.trained)["algorithm_parameters"]["temperature"] == 0.5


def test_the_client_knows_the_parameters_the_gateway_knows():
    """Otherwise one of them would refuse what the other documents."""
    own = {f.name for name in keys.ALGORITHMS for f in msgspec.structs.fields(plugins.load("settings", name))}
    named = {name for meanings in MEANINGS.values() for name in meanings} | set(OF_THE_RUN)
    assert set(keys.OWN_NAMES) == own - set(keys.PARAMETERS)
    assert named <= set(keys.PARAMETERS)
    assert set(keys.PARAMETERS) <= named | own
    assert set(keys.ALGORITHMS) == set(plugins.installed("settings"))


def test_the_client_knows_the_keys_the_gateway_knows():
    assert set(keys.TOP) == OF_THE_CLIENT | OF_THE_POLICY
    assert set(keys.TRAINED) - {"client_id", "max_traj_length"} == OF_THE_POLICY
    assert set(keys.GROUPS["network"]) == {f.name for f in msgspec.structs.fields(NetworkSpec)}


def test_the_token_is_found_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "token").write_text("of-home\n")
    assert settings(BASE).token == "of-home"
    assert settings(with_(train_server_address="far.example:50051")).token == ""
    monkeypatch.setenv("PENSTOCK_TOKEN", "of-environment")
    assert settings(BASE).token == "of-environment"
    (tmp_path / "file").write_text("of-file")
    assert settings(with_(token_file=str(tmp_path / "file"))).token == "of-file"
    assert settings(with_(token="given")).token == "given"


FAR = ["far.example:1", "127.evil.example:1", "127.0.0.1.evil.example:1", "10.0.0.1:1", "[2001:db8::1]:1"]


@pytest.mark.parametrize("address", FAR)
def test_a_token_does_not_leave_the_machine_in_plain_text(address: str, tmp_path: Path):
    (tmp_path / "token").write_text("of-home")
    assert settings(with_(train_server_address=address)).token == "", "the home's token is for loopback"
    given = with_(train_server_address=address, token="given")
    with pytest.raises(ConfigError, match=r"plain text; give tls .* or insecure: true"):
        settings(given)
    with pytest.raises(ConfigError, match="plain text"):
        settings({**given, "insecure": False})
    assert settings({**given, "insecure": True}).token == "given"
    assert settings({**given, "tls": {}}).token == "given"


@pytest.mark.parametrize("address", ["localhost:1", "127.0.0.1:1", "127.8.8.8:1", "[::1]:1"])
def test_on_this_machine_a_token_needs_no_tls(address: str):
    assert settings(with_(train_server_address=address, token="given")).token == "given"


def test_yaml_means_the_same(tmp_path: Path):
    file = tmp_path / "pump.yaml"
    file.write_text(
        "client_id: pump\nalgorithm_name: PPO\nalgorithm_parameters: {act_dim: 4, input_size: 8, pi_lr: 3e-4}\n"
    )
    assert json.loads(load(file).trained)["algorithm_parameters"]["pi_lr"] == 3e-4


def test_yaml_without_its_package_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "pump.yml").write_text("client_id: pump\n")
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ConfigError, match="pip install pyyaml"):
        load(tmp_path / "pump.yml")


@pytest.mark.parametrize(
    "content", ["{", "[1]", '"x"', "[" * 100_000, "\ud800".encode("utf-8", "surrogatepass")]
)
def test_a_file_that_is_no_configuration_is_refused(content: str | bytes, tmp_path: Path):
    file = tmp_path / "bad.json"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError, match=r"bad\.json"):
        load(file)


def test_certificates_are_read_at_once_and_not_shown(tmp_path: Path):
    written = {"cert": "-----BEGIN CERTIFICATE-----", "key": "-----BEGIN PRIVATE KEY-----"}
    for name, content in written.items():
        (tmp_path / name).write_text(content)
    got = settings(with_(tls={"cert": str(tmp_path / "cert"), "key": str(tmp_path / "key")}))
    (tmp_path / "key").unlink()
    assert got.tls is not None
    assert (got.tls.ca, got.tls.cert, got.tls.key) == (
        None,
        written["cert"].encode(),
        written["key"].encode(),
    )
    assert "PRIVATE" not in repr(got)


def test_a_file_that_is_no_certificate_is_refused(tmp_path: Path):
    file = tmp_path / "notes.txt"
    file.write_text("hello")
    with pytest.raises(ConfigError, match=r"tls\.ca names .*notes\.txt, which holds no CERTIFICATE in PEM"):
        settings(with_(tls={"ca": str(file)}))
    with pytest.raises(ConfigError, match=r"tls\.cert names"):
        settings(with_(tls={"cert": str(file), "key": str(file)}))


def test_a_hint_is_given_only_for_what_is_near():
    with pytest.raises(ConfigError, match=r"there is no key action$"):
        settings(with_(action=2))


def test_a_huge_file_is_not_read(tmp_path: Path):
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(2 << 20)
    with pytest.raises(ConfigError, match="larger than"):
        load(tmp_path / "huge.json")


def test_every_key_is_documented():
    text = (LUNA.parents[2] / "docs" / "client.md").read_text()
    for name in (
        *keys.TOP,
        *keys.PARAMETERS,
        *(name for group in ("spool", "tls") for name in keys.GROUPS[group]),
    ):
        assert f"`{name}`" in text or f'"{name}"' in text, name
