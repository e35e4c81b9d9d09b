"""What readers and writers both ask: one row by its name, and the rows of runs put together."""

from typing import Any

from sqlalchemy import Connection, Executable, Select, bindparam, select

from penstock.lineage import tables
from penstock.lineage.convert import checkpoint_row, clean, command_row, evaluation_row, run_row, token_row
from penstock.lineage.faults import sending
from penstock.lineage.rows import CheckpointRow, CommandRow, EvaluationRow, RunRow, StateRow, TokenRow

Specs = dict[str, dict[str, Any]]
MOST_SPECS = 10_000
FEW = 500
"""As many names as one statement takes."""

_RUN = select(tables.runs).where(tables.runs.c.run == bindparam("the_run"))


class Facts:
    """One transaction. `specs` remembers specs by hash between transactions: they never change."""

    def __init__(self, connection: Connection, database: str, specs: Specs) -> None:
        self._connection, self._database, self._specs = connection, database, specs

    def run(self, run: str) -> RunRow | None:
        found = self._runs(_RUN, {"the_run": clean(run)})
        return found[0] if found else None

    def changed_runs(self, since: int) -> list[RunRow]:
        """Runs whose revision is greater, in the order in which they changed."""
        revision = tables.runs.c.revision
        return self._runs(select(tables.runs).where(revision > since).order_by(revision))

    def revision(self) -> int:
        """That of the newest change of any run."""
        counter = tables.counters
        return self._scalar(select(counter.c.value).where(counter.c.name == "revision")) or 0

    def command(self, id: str) -> CommandRow | None:
        found = self._mappings(select(tables.commands).where(tables.commands.c.id == clean(id)))
        return command_row(found[0]) if found else None

    def checkpoints(self, run: str) -> list[CheckpointRow]:
        """Newest first."""
        table = tables.checkpoints
        found = self._mappings(select(table).where(table.c.run == run))
        return sorted(map(checkpoint_row, found), key=lambda row: _number(row.version), reverse=True)

    def evaluations(self, run: str) -> list[EvaluationRow]:
        """Newest first."""
        table = tables.evaluations
        chosen = select(table).where(table.c.run == run).order_by(table.c.at.desc(), table.c.id)
        return [evaluation_row(values) for values in self._mappings(chosen)]

    def evaluation(self, id: str) -> EvaluationRow | None:
        found = self._mappings(select(tables.evaluations).where(tables.evaluations.c.id == clean(id)))
        return evaluation_row(found[0]) if found else None

    def evaluations_in(self, *states: str) -> list[EvaluationRow]:
        """Those in one of the states, oldest first."""
        table = tables.evaluations
        chosen = select(table).where(table.c.state.in_(states)).order_by(table.c.at, table.c.id)
        return [evaluation_row(values) for values in self._mappings(chosen)]

    def states(self, run: str) -> list[StateRow]:
        """All changes of a run's state, oldest first."""
        table = tables.states
        chosen = select(table.c.run, table.c.state, table.c.reason, table.c.at)
        found = self._mappings(chosen.where(table.c.run == run).order_by(table.c.sequence))
        return [StateRow(**values) for values in found]

    def position(self, stream: str) -> dict[int, int] | None:
        """Partition → offset of the first command not yet folded in; None for a stream never read."""
        table = tables.positions
        stored = self._scalar(select(table.c.position).where(table.c.stream == stream))
        return None if stored is None else {int(partition): offset for partition, offset in stored.items()}

    def tokens(self) -> list[TokenRow]:
        """All, also expired and revoked ones, oldest first."""
        table = tables.tokens
        return [
            token_row(values)
            for values in self._mappings(select(table).order_by(table.c.created_at, table.c.id))
        ]

    def token(self, id: str) -> TokenRow | None:
        return self._token(select(tables.tokens).where(tables.tokens.c.id == clean(id)))

    def token_by_sha256(self, sha256: str) -> TokenRow | None:
        return self._token(select(tables.tokens).where(tables.tokens.c.sha256 == clean(sha256)))

    def _token(self, chosen: Select[Any]) -> TokenRow | None:
        found = self._mappings(chosen)
        return token_row(found[0]) if found else None

    def _runs(self, chosen: Select[Any], values: dict[str, Any] | None = None) -> list[RunRow]:
        found = self._mappings(chosen, values)
        specs = self._specs_of({values["spec_sha256"] for values in found})
        return [run_row(values, specs[values["spec_sha256"]]) for values in found]

    def _specs_of(self, hashes: set[str]) -> Specs:
        known = {sha256: spec for sha256 in hashes if (spec := self._specs.get(sha256)) is not None}
        missing = sorted(hashes - known.keys())
        for part in (missing[start : start + FEW] for start in range(0, len(missing), FEW)):
            chosen = select(tables.specs).where(tables.specs.c.sha256.in_(part))
            known |= {values["sha256"]: values["spec"] for values in self._mappings(chosen)}
        if missing:
            if len(self._specs) > MOST_SPECS:
                self._specs.clear()
            self._specs.update(known)
        return known

    def _mappings(self, statement: Executable, values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        with sending(self._database):
            return [row._asdict() for row in self._connection.execute(statement, values)]

    def _scalar(self, statement: Executable) -> Any:
        with sending(self._database):
            return self._connection.execute(statement).scalar()


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
