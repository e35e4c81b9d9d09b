"""An environment from its id, and one sentence for every way to get it wrong."""

import subprocess
import sys
import textwrap

import gymnasium
import pytest

from penstock.envs.load import environment_id, importing_environment
from penstock.envs.make import known_environments, make, make_group
from penstock.errors import ConfigError, EnvironmentFault
from penstock.model.spec import EnvironmentSpec
from penstock.testing.environments import Counter

HERE = "penstock.testing.environments"

FILE = """
    import gymnasium, numpy as np
    from neighbour import LENGTH
    class Mine(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 1, (2,))
        action_space = gymnasium.spaces.Discrete(2)
        def __init__(self, speed=1): self.speed = speed
        def reset(self, *, seed=None, options=None): return np.zeros(2, np.float32), {}
        def step(self, action): return np.zeros(2, np.float32), LENGTH, False, False, {}
    class Double(gymnasium.RewardWrapper):
        def reward(self, reward): return 2 * reward
    class Plus(gymnasium.RewardWrapper):
        def reward(self, reward): return reward + 1
    number = 3
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "my_env.py").write_text(textwrap.dedent(FILE))
    (tmp_path / "neighbour.py").write_text("LENGTH = 5.0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    yield tmp_path
    sys.modules.pop("neighbour", None)


def error(id: str, **fields) -> str:
    with pytest.raises(ConfigError) as caught:
        make(EnvironmentSpec(id=id, **fields))
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("id", ["CartPole-v1", "CartPole", f"{HERE}:Counter", "gymnasium:CartPole-v1"])
def test_every_kind_of_id_is_an_environment(id):
    assert isinstance(make(EnvironmentSpec(id=id)), gymnasium.Env)


def test_a_class_in_a_file_is_found_relative_and_absolute_with_its_neighbours(folder):
    relative = make(EnvironmentSpec(id="./my_env.py:Mine", kwargs={"speed": 7}))
    absolute = make(EnvironmentSpec(id=f"{folder}/my_env.py:Mine"))
    assert relative.speed == 7
    assert type(relative) is type(absolute)
    assert absolute.step(0)[1] == 5.0
    assert isinstance(make(EnvironmentSpec(id="my_env:Mine")), gymnasium.Env)


def test_wrappers_are_applied_innermost_first(folder):
    wrappers = ("./my_env.py:Double", "./my_env.py:Plus")
    environment = make(EnvironmentSpec(id="./my_env.py:Mine", wrappers=wrappers))
    environment.reset()
    assert environment.step(0)[1] == 11.0


def test_a_time_limit_is_put_around_any_environment():
    for id in ("CartPole-v1", f"{HERE}:Counter"):
        environment = make(EnvironmentSpec(id=id, max_episode_steps=2, wrappers=()))
        environment.reset(seed=1)
        assert [environment.step(0)[3] for _ in range(2)] == [False, True]


@pytest.mark.parametrize(
    ("id", "hint"),
    [
        ("CartPol-v1", "did you mean 'CartPole-v1'?"),
        ("cartpole-v1", "did you mean 'CartPole-v1'?"),
        ("CartPole-v9", "did you mean 'CartPole-v1'?"),
        ("LunarLander-v2", "did you mean 'LunarLander-v3'?"),
        ("ALE/Pong-v5", "pip install ale-py"),
        ("MiniGrid-Empty-5x5-v0", "pip install minigrid"),
        ("HalfCheetah-v5", "pip install 'gymnasium[mujoco]'"),
        ("Nowhere/Thing-v0", "nothing registers environments under 'Nowhere'"),
        ("no_such_package:Env-v0", "there is no Python module 'no_such_package'"),
        ("no_such_package.deep:Env", "./no_such_package/deep.py:Class"),
        (f"{HERE}:Countr", "did you mean 'Counter'?"),
        ("./missing.py:Env", "there is no file"),
        ("./my-env:Env", "write 'CartPole-v1', './file.py:Class' or 'package:Class'"),
        ("collections:OrderedDict", "must derive from gymnasium.Env"),
    ],
)
def test_a_wrong_id_is_one_sentence_with_the_fix(id, hint):
    assert hint in error(id)


def test_a_wrong_file_is_one_sentence_that_names_the_place(folder):
    assert "did you mean 'Mine'?" in error("./my_env.py:Mien")
    assert "'number' in ./my_env.py is a int, not a class" in error("./my_env.py:number")
    assert "my_env.py'?" in error("./my_evn.py:Mine")
    (folder / "broken.py").write_text("import gymnasium\nclass Mine(\n")
    assert "broken.py, line 2" in error("./broken.py:Mine")
    (folder / "needs.py").write_text("x = 1\nimport not_there\n")
    text = error("./needs.py:Mine")
    assert "No module named 'not_there'" in text
    assert "needs.py, line 2" in text
    (folder / "quits.py").write_text("raise SystemExit(3)")
    assert "SystemExit" in error("./quits.py:Mine")


def test_a_file_that_was_mended_is_imported_again(folder):
    (folder / "later.py").write_text("1 / 0")
    assert "ZeroDivisionError" in error("./later.py:Mine")
    (folder / "later.py").write_text("from my_env import Mine")
    assert make(EnvironmentSpec(id="./later.py:Mine"))


def test_wrong_arguments_name_the_nearest():
    assert "takes no argument 'lenght'; did you mean 'length'?" in error(
        f"{HERE}:Counter", kwargs={"lenght": 3}
    )
    assert "takes no argument 'sutton_reward'" in error("CartPole-v1", kwargs={"sutton_reward": True})
    assert "did you mean 'gravity'?" in error("LunarLander-v3", kwargs={"gravty": -5.0})


def test_wrappers_that_are_none_are_refused():
    assert "has no 'TimeLimt'; did you mean" in error(
        "CartPole-v1", wrappers=("gymnasium.wrappers.common:TimeLimt",)
    )
    assert "not an environment" in error("CartPole-v1", wrappers=("builtins:repr",))


def test_a_constructor_that_raises_is_a_fault_of_the_environment():
    with pytest.raises(EnvironmentFault, match="raised RuntimeError in its constructor: no simulator"):
        make(EnvironmentSpec(id=f"{HERE}:Unbuildable"))


def test_native_without_envpool_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(ConfigError, match=r"pip install 'penstock\[envpool\]'"):
        make_group(EnvironmentSpec(id="CartPole-v1", native=True), 2, 1, 0)


def test_known_environments_are_sorted_and_hold_the_usual_ones():
    known = known_environments()
    assert known == sorted(known)
    assert {"CartPole-v1", "LunarLander-v3"} <= set(known)


def test_looking_names_up_needs_no_gymnasium():
    code = "import sys, penstock.envs.make as m; m.environment_id('x'); print('gymnasium' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_making_cartpole_does_not_import_box2d():
    code = (
        "import sys; from penstock.envs.make import make; from penstock.model.spec import EnvironmentSpec;"
        "make(EnvironmentSpec(id='CartPole-v1'));"
        "print([m for m in ('Box2D', 'pygame', 'jax', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_id_passes_and_an_importable_class_becomes_one():
    assert environment_id("CartPole-v1") == "CartPole-v1"
    assert environment_id(Counter) == f"{HERE}:Counter"
    assert isinstance(make(EnvironmentSpec(id=environment_id(Counter))), Counter)


def test_a_class_in_a_script_becomes_a_path(folder):
    (folder / "script.py").write_text(
        "from penstock.envs.load import environment_id, importing_environment\n"
        "class Mine: ...\n"
        "IMPORTED = importing_environment()\n"
        "if __name__ == '__main__': print(environment_id(Mine))\n"
    )
    done = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{folder}/script.py:Mine"
    assert "must derive from gymnasium.Env" in error(done.stdout.strip())
    assert next(m for name, m in sys.modules.items() if name.startswith("script_")).IMPORTED is True
    assert importing_environment() is False


def test_a_class_that_lives_only_in_a_prompt_is_explained():
    code = textwrap.dedent("""
        from penstock.envs.load import environment_id
        class Mine: ...
        try: environment_id(Mine)
        except Exception as error: print(type(error).__name__, error)
    """)
    done = subprocess.run([sys.executable, "-"], input=code, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("ConfigError 'Mine' exists only in this notebook")
    assert "%%writefile my_env.py" in done.stdout
    assert "./my_env.py:Mine" in done.stdout


def test_what_another_process_cannot_find_is_refused():
    class Inner(Counter): ...

    with pytest.raises(ConfigError, match="top level of a file"):
        environment_id(Inner)
    with pytest.raises(ConfigError, match="pass Counter itself"):
        environment_id(Counter())
