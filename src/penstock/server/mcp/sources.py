"""Resources an assistant may attach to a conversation, and prompts a person may pick."""

from collections.abc import Callable
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_REQUEST
from pydantic import BaseModel
from pydantic_core import to_json

from penstock.control import permissions
from penstock.errors import Denied, NotFound, PenstockError
from penstock.server.mcp import reading
from penstock.server.mcp.advice import advice
from penstock.server.mcp.backend import Backend
from penstock.server.mcp.desk import Desk, Identify

Source = Callable[[Desk, str], BaseModel]

SOURCES: dict[str, tuple[str, str, Source]] = {
    "status": ("get_status", "How a run stands.", reading.get_status),
    "spec": ("get_spec", "The whole spec of a run.", reading.get_spec),
    "logs": ("get_logs", "The last log lines of a run.", reading.get_logs),
    "metrics": ("get_metrics", "The metrics of a run, summarised.", reading.get_metrics),
}
"""Last part of run://RUN/… → the operation one must be allowed, what it is, and where it comes from."""

LIST = "runs://list"


def guard(identify: Identify) -> ServerMiddleware[Any]:
    """Ask for each message who sent it, for each resource whether they may read it; list only tools they may use."""

    async def ask(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        try:
            who = identify(ctx.request)
            if ctx.method == "resources/read":
                permissions.check(who, operation_of(str((ctx.params or {}).get("uri", ""))))
        except Denied as error:
            raise MCPError(code=INVALID_REQUEST, message=str(error)) from None
        answer = await call_next(ctx)
        return _allowed(answer, who) if ctx.method == "tools/list" else answer

    return ask


def _allowed(answer: HandlerResult, who: permissions.Principal) -> HandlerResult:
    """The tools of a role: others would only be refused, and cost an assistant attention."""
    found: dict[str, Any] = (
        answer.model_dump(by_alias=True) if isinstance(answer, BaseModel) else dict(answer or {})
    )
    tools = [tool for tool in found["tools"] if permissions.NEEDED[tool["name"]].rank <= who.role.rank]
    return {**found, "tools": tools}


def operation_of(uri: str) -> str:
    """What reading a resource is called in the permission table; unknown ones have no entry there."""
    if uri == LIST:
        return "list_runs"
    known = SOURCES.get(uri.rpartition("/")[2])
    return known[0] if known and uri.startswith("run://") else f"reading {uri[:100]}"


def add_resources(server: MCPServer[Any], backend: Backend, identify: Identify) -> None:
    """Offer the list of runs, and status, spec, logs and metrics of each. `guard` asks for permission."""

    def list_all() -> str:
        return _read("list_runs", lambda: reading.list_runs(_desk(backend), limit=50))

    server.resource(
        LIST, name="runs", title="Runs", description="The newest runs.", mime_type="application/json"
    )(list_all)
    for word, (operation, description, source) in SOURCES.items():
        server.resource(
            f"run://{{run}}/{word}", name=f"run_{word}", title=f"Run: {word}", description=description,
            mime_type="application/json",
        )(_reader(backend, operation, source))  # fmt: skip


def _reader(backend: Backend, operation: str, source: Source) -> Callable[[str], str]:
    def read(run: str) -> str:
        return _read(operation, lambda: source(_desk(backend), run))

    return read


def _desk(backend: Backend) -> Desk:
    return Desk(backend, permissions.Principal("resource", permissions.Role.VIEWER))


def _read(operation: str, source: Callable[[], BaseModel]) -> str:
    try:
        return to_json(source(), by_alias=True, exclude_none=True, inf_nan_mode="null").decode()
    except NotFound as error:
        raise ResourceNotFoundError(advice(operation, error)) from None
    except PenstockError as error:
        raise ResourceError(advice(operation, error)) from None


# -- prompts ---------------------------------------------------------------------------------------


def diagnose_run(run: str) -> str:
    """Find out why a run fails, is slow or does not learn."""
    return f"""Find out what is wrong with the Penstock run {run}, if anything is.

1. get_status: its state, the reason, mean return, steps per second, restarts.
2. list_events and get_logs: restarts, faults of the environment, out of memory; quote the decisive line.
3. get_metrics: does charts/episodic_return rise? Do losses explode, vanish or stay flat? Is charts/SPS steady?
   Is pace/lag large?
4. list_actors: is one of them dead, slow, or far behind?
5. Where it fell ill after a change, list_commands with verb=set shows who changed what.

Say in a few sentences what you found and how sure you are, with the numbers it rests on. Then propose the smallest
remedy: a live setting (set_hyperparameters), more or fewer actors, a fork with other settings, or a fix of the
environment. Change nothing before the person agrees."""


def plan_sweep(environment: str, algorithm: str = "ppo", budget: str = "10 runs") -> str:
    """Plan a search for better hyperparameters within a budget."""
    return f"""Plan a hyperparameter sweep for {environment} with {algorithm} within {budget}.

1. get_environment and get_algorithm: what the task is, which settings exist, their defaults and ranges.
2. list_runs with environment={environment} sorted by -mean_return, then compare_runs: what is known already.
3. Choose at most three settings that are likely to matter, and few values of each, logarithmic where it fits.
   Prefer several seeds of few configurations to one seed of many: differences within one seed's noise mean nothing.
4. Check each spec with resolve_spec. Show the plan as a table: settings, seeds, steps, and why.

Wait for the person to agree. Then start_training with a common project and tags, not more runs at once than the
machine has cores (get_server shows what is running), and at the end compare_runs and evaluate_policy with the same
seed for the best ones."""


def compare_and_choose(runs: str) -> str:
    """Compare runs and choose the policy to use."""
    return f"""Compare these Penstock runs and choose which policy to use: {runs}.

1. compare_runs: who is ahead, and in which settings they differ.
2. list_evaluations for each; where there is none of at least 30 episodes, evaluate_policy with checkpoint=best,
   episodes=50 and the same seed for all.
3. Judge by evaluations rather than training returns, with their spread: means closer than two standard errors are a
   tie. Consider also steps and seconds each needed.

Answer with a table, your choice with its checkpoint, and how sure one can be. If it is a tie, say what would
decide it."""


PROMPTS = (
    (diagnose_run, "Diagnose a run"),
    (plan_sweep, "Plan a sweep"),
    (compare_and_choose, "Compare and choose"),
)
