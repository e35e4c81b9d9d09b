"""Tools that tell what can be trained and how, and what this server is."""

from typing import Annotated, Any

from pydantic import Field

from penstock.control.views import AlgorithmDetail, EnvironmentDetail, ServerView
from penstock.server.mcp.desk import READS, Desk, Offer
from penstock.server.mcp.results import (
    AlgorithmList,
    EnvironmentList,
    GroupList,
    ProjectList,
    Schema,
    Spec,
)

MOST_ENVIRONMENTS = 60


def list_environments(
    desk: Desk,
    search: Annotated[
        str | None, Field(max_length=200, description="Part of an id, whatever its case.")
    ] = None,
) -> EnvironmentList:
    """Environments that can be trained on, by id; one that needs a package says which."""
    found = desk.reads.environments(search)
    return EnvironmentList(environments=found[:MOST_ENVIRONMENTS], total=len(found))


def get_environment(
    desk: Desk, id: Annotated[str, Field(max_length=512, description="Such as CartPole-v1.")]
) -> EnvironmentDetail:
    """An environment's observation and action spaces, reward threshold, and the spec a run of it would have."""
    return desk.reads.environment(id)


def list_algorithms(desk: Desk) -> AlgorithmList:
    """Algorithms that are installed, what each is for, and which settings may change while a run goes on."""
    return AlgorithmList(algorithms=desk.reads.algorithms())


def get_algorithm(
    desk: Desk, name: Annotated[str, Field(max_length=64, description="Such as ppo.")]
) -> AlgorithmDetail:
    """An algorithm's settings as a JSON schema, with their defaults."""
    return desk.reads.algorithm(name)


def get_spec_schema(desk: Desk) -> Schema:
    """The JSON schema of a spec, for start_training's `spec` and fork_run's `changes`. It is long."""
    return Schema(json_schema=desk.reads.spec_schema())


def resolve_spec(
    desk: Desk,
    spec: Annotated[
        dict[str, Any], Field(description="As in {'environment': 'CartPole-v1', 'algorithm': 'ppo'}.")
    ],
) -> Spec:
    """Check a spec and write every default out, without starting anything. Use it before start_training."""
    return Spec(spec=desk.reads.resolve(spec))


def list_projects(desk: Desk) -> ProjectList:
    """Projects, how many runs each has, how many are live, and their disk use."""
    return ProjectList(projects=desk.reads.projects())


def list_groups(desk: Desk) -> GroupList:
    """Groups of runs that differ in their seed only."""
    return GroupList(groups=desk.reads.groups())


def get_server(desk: Desk) -> ServerView:
    """What this server is and how it does: version, runs by state, free disk, and whether all its parts work."""
    return desk.backend.server()


OFFERS = (
    Offer(list_environments, "List environments", READS),
    Offer(get_environment, "One environment", READS),
    Offer(list_algorithms, "List algorithms", READS),
    Offer(get_algorithm, "One algorithm", READS),
    Offer(get_spec_schema, "Schema of a spec", READS),
    Offer(resolve_spec, "Check a spec", READS),
    Offer(list_projects, "List projects", READS),
    Offer(list_groups, "List groups of seeds", READS),
    Offer(get_server, "About this server", READS),
)
