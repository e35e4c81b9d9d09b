"""Everything that may be asked, for every face. Changes nothing.

Reads from: the database (lists, states, the trail) and `runs/<id>/` (metrics, logs, events, actors).
"""

from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec
from pydantic import ValidationError

from penstock.control.catalog import Catalog, live_settings, resolve, spec_schema
from penstock.control.comparing import curves, differences
from penstock.control.folder_rows import read_new_lines
from penstock.control.log_lines import read_logs
from penstock.control.measuring import SHORT, read_curve, read_metrics
from penstock.control.series import SeriesStore
from penstock.control.views import (
    ActorView,
    AlgorithmDetail,
    AlgorithmView,
    CheckpointView,
    CommandView,
    Comparison,
    DesiredView,
    EnvironmentDetail,
    EnvironmentView,
    EvaluationView,
    Event,
    GroupView,
    Logs,
    Metrics,
    Page,
    ProjectView,
    RecordingView,
    RunDetail,
    RunView,
    StateView,
)
from penstock.errors import ConfigError, Damaged, NotFound, nearest
from penstock.lineage.database import Lineage
from penstock.lineage.reading import Reader
from penstock.lineage.rows import RunQuery, RunRow
from penstock.loop.files import read_json
from penstock.loop.recordings import Recorded, Wish, Wishes, picture_of, recorded
from penstock.loop.runs import RunFolder

MOST_COMPARED = 64
EVENTS_BYTES = 1 << 20
"""Events are read from the end of their file, this much of it."""
FEW = 200
"""Names among which the nearest is looked for."""


class Reads:
    """Blocking; used by many threads. An unknown run is NotFound with the nearest name."""

    def __init__(self, home: Path, lineage: Lineage) -> None:
        self._home, self._lineage = home, lineage
        self._series, self._catalog = SeriesStore(), Catalog()

    # -- runs ------------------------------------------------------------------------------------

    def runs(self, query: RunQuery) -> Page[RunView]:
        with self._lineage.read() as reader:
            found = reader.runs(query)
        return Page[RunView](items=[RunView.model_validate(row) for row in found.items], next=found.next)

    def status(self, run: str) -> RunDetail:
        with self._lineage.read() as reader:
            row = _row(reader, run)
            best = [one.version for one in reader.checkpoints(run) if one.best]
        desired = DesiredView.model_validate(row.desired)
        return RunDetail(
            **RunView.model_validate(row).model_dump(),
            spec=row.spec,
            desired=desired,
            settings=row.spec.get(row.algorithm, {}) | desired.settings,
            live_settings=live_settings(row.algorithm),
            best=best[0] if best else None,
        )

    def spec(self, run: str) -> dict[str, Any]:
        with self._lineage.read() as reader:
            return _row(reader, run).spec

    def states(self, run: str) -> list[StateView]:
        """Oldest first."""
        with self._lineage.read() as reader:
            _row(reader, run)
            return [StateView.model_validate(row) for row in reader.states(run)]

    def projects(self) -> list[ProjectView]:
        with self._lineage.read() as reader:
            return [ProjectView.model_validate(row) for row in reader.projects()]

    def groups(self) -> list[GroupView]:
        with self._lineage.read() as reader:
            return [GroupView.model_validate(row) for row in reader.groups()]

    # -- what a run has made ---------------------------------------------------------------------

    def metrics(self, run: str, names: list[str] | None, since: float | None, points: int | None) -> Metrics:
        file = self._folder(run).metrics_file
        return read_metrics(self._series, file, run, names, since, points)

    def actors(self, run: str) -> list[ActorView]:
        """As the keeper saw them a second ago; none where it has written nothing yet."""
        try:
            told = read_json(self._folder(run).actors_file, list[dict[str, Any]])
            return [ActorView.model_validate(actor) for actor in told]
        except (Damaged, ValidationError):
            return []

    def checkpoints(self, run: str) -> list[CheckpointView]:
        """Newest first."""
        with self._lineage.read() as reader:
            _row(reader, run)
            return [CheckpointView.model_validate(row) for row in reader.checkpoints(run)]

    def checkpoint_file(self, run: str, version: str) -> Path:
        """The folder of a whole checkpoint: `best`, `newest` or EPOCH.STEP; raise NotFound."""
        folder = self._folder(run)
        return folder.checkpoint_path(folder.choose(version))

    def logs(self, run: str, process: str | None, lines: int, after: str | None) -> Logs:
        return read_logs(self._folder(run), process, lines, after)

    def events(self, run: str, limit: int) -> list[Event]:
        """The newest `limit`, oldest first."""
        lines, _ = read_new_lines(self._folder(run).events_file, 0, EVENTS_BYTES)
        return [event for line in lines[-limit:] if (event := _event(line)) is not None] if limit > 0 else []

    def evaluations(self, run: str) -> list[EvaluationView]:
        """Newest first."""
        with self._lineage.read() as reader:
            _row(reader, run)
            return [EvaluationView.model_validate(row) for row in reader.evaluations(run)]

    def evaluation(self, run: str, id: str) -> EvaluationView:
        with self._lineage.read() as reader:
            _row(reader, run)
            found = reader.evaluation(id)
        if found is None or found.run != run:
            raise NotFound(f"run {run} has no evaluation {id!r}; list them: penstock evaluations {run}")
        return EvaluationView.model_validate(found)

    def recordings(self, run: str) -> list[RecordingView]:
        """Newest first, those that wait included."""
        folder = self._folder(run)
        made = recorded(folder)
        known = {one.id for one in made}
        waiting = [wish for wish in Wishes(self._home).all() if wish.run == run and wish.id not in known]
        return [_recording(one) for one in (*reversed(waiting), *made)]

    def recording_file(self, run: str, id: str) -> Path:
        """The picture; raise NotFound."""
        return picture_of(self._folder(run), id)

    # -- the trail -------------------------------------------------------------------------------

    def commands(
        self, run: str | None, who: str | None, verb: str | None, limit: int, cursor: str | None
    ) -> Page[CommandView]:
        """Newest first; also of runs that are gone."""
        with self._lineage.read() as reader:
            found = reader.commands(run, who, verb, limit, cursor)
        return Page[CommandView](
            items=[CommandView.model_validate(row) for row in found.items], next=found.next
        )

    def command(self, id: str) -> CommandView:
        with self._lineage.read() as reader:
            found = reader.command(id)
        if found is None:
            raise NotFound(f"there is no command {id!r} in the trail; list them: penstock commands")
        return CommandView.model_validate(found)

    # -- side by side ----------------------------------------------------------------------------

    def compare(self, runs: list[str], metric: str, points: int) -> Comparison:
        """Runs, or groups by their name; raise ConfigError where none of them has the metric."""
        if not 2 <= points <= 5000:
            raise ConfigError(f"points is {points}; ask for 2 to 5000")
        with self._lineage.read() as reader:
            rows = _rows(reader, runs)
        measured, known = {}, set()
        for row in rows:
            steps, values, names = read_curve(
                self._series, RunFolder(self._home, row.run).metrics_file, metric
            )
            measured[row.run] = (steps, values)
            known |= set(names)
        if known and SHORT.get(metric, metric) not in known:
            raise ConfigError(
                f"none of these runs has a metric {metric!r}{nearest(metric, [*known, *SHORT])}"
            )
        return Comparison(
            metric=metric,
            runs=[RunView.model_validate(row) for row in rows],
            differences=differences(rows),
            curves=curves(rows, measured, points),
        )

    # -- what there is to train ------------------------------------------------------------------

    def environments(self, search: str | None) -> list[EnvironmentView]:
        return self._catalog.environments(search)

    def environment(self, id: str) -> EnvironmentDetail:
        return self._catalog.environment(id)

    def algorithms(self) -> list[AlgorithmView]:
        return self._catalog.algorithms()

    def algorithm(self, name: str) -> AlgorithmDetail:
        return self._catalog.algorithm(name)

    def spec_schema(self) -> dict[str, Any]:
        return spec_schema()

    def resolve(self, spec: dict[str, Any]) -> dict[str, Any]:
        """The whole spec, every default written out, or ConfigError."""
        return resolve(spec)

    def _folder(self, run: str) -> RunFolder:
        """Of a run that the index knows; the folder itself may be about to be made."""
        with self._lineage.read() as reader:
            _row(reader, run)
        return RunFolder(self._home, run)


def _row(reader: Reader, run: str) -> RunRow:
    row = reader.run(run)
    if row is None:
        raise NotFound(f"there is no run {run!r}{_nearest(run, reader.names())}")
    return row


def _rows(reader: Reader, names: list[str]) -> list[RunRow]:
    """Runs by name, and those of groups; each once."""
    groups = {group.group: group.runs for group in reader.groups()}
    runs = dict.fromkeys(run for name in names for run in groups.get(name, (name,)))
    if not 1 <= len(runs) <= MOST_COMPARED:
        raise ConfigError(f"{len(runs)} runs cannot be compared; name 1 to {MOST_COMPARED}")
    return [_row(reader, run) for run in runs]


def _nearest(run: str, known: list[str]) -> str:
    """A hint; looking for the likest among thousands of names would take too long."""
    if not known:
        return "; there are none yet: penstock train CartPole-v1"
    alike = [name for name in known if name[:3] == run[:3]] or known
    close = get_close_matches(run[:64], alike[-FEW:], n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else "; list them: penstock runs"


def _recording(one: Wish) -> RecordingView:
    known = {"total_reward": None, "length": 0, "frames": 0, "bytes": 0, "reason": None}
    fields = known | msgspec.structs.asdict(one)
    fields.pop("made_at", None)
    state = "queued" if not isinstance(one, Recorded) else "done" if one.reason is None else "failed"
    return RecordingView.model_validate(fields | {"state": state})


def _event(line: dict[str, Any]) -> Event | None:
    fields = {name: value for name, value in line.items() if name not in ("time", "event", "process")}
    try:
        return Event(
            time=line["time"], event=str(line["event"]), process=line.get("process") or None, fields=fields
        )
    except (KeyError, ValidationError):
        return None
