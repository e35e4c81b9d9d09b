"""The spec of a fork or a replay: what it keeps of its origin, what may change, what is refused."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import config
from penstock.control.travel import plan_fork, plan_replay
from penstock.errors import ConfigError, NotFound
from penstock.loop.origin import Origin
from penstock.loop.runs import RunFolder
from penstock.model import topics
from penstock.model.history import Claim, Update, encode_entry
from penstock.model.spec import OriginSpec, Spec
from penstock.model.version import Version
from penstock.stream.embedded import EmbeddedStream

Make = Callable[..., Origin]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """A run of twenty updates; from the eleventh on it was tuned and had five actors."""
    stream = EmbeddedStream(tmp_path / "stream")

    def made(spec: Spec | None = None) -> Origin:
        spec = spec or config.resolve("CartPole-v1", {"actors.count": 3, "prometheus": 9100})
        folder = RunFolder.create(tmp_path, spec, "old")
        history = stream.writer(topics.history("old"))
        history.write("old", encode_entry(Claim(1, 0, 0.0)))
        for step in range(1, 21):
            changed = {"learning_rate": 1e-5, "actors.count": 5} if step > 10 else {}
            update = Update(Version(1, step), (), (), {}, changed, f"hash-{step}", step, {}, 0.0)
            history.write("old", encode_entry(update))
        return Origin(folder, stream)

    yield made
    stream.close()


def test_a_fork_is_its_origin_with_an_origin(make: Make):
    origin = make()
    spec = plan_fork(origin, "7", {})
    assert spec.origin == OriginSpec(run="old", version="1.7")
    assert msgspec.structs.replace(spec, origin=None, prometheus=9100) == origin.spec


def test_what_was_changed_while_the_origin_ran_is_in_the_forks_spec(make: Make):
    spec = plan_fork(make(), "1.15", {})
    assert (spec.settings["learning_rate"], spec.actors.count) == (1e-5, 5)


def test_changes_win_over_what_was_changed_before(make: Make):
    changes = {"ppo.learning_rate": "0.5", "actors.count": 1, "stop.steps": 99, "seed": 4}
    spec = plan_fork(make(), "15", changes)
    assert (spec.settings["learning_rate"], spec.actors.count, spec.stop.steps, spec.seed) == (0.5, 1, 99, 4)


def test_another_algorithm_brings_its_own_settings_and_takes_the_rest_over(make: Make):
    spec = plan_fork(make(), "15", {"algorithm": "dqn", "network.hidden": [8]})
    assert spec.settings == config.resolve("CartPole-v1", {"algorithm": "dqn"}).settings
    assert (spec.actors.count, spec.actors.rollout) == (5, config.resolve("CartPole-v1").actors.rollout)
    assert spec.network.hidden == (8,)


def test_a_replay_has_no_actors_no_evaluation_and_no_limit_but_the_log(make: Make):
    plan = plan_replay(make(), "newest", {})
    spec = plan.spec
    assert spec.origin == OriginSpec(run="old", version="1.20", replay=True)
    assert (spec.actors.count, spec.evaluation.every_seconds, spec.prometheus) == (0, 0, None)
    assert (spec.stop.updates, spec.stop.steps, spec.stop.target) == (20, None, None)
    assert plan.weights_sha256 == "hash-20"


@pytest.mark.parametrize("change", [{"seed": 2}, {"algorithm": "dqn"}, {"ppo.epochs": 3}])
def test_with_other_settings_there_is_nothing_to_compare(make: Make, change: dict[str, Any]):
    assert plan_replay(make(), "12", change).weights_sha256 is None


def test_the_file_of_an_environment_need_not_be_there(make: Make, tmp_path: Path):
    file = tmp_path / "mine.py"
    file.write_text("class Mine: ...")
    origin = make(config.resolve(f"{file}:Mine", {"environment.kwargs.size": 3}))
    file.unlink()
    assert plan_replay(origin, "3", {}).spec.environment == origin.spec.environment


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"environment.id": "Acrobot-v1"}, "keeps the environment of its origin, so environment.id cannot change"),
        ({"environment": "Acrobot-v1"}, "keeps the environment"),
        ({"network.hidden": [8]}, "keeps the network"),
        ({"origin.run": "x"}, "keeps the origin"),
        ({"pp.epochs": 1}, "did you mean 'ppo'"),
        ({"algorithm": "pop"}, "pop"),
    ],
)  # fmt: skip
def test_changes_that_make_no_sense_are_refused(make: Make, changes: dict[str, Any], words: str):
    with pytest.raises((ConfigError, NotFound), match=words):
        plan_fork(make(), "7", changes)


def test_a_replay_is_no_origin(make: Make):
    source = OriginSpec(run="older", version="1.9", replay=True)
    spec = msgspec.structs.replace(config.resolve("CartPole-v1"), origin=source)
    origin = make(spec)
    with pytest.raises(ConfigError, match="go back to its origin: penstock fork older --at 5"):
        plan_fork(origin, "5", {})
    with pytest.raises(ConfigError, match="penstock replay older"):
        plan_replay(origin, "newest", {})


def test_where_a_version_cannot_be_found_the_error_says_which_can(make: Make):
    with pytest.raises(NotFound, match=r"not yet to 21; versions 1\.0 to 1\.20 can be had"):
        plan_fork(make(), "21", {})
