"""Runs: list, start, look at, label and delete them."""

from typing import Annotated, Any

from fastapi import Header, Query
from starlette.responses import Response

from penstock.control.views import (
    Accepted,
    ActorView,
    Event,
    LabelRequest,
    Page,
    RunDetail,
    RunView,
    Started,
    StartRequest,
    State,
    StateView,
)
from penstock.lineage.rows import SORTS, RunQuery
from penstock.server.rest.parts import (
    PREFIX,
    ControlDep,
    Cursor,
    IfMatch,
    Key,
    Limit,
    Run,
    Who,
    answer,
    etag,
    make_router,
    names_tag,
    run_path,
)

router = make_router("runs")

Sort = Annotated[
    str, Query(pattern=f"^-?({'|'.join(SORTS)})$", description="A column, with - for descending.")
]
Filter = Annotated[str | None, Query(max_length=512)]


@router.get("/runs", response_model=Page[RunView])
def list_runs(
    control: ControlDep,
    project: Filter = None,
    tag: Filter = None,
    group: Filter = None,
    state: Annotated[list[State], Query(description="Any of these; repeat it.", max_length=8)] = [],  # noqa: B006
    environment: Filter = None,
    algorithm: Filter = None,
    search: Annotated[
        Filter, Query(description="Part of an id, environment, algorithm, tag or note.")
    ] = None,
    sort: Sort = "-created_at",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Runs, newest first, filtered and in pages."""
    query = RunQuery(
        project=project, tag=tag, group=group, states=tuple(state), environment=environment, algorithm=algorithm,
        search=search, sort=sort, limit=limit, cursor=cursor,
    )  # fmt: skip
    return answer(control.reads.runs(query))


@router.post("/runs", status_code=201, response_model=RunView | Started)
def start_training(control: ControlDep, who: Who, request: StartRequest, key: Key = None) -> Response:
    """Start a run, or with `seeds` a group of them; only `environment` is required. Answers with what was started."""
    return started(control.commander.start(who, request, key))


@router.get("/runs/{run}", response_model=RunDetail)
def get_status(
    control: ControlDep,
    run: Run,
    seen: Annotated[str | None, Header(alias="If-None-Match", max_length=1000)] = None,
) -> Response:
    """A run with its spec, what is wanted of it and its hyperparameters as they are now; its ETag changes with it."""
    found = control.reads.status(run)
    headers = {"ETag": etag(found.revision), "Cache-Control": "private, no-cache"}
    if names_tag(seen, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return answer(found, headers=headers)


@router.delete("/runs/{run}", status_code=202, response_model=Accepted)
def delete_run(
    control: ControlDep, who: Who, run: Run, key: Key = None, if_match: IfMatch = None
) -> Response:
    """Delete a run that is not live, with all its data."""
    return accepted(control.commander.delete(who, run, key, revisions(if_match)), run)


@router.patch("/runs/{run}", status_code=202, response_model=Accepted)
def label_run(
    control: ControlDep, who: Who, run: Run, request: LabelRequest, key: Key = None, if_match: IfMatch = None
) -> Response:
    """Change a run's project, tags or note."""
    return accepted(control.commander.label(who, run, request, key, revisions(if_match)), run)


@router.get("/runs/{run}/spec", response_model=dict[str, Any])
def get_spec(control: ControlDep, run: Run) -> Response:
    """The whole spec of a run, every default written out."""
    return answer(control.reads.spec(run))


@router.get("/runs/{run}/actors", response_model=list[ActorView])
def list_actors(control: ControlDep, run: Run) -> Response:
    """The actors of a run and their last reports."""
    return answer(control.reads.actors(run))


@router.get("/runs/{run}/states", response_model=list[StateView])
def list_states(control: ControlDep, run: Run) -> Response:
    """Every state a run was in, and why it changed."""
    return answer(control.reads.states(run))


@router.get("/runs/{run}/events", response_model=list[Event])
def list_events(control: ControlDep, run: Run, limit: Limit = 100) -> Response:
    """The last things that happened to a run, oldest first."""
    return answer(control.reads.events(run, limit))


def revisions(if_match: str | None) -> frozenset[int] | None:
    """The revisions that an If-Match names; None where any will do."""
    words = [word.strip().removeprefix("W/").strip('"') for word in (if_match or "*").split(",")]
    return None if "*" in words else frozenset(int(word) for word in words if word.isdecimal())


def accepted(told: Accepted, run: str, place: str | None = None) -> Response:
    """The answer to a verb; Location is where to see what becomes of it."""
    return answer(told, 202, {"Location": place or run_path(run)})


def started(told: Started) -> Response:
    """The answer to a start: one run is shown as itself, several as a group."""
    if len(told.runs) == 1:
        run = told.runs[0]
        return answer(run, 201, {"Location": run_path(run.run), "ETag": etag(run.revision)})
    return answer(told, 201, {"Location": f"{PREFIX}/runs?group={told.group}"})
