"""Back in a run's log: forks at any version, replays without environments; and nobody touches the origin.

The tests only know the address of a stream: `world` and `story` say which.
"""

import json
import signal
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import penstock as penstock_api
from penstock.errors import ConfigError
from penstock.loop.recorded import Past, read_past
from penstock.loop.runs import RunFolder
from penstock.model.history import Update
from penstock.wiring import open_stream
from tests.integration.harness import QUICK, Training, penstock, resume, train

SAVING = ("--set", "checkpoint.every_seconds=1000", "--set", "checkpoint.every_updates=40")
DQN = (
    "--algorithm", "dqn", "--set", "network.hidden=[16]", "--set", "actors.environments=2",
    "--set", "actors.rollout=16", "--set", "dqn.gradient_steps=4", "--set", "dqn.buffer=1000",
    "--set", "dqn.learning_starts=200", "--set", "evaluation.every_seconds=0", "--set", "stop.target=null",
    "--no-tensorboard",
)  # fmt: skip


@dataclass(frozen=True)
class World:
    """Where the runs of this file live."""

    home: Path
    url: str

    def train(self, name: str, *flags: str) -> Training:
        return train(self.home, name, "--stream", self.url, *flags)

    def make(self, name: str, *flags: str) -> dict[str, Any]:
        """A run to its end."""
        with self.train(name, *flags) as run:
            return run.result()

    def past(self, run: str) -> Past:
        folder = RunFolder.open(self.home, run)
        stream = open_stream(self.home, folder.spec().stream)
        try:
            return read_past(stream, folder)
        finally:
            stream.close()

    def recorded(self, run: str, step: int) -> Update:
        update = self.past(run).update(step)
        assert update is not None
        return update

    def fork(self, run: str, at: str, name: str, *flags: str) -> dict[str, Any]:
        answer = penstock(self.home, "fork", run, "--at", at, "--name", name, *flags, "--json")
        return dict(json.loads(answer.stdout.splitlines()[-1]))

    def replay(self, run: str, name: str, *flags: str) -> dict[str, Any]:
        answer = penstock(self.home, "replay", run, "--name", name, *flags, "--json")
        return dict(json.loads(answer.stdout.splitlines()[-1]))

    def refused(self, *arguments: str) -> str:
        done = penstock(self.home, *arguments, check=False)
        assert done.returncode == 1, done.stdout
        return done.stderr

    def events(self, run: str, event: str) -> list[dict[str, Any]]:
        return [line for line in RunFolder.open(self.home, run).events() if line["event"] == event]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def world(home: Path) -> World:
    """The embedded log; the story below is also told on Kafka."""
    return World(home, "embedded")


def address(request: pytest.FixtureRequest, stream: str) -> str:
    if stream == "embedded":
        return stream
    return f"kafka://{request.getfixturevalue('broker').bootstrap}/travel-{uuid.uuid4().hex[:6]}"


@dataclass(frozen=True)
class Story:
    """A run that was tuned, scaled up, killed whole, resumed and stopped."""

    world: World
    name: str
    lead: int
    tuned: int
    """A step at which the settings were other than in the beginning."""
    scaled: int
    """One with three actors."""
    end: dict[str, Any]


def tell_story(world: World, name: str, lead: int) -> Story:
    flags = (*QUICK, *SAVING, "--set", f"pace.lead={lead}", "--set", "stop.steps=null")
    run = world.train(name, *flags)
    try:
        run.wait_for_updates(20)
        penstock(world.home, "set", name, "learning_rate=1e-4", "entropy=0.02")
        run.wait_until(lambda: world.events(name, "settings_changed"), what="new settings")
        run.wait_for_updates(tuned := run.updates() + 10)
        penstock(world.home, "scale", name, "--actors", "3")
        run.wait_until(lambda: world.events(name, "actor_joined"), what="a third actor")
        run.wait_for_updates(scaled := run.updates() + 15)
        run.wait_for_updates(killed := scaled + 10)
        run.kill_all()
        run = resume(world.home, name)
        run.wait_until(lambda: str(run.status().get("version")).startswith("2."), what="a second epoch")
        run.wait_for_updates(killed + 60)
        run.process.send_signal(signal.SIGINT)
        return Story(world, name, lead, tuned, scaled, run.result())
    finally:
        run.kill_all()


@pytest.fixture(
    scope="module",
    params=[("embedded", 0), ("embedded", 1), ("kafka", 1)],
    ids=lambda pair: f"{pair[0]}, pace {pair[1]}",
)
def story(request: pytest.FixtureRequest, home: Path) -> Story:
    stream, lead = request.param
    return tell_story(World(home, address(request, stream)), f"story-{stream}-{lead}", lead)


@pytest.fixture(scope="module")
def quiet(world: World) -> dict[str, Any]:
    """A run that nobody touched, done after 100 updates."""
    return world.make("quiet", *QUICK, *SAVING, "--set", "pace.lead=0", "--set", "stop.updates=100")


def fingerprint(folder: Path) -> dict[str, tuple[int, int]]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


# -- fork --------------------------------------------------------------------------------------------


def test_a_fork_has_the_recorded_weights_wherever_it_is_made(story: Story):
    world = story.world
    past = world.past(story.name)
    (checkpoint, *_) = past.checkpoints
    base = max(past.bases).step
    off_the_line = world.refused("fork", story.name, "--at", f"1.{base + 1}")
    assert (
        f"off the line of {story.name}, which has 2.{base + 1} at that step; versions 1.0 to" in off_the_line
    )
    wanted = {"checkpoint": checkpoint.step, "tuned": story.tuned, "scaled": story.scaled}
    if story.lead:  # each fork takes seconds
        wanted = {"scaled": story.scaled, "between": checkpoint.step + 7, "newest": past.newest.step}
    before = fingerprint(world.home / "runs" / story.name)
    for word, step in wanted.items():
        forked = world.fork(story.name, str(step), f"{story.name}-{word}", "--no-train")
        assert forked["weights_sha256"] == world.recorded(story.name, step).weights_sha256, word
        assert (forked["state"], forked["version"], forked["updates"]) == ("stopped", f"0.{step}", step)
    assert fingerprint(world.home / "runs" / story.name) == before
    spec = RunFolder.open(world.home, f"{story.name}-scaled").spec()
    assert (spec.actors.count, spec.settings["learning_rate"], spec.settings["entropy"]) == (3, 1e-4, 0.02)
    (told,) = world.events(f"{story.name}-scaled", "forked")
    assert (told["origin"], told["version"]) == (story.name, str(past.at(story.scaled)))


def test_a_story_replayed_is_equal_to_the_bit(story: Story):
    world = story.world
    replayed = world.replay(story.name, f"{story.name}-again")
    assert (replayed["state"], replayed["equal"], replayed["missing"]) == ("done", True, 0)
    assert replayed["weights_sha256"] == story.end["weights_sha256"]
    assert replayed["steps"] == story.end["steps"]
    assert (world.home / "runs" / f"{story.name}-again" / "metrics.jsonl").stat().st_size > 0


def test_a_fork_with_other_settings_trains_on_and_can_be_forked_itself(world: World, quiet: dict[str, Any]):
    flags = ("--set", "ppo.learning_rate=1e-4", "--set", "stop.updates=130", "--set", "checkpoint.keep=1")
    forked = world.fork("quiet", "1.57", "onward", *flags)
    assert (forked["state"], forked["updates"], forked["version"]) == ("done", 130, "1.130")
    assert forked["steps"] == quiet["steps"] * 130 // 100
    assert world.recorded("onward", 58).version == (1, 58)
    shown = json.loads(penstock(world.home, "show", "onward", "--json").stdout)
    assert shown["spec"]["origin"] == {"run": "quiet", "version": "1.57", "replay": False}
    assert "0.57" in shown["checkpoints"], "what a fork began with is kept"
    assert "quiet at 1.57" in penstock(world.home, "show", "onward").stdout
    again = world.fork("onward", "90", "onward-90", "--no-train")
    assert again["weights_sha256"] == world.recorded("onward", 90).weights_sha256
    replayed = world.replay("onward", "onward-again")
    assert (replayed["equal"], replayed["weights_sha256"]) == (True, forked["weights_sha256"])


def test_a_fork_at_step_0_begins_with_the_seeds_weights(world: World, quiet: dict[str, Any]):
    forked = world.fork("quiet", "0", "fresh")
    # same weights, same seeds, same pace: all that follows is the same, too
    assert (forked["updates"], forked["weights_sha256"]) == (100, quiet["weights_sha256"])


def test_a_fork_that_was_only_made_is_trained_by_resume(world: World, quiet: dict[str, Any]):
    made = world.fork("quiet", "newest", "later", "--no-train")
    assert made["weights_sha256"] == quiet["weights_sha256"]
    with resume(world.home, "later", "--set", "stop.updates=120") as run:
        assert run.result()["updates"] == 120


def test_a_fork_whose_only_checkpoint_is_damaged_does_not_begin_anew(world: World, quiet: dict[str, Any]):
    world.fork("quiet", "newest", "torn", "--no-train")
    state = world.home / "runs" / "torn" / "checkpoints" / "0.100" / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-7])
    done = penstock(world.home, "resume", "torn", "--set", "stop.updates=120", "--json", check=False)
    assert done.returncode == 1
    assert "fork again: penstock fork quiet --at 1.100" in json.loads(done.stdout)["reason"]


def test_where_a_stop_condition_holds_already_the_fork_says_so(world: World, quiet: dict[str, Any]):
    ended = world.fork("quiet", "100", "already")
    assert (ended["state"], ended["updates"]) == ("done", 100)
    assert "already at the fork; set another limit and go on: penstock resume already" in ended["reason"]


def test_another_algorithm_learns_the_log_and_goes_on_by_itself(world: World, quiet: dict[str, Any]):
    ended = world.fork("quiet", "60", "impala", "--algorithm", "impala", "--set", "stop.updates=90")
    assert (ended["state"], ended["updates"]) == ("done", 90)
    assert ended["steps"] == quiet["steps"] * 90 // 100
    (told,) = world.events("impala", "forked")
    assert "nothing to compare with" in told["weights"]
    (first, *_, last) = world.past("impala").updates
    assert (first.version, last.version) == ((1, 61), (1, 90))


def test_a_live_run_is_forked_and_goes_on(world: World):
    flags = (*QUICK, *SAVING, "--set", "stop.steps=null")
    with world.train("alive", *flags) as run:
        run.wait_for_updates(50)
        forked = world.fork("alive", "45", "from-alive", "--no-train")
        assert forked["weights_sha256"] == world.recorded("alive", 45).weights_sha256
        run.wait_for_updates(run.updates() + 10)
        run.process.send_signal(signal.SIGINT)
        assert run.result()["state"] == "stopped"


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("101", "has learned up to version 1.100, not yet to 101; versions 1.0 to 1.100 can be had"),
        ("3.50", "version 3.50 is off the line of quiet, which has 1.50 at that step; versions 1.0 to 1.100"),
        ("soon", "'soon' is not a version; write EPOCH.STEP, as in 1.100, or just the step, as in 100"),
    ],
)
def test_a_version_that_is_none_is_refused_with_those_that_are(
    world: World, quiet: dict[str, Any], at: str, words: str
):
    assert words in world.refused("fork", "quiet", "--at", at, "--name", "never")
    assert words in world.refused("replay", "quiet", "--until", at, "--name", "never")
    assert not (world.home / "runs" / "never").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("network.hidden=[8]", "keeps the network of its origin, so network.hidden cannot change"),
        ("environment.id=Acrobot-v1", "keeps the environment of its origin"),
        ("ppo.separate=true", "cannot go on with other settings of separate"),
        ("ppo.lerning_rate=1", "did you mean 'learning_rate'"),
    ],
)
def test_a_change_that_the_state_cannot_take_is_refused(
    world: World, quiet: dict[str, Any], change: str, words: str
):
    assert words in world.refused("fork", "quiet", "--at", "100", "--name", "never", "--set", change)
    assert not (world.home / "runs" / "never").exists()


def test_weights_that_do_not_come_out_again_are_an_error_that_names_the_version(world: World):
    """As on another machine, where an update may give other bits."""
    world.make("strange", *QUICK, "--set", "stop.updates=12", "--set", "pace.lead=0")
    spec = world.home / "runs" / "strange" / "spec.json"
    spec.write_text(spec.read_text().replace('"gamma": 0.98', '"gamma": 0.9'))
    words = "version 1.1 made again has the weights"
    forked = world.refused("fork", "strange", "--at", "7", "--name", "never")
    assert f"version 1.7 of strange cannot be had: {words}" in forked
    assert "versions 1.0 and 1.12 can be had" in forked
    assert not (world.home / "runs" / "never").exists()
    unequal = world.refused("replay", "strange", "--name", "never", "--json")
    assert f"this replay is not equal to strange: {words}" in unequal
    assert not (world.home / "runs" / "never").exists()


# -- an eaten log ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def eaten(world: World) -> str:
    """A run whose log kept only its newest megabyte."""
    world.make(
        "eaten", *QUICK, "--set", "actors.rollout=128", "--set", "checkpoint.every_updates=20", "--set",
        "checkpoint.keep=2", "--set", "stop.updates=130", "--set", "stream.retention_bytes=1048576",
    )  # fmt: skip
    return "eaten"


def test_of_an_eaten_log_it_is_told_what_can_be_had(world: World, eaten: str):
    error = world.refused("fork", eaten, "--at", "30", "--name", "never")
    assert "version 1.30 of eaten cannot be had: the log no longer holds round 0 of slot 0" in error
    assert "1.120 to 1.130 can be had" in error
    forked = world.fork(eaten, "125", "late", "--no-train")
    assert forked["weights_sha256"] == world.recorded(eaten, 125).weights_sha256
    other = world.refused("fork", eaten, "--at", "125", "--name", "never", "--algorithm", "impala")
    assert "of 125 updates are gone" in other
    assert not (world.home / "runs" / "never").exists()


def test_an_eaten_log_is_replayed_from_the_oldest_checkpoint_or_as_far_as_it_goes(world: World, eaten: str):
    same = world.replay(eaten, "eaten-again")
    assert (same["equal"], same["weights_sha256"]) == (True, world.recorded(eaten, 130).weights_sha256)
    (told,) = world.events("eaten-again", "replayed")
    assert told["began_at"] == "1.120"
    other = world.replay(eaten, "eaten-impala", "--algorithm", "impala")
    assert other["equal"] is None
    assert 0 < other["missing"] < 130
    assert other["updates"] == 130 - other["missing"]
    assert f"{other['missing']} are missing in the log" in other["reason"]


# -- replay ------------------------------------------------------------------------------------------


def test_a_replay_ends_where_it_is_told(world: World, quiet: dict[str, Any]):
    part = world.replay("quiet", "part", "--until", "1.33")
    assert (part["equal"], part["updates"]) == (True, 33)
    assert part["weights_sha256"] == world.recorded("quiet", 33).weights_sha256


def test_dqn_forks_and_replays_with_its_memory(world: World):
    ended = world.make("q", *DQN, "--set", "stop.updates=90", "--set", "checkpoint.every_updates=25")
    forked = world.fork("q", "80", "q-80", "--set", "stop.updates=95")
    assert (forked["state"], forked["updates"]) == ("done", 95)
    (told,) = world.events("q-80", "forked")
    assert told["weights_sha256"] == world.recorded("q", 80).weights_sha256
    assert world.replay("q", "q-again")["weights_sha256"] == ended["weights_sha256"]
    refused = world.refused("replay", "q", "--algorithm", "impala", "--name", "never")
    assert "learns from the probabilities of actions, and the log of q has none" in refused


def test_a_killed_replay_leaves_the_origin_alone_and_is_done_again(world: World, quiet: dict[str, Any]):
    before = fingerprint(world.home / "runs" / "quiet")
    arguments = ("replay", "quiet", "--name", "killed")
    with Training(world.home, arguments, "killed") as run:
        run.wait_until(lambda: run.workers("learner"), what="a learner")
        time.sleep(0.5)
        run.kill_all()
    assert fingerprint(world.home / "runs" / "quiet") == before
    with resume(world.home, "killed") as run:
        ended = run.result()
    assert (ended["state"], ended["weights_sha256"]) == ("done", quiet["weights_sha256"])


def test_ctrl_c_ends_a_replay_which_can_be_resumed(world: World, quiet: dict[str, Any]):
    # many passes over each batch, so that there is time to stop it
    arguments = ("replay", "quiet", "--name", "halted", "--set", "ppo.epochs=200")
    with Training(world.home, arguments, "halted") as run:
        run.wait_for_updates(5)
        run.process.send_signal(signal.SIGINT)
        halted = run.result()
    assert halted["state"] == "stopped"
    assert 5 <= halted["updates"] < 100
    with resume(world.home, "halted") as run:
        ended = run.result()
    assert (ended["state"], ended["updates"]) == ("done", 100)


def test_a_replayed_dqn_log_gives_another_policy_that_balances(world: World):
    world.make("teacher", "--algorithm", "dqn", "--set", "evaluation.every_seconds=0", "--no-tensorboard")
    learned = world.replay("teacher", "pupil", "--algorithm", "dqn", "--set", "seed=7")
    assert (learned["state"], learned["equal"]) == ("done", None)
    assert learned["weights_sha256"] != world.past("teacher").updates[-1].weights_sha256
    answer = penstock(world.home, "evaluate", "pupil", "--episodes", "20", "--json")
    assert json.loads(answer.stdout)["mean"] >= 200


def test_a_replay_needs_neither_the_environment_nor_its_file(world: World, tmp_path: Path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from gymnasium.envs.classic_control import CartPoleEnv\n\n\nclass Mine(CartPoleEnv):\n    pass\n"
    )
    flags = (*QUICK, "--stream", world.url, "--set", "stop.updates=10")
    with train(world.home, "mine", *flags, source=f"{file}:Mine") as run:
        ended = run.result()
    file.unlink()
    assert world.replay("mine", "mine-again")["weights_sha256"] == ended["weights_sha256"]


# -- Python ------------------------------------------------------------------------------------------


def test_python_forks_and_replays(world: World, quiet: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PENSTOCK_HOME", str(world.home))
    origin = penstock_api.load("quiet")
    forked = origin.fork(at=40, settings={"stop.updates": 50}, progress=False)
    assert forked.status().updates == 50
    assert origin.replay(progress=False).status().weights_sha256 == quiet["weights_sha256"]
    with pytest.raises(ConfigError, match="not yet to 900"):
        origin.fork(at="900")
