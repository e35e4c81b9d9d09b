"""What may be changed, each change within one transaction of `Lineage.write`."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sqlalchemy import Column, Connection, Executable, bindparam, delete, exists, insert, select, update

from penstock.errors import NotFound
from penstock.lineage import tables
from penstock.lineage.asking import Facts, Specs
from penstock.lineage.convert import Values, clean, plain_values, run_values, spec_sha256
from penstock.lineage.faults import sending, translated
from penstock.lineage.rows import CheckpointRow, CommandRow, EvaluationRow, RunRow, StateRow, TokenRow
from penstock.model.run import RunState

# made once, and given their values when they are sent: building a statement takes longer than SQLite does
_CHANGE_RUN = update(tables.runs).where(tables.runs.c.run == bindparam("the_run"))
_COUNT_ON = update(tables.counters).where(tables.counters.c.name == "revision")


class Writer(Facts):
    """The only writer, as long as its transaction lasts: what it reads stays true until it ends."""

    def __init__(self, connection: Connection, database: str, specs: Specs) -> None:
        super().__init__(connection, database, specs)
        self._known: dict[str, RunRow | None] = {}
        self._there: set[tuple[str, str]] = set()
        """Projects, groups and specs that are stored."""
        self._revision: int | None = None

    def run(self, run: str) -> RunRow | None:
        if run not in self._known:
            self._known[run] = super().run(run)
        return self._known[run]

    def fetch(self, runs: Sequence[str]) -> None:
        """Read many at once, so that `run` and `put_run` need not ask for each."""
        found = {row.run: row for row in self._runs(select(tables.runs).where(tables.runs.c.run.in_(runs)))}
        self._known |= {run: found.get(run) for run in runs}

    def runs(self) -> list[RunRow]:
        """All, in the order of their names."""
        return self._runs(select(tables.runs).order_by(tables.runs.c.run))

    def put_run(self, row: RunRow, states: Sequence[StateRow] = ()) -> bool:
        """Store a run; tell whether anything changed. Its `revision` is set here and needs no value.

        `states` are all the changes that its folder tells of, oldest first, where it does. A state that
        nobody told of (an interrupted run has nobody left to) is recorded too, as of when it was seen.
        """
        stored = self.run(row.run)
        values = run_values(row)
        if stored is not None and run_values(stored) == values:
            return bool(states) and self._put_states(row, states, self.states(row.run))
        self._ensure(tables.projects.c.project, values["project"])
        self._ensure(tables.groups.c.group, values["group"])
        self._ensure(tables.specs.c.sha256, values["spec_sha256"], spec=row.spec)
        values["revision"] = self._next_revision()
        if stored is None:
            self._execute(insert(tables.runs), values)
        else:
            self._execute(_CHANGE_RUN, {**values, "the_run": row.run})
        if row.tags != (stored.tags if stored is not None else ()):
            self._put_tags(row.run, row.tags)
        if stored is not None:
            self._forget_unused(stored, row)
        self._known[row.run] = replace(row, revision=values["revision"])
        self._put_states(row, states, [] if stored is None else self.states(row.run))
        return True

    def remove_run(self, run: str) -> bool:
        """Forget a run with its states, checkpoints, evaluations and tags; its commands stay."""
        stored = self.run(run)
        if stored is None:
            return False
        self._execute(delete(tables.runs).where(tables.runs.c.run == run))
        self._known[run] = None
        self._next_revision()
        self._forget_unused(stored, None)
        return True

    def put_checkpoints(self, run: str, rows: Sequence[CheckpointRow]) -> None:
        """Replace what is known of a run's checkpoints."""
        self._need_run(run)
        self._execute(delete(tables.checkpoints).where(tables.checkpoints.c.run == run))
        if rows:
            self._execute(insert(tables.checkpoints), [plain_values(row) for row in rows])

    def put_evaluation(self, row: EvaluationRow) -> None:
        """Store an evaluation, or what became of it."""
        self._need_run(row.run)
        values = plain_values(row)
        if self.evaluation(row.id) is None:
            self._execute(insert(tables.evaluations), values)
        else:
            self._execute(update(tables.evaluations).where(tables.evaluations.c.id == row.id).values(values))

    def add_command(self, row: CommandRow) -> int:
        """Add to the trail and return its place there; raise Conflict where its id is there already."""
        values = plain_values(row, "sequence")
        with sending(self._database):
            place = self._connection.execute(insert(tables.commands), values).inserted_primary_key
        return int(place[0]) if place else 0

    def set_position(self, stream: str, position: dict[int, int]) -> None:
        """Remember how far a stream's commands are folded in."""
        table, values = tables.positions, {str(partition): offset for partition, offset in position.items()}
        if self.position(stream) is None:
            self._execute(insert(table).values(stream=stream, position=values))
        else:
            self._execute(update(table).where(table.c.stream == stream).values(position=values))

    def add_token(self, row: TokenRow) -> None:
        """Raises Conflict where its id or its secret is there already."""
        self._execute(insert(tables.tokens), plain_values(row))

    def revoke_token(self, id: str, at: float) -> None:
        """From `at` on it opens nothing; one that is revoked stays as it is. Raises NotFound."""
        token = self.token(id)
        if token is None:
            raise NotFound(f"there is no token {id!r}; list them: penstock token list")
        if token.revoked_at is None:
            self._execute(update(tables.tokens).where(tables.tokens.c.id == id).values(revoked_at=at))

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """What is raised inside takes back all that was done inside, and nothing else: the rest goes on."""
        try:
            with translated(self._database), self._connection.begin_nested():
                yield
        except BaseException:
            self._known.clear()
            self._there.clear()
            self._revision = None
            raise

    # -- parts -----------------------------------------------------------------------------------

    def _put_states(self, row: RunRow, told: Sequence[StateRow], stored: list[StateRow]) -> bool:
        wanted = _history(row, [replace(one, reason=clean(one.reason)) for one in told], stored)
        if wanted == stored:
            return False
        if wanted[: len(stored)] != stored:
            self._execute(delete(tables.states).where(tables.states.c.run == row.run))
            stored = []
        self._execute(insert(tables.states), [plain_values(change) for change in wanted[len(stored) :]])
        return True

    def _put_tags(self, run: str, tags: tuple[str, ...]) -> None:
        self._execute(delete(tables.tags).where(tables.tags.c.run == run))
        if tags:
            self._execute(
                insert(tables.tags), [{"run": run, "tag": tag} for tag in dict.fromkeys(map(clean, tags))]
            )

    def _next_revision(self) -> int:
        table = tables.counters
        self._revision = (self.revision() if self._revision is None else self._revision) + 1
        if self._revision == 1:
            self._execute(insert(table), {"name": "revision", "value": 1})
        else:
            self._execute(_COUNT_ON, {"value": self._revision})
        return self._revision

    def _need_run(self, run: str) -> None:
        if self._scalar(select(tables.runs.c.run).where(tables.runs.c.run == run)) is None:
            raise NotFound(f"there is no run {run!r} in the database {self._database}")

    def _ensure(self, key: "Column[Any]", value: str | None, **more: Any) -> None:
        """Store a project, group or spec unless it is there."""
        if value is None or (key.name, value) in self._there:
            return
        if self._scalar(select(key).where(key == value)) is None:
            self._execute(insert(key.table), {key.name: value, **more})
        self._there.add((key.name, value))

    def _forget_unused(self, before: RunRow, now: RunRow | None) -> None:
        """Let go of a project, group and spec that no run names any more."""
        was, is_now = _named(before), _named(now) if now is not None else {}
        for key, used in (
            (tables.projects.c.project, tables.runs.c.project),
            (tables.groups.c.group, tables.runs.c.group),
            (tables.specs.c.sha256, tables.runs.c.spec_sha256),
        ):
            value = was[key.name]
            if value is not None and value != is_now.get(key.name):
                self._there.discard((key.name, value))
                self._execute(delete(key.table).where(key == value, ~exists().where(used == value)))

    def _execute(self, statement: Executable, rows: Values | list[Values] | None = None) -> None:
        with sending(self._database):
            self._connection.execute(statement, rows)


def _history(row: RunRow, told: list[StateRow], stored: list[StateRow]) -> list[StateRow]:
    """All changes of state: what was told, what was only seen, and the state as it is now."""
    untold = (RunState.PENDING, RunState.INTERRUPTED)  # nobody was there to tell
    seen = [change for change in stored if change.state in untold and change not in told]
    wanted = sorted([*told, *seen], key=lambda change: change.at) if told else list(stored)
    if not wanted or wanted[-1].state != row.state:
        known = stored[-1] if stored and stored[-1].state == row.state else None
        wanted.append(known or StateRow(run=row.run, state=row.state, reason=row.reason, at=_changed_at(row)))
    return wanted


def _changed_at(row: RunRow) -> float:
    """When it came into its state, as well as its row tells."""
    if row.state == RunState.PENDING:
        return row.created_at if row.started_at is None else time.time()
    if row.state in (RunState.STOPPED, RunState.DONE, RunState.FAILED):
        return row.ended_at or time.time()
    return time.time()


def _named(row: RunRow) -> dict[str, str | None]:
    return {"project": clean(row.project), "group": clean(row.group), "sha256": spec_sha256(row.spec)}
