"""Everything people may write becomes one checked spec, or an error that names place and fix."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock import config
from penstock.algorithms.settings import DQNSettings, PPOSettings
from penstock.errors import ConfigError, Damaged, NotFound
from penstock.model.spec import Spec


def write(folder: Path, text: str, name: str = "spec.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_an_environment_id_is_a_whole_spec():
    spec = config.resolve("CartPole-v1")
    assert spec.environment.id == "CartPole-v1"
    assert isinstance(config.settings_of(spec), PPOSettings)
    assert set(spec.settings) == {field.name for field in msgspec.structs.fields(PPOSettings)}


def test_defaults_preset_file_and_overrides_win_in_this_order(tmp_path):
    path = write(tmp_path, "environment: CartPole-v1\nppo: {gamma: 0.5, epochs: 7}\n")
    spec = config.resolve(path, {"ppo.epochs": "3"})
    assert spec.settings["max_grad_norm"] == 0.5  # default
    assert spec.settings["gae_lambda"] == 0.8  # preset
    assert spec.settings["gamma"] == 0.5  # file
    assert spec.settings["epochs"] == 3  # override


def test_the_preset_follows_the_algorithm_an_override_chooses():
    spec = config.resolve("CartPole-v1", {"algorithm": "dqn"})
    assert isinstance(config.settings_of(spec), DQNSettings)
    assert spec.stop.target == 475


@pytest.mark.parametrize(
    ("path", "value", "place", "expected"),
    [
        ("pace.lead", "0", lambda s: s.pace.lead, 0),
        ("actors", "3", lambda s: s.actors.count, 3),
        ("actors.count", 4, lambda s: s.actors.count, 4),
        ("stop.steps", "1e6", lambda s: s.stop.steps, 1_000_000),
        ("seed", "1e3", lambda s: s.seed, 1000),
        ("stop.target", "null", lambda s: s.stop.target, None),
        ("ppo.learning_rate", "1e-3", lambda s: s.settings["learning_rate"], 1e-3),
        ("ppo.learning_rate", "lin_3e-4", lambda s: s.settings["learning_rate"], "lin_3e-4"),
        ("environment.kwargs.continuous", "true", lambda s: s.environment.kwargs, {"continuous": True}),
        ("environment.kwargs.at", "12:30", lambda s: s.environment.kwargs, {"at": "12:30"}),
        ("network.hidden", "[32, 16]", lambda s: s.network.hidden, (32, 16)),
    ],
)
def test_overrides_are_dotted_paths_with_yaml_values(path, value, place, expected):
    assert place(config.resolve("CartPole-v1", {path: value})) == expected


def test_shorthands_in_files(tmp_path):
    spec = config.resolve(write(tmp_path, "environment: LunarLander-v3\nactors: 5\n"))
    assert (spec.environment.id, spec.actors.count, spec.actors.environments) == ("LunarLander-v3", 5, 16)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "environment: X\nppo: {lerning_rate: 1}",
            "ppo has no setting 'lerning_rate'; did you mean 'learning_rate'?",
        ),
        ("enviroment: X", "a spec has no setting 'enviroment'; did you mean 'environment'?"),
        ("environment: {id: X, kwarg: {}}", "environment has no setting 'kwarg'; did you mean 'kwargs'?"),
        ("environment: X\nactors: two", "actors.count is 'two', but expected int, got str"),
        ("environment: X\npace: 1", "pace is 1; write a group of settings"),
        ("environment: X\ndqn: {batch: 3}", "the group 'dqn' belongs to another algorithm"),
        ("environment: X\nsettings: {}", "a spec has no setting 'settings'"),
        ("environment: X\nformat: 2", "format 2 is newer than this penstock reads (1); upgrade it"),
        ("environment: X\nppo: {gamma: .nan}", "ppo.gamma is nan; numbers must be finite"),
        ("environment: X\nenvironment: Y", "line 2: not YAML or JSON: the key 'environment' is given twice"),
        ("environment: X\n  bad: [", "line 2: not YAML or JSON"),
        ("environment: &a X\nalgorithm: *a", "line 2: not YAML or JSON: aliases"),
        ("environment: !!python/object/apply:os.system ['true']", "line 1: not YAML or JSON"),
        ("- environment", "a spec is a mapping such as `environment: CartPole-v1`, not a list"),
        ("", "a spec is a mapping such as `environment: CartPole-v1`, not nothing"),
        ("algorithm: ppo", "environment is missing"),
        ("environment:", "environment is empty"),
        ("environment: X\n1: 2", "has the key 1, which is not text"),
        ("[" * 5000, "nested too deeply"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_its_place(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        config.resolve(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"pace.lead": 9}, "pace.max_lag is 8 and pace.lead is 9"),
        ({"stream.budget_bytes": 1 << 23}, "stream.budget_bytes"),
        ({"stream.url": "kafka:/h:9092"}, "no known stream"),
        ({"stream.url": "redis://x"}, "no known stream"),
        ({"network.hidden": "[64, 0]"}, "must be positive"),
        ({"algorithm": "dqn", "dqn.buffer": 10}, "dqn.buffer (10) is smaller than dqn.batch"),
        ({"pace.": 1}, "is not a path of settings"),
        ({"seed": 1 << 70}, "64 bits"),
        ({"environment.kwargs.f": object()}, "environment.kwargs.f is a object"),
        ({"stop.steps": 1.5}, "stop.steps is 1.5"),
    ],
)
def test_contradictions_and_bad_values_are_refused(overrides, message):
    with pytest.raises(ConfigError) as caught:
        config.resolve("CartPole-v1", overrides)
    assert message in str(caught.value)


def test_an_unknown_algorithm_names_the_nearest():
    with pytest.raises(NotFound, match="did you mean 'ppo'"):
        config.resolve("CartPole-v1", {"algorithm": "pppo"})


def test_a_file_of_other_bytes_or_none_is_a_config_error(tmp_path):
    (tmp_path / "binary.yaml").write_bytes(b"\x80\xff\x00")
    for name in ("binary.yaml", "missing.yaml"):
        with pytest.raises(ConfigError, match=name):
            config.resolve(str(tmp_path / name))


def test_a_class_in_a_file_is_found_from_the_spec_files_folder(tmp_path):
    write(tmp_path, "class MyEnv: ...", "my_env.py")
    spec = config.resolve(write(tmp_path, "environment: ./my_env.py:MyEnv"))
    assert spec.environment.id == f"{tmp_path.resolve()}/my_env.py:MyEnv"
    with pytest.raises(ConfigError, match="name the class"):
        config.resolve(str(tmp_path / "my_env.py"))
    with pytest.raises(ConfigError, match="there is no file"):
        config.resolve(str(tmp_path / "other.py:MyEnv"))


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
plain = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab_1.", min_size=1), inner),
    max_leaves=6,
)
environments = st.fixed_dictionaries(
    {"id": st.sampled_from(["CartPole-v1", "CarRacing-v3", "Own-v0"])},
    optional={"kwargs": st.dictionaries(st.text("ab1~:", min_size=1), plain)},
)
stops = st.fixed_dictionaries(
    {},
    optional={
        "steps": st.none() | st.integers(1, 10**12),
        "target": st.none() | st.floats(-1e9, 1e9),
    },
)
specs = st.fixed_dictionaries(
    {"environment": environments},
    optional={
        "algorithm": st.sampled_from(["ppo", "dqn", "sac", "impala", "reinforce"]),
        "actors": st.integers(1, 16),
        "seed": st.integers(0, 2**63 - 1),
        "stop": stops,
    },
)


@given(specs)
@example({"environment": {"id": "CartPole-v1", "kwargs": {"1": "\x85"}}})
@settings(max_examples=150, deadline=None)
def test_every_spec_survives_yaml_json_and_the_store(values):
    spec = config.resolve(values)
    assert config.resolve(config.to_mapping(spec)) == spec
    assert config.resolve(config.files.parse(config.to_yaml(spec), "yaml")) == spec
    stored = json.loads(json.dumps(config.to_mapping(spec)))
    assert config.from_mapping(stored, "spec.json") == spec


def test_a_stored_spec_needs_no_files_and_no_plugins():
    values = config.to_mapping(config.resolve("CartPole-v1"))
    values["environment"]["id"] = "/gone/my_env.py:MyEnv"
    assert config.from_mapping(values, "spec.json").environment.id == "/gone/my_env.py:MyEnv"
    with pytest.raises(Damaged, match=r"spec\.json has format 9"):
        config.from_mapping({**values, "format": 9}, "spec.json")
    with pytest.raises(Damaged, match=r"spec\.json does not read"):
        config.from_mapping({**values, "seed": "x"}, "spec.json")


def test_the_schema_describes_every_setting_of_the_file_form():
    schema = config.schema()
    groups = schema["properties"]
    assert "settings" not in groups
    assert {"ppo", "impala", "dqn", "reinforce", "sac", "environment", "pace"} <= set(groups)
    for name, definition in schema["$defs"].items():
        for key, value in definition["properties"].items():
            assert value.get("description"), f"{name}.{key} has no description"
    assert (
        schema["$defs"]["PPOSettings"]["properties"]["gamma"]["description"] == "Discount of future rewards."
    )
    assert schema["required"] == ["environment"]
    json.dumps(schema)


def test_home_is_made_for_its_owner_only(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "deep" / "home"))
    assert config.home() == tmp_path / "deep" / "home"
    assert config.home().stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(ConfigError, match="PENSTOCK_HOME"):
        config.home()


def test_the_spec_is_a_value():
    assert isinstance(config.resolve("CartPole-v1"), Spec)
    assert config.resolve("CartPole-v1") == config.resolve({"environment": "CartPole-v1"})
