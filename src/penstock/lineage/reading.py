"""What may be asked, each answer from one snapshot of `Lineage.read`."""

from typing import Any

from sqlalchemy import Select, case, exists, func, select

from penstock.errors import ConfigError, nearest
from penstock.lineage import cursors, tables
from penstock.lineage.asking import Facts
from penstock.lineage.convert import command_row
from penstock.lineage.rows import (
    SORTS,
    CommandRow,
    GroupRow,
    Page,
    ProjectRow,
    RunQuery,
    RunRow,
)
from penstock.model.run import LIVE

NUMBERS = {"created_at", "steps", "mean_return", "steps_per_second"}
LONGEST = 1000


class Reader(Facts):
    """A snapshot: nothing changes while it is looked at."""

    def runs(self, query: RunQuery) -> Page[RunRow]:
        """One page; raise ConfigError for a sort, limit or cursor that cannot be."""
        name, descending = query.sort.removeprefix("-"), query.sort.startswith("-")
        if name not in SORTS:
            raise ConfigError(f"runs cannot be sorted by {name!r}{nearest(name, SORTS)}")
        limit = cursors.checked_limit(query.limit)
        column, key = tables.runs.c[name], tables.runs.c.run
        chosen = _filtered(query).limit(limit + 1)
        if query.cursor is not None:
            kind = float if name in NUMBERS else str
            value, last = cursors.decode(query.cursor, query.sort, kind, str)
            chosen = chosen.where(cursors.after(column, key, value, last, descending))
        order = [column.is_(None)] if column.nullable else []
        rows = self._runs(chosen.order_by(*order, column.desc() if descending else column, key))
        return _page(rows, limit, lambda row: cursors.encode(query.sort, getattr(row, name), row.run))

    def commands(
        self,
        run: str | None = None,
        who: str | None = None,
        verb: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page[CommandRow]:
        """The trail, newest first."""
        table, limit = tables.commands, cursors.checked_limit(limit)
        chosen = select(table).order_by(table.c.sequence.desc()).limit(limit + 1)
        for column, word in ((table.c.run, run), (table.c.who, who), (table.c.verb, verb)):
            if word is not None:
                chosen = chosen.where(column == _word(word))
        if cursor is not None:
            chosen = chosen.where(table.c.sequence < cursors.decode(cursor, "commands", str, int)[1])
        rows = [command_row(values) for values in self._mappings(chosen)]
        return _page(rows, limit, lambda row: cursors.encode("commands", None, row.sequence))

    def projects(self) -> list[ProjectRow]:
        table = tables.runs
        live = func.sum(case((table.c.state.in_(sorted(LIVE)), 1), else_=0))
        disk = func.sum(table.c.disk_bytes)
        chosen = select(
            table.c.project, func.count().label("runs"), live.label("live"), disk.label("disk_bytes")
        )
        found = self._mappings(chosen.group_by(table.c.project).order_by(table.c.project))
        return [
            ProjectRow(
                project=values["project"],
                runs=values["runs"],
                live=int(values["live"]),
                disk_bytes=int(values["disk_bytes"]),  # PostgreSQL sums into a decimal
            )
            for values in found
        ]

    def groups(self) -> list[GroupRow]:
        """In the order of their names."""
        table = tables.runs
        chosen = select(table.c.group, table.c.run, table.c.seed).where(table.c.group.is_not(None))
        members: dict[str, list[tuple[int, str]]] = {}
        for values in self._mappings(chosen.order_by(table.c.group)):
            members.setdefault(values["group"], []).append((int(values["seed"]), values["run"]))
        return [
            GroupRow(
                group=group,
                runs=tuple(run for _, run in sorted(known)),
                seeds=tuple(seed for seed, _ in sorted(known)),
            )
            for group, known in members.items()
        ]

    def count_by_state(self) -> dict[str, int]:
        """Only states that some run is in."""
        table = tables.runs
        found = self._mappings(select(table.c.state, func.count().label("runs")).group_by(table.c.state))
        return {values["state"]: values["runs"] for values in found}

    def names(self) -> list[str]:
        """Ids of all runs, to find the nearest."""
        return [
            values["run"] for values in self._mappings(select(tables.runs.c.run).order_by(tables.runs.c.run))
        ]


def _filtered(query: RunQuery) -> Select[Any]:
    table, chosen = tables.runs, select(tables.runs)
    for name in ("project", "group", "environment", "algorithm"):
        if (word := getattr(query, name)) is not None:
            chosen = chosen.where(table.c[name] == _word(word))
    if query.states:
        chosen = chosen.where(table.c.state.in_([_word(state) for state in query.states]))
    if query.tag is not None:
        tagged = exists().where(tables.tags.c.run == table.c.run, tables.tags.c.tag == _word(query.tag))
        chosen = chosen.where(tagged)
    if query.search:
        chosen = chosen.where(table.c.words.contains(_word(query.search).lower(), autoescape=True))
    return chosen


def _word(word: str) -> str:
    """What no row can hold cannot be asked for either: PostgreSQL takes no NUL, no database half a letter."""
    try:
        word.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{word!r} is no text") from error
    if "\0" in word or len(word) > LONGEST:
        raise ConfigError(f"a word to look for has at most {LONGEST} letters, and no NUL among them")
    return word


def _page(rows: list[Any], limit: int, cursor: Any) -> Page[Any]:
    kept = rows[:limit]
    return Page(kept, cursor(kept[-1]) if len(rows) > limit else None)
