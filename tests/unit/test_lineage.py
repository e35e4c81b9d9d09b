"""What every database promises; here SQLite, in tests/integration a real PostgreSQL."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ConfigError, Conflict, NotFound
from penstock.lineage.database import Lineage
from penstock.lineage.rows import (
    SORTS,
    CheckpointRow,
    CommandRow,
    EvaluationRow,
    Page,
    RunQuery,
    RunRow,
    StateRow,
    TokenRow,
)

COUNT_UP = """
import dataclasses, sys
from penstock.lineage.database import Lineage
lineage = Lineage(sys.argv[1])
for _ in range(25):
    with lineage.write() as write:
        row = write.run("shared")
        write.put_run(dataclasses.replace(row, steps=row.steps + 1))
"""


def a_run(name: str, **values: Any) -> RunRow:
    known: dict[str, Any] = {
        "run": name, "state": "pending", "environment": "CartPole-v1", "algorithm": "ppo", "seed": 1,
        "created_at": 1000.0, "spec": {"environment": {"id": "CartPole-v1"}, "seed": 1},
        "desired": {"state": "running", "actors": 2}, "position": {"0": 5},
    }  # fmt: skip
    return RunRow(**(known | values))


def a_command(id: str, **values: Any) -> CommandRow:
    known: dict[str, Any] = {
        "id": id, "run": "cartpole-a1b2", "verb": "set", "arguments": {"learning_rate": 1e-3}, "who": "ada",
        "at": 1000.25, "outcome": "applied", "old": {"learning_rate": 3e-4}, "new": {"learning_rate": 1e-3},
        "applied_at": 1000.5, "request": "abc",
    }  # fmt: skip
    return CommandRow(**(known | values))


def an_evaluation(id: str, **values: Any) -> EvaluationRow:
    known: dict[str, Any] = {
        "id": id,
        "run": "a",
        "state": "queued",
        "checkpoint": "best",
        "episodes": 3,
        "at": 10.0,
    }
    return EvaluationRow(**(known | values))


def a_token(id: str, **values: Any) -> TokenRow:
    known: dict[str, Any] = {
        "id": id, "name": "ci", "role": "viewer", "sha256": id * 8, "created_at": 1.0, "created_by": "ada",
    }  # fmt: skip
    return TokenRow(**(known | values))


def put(lineage: Lineage, *rows: RunRow) -> None:
    with lineage.write() as write:
        for row in rows:
            write.put_run(row)


def page(lineage: Lineage, **words: Any) -> Page[RunRow]:
    with lineage.read() as read:
        return read.runs(RunQuery(**words))


def names(lineage: Lineage, **words: Any) -> list[str]:
    return [row.run for row in page(lineage, **words).items]


def walk(lineage: Lineage, **words: Any) -> list[str]:
    """All pages, one after the other."""
    found, cursor = [], None
    while True:
        part = page(lineage, cursor=cursor, **words)
        found += [row.run for row in part.items]
        if (cursor := part.next) is None:
            return found


class LineageContract:
    """Subclass, provide a `url` fixture of an empty database, and pass."""

    @pytest.fixture
    def lineage(self, url: str) -> Iterator[Lineage]:
        opened = Lineage(url)
        yield opened
        opened.close()

    # -- runs ------------------------------------------------------------------------------------

    def test_a_run_comes_back_as_it_went_in(self, lineage: Lineage) -> None:
        row = a_run(
            "cartpole-a1b2", tags=("b", "a", "ä"), group="g1", note="naïve\n🌊", seed=1 << 70, steps=1 << 40,
            mean_return=-0.1, started_at=1000.123456, managed=True, project="red", disk_bytes=1 << 45,
            version="1.20", weights_sha256="ab", checkpoint="1.20", reason="why", actors=3, restarts=1,
            stream="kafka://h:1/p", seconds=1.5, steps_per_second=2.5, episodes=7, updates=8, ended_at=2000.5,
        )  # fmt: skip
        put(lineage, row)
        with lineage.read() as read:
            stored = read.run(row.run)
        assert stored == replace(row, revision=1)

    def test_only_a_change_makes_a_revision_and_all_runs_share_the_count(self, lineage: Lineage) -> None:
        with lineage.write() as write:
            assert write.put_run(a_run("a"))
            assert write.put_run(a_run("b"))
            assert not write.put_run(a_run("a", revision=99))
            assert write.put_run(a_run("a", tags=("new",)))
            assert not write.put_run(a_run("a", tags=("new",)))
            assert write.put_run(a_run("b", spec={"seed": 2}))
            assert [(row.run, row.revision) for row in write.runs()] == [("a", 3), ("b", 4)]
            assert write.revision() == 4
        with lineage.read() as read:
            assert [row.run for row in read.changed_runs(3)] == ["b"]
            assert [row.run for row in read.changed_runs(0)] == ["a", "b"]

    def test_a_change_of_state_is_recorded_whatever_it_is(self, lineage: Lineage) -> None:
        put(lineage, a_run("a"))
        put(lineage, a_run("a", state="running", started_at=1001.0))
        put(lineage, a_run("a", state="running", started_at=1001.0, steps=5))
        put(lineage, a_run("a", state="done", started_at=1001.0, ended_at=1009.0, reason="steps"))
        put(
            lineage, a_run("a", state="paused", reason="from nowhere")
        )  # no row of NEXT, yet the folder says so
        with lineage.read() as read:
            found = read.states("a")
        assert [(change.state, change.reason) for change in found] == [
            ("pending", None), ("running", None), ("done", "steps"), ("paused", "from nowhere"),
        ]  # fmt: skip
        assert (found[0].at, found[2].at) == (1000.0, 1009.0)
        assert abs(found[1].at - time.time()) < 60

    def test_what_a_folder_tells_of_its_states_is_the_history(self, lineage: Lineage) -> None:
        told = [
            StateRow(run="a", state=state, reason=None, at=at)
            for at, state in (
                (1000.0, "pending"),
                (1001.0, "running"),
                (1002.0, "paused"),
                (1003.0, "running"),
            )
        ]
        with lineage.write() as write:
            write.put_run(a_run("a"), told[:1])
            write.put_run(a_run("a", state="running"), told[:1])  # seen before it was told
            write.put_run(a_run("a", state="running"), told)
            assert (
                write.states("a") == told
            )  # what came between is not lost, what was seen is not there twice
            write.put_run(a_run("a", state="interrupted"), told)
            interrupted = write.states("a")[-1]
            assert interrupted.state == "interrupted"
            more = [*told, StateRow(run="a", state="pending", reason=None, at=time.time() + 1)]
            write.put_run(a_run("a", state="pending"), more)
            assert write.states("a") == [*told, interrupted, more[-1]]
            assert not write.put_run(a_run("a", state="pending"), more)

    def test_a_removed_run_takes_everything_but_its_commands_along(self, lineage: Lineage) -> None:
        put(lineage, a_run("a", tags=("t",), project="red", group="g"), a_run("b", project="red"))
        with lineage.write() as write:
            write.put_checkpoints("a", [CheckpointRow(run="a", version="1.1", at=1.0, bytes=2)])
            write.put_evaluation(an_evaluation("e1"))
            write.add_command(a_command("c1", run="a"))
            before = write.revision()
            assert write.remove_run("a")
            assert not write.remove_run("a")
            assert write.revision() > before
        with lineage.read() as read:
            assert read.run("a") is None
            assert (read.states("a"), read.checkpoints("a"), read.evaluations("a")) == ([], [], [])
            assert read.evaluation("e1") is None
            assert [row.id for row in read.commands(run="a").items] == ["c1"]
            assert (read.groups(), [row.runs for row in read.projects()]) == ([], [1])
        put(lineage, a_run("a"))
        assert names(lineage, tag="t") == []

    def test_projects_groups_and_states_are_counted(self, lineage: Lineage) -> None:
        put(
            lineage,
            a_run("a", project="red", state="running", disk_bytes=5, group="g", seed=11),
            a_run("b", project="red", state="done", disk_bytes=6, group="g", seed=9),
            a_run("c"),
        )
        with lineage.read() as read:
            projects = [(row.project, row.runs, row.live, row.disk_bytes) for row in read.projects()]
            assert projects == [("default", 1, 1, 0), ("red", 2, 1, 11)]
            assert [(row.group, row.runs, row.seeds) for row in read.groups()] == [("g", ("b", "a"), (9, 11))]
            assert read.count_by_state() == {"running": 1, "done": 1, "pending": 1}
            assert read.names() == ["a", "b", "c"]
        put(lineage, a_run("a"), a_run("b"))
        with lineage.read() as read:
            assert [row.project for row in read.projects()] == ["default"]

    # -- lists -----------------------------------------------------------------------------------

    def test_runs_are_found_by_every_word(self, lineage: Lineage) -> None:
        put(
            lineage,
            a_run("pole-1", tags=("good",), project="red", created_at=1.0),
            a_run("lander-1", environment="LunarLander-v3", algorithm="dqn", state="running", created_at=2.0),
            a_run("lander-2", environment="LunarLander-v3", note="100%_Größe\\", group="g", created_at=3.0),
        )
        assert names(lineage) == ["lander-2", "lander-1", "pole-1"]
        assert names(lineage, project="red") == ["pole-1"]
        assert names(lineage, tag="good") == ["pole-1"]
        assert names(lineage, group="g") == ["lander-2"]
        assert names(lineage, states=("running", "done")) == ["lander-1"]
        assert names(lineage, environment="LunarLander-v3", algorithm="ppo") == ["lander-2"]
        for word, found in (
            ("LUNAR", 2),
            ("gOOd", 1),
            ("größe", 1),
            ("0%_g", 1),
            ("%", 1),
            ("_", 1),
            ("\\", 1),
            ("x'; --", 0),
        ):
            assert len(names(lineage, search=word)) == found, word

    @pytest.mark.parametrize("words", [{"search": "a\0b"}, {"tag": "\ud800"}, {"project": "x" * 5000}])
    def test_words_no_database_can_hold_are_refused(self, lineage: Lineage, words: dict[str, str]) -> None:
        with pytest.raises(ConfigError):
            page(lineage, **words)

    @pytest.mark.parametrize("sort", [sign + name for name in SORTS for sign in ("", "-")])
    def test_pages_in_any_order_hold_every_run_once(self, lineage: Lineage, sort: str) -> None:
        rows = [
            a_run(f"r{number}", created_at=number % 3, steps=number % 4, steps_per_second=0.1 * (number % 5),
                  mean_return=None if number % 3 == 0 else (number % 4) / 3, environment=f"E{number % 2}")
            for number in range(13)
        ]  # fmt: skip
        put(lineage, *rows)
        name = sort.removeprefix("-")
        some = [row for row in rows if getattr(row, name) is not None]
        none = [row for row in rows if getattr(row, name) is None]
        ordered = sorted(some, key=lambda row: row.run)
        ordered.sort(key=lambda row: getattr(row, name), reverse=sort.startswith("-"))
        wanted = [row.run for row in (*ordered, *sorted(none, key=lambda row: row.run))]
        for limit in (1, 4, 13, 500):
            assert walk(lineage, sort=sort, limit=limit) == wanted

    def test_pages_stay_right_while_runs_come_go_and_change(self, lineage: Lineage) -> None:
        put(lineage, *(a_run(f"r{number:02}", created_at=float(number)) for number in range(10)))
        first = page(lineage, sort="created_at", limit=4)
        put(
            lineage,
            a_run("early", created_at=-1.0),  # before the cursor: not part of what follows
            a_run("late", created_at=99.0),
            a_run("r05", created_at=5.0, steps=7, state="running"),
        )
        with lineage.write() as write:
            write.remove_run("r03")  # the very row the cursor names
            write.remove_run("r06")
        rest = page(lineage, sort="created_at", limit=50, cursor=first.next)
        assert [row.run for row in first.items] == ["r00", "r01", "r02", "r03"]
        assert [row.run for row in rest.items] == ["r04", "r05", "r07", "r08", "r09", "late"]
        assert rest.next is None

    @pytest.mark.parametrize("cursor", ["", "x", "ä", "WyJhIl0", "bnVsbA", "!!!!", "W10=" * 2000])
    def test_a_cursor_of_nobody_is_refused(self, lineage: Lineage, cursor: str) -> None:
        with pytest.raises(ConfigError, match="cursor"):
            page(lineage, cursor=cursor)
        with lineage.read() as read, pytest.raises(ConfigError, match="cursor"):
            read.commands(cursor=cursor)

    def test_a_cursor_of_another_order_and_limits_out_of_range_are_refused(self, lineage: Lineage) -> None:
        put(lineage, a_run("a"), a_run("b"))
        cursor = page(lineage, limit=1).next
        for words in ({"cursor": cursor, "sort": "run"}, {"limit": 0}, {"limit": 501}, {"sort": "colour"}):
            with pytest.raises(ConfigError):
                page(lineage, **words)

    # -- commands, positions, checkpoints, evaluations, tokens -----------------------------------

    def test_the_trail_is_kept_in_order_and_each_command_once(self, lineage: Lineage) -> None:
        with lineage.write() as write:
            for number in range(5):
                write.add_command(a_command(f"c{number}", who="ada" if number % 2 else "bob"))
            write.add_command(
                a_command(
                    "r",
                    who="eve",
                    run="other",
                    verb="stop",
                    outcome="refused",
                    reason="done",
                    old=None,
                    new=None,
                )
            )
        with pytest.raises(Conflict), lineage.write() as write:  # noqa: PT012
            write.set_position("embedded", {0: 77})
            write.add_command(a_command("c3"))
        with lineage.read() as read:
            assert read.position("embedded") is None  # the whole transaction is gone
            first = read.commands(limit=2)
            then = read.commands(limit=50, cursor=first.next)
            assert [row.id for row in (*first.items, *then.items)] == ["r", "c4", "c3", "c2", "c1", "c0"]
            assert [row.id for row in read.commands(who="ada").items] == ["c3", "c1"]
            assert [row.id for row in read.commands(run="other", verb="stop").items] == ["r"]
            stored = read.command("c1")
            assert stored is not None
            assert stored == a_command("c1", who="ada", sequence=stored.sequence)
            assert read.command("nobody") is None

    def test_positions_are_kept_by_stream(self, lineage: Lineage) -> None:
        with lineage.write() as write:
            assert write.position("embedded") is None
            write.set_position("embedded", {})
            assert write.position("embedded") == {}
            write.set_position("embedded", {0: 1 << 40, 3: 2})
            write.set_position("kafka://h:1", {0: 1})
        with lineage.read() as read:
            assert read.position("embedded") == {0: 1 << 40, 3: 2}

    def test_checkpoints_are_replaced_and_come_newest_first(self, lineage: Lineage) -> None:
        put(lineage, a_run("a"))
        rows = [
            CheckpointRow(run="a", version=f"{epoch}.9", at=1.0, bytes=2, steps=3, best=epoch == 2)
            for epoch in (2, 10)
        ]
        with lineage.write() as write:
            write.put_checkpoints("a", [CheckpointRow(run="a", version="1.1", at=1.0, bytes=2)])
            write.put_checkpoints("a", rows)
        with lineage.read() as read:
            assert read.checkpoints("a") == rows[::-1]
        with pytest.raises(NotFound), lineage.write() as write:
            write.put_checkpoints("nobody", [])

    def test_an_evaluation_is_stored_once_and_finished_in_place(self, lineage: Lineage) -> None:
        put(lineage, a_run("a"))
        done = an_evaluation(
            "e1",
            state="done",
            mean=2.5,
            std=0.5,
            returns=(2.0, 3.0),
            lengths=(5, 6),
            seconds=1.0,
            seed=1 << 62,
        )
        with lineage.write() as write:
            write.put_evaluation(an_evaluation("e1"))
            write.put_evaluation(an_evaluation("e2", at=11.0, state="running"))
            assert [row.id for row in write.evaluations_in("queued", "running")] == ["e1", "e2"]
            write.put_evaluation(done)
        with lineage.read() as read:
            assert read.evaluation("e1") == done
            assert [row.id for row in read.evaluations("a")] == ["e2", "e1"]
            assert [row.id for row in read.evaluations_in("running")] == ["e2"]
        with pytest.raises(NotFound), lineage.write() as write:
            write.put_evaluation(an_evaluation("e3", run="nobody"))

    def test_numbers_that_are_none_become_nothing(self, lineage: Lineage) -> None:
        put(lineage, a_run("a", mean_return=float("nan")), a_run("b", mean_return=float("inf")))
        assert [row.mean_return for row in page(lineage).items] == [None, None]

    def test_tokens_are_revoked_once(self, lineage: Lineage) -> None:
        with lineage.write() as write:
            write.add_token(a_token("t1"))
            write.add_token(a_token("t2", created_at=2.0, expires_at=3.0))
            write.revoke_token("t1", 5.0)
            write.revoke_token("t1", 6.0)
        with lineage.read() as read:
            assert [row.id for row in read.tokens()] == ["t1", "t2"]
            assert read.token("t1") == a_token("t1", revoked_at=5.0)
            assert read.token_by_sha256("t2" * 8) == a_token("t2", created_at=2.0, expires_at=3.0)
            assert read.token_by_sha256("?") is None
        with pytest.raises(NotFound, match="nobody"), lineage.write() as write:
            write.revoke_token("nobody", 1.0)
        with pytest.raises(Conflict), lineage.write() as write:
            write.add_token(a_token("t1"))

    # -- transactions ----------------------------------------------------------------------------

    def test_a_transaction_that_fails_leaves_nothing(self, lineage: Lineage) -> None:
        with pytest.raises(RuntimeError, match="mine"), lineage.write() as write:  # noqa: PT012
            write.put_run(a_run("a"))
            raise RuntimeError("mine")
        assert names(lineage) == []

    def test_an_attempt_that_fails_takes_back_only_itself(self, lineage: Lineage) -> None:
        with lineage.write() as write:
            write.put_run(a_run("a"))
            with pytest.raises(ConfigError), write.attempt():  # noqa: PT012
                write.put_run(a_run("b", project="new"))
                write.put_run(a_run("bad", steps=1 << 80))
            with write.attempt():
                write.put_run(a_run("c"))
        with lineage.read() as read:
            assert read.names() == ["a", "c"]
            assert [row.project for row in read.projects()] == ["default"]

    def test_a_reader_sees_one_moment(self, lineage: Lineage) -> None:
        put(lineage, a_run("a"))
        with lineage.read() as read:
            assert read.names() == ["a"]
            put(lineage, a_run("b"))
            assert read.names() == ["a"]
        assert len(names(lineage)) == 2

    def test_values_no_database_can_hold_are_refused_and_nothing_is_stored(self, lineage: Lineage) -> None:
        odd = (
            {"steps": 1 << 80},
            {"note": "\ud800"},
            {"desired": {"a": "\udfff"}},
            {"version": {}},
        )
        for values in odd:
            with pytest.raises(ConfigError), lineage.write() as write:  # noqa: PT012
                write.put_run(a_run("ok"))
                write.put_run(a_run("bad", **values))
        assert names(lineage) == []

    def test_text_with_nul_is_stored_on_every_database(self, lineage: Lineage) -> None:
        row = a_run(
            "a",
            note="x\0y",
            reason="\0",
            project="p\0",
            tags=("t\0",),
            spec={"word": "\0"},
            desired={"w": "\0"},
        )
        with lineage.write() as write:
            assert write.put_run(row)
            assert not write.put_run(row)
            write.add_command(a_command("c\0", who="\0", arguments={"a": "\0"}))
            assert write.command("c\0") is not None
            write.remove_run("\0")
        with lineage.read() as read:
            found = read.run("a")
            assert found is not None
            assert (found.note, found.project, found.spec, found.desired) == (
                "x\ufffdy",
                "p\ufffd",
                {"word": "\0"},
                {"w": "\0"},
            )
            assert (read.run("\0"), read.token("\0"), read.evaluation("\0"), read.token_by_sha256("\0")) == (
                None,
            ) * 4

    def test_threads_that_read_change_and_write_lose_nothing(self, lineage: Lineage) -> None:
        put(lineage, a_run("shared"))

        def count_up() -> None:
            for _ in range(25):
                with lineage.write() as write:
                    row = write.run("shared")
                    assert row is not None
                    write.put_run(replace(row, steps=row.steps + 1))

        threads = [threading.Thread(target=count_up) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (row,) = page(lineage).items
        assert (row.steps, row.revision) == (100, 101)

    def test_processes_that_read_change_and_write_lose_nothing(self, url: str, lineage: Lineage) -> None:
        put(lineage, a_run("shared"))
        processes = [subprocess.Popen([sys.executable, "-c", COUNT_UP, url]) for _ in range(4)]
        assert [process.wait(120) for process in processes] == [0, 0, 0, 0]
        (row,) = page(lineage).items
        assert (row.steps, row.revision) == (100, 101)

    def test_runs_put_at_once_get_revisions_of_their_own(self, lineage: Lineage) -> None:
        def put_some(thread: int) -> None:
            for number in range(10):
                put(lineage, a_run(f"r{thread}-{number}", project=f"p{number}", group="g", tags=("t",)))

        threads = [threading.Thread(target=put_some, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with lineage.read() as read:
            assert [row.revision for row in read.changed_runs(0)] == list(range(1, 41))
            assert sum(row.runs for row in read.projects()) == 40

    def test_opening_at_once_and_again_changes_nothing(self, url: str) -> None:
        code = "import sys; from penstock.lineage.database import Lineage; Lineage(sys.argv[1]).close()"
        processes = [subprocess.Popen([sys.executable, "-c", code, url]) for _ in range(4)]
        assert [process.wait(60) for process in processes] == [0, 0, 0, 0]
        first = Lineage(url)
        put(first, a_run("a"))
        first.close()
        again = Lineage(url)
        assert names(again) == ["a"]
        again.close()

    def test_the_tables_are_what_the_migrations_make(self, lineage: Lineage) -> None:
        from alembic.autogenerate import compare_metadata
        from alembic.migration import MigrationContext
        from alembic.script import ScriptDirectory

        from penstock.lineage.migrate import HEAD, VERSION_TABLE, config
        from penstock.lineage.tables import metadata

        with lineage._writes.begin() as connection:
            context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
            assert compare_metadata(context, metadata) == []
            assert ScriptDirectory.from_config(config(connection)).get_heads() == [HEAD]

    def test_a_database_of_a_newer_penstock_is_left_alone(self, url: str, lineage: Lineage) -> None:
        from sqlalchemy import text

        with lineage._writes.begin() as connection:
            connection.execute(text("UPDATE penstock_revision SET version_num = '9999'"))
        with pytest.raises(ConfigError, match="newer penstock") as caught:
            Lineage(url)
        assert "upgrade" in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_a_database_of_somebody_else_is_left_alone(self, url: str, lineage: Lineage) -> None:
        from sqlalchemy import text

        with lineage._writes.begin() as connection:
            connection.execute(text("DROP TABLE penstock_revision"))
        with pytest.raises(ConfigError, match="of its own"):
            Lineage(url)


class TestSqlite(LineageContract):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path / 'penstock.db'}"
