"""What was measured: metrics, comparisons and evaluations."""

from typing import Annotated

from fastapi import Query
from pydantic import FiniteFloat
from starlette.responses import Response

from penstock.control.views import Comparison, EvaluationView, Metrics, RunId
from penstock.server.rest.parts import ControlDep, Id, Run, answer, make_router

router = make_router("measured")

MetricName = Annotated[str, Query(min_length=1, max_length=200)]
Points = Annotated[
    int, Query(ge=2, le=5000, description="Most points of a column; longer ones are downsampled.")
]


@router.get("/runs/{run}/metrics", response_model=Metrics)
def get_metrics(
    control: ControlDep,
    run: Run,
    names: Annotated[
        list[MetricName] | None, Query(description="Repeat it; default: all.", max_length=100)
    ] = None,
    since: Annotated[FiniteFloat | None, Query(description="Only reports after this many steps.")] = None,
    points: Points = 1000,
) -> Response:
    """What the learner reported, as columns over environment steps."""
    return answer(control.reads.metrics(run, names, since, points))


@router.get("/compare", response_model=Comparison)
def compare_runs(
    control: ControlDep,
    run: Annotated[list[RunId], Query(description="Repeat it.", min_length=1, max_length=64)],
    metric: MetricName = "mean_return",
    points: Points = 200,
) -> Response:
    """Runs side by side: how their specs differ, and one metric of each; seeds of a group become one curve."""
    return answer(control.reads.compare(run, metric, points))


@router.get("/runs/{run}/evaluations", response_model=list[EvaluationView])
def list_evaluations(control: ControlDep, run: Run) -> Response:
    """Evaluations of a run's checkpoints, newest first, those still at work included."""
    return answer(control.reads.evaluations(run))


@router.get("/runs/{run}/evaluations/{id}", response_model=EvaluationView)
def get_evaluation(control: ControlDep, run: Run, id: Id) -> Response:
    """One evaluation; its id is that of the command that asked for it."""
    return answer(control.reads.evaluation(run, id))
