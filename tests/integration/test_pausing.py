"""Pausing, parking the learner, limits of workers, and commands that were written twice."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from penstock.loop.commands import CommandReader, give
from penstock.model import topics
from penstock.model.commands import Command, Desired, command
from penstock.model.spec import StreamSpec
from penstock.stream.embedded import EmbeddedStream
from penstock.stream.shared import SHARED
from penstock.wiring import open_stream
from tests.integration.harness import QUICK, Training, penstock, resume, train

ENDLESS = (*QUICK, "--set", "stop.steps=null", "--set", "checkpoint.every_seconds=2")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, url: str) -> Path:
    return tmp_path_factory.mktemp("place")


def events_named(run: Training, name: str) -> list[dict[str, object]]:
    return [event for event in run.events() if event["event"] == name]


def stands_still(run: Training, seconds: float = 1.0) -> bool:
    before = run.updates()
    time.sleep(seconds)
    return run.updates() == before


def test_a_paused_run_rests_survives_a_killed_learner_and_goes_on(place: Path, url: str):
    with train(place, "rests", *ENDLESS, "--stream", url) as run:
        run.wait_for_updates(10)
        penstock(place, "pause", "rests")
        run.wait_until(lambda: run.status().get("state") == "paused", 10, "a paused state")
        time.sleep(0.3)  # the last report before the pause may still be on its way
        assert stands_still(run)
        seconds = run.status()["seconds"]
        # what is asked meanwhile holds when it goes on; a learner that dies rests again
        penstock(place, "set", "rests", "learning_rate=5e-4")
        run.workers("learner")[0].kill()
        run.wait_until(lambda: len(events_named(run, "paused")) == 2, 30, "the new learner's rest")
        assert run.status()["state"] == "paused"
        refused = penstock(place, "pause", "rests", check=False)
        assert refused.returncode == 1
        assert "is paused" in refused.stderr
        penstock(place, "resume", "rests")
        run.wait_until(lambda: run.status().get("state") == "running", 10, "a running state")
        run.wait_for_updates(run.updates() + 10)
        assert events_named(run, "settings_changed")[-1]["learning_rate"] == 5e-4
        assert run.status()["seconds"] < seconds + 8  # a pause is no time of training
        penstock(place, "pause", "rests")
        run.wait_until(lambda: run.status().get("state") == "paused", 10, "a second pause")
        penstock(place, "stop", "rests")
        stopped = run.result()
        assert stopped["state"] == "stopped"
    more = stopped["updates"] + 10
    with resume(place, "rests", "--set", f"stop.updates={more}") as again:
        assert again.result()["updates"] == more
    assert not events_named(again, "resume_not_exact")


def test_a_parked_learner_saves_its_work_and_comes_back(place: Path, url: str):
    with train(place, "parked", *ENDLESS, "--stream", url) as run:
        run.wait_for_updates(10)
        penstock(place, "scale", "parked", "--learner", "0")
        run.wait_until(lambda: not run.workers("learner"), 20, "no learner")
        assert stands_still(run)
        assert len(run.workers("actor")) == 2
        assert run.status()["state"] == "running"
        penstock(place, "scale", "parked", "--learner", "1", "--actors", "1")
        run.wait_until(lambda: bool(run.workers("learner")), 20, "a learner")
        run.wait_for_updates(run.updates() + 10)
        penstock(place, "scale", "parked", "--learner", "0")
        run.wait_until(lambda: not run.workers("learner"), 20, "no learner again")
        run.process.send_signal(signal.SIGINT)
        assert run.result()["state"] == "stopped"
    assert not events_named(run, "resume_not_exact")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("scale", "nobody", "--actors", "17"), "0 to 16 actors, not 17"),
        (("scale", "nobody", "--learner", "2"), "0 or 1 learner, not 2"),
        (("scale", "nobody"), "say what to scale"),
        (("pause", "nobody"), "there is no run 'nobody'"),
        (("delete", "nobody"), "say --yes"),
        (("undo", "nobody"), "start one: penstock up"),
        (("label", "nobody"), "say what to change"),
    ],
)
def test_bad_wishes_get_a_sentence(tmp_path: Path, arguments: tuple[str, ...], words: str):
    refused = penstock(tmp_path, *arguments, check=False)
    assert refused.returncode == 1
    assert words in refused.stderr
    assert "bug" not in refused.stderr


def test_a_run_is_deleted_with_its_data(place: Path, url: str):
    with train(place, "doomed", *QUICK, "--stream", url, "--set", "stop.updates=5") as run:
        assert run.result()["updates"] == 5
    penstock(place, "delete", "doomed", "--yes")
    assert not run.folder.exists()
    stream = open_stream(place, StreamSpec(url=url))
    assert not [topic.name for topic in stream.topics() if topic.name.endswith(".doomed")]
    stream.close()
    with train(place, "doomed", *QUICK, "--stream", url, "--set", "stop.updates=3") as run:
        assert run.result()["updates"] == 3  # the name is free, and the old delete does not count


def test_a_command_written_twice_counts_once(tmp_path: Path):
    stream = EmbeddedStream(tmp_path, budget_bytes=1 << 24)
    stream.ensure(topics.COMMANDS, SHARED[topics.COMMANDS])
    start = stream.end(topics.COMMANDS)
    two, four = command("run", "scale", {"actors": 2}), command("run", "scale", {"actors": 4})
    for given in (two, command("other", "stop"), four, two):
        give(stream, given)
    reader = CommandReader(stream, "run", start, actors=1)
    assert reader.read() == [two, four]
    assert reader.desired == Desired(actors=4)
    reader.seek(start)  # a learner goes back to its checkpoint: the commands come again, and add up once
    assert reader.read() == [two, four]
    give(stream, two)
    assert reader.read() == []
    assert reader.desired == Desired(actors=4)
    stream.close()


def test_what_is_wanted_adds_up():
    wanted = Desired(actors=2)
    for verb, arguments in (
        ("scale", {"actors": 17}), ("scale", {"actors": True}), ("scale", {"learner": 0}),
        ("set", {"gamma": 0.9}), ("pause", {}), ("resume", {"stop": {"steps": 5}}), ("checkpoint", {}),
    ):  # fmt: skip
        wanted = wanted.after(Command(f"id-{verb}", "run", verb, arguments, "me", 0.0))
    assert wanted == Desired(
        actors=2, learner=0, settings={"gamma": 0.9}, state="running", stop={"steps": 5}, command="id-resume"
    )


def test_actors_and_learner_stay_within_their_limits(tmp_path: Path):
    limits = (
        "--set",
        "actors.cpus=[0]",
        "--set",
        "learner.cpus=[1]",
        "--set",
        "actors.memory_bytes=2000000000",
    )
    with train(tmp_path, "limited", *ENDLESS, *limits) as run:
        run.wait_for_updates(5)
        actor, learner = run.workers("actor")[0], run.workers("learner")[0]
        assert actor.cpu_affinity() == [0]
        assert learner.cpu_affinity() == [1]
        assert f"Max data size             {2_000_000_000}" in Path(f"/proc/{actor.pid}/limits").read_text()
        run.process.send_signal(signal.SIGINT)
        run.result()


def test_an_actor_that_takes_too_much_memory_is_restarted_and_the_run_says_why(tmp_path: Path):
    (tmp_path / "greedy.py").write_text(
        "import gymnasium\n\n\nclass Greedy(gymnasium.Wrapper):\n"
        "    hoard = []\n\n    def step(self, action):\n"
        "        self.hoard.append(bytearray(8 << 20))\n        return super().step(action)\n"
    )
    wrapper = f"{tmp_path / 'greedy.py'}:Greedy"
    flags = ("--set", f"environment.wrappers=['{wrapper}']", "--set", "actors.memory_bytes=500000000",
             "--set", "actors.restarts=1")  # fmt: skip
    run = train(tmp_path, "greedy", *ENDLESS, *flags)
    said, _ = run.process.communicate(timeout=120)
    assert run.process.returncode == 1
    assert "MemoryError" in json.loads(said)["reason"]


def test_a_cpu_that_is_not_there_is_a_clear_error(tmp_path: Path):
    run = train(tmp_path, "nowhere", *ENDLESS, "--set", f"learner.cpus=[{os.cpu_count() or 1}]")
    _, said = run.process.communicate(timeout=60)
    assert run.process.returncode == 1
    assert "cpus" in said
    assert "cannot be used here" in said


def test_seeds_make_a_group(tmp_path: Path):
    done = penstock(
        tmp_path, "train", "CartPole-v1", "--name", "trio", "--seeds", "3", *QUICK, "--set", "stop.updates=3",
        "--project", "trials", "--tag", "first", "--json",
    )  # fmt: skip
    ended = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["run"] for line in ended] == ["trio-1", "trio-2", "trio-3"]
    assert len({line["weights_sha256"] for line in ended}) == 3
    labels = json.loads((tmp_path / "runs" / "trio-2" / "labels.json").read_text())
    assert labels == {"project": "trials", "tags": ["first"], "group": "trio-seeds", "note": ""}
