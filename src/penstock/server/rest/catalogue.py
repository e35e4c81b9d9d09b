"""What can be trained, and how: environments, algorithms, the spec's schema; projects and groups of seeds."""

from typing import Annotated, Any

from fastapi import Body, Path, Query
from starlette.responses import Response

from penstock.control.views import (
    AlgorithmDetail,
    AlgorithmView,
    EnvironmentDetail,
    EnvironmentView,
    GroupView,
    ProjectView,
)
from penstock.server.rest.parts import ControlDep, answer, make_router

router = make_router("catalogue")


@router.get("/environments", response_model=list[EnvironmentView])
def list_environments(
    control: ControlDep,
    search: Annotated[
        str | None, Query(max_length=200, description="Part of an id, whatever its case.")
    ] = None,
) -> Response:
    """Environments by their Gymnasium id; those that need a package say which."""
    return answer(control.reads.environments(search))


@router.get("/environments/{id:path}", response_model=EnvironmentDetail)
def get_environment(
    control: ControlDep,
    id: Annotated[str, Path(min_length=1, max_length=512, examples=["CartPole-v1", "ALE/Pong-v5"])],
) -> Response:
    """An environment's spaces, limits and the spec a run of it would have."""
    return answer(control.reads.environment(id))


@router.get("/algorithms", response_model=list[AlgorithmView])
def list_algorithms(control: ControlDep) -> Response:
    """Algorithms that are installed, and which of their settings may change while a run goes on."""
    return answer(control.reads.algorithms())


@router.get("/algorithms/{name}", response_model=AlgorithmDetail)
def get_algorithm(
    control: ControlDep, name: Annotated[str, Path(min_length=1, max_length=64, examples=["ppo"])]
) -> Response:
    """An algorithm's settings as a JSON schema, and their defaults."""
    return answer(control.reads.algorithm(name))


@router.get("/specs/schema", response_model=dict[str, Any])
def get_spec_schema(control: ControlDep) -> Response:
    """The JSON schema of a run's spec."""
    return answer(control.reads.spec_schema())


@router.post("/specs/resolve", response_model=dict[str, Any])
def resolve_spec(
    control: ControlDep,
    spec: Annotated[dict[str, Any], Body(examples=[{"environment": "CartPole-v1"}], max_length=200)],
) -> Response:
    """The whole spec a run would have, every default written out; nothing is started."""
    return answer(control.reads.resolve(spec))


@router.get("/projects", response_model=list[ProjectView])
def list_projects(control: ControlDep) -> Response:
    """Projects and what they hold."""
    return answer(control.reads.projects())


@router.get("/groups", response_model=list[GroupView])
def list_groups(control: ControlDep) -> Response:
    """Groups of runs that differ in their seed only."""
    return answer(control.reads.groups())
