"""Tools that look at runs and change nothing."""

from typing import Annotated

from pydantic import Field

from penstock.control.views import CommandView, State
from penstock.lineage.rows import SORTS, RunQuery
from penstock.server.mcp.arguments import Cursor, Filter, Points, Run
from penstock.server.mcp.desk import READS, Desk, Offer
from penstock.server.mcp.results import (
    ActorList,
    CheckpointList,
    CommandList,
    ComparisonBrief,
    EvaluationBrief,
    EvaluationList,
    EventList,
    LogTail,
    MetricsSummary,
    Ranked,
    RecordingList,
    RunBrief,
    RunList,
    RunNow,
    Spec,
    StateList,
    of,
    summarise,
    thinned,
)

FINE_POINTS = 2_000
"""Points a summary is made of."""
USUAL = ("charts/", "losses/")
MOST_NAMES = 12
LONGEST_LINE = 1_000

Sort = Annotated[
    str,
    Field(
        pattern=rf"^-?({'|'.join(SORTS)})$",
        description=f"{', '.join(SORTS)}; with - before it for descending.",
    ),
]


def list_runs(
    desk: Desk,
    project: Filter = None,
    tag: Filter = None,
    group: Filter = None,
    states: Annotated[
        list[State],
        Field(max_length=8, description="Any of these; live ones are pending, running, stopping."),
    ] = [],  # noqa: B006 - pydantic copies it
    environment: Filter = None,
    algorithm: Filter = None,
    search: Annotated[
        str | None, Field(max_length=512, description="Part of an id, environment, algorithm, tag or note.")
    ] = None,
    sort: Sort = "-created_at",
    limit: Annotated[int, Field(ge=1, le=100)] = 20,
    cursor: Cursor = None,
) -> RunList:
    """List runs, newest first, filtered and in pages: id, state, environment, progress, mean return.

    Call it first to learn run ids. Use sort=-mean_return for the best, states=["running"] for those at work.
    """
    query = RunQuery(
        project=project, tag=tag, group=group, states=tuple(states), environment=environment,
        algorithm=algorithm, search=search, sort=sort, limit=limit, cursor=cursor,
    )  # fmt: skip
    page = desk.reads.runs(query)
    return RunList(runs=[of(RunBrief, run) for run in page.items], next=page.next)


def get_status(desk: Desk, run: Run) -> RunNow:
    """How one run stands now: state and why, progress, mean return, what is wanted of it, its hyperparameters.

    States: pending, running, paused, stopping, stopped, done (a stop condition held), failed (see reason),
    interrupted (its processes are gone). After a command, call it again until the state is the one you wanted.
    """
    return of(RunNow, desk.reads.status(run))


def get_spec(desk: Desk, run: Run) -> Spec:
    """The whole spec a run was started with, every default written out. Its paths are what fork_run changes."""
    return Spec(spec=desk.reads.spec(run))


def get_metrics(
    desk: Desk,
    run: Run,
    names: Annotated[
        list[str] | None,
        Field(max_length=50, description="As in charts/episodic_return; default: the charts and losses."),
    ] = None,
    since: Annotated[float | None, Field(description="Only reports after this many steps.")] = None,
    points: Points = 20,
) -> MetricsSummary:
    """What a run reported while it learned: for each metric first, last, lowest, highest and trend, and a few points.

    charts/episodic_return is the mean return of training episodes, charts/SPS steps per second. `names` in the
    answer lists everything that can be asked for.
    """
    chosen = names
    if chosen is None:
        known = desk.reads.metrics(run, ["charts/episodic_return"], since, 2).names
        chosen = [name for name in known if name.startswith(USUAL)][:MOST_NAMES]
    found = desk.reads.metrics(run, chosen, since, FINE_POINTS)
    steps = found.columns.get("steps", [])
    shown = {name: column for name, column in found.columns.items() if name in {"steps", *chosen}}
    return MetricsSummary(
        run=run,
        summary=[summarise(name, steps, shown[name]) for name in chosen if name in shown],
        names=found.names,
        columns={name: thinned(column, points) for name, column in shown.items()},
        total=found.total,
    )


def compare_runs(
    desk: Desk,
    runs: Annotated[list[Run], Field(min_length=1, max_length=32, description="Two or more ids.")],
    metric: Annotated[str, Field(max_length=200)] = "mean_return",
    points: Points = 10,
) -> ComparisonBrief:
    """Runs side by side: who is ahead, in what their specs differ, and their curves of one metric.

    Runs of one group (seeds of the same spec) become one curve with an interval; judge by several seeds, not one.
    """
    found = desk.reads.compare(runs, metric, points)
    ranking = [
        Ranked(
            label=curve.label,
            runs=curve.runs,
            last=next((value for value in reversed(curve.mean) if value is not None), None),
            highest=max((value for value in curve.mean if value is not None), default=None),
        )
        for curve in found.curves
    ]
    ranking.sort(key=lambda place: float("-inf") if place.last is None else place.last, reverse=True)
    return ComparisonBrief(
        metric=found.metric, ranking=ranking, differences=found.differences,
        runs=[of(RunBrief, run) for run in found.runs], curves=found.curves,
    )  # fmt: skip


def get_logs(
    desk: Desk,
    run: Run,
    process: Annotated[
        str | None, Field(max_length=100, description="learner, actor-0, evaluator …; default: all.")
    ] = None,
    lines: Annotated[int, Field(ge=1, le=500)] = 50,
    after: Annotated[str | None, Field(max_length=4000, description="`next` of the answer before.")] = None,
) -> LogTail:
    """The last lines that a run's processes wrote. Look here, and at list_events, when a run failed or restarts."""
    found = desk.reads.logs(run, process, lines, after)
    text = [f"{line.process}: {line.text[:LONGEST_LINE]}" for line in found.lines]
    return LogTail(run=run, processes=found.processes, lines=text, next=found.next)


def list_events(desk: Desk, run: Run, limit: Annotated[int, Field(ge=1, le=200)] = 30) -> EventList:
    """The last things that happened to a run, oldest first: restarts, faults, changed settings, dropped actors."""
    return EventList(events=desk.reads.events(run, limit))


def list_states(desk: Desk, run: Run) -> StateList:
    """Every state a run was in, when and why it changed."""
    return StateList(states=desk.reads.states(run))


def list_actors(desk: Desk, run: Run) -> ActorList:
    """The actors of a run and their last reports: steps per second, lag behind the newest policy, restarts."""
    return ActorList(actors=desk.reads.actors(run))


def list_checkpoints(desk: Desk, run: Run) -> CheckpointList:
    """The checkpoints a run has kept, newest first. evaluate_policy and fork_run take their versions."""
    return CheckpointList(checkpoints=desk.reads.checkpoints(run))


def list_evaluations(desk: Desk, run: Run) -> EvaluationList:
    """Evaluations of a run's checkpoints, newest first, those still at work included."""
    return EvaluationList(evaluations=[EvaluationBrief.of(found) for found in desk.reads.evaluations(run)])


def get_evaluation(
    desk: Desk, run: Run, id: Annotated[str, Field(max_length=200, description="As evaluate_policy told it.")]
) -> EvaluationBrief:
    """One evaluation: mean return and spread over its episodes once its state is done."""
    return EvaluationBrief.of(desk.reads.evaluation(run, id))


def list_recordings(desk: Desk, run: Run) -> RecordingList:
    """Recorded episodes of a run with return and length, newest first; a person downloads them on the page."""
    return RecordingList(recordings=desk.reads.recordings(run))


def list_commands(
    desk: Desk,
    run: Annotated[str | None, Field(max_length=100)] = None,
    who: Annotated[str | None, Field(max_length=100)] = None,
    verb: Annotated[str | None, Field(max_length=100, description="start, stop, pause, set, scale …")] = None,
    limit: Annotated[int, Field(ge=1, le=100)] = 20,
    cursor: Cursor = None,
) -> CommandList:
    """The audit trail, newest first: which command was given, by whom, when, and what it changed."""
    page = desk.reads.commands(run, who, verb, limit, cursor)
    return CommandList(commands=page.items, next=page.next)


def get_command(desk: Desk, id: Annotated[str, Field(max_length=200)]) -> CommandView:
    """One command: who gave it, when, whether it was applied, and what it changed."""
    return desk.reads.command(id)


OFFERS = (
    Offer(list_runs, "List runs", READS),
    Offer(get_status, "Status of a run", READS),
    Offer(get_spec, "Spec of a run", READS),
    Offer(get_metrics, "Metrics of a run", READS),
    Offer(compare_runs, "Compare runs", READS),
    Offer(get_logs, "Logs of a run", READS),
    Offer(list_events, "Events of a run", READS),
    Offer(list_states, "States of a run", READS),
    Offer(list_actors, "Actors of a run", READS),
    Offer(list_checkpoints, "Checkpoints of a run", READS),
    Offer(list_evaluations, "Evaluations of a run", READS),
    Offer(get_evaluation, "One evaluation", READS),
    Offer(list_recordings, "Recordings of a run", READS),
    Offer(list_commands, "Audit trail", READS),
    Offer(get_command, "One command", READS),
)
