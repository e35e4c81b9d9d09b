"""What tools answer: smaller than the REST answers, for every word costs an assistant attention."""

import math
from typing import Any, Literal, TypeVar

from pydantic import Field

from penstock.control.views import (
    ActorView,
    AlgorithmView,
    CheckpointView,
    CommandView,
    Curve,
    DesiredView,
    Difference,
    EnvironmentView,
    EvaluationView,
    Event,
    GroupView,
    ProjectView,
    RecordingView,
    StateView,
    TokenView,
    View,
)

T = TypeVar("T", bound=View)

FLAT = 0.05
"""A change smaller than this part of a metric's range is no trend."""
Trend = Literal["rising", "falling", "flat", "unknown"]


def of(kind: type[T], source: View, **more: Any) -> T:
    """A smaller view of a larger one."""
    return kind.model_validate({**dict(source), **more})


class RunBrief(View):
    """A run in a line."""

    run: str
    state: str
    environment: str
    algorithm: str
    seed: int
    steps: int
    episodes: int
    mean_return: float | None
    steps_per_second: float
    version: str | None
    actors: int
    reason: str | None
    project: str
    tags: list[str]
    group: str | None
    note: str
    created_at: float


class RunNow(RunBrief):
    """How a run stands; its spec is told by get_spec."""

    started_at: float | None
    ended_at: float | None
    updates: int
    seconds: float
    checkpoint: str | None = Field(description="EPOCH.STEP of the newest checkpoint.")
    best: str | None = Field(description="EPOCH.STEP of the best checkpoint.")
    restarts: int
    managed: bool
    desired: DesiredView
    settings: dict[str, Any] = Field(description="The hyperparameters as they are now.")
    live_settings: list[str] = Field(description="Those that set_hyperparameters may change while it runs.")
    stream: str
    disk_bytes: int


class RunList(View):
    runs: list[RunBrief]
    next: str | None = Field(description="Pass it as `cursor` for more; null on the last page.")


class StartedRuns(View):
    runs: list[RunBrief]
    group: str | None = Field(description="Shared by runs that differ in their seed only.")
    commands: list[str] = Field(description="Ids of the commands, for get_command.")
    next_step: str


class Steered(View):
    """A command that was accepted."""

    command: str = Field(description="Its id, for get_command and rollback_hyperparameters.")
    verb: str
    outcome: str
    old: dict[str, Any] | None = Field(description="What it changed, as it was.")
    new: dict[str, Any] | None
    run: RunBrief | None
    next_step: str


class Spec(View):
    spec: dict[str, Any]


class Schema(View):
    json_schema: dict[str, Any]


class MetricSummary(View):
    """One metric in a few numbers."""

    name: str
    reports: int
    first: float | None
    last: float | None
    lowest: float | None
    highest: float | None
    highest_at_step: float | None
    recent_mean: float | None = Field(description="Over the last fifth of the reports.")
    trend: Trend = Field(description="Of the recent mean against the fifth before it.")


class MetricsSummary(View):
    run: str
    summary: list[MetricSummary]
    names: list[str] = Field(description="All names that can be asked for.")
    columns: dict[str, list[float | None]] = Field(
        description="Few points over `steps`, for the shape of curves."
    )
    total: int = Field(description="Reports before thinning.")


class Ranked(View):
    """A curve's place."""

    label: str
    runs: list[str]
    last: float | None
    highest: float | None


class ComparisonBrief(View):
    metric: str
    ranking: list[Ranked] = Field(description="By the last value, greatest first.")
    differences: list[Difference] = Field(description="Paths of the spec in which the runs differ.")
    runs: list[RunBrief]
    curves: list[Curve]


class EvaluationBrief(View):
    """An evaluation without its single episodes."""

    id: str
    run: str
    state: str
    checkpoint: str
    episodes: int
    seed: int
    mean: float | None
    std: float | None
    lowest: float | None
    highest: float | None
    mean_length: float | None
    seconds: float | None
    reason: str | None
    next_step: str | None = None

    @classmethod
    def of(cls, found: EvaluationView, next_step: str | None = None) -> "EvaluationBrief":
        lengths = found.lengths
        return of(
            cls, found, lowest=min(found.returns, default=None), highest=max(found.returns, default=None),
            mean_length=sum(lengths) / len(lengths) if lengths else None, next_step=next_step,
        )  # fmt: skip


class EvaluationList(View):
    evaluations: list[EvaluationBrief]


class RecordingList(View):
    recordings: list[RecordingView]


class LogTail(View):
    run: str
    processes: list[str]
    lines: list[str] = Field(description="Each begins with its process.")
    next: str = Field(description="Pass it as `after` to get only what is new.")


class EventList(View):
    events: list[Event]


class StateList(View):
    states: list[StateView]


class ActorList(View):
    actors: list[ActorView]


class CheckpointList(View):
    checkpoints: list[CheckpointView]


class CommandList(View):
    commands: list[CommandView]
    next: str | None = Field(description="Pass it as `cursor` for more.")


class EnvironmentList(View):
    environments: list[EnvironmentView]
    total: int = Field(description="How many fit; narrow them with `search`.")


class AlgorithmList(View):
    algorithms: list[AlgorithmView]


class ProjectList(View):
    projects: list[ProjectView]


class GroupList(View):
    groups: list[GroupView]


class TokenList(View):
    tokens: list[TokenView]


def summarise(name: str, steps: list[float | None], values: list[float | None]) -> MetricSummary:
    """A column in a few numbers."""
    pairs = list(zip(steps, values, strict=True))
    known = [(step, value) for step, value in pairs if value is not None and math.isfinite(value)]
    numbers = [value for _, value in known]
    fifth = max(1, len(numbers) // 5)
    recent, before = numbers[-fifth:], numbers[-2 * fifth : -fifth]
    top = max(known, key=lambda pair: pair[1], default=None)
    return MetricSummary(
        name=name,
        reports=len(numbers),
        first=numbers[0] if numbers else None,
        last=numbers[-1] if numbers else None,
        lowest=min(numbers, default=None),
        highest=top[1] if top else None,
        highest_at_step=top[0] if top else None,
        recent_mean=_mean(recent),
        trend=_trend(_mean(before), _mean(recent), numbers),
    )


def thinned(values: list[T] | list[float | None], count: int) -> list[Any]:
    """At most `count` of them, evenly spread, first and last included."""
    if len(values) <= count:
        return list(values)
    step = (len(values) - 1) / (count - 1)
    return [values[round(index * step)] for index in range(count)]


def _mean(numbers: list[float]) -> float | None:
    return sum(numbers) / len(numbers) if numbers else None


def _trend(before: float | None, recent: float | None, numbers: list[float]) -> Trend:
    if before is None or recent is None or len(numbers) < 5:
        return "unknown"
    span = max(numbers) - min(numbers)
    if abs(recent - before) <= FLAT * span:
        return "flat"
    return "rising" if recent > before else "falling"
