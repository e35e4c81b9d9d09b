"""The controller alone: what is in the log is applied once, whatever happens in between; on both streams."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock import config
from penstock.control.applying import desired_of
from penstock.control.commander import Commander
from penstock.control.controller import Controller
from penstock.control.permissions import Principal, Role
from penstock.control.reconcile import should_start
from penstock.control.tokens import Tokens
from penstock.control.views import EvaluateRequest, LabelRequest, ResumeRequest, StartRequest, TokenRequest
from penstock.errors import ConfigError, Conflict, Denied, NotFound, Stale, Unavailable
from penstock.executors.local import LocalExecutor
from penstock.lineage.database import Lineage
from penstock.lineage.rows import RunRow
from penstock.loop.commands import give
from penstock.loop.runs import RunFolder
from penstock.model.commands import Command, Desired, command
from penstock.model.run import RunState, RunStatus
from penstock.model.spec import StreamSpec
from penstock.wiring import open_stream

WHO = Principal("tester", Role.ADMIN, "test-token")


@pytest.fixture
def place(tmp_path: Path, url: str) -> tuple[Path, str]:
    """A home of its own, and a stream of its own."""
    return tmp_path, url if url == "embedded" else f"{url}-{tmp_path.name}"


@contextmanager
def controlled(place: tuple[Path, str], most_runs: int = 1) -> Iterator[tuple[Controller, Commander]]:
    """A controller that starts no keeper: all its room is taken."""
    home, url = place
    lineage = Lineage(f"sqlite:///{home / 'penstock.db'}")
    controller = Controller(
        home, lineage, lambda url: open_stream(home, StreamSpec(url=url)), url, LocalExecutor(), most_runs
    )
    controller._reconciler.most_runs = 0
    commander = Commander(
        home, controller, Tokens(home, lineage), lambda spec: open_stream(home, spec.stream)
    )
    controller.start()
    try:
        yield controller, commander
    finally:
        controller.close(stop_runs=False)
        lineage.close()


def row_of(controller: Controller, run: str) -> RunRow:
    with controller.lineage.read() as reads:
        found = reads.run(run)
    assert found is not None
    return found


def is_known(controller: Controller, run: str) -> bool:
    with controller.lineage.read() as reads:
        return reads.run(run) is not None


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "a condition did not come true"
        time.sleep(0.02)


def given(place: tuple[Path, str], *commands: Command) -> None:
    """Written to the log by somebody who then died."""
    stream = open_stream(place[0], StreamSpec(url=place[1]))
    for one in commands:
        give(stream, one)
    stream.close()


def start_words(name: str) -> dict[str, Any]:
    return {
        "spec": config.to_mapping(config.resolve("CartPole-v1")),
        "labels": {"note": name},
        "managed": True,
    }


def test_what_was_accepted_before_a_crash_is_applied_once_after_it(place: tuple[Path, str]):
    with controlled(place) as (controller, commander):
        commander.start(WHO, StartRequest(environment="CartPole-v1", name="one"))
    scale = command("one", "scale", {"actors": 5}, who="gone")
    given(
        place,
        command("two", "start", start_words("two")),
        scale,
        scale,
        command("one", "scale", {"actors": 3}),
        scale,
    )
    for _ in ("after the crash", "and once more"):
        with controlled(place) as (controller, _):
            assert desired_of(row_of(controller, "one")).actors == 3
            assert row_of(controller, "two").note == "two"
            with controller.lineage.read() as reads:
                trail = reads.commands("one", None, "scale", 10, None).items
            assert [row.arguments["actors"] for row in trail] == [3, 5]
            assert [row.who for row in trail if row.arguments["actors"] == 5] == ["gone"]


def test_a_transaction_that_fails_is_done_again_as_a_whole(
    place: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
):
    with controlled(place) as (controller, commander):
        commander.start(WHO, StartRequest(environment="CartPole-v1", name="one"))
        failures = iter((True, True, False))
        put = type(controller.lineage).write

        @contextmanager
        def failing(lineage: Lineage) -> Iterator[Any]:
            with put(lineage) as writer:
                yield writer
                if threading.current_thread().name == "controller" and next(failures, False):
                    raise Unavailable("the disk is gone for a moment")

        monkeypatch.setattr(Lineage, "write", failing)
        with pytest.raises(Unavailable):
            commander.scale_actors(WHO, "one", 4, key="k")
        monkeypatch.undo()
        answer = commander.scale_actors(WHO, "one", 4, key="k")
        assert answer.command.outcome == "applied"
        assert desired_of(row_of(controller, "one")).actors == 4
        with controller.lineage.read() as reads:
            assert len(reads.commands("one", None, "scale", 10, None).items) == 1


def test_a_key_gets_its_answer_again_and_no_other_wish(place: tuple[Path, str]):
    with controlled(place) as (controller, commander):
        wish = StartRequest(environment="CartPole-v1", seeds=2)
        first = commander.start(WHO, wish, key="same")
        assert commander.start(WHO, wish, key="same") == first
        assert len({run.run for run in first.runs}) == 2
        run = first.runs[0].run
        scaled = commander.scale_actors(WHO, run, 4, key="scale")
        commander.scale_actors(WHO, run, 1)
        assert commander.scale_actors(WHO, run, 4, key="scale").command == scaled.command
        assert desired_of(row_of(controller, run)).actors == 1
        with pytest.raises(Conflict, match="another request"):
            commander.scale_actors(WHO, run, 5, key="scale")
        with pytest.raises(Conflict, match="another request"):
            commander.scale_learner(WHO, run, 4, key="scale")
        other = Principal("other", Role.ADMIN, "other-token")
        assert commander.scale_actors(other, run, 5, key="scale").command.who == "other"
    with controlled(place) as (_, commander):  # also after the server was started again
        assert commander.start(WHO, wish, key="same").commands == first.commands


def test_many_ask_at_once_under_the_same_keys(place: tuple[Path, str]):
    with controlled(place) as (controller, commander):
        commander.start(WHO, StartRequest(environment="CartPole-v1", name="one"))
        with ThreadPoolExecutor(8) as pool:
            answers = list(
                pool.map(
                    lambda number: commander.scale_actors(WHO, "one", number % 4, key=f"k{number % 4}"),
                    range(40),
                )
            )
        assert len({answer.command.id for answer in answers}) == 4
        with controller.lineage.read() as reads:
            assert len(reads.commands("one", None, "scale", 50, None).items) == 4


def test_odd_commands_of_strangers_are_refused_and_stop_nobody(place: tuple[Path, str]):
    with controlled(place) as (controller, commander):
        commander.start(WHO, StartRequest(environment="CartPole-v1", name="one"))
        given(
            place,
            command("odd", "start", {"spec": {}, "managed": True}),
            command("one", "evaluate", {"checkpoint": 7}),
            command("one", "label", {"tags": {"a": 1}}),
            command("nobody", "scale", {"actors": 1}),
            command(".control", "create_token", {"id": "x"}),
            command("one", "scale", {"actors": "many"}),
        )
        commander.scale_actors(WHO, "one", 6)
        with controller.lineage.read() as reads:
            trail = reads.commands(None, None, None, 20, None).items
        outcomes = {(row.run, row.verb): row.outcome for row in trail[1:-1]}
        assert outcomes[("odd", "start")] == "refused"
        assert outcomes[("one", "evaluate")] == "refused"
        assert outcomes[("one", "label")] == "refused"
        assert outcomes[("nobody", "scale")] == "refused"
        assert outcomes[(".control", "create_token")] == "refused"
        assert desired_of(row_of(controller, "one")).actors == 6
        assert controller.trouble is None


def test_wrong_wishes_are_refused_and_leave_nothing(place: tuple[Path, str]):
    with controlled(place) as (controller, commander):
        commander.start(WHO, StartRequest(environment="CartPole-v1", name="one"))
        with controller.lineage.read() as reads:
            before = reads.commands(None, None, None, 20, None).items
        for wrong, error, words in (
            (
                lambda: commander.start(WHO, StartRequest(environment="CartPole-v1", name="one")),
                Conflict,
                "already",
            ),
            (
                lambda: commander.start(WHO, StartRequest(environment="CartPol-v1")),
                ConfigError,
                "CartPole-v1",
            ),
            (
                lambda: commander.start(WHO, StartRequest(environment="CartPole-v1", algorithm="pp")),
                NotFound,
                "ppo",
            ),
            (lambda: commander.scale_actors(WHO, "one", 17), ConfigError, "0 to 16"),
            (lambda: commander.scale_learner(WHO, "one", 2), ConfigError, "0 or 1"),
            (
                lambda: commander.set_hyperparameters(WHO, "one", {"learning_rat": 1}),
                ConfigError,
                "learning_rate",
            ),
            (
                lambda: commander.set_hyperparameters(WHO, "one", {"epochs": 3}),
                ConfigError,
                "cannot change while",
            ),
            (
                lambda: commander.set_hyperparameters(WHO, "one", {"learning_rate": -1}),
                ConfigError,
                "learning_rate",
            ),
            (lambda: commander.rollback(WHO, "one"), NotFound, "that still holds"),
            (lambda: commander.resume(WHO, "one", ResumeRequest()), Conflict, "paused or has ended"),
            (lambda: commander.delete(WHO, "one"), Conflict, "stop it first"),
            (lambda: commander.evaluate(WHO, "one", EvaluateRequest()), NotFound, "one"),
            (lambda: commander.label(WHO, "one", LabelRequest()), ConfigError, "say what"),
            (lambda: commander.stop(WHO, "on"), NotFound, "one"),
            (lambda: commander.revoke_token(WHO, "none"), NotFound, "none"),
        ):
            with pytest.raises(error, match=words):
                wrong()
        with controller.lineage.read() as reads:
            assert reads.commands(None, None, None, 20, None).items == before


def test_tokens_are_kept_as_hashes_and_end_when_told(place: tuple[Path, str]):
    with controlled(place) as (controller, commander):
        made = commander.create_token(WHO, TokenRequest(name="bob", role=Role.VIEWER, days=1e-9))
        tokens = Tokens(place[0], controller.lineage)
        with pytest.raises(Denied, match="expired"):
            tokens.authenticate(made.token)
        lasting = commander.create_token(WHO, TokenRequest(name="eve", role=Role.OPERATOR))
        tokens.changed()
        assert tokens.authenticate(lasting.token).role is Role.OPERATOR
        commander.revoke_token(WHO, lasting.id)
        tokens.changed()
        with pytest.raises(Denied, match="revoked"):
            tokens.authenticate(lasting.token)
        with pytest.raises(Denied, match="unknown"):
            tokens.authenticate("pst_" + "x" * 43)
    for file in place[0].rglob("*"):
        if file.is_file():
            assert lasting.token.encode() not in file.read_bytes(), file


def test_a_stop_before_anything_began_is_a_stop(place: tuple[Path, str]):
    with controlled(place) as (_, commander):
        commander.start(WHO, StartRequest(environment="CartPole-v1", name="one"))
        commander.stop(WHO, "one")
        folder = RunFolder(place[0], "one")
        wait_until(lambda: not folder.path.exists() or folder.status().state is RunState.STOPPED)


@pytest.mark.parametrize(
    ("state", "managed", "honoured", "wanted", "starts"),
    [
        (RunState.PENDING, True, None, "running", True),
        (RunState.PENDING, False, None, "running", False),
        (RunState.INTERRUPTED, True, "a", "running", True),
        (RunState.INTERRUPTED, False, "a", "running", False),
        (RunState.INTERRUPTED, True, "a", "paused", False),
        (RunState.DONE, True, "a", "running", False),
        (RunState.FAILED, True, "a", "running", False),
        (RunState.DONE, True, "before", "running", True),
        (RunState.STOPPED, True, "before", "running", True),
        (RunState.STOPPED, False, "before", "running", True),
        (RunState.PAUSED, True, "a", "paused", False),
        (RunState.PAUSED, True, "before", "running", True),
    ],
)
def test_which_runs_are_started(
    state: RunState, managed: bool, honoured: str | None, wanted: Any, starts: bool
):
    status = RunStatus(
        run="r", state=state, environment="e", algorithm="ppo", seed=1, created_at=0.0, managed=managed,
        command=honoured,
    )  # fmt: skip
    assert should_start(Desired(2, wanted, command="a"), status) is starts


def test_two_who_want_one_name_get_one_run(place: tuple[Path, str]):
    wish = StartRequest(environment="CartPole-v1", name="one")
    with controlled(place) as (controller, commander), ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(commander.start, WHO, wish) for _ in range(4)]
        refused = [future for future in futures if future.exception() is not None]
        assert len(refused) == 3
        assert all(isinstance(future.exception(), Conflict) for future in refused)
        with controller.lineage.read() as reads:
            assert len(reads.commands("one", None, "start", 10, None).items) == 1


def test_a_second_start_in_the_log_changes_nothing_for_anybody(place: tuple[Path, str]):
    with controlled(place) as (controller, commander):
        commander.start(WHO, StartRequest(environment="CartPole-v1", name="one"))
        honoured = desired_of(row_of(controller, "one")).command
        second = command("one", "start", start_words("one"))
        given(place, second)
        commander.scale_actors(WHO, "one", 3)
        assert desired_of(row_of(controller, "one")).command == honoured
        assert Desired(2, command=honoured).after(second).command == honoured  # as its keeper adds it up


def test_what_cannot_be_written_refuses_one_command_and_loses_no_other(place: tuple[Path, str]):
    with controlled(place) as (controller, commander):
        for name in ("one", "two"):
            commander.start(WHO, StartRequest(environment="CartPole-v1", name=name))
        wait_until((place[0] / "runs" / "one" / "labels.json").exists)
        (place[0] / "runs" / "one" / "labels.json").unlink()
        (place[0] / "runs" / "one" / "labels.json").mkdir()
        given(place, command("one", "label", {"note": "x"}), command("two", "scale", {"actors": 7}))
        with pytest.raises(Conflict, match="cannot be written down"):
            commander.label(WHO, "one", LabelRequest(note="y"))
        assert desired_of(row_of(controller, "two")).actors == 7


def test_a_run_that_has_changed_since_is_left_alone(place: tuple[Path, str]):
    with controlled(place) as (controller, commander):
        commander.start(WHO, StartRequest(environment="CartPole-v1", name="one"))
        wait_until((place[0] / "runs" / "one" / "state.json").exists)
        time.sleep(0.5)  # until the index has seen it
        seen = frozenset({row_of(controller, "one").revision})
        wish = LabelRequest(note="mine")
        first = commander.label(WHO, "one", wish, "k", seen)
        assert commander.label(WHO, "one", wish, "k", seen).command == first.command  # its answer, again
        with pytest.raises(Stale, match="has changed since"):
            commander.label(WHO, "one", LabelRequest(note="other"), None, seen)
        assert row_of(controller, "one").note == "mine"


def test_changes_are_taken_back_one_by_one_and_not_those_of_an_older_run(place: tuple[Path, str]):
    with controlled(place) as (controller, commander):
        commander.start(WHO, StartRequest(environment="CartPole-v1", name="one"))
        before = desired_of(row_of(controller, "one")).settings
        spec_rate = row_of(controller, "one").spec["ppo"]["learning_rate"]
        for rate in (1e-4, 2e-4):
            commander.set_hyperparameters(WHO, "one", {"learning_rate": rate})
        assert commander.rollback(WHO, "one").command.new == {"learning_rate": 1e-4}
        assert commander.rollback(WHO, "one").command.new == {"learning_rate": spec_rate}
        with pytest.raises(NotFound, match="still holds"):
            commander.rollback(WHO, "one")
        assert before == {}
        commander.set_hyperparameters(WHO, "one", {"learning_rate": 3e-4})
        commander.stop(WHO, "one")
        folder = RunFolder(place[0], "one")
        wait_until(lambda: not folder.path.exists() or folder.status().state is RunState.STOPPED)
        if folder.path.exists():
            commander.delete(WHO, "one")
        wait_until(lambda: not is_known(controller, "one"))
        commander.start(WHO, StartRequest(environment="CartPole-v1", name="one"))
        with pytest.raises(NotFound, match="still holds"):
            commander.rollback(WHO, "one")


def test_a_locked_database_accepts_nothing(place: tuple[Path, str]):
    with controlled(place) as (controller, commander):
        commander.start(WHO, StartRequest(environment="CartPole-v1", name="one"))
        blocker = sqlite3.connect(place[0] / "penstock.db", isolation_level=None)
        blocker.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Unavailable, match="lock"):
            commander.scale_actors(WHO, "one", 9)
        blocker.execute("ROLLBACK")
        blocker.close()
        commander.scale_actors(WHO, "one", 2)
        with controller.lineage.read() as reads:
            trail = reads.commands("one", None, "scale", 10, None).items
        assert [row.arguments["actors"] for row in trail] == [2]
