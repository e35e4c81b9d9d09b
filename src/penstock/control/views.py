"""What every face shows and takes: the shapes of REST bodies, MCP results and `--json`."""

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from penstock.control.permissions import Role

T = TypeVar("T")

RunId = Annotated[
    str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$", description="A run's id, such as cartpole-k3v9.")
]
State = Literal["pending", "running", "paused", "stopping", "stopped", "done", "failed", "interrupted"]
Word = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._ -]*$")]
Instant = Annotated[float, Field(description="Seconds since 1970.")]


class View(BaseModel):
    """Read from rows and structs by attribute."""

    model_config = ConfigDict(from_attributes=True, frozen=True)


class Request(BaseModel):
    """A misspelt key is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Page(View, Generic[T]):
    """Part of a list; ask again with `cursor` = `next` for more."""

    items: list[T]
    next: str | None = Field(None, description="Cursor of the next page; null on the last one.")


class RunView(View):
    """A run as lists show it."""

    run: RunId
    state: State
    environment: str
    algorithm: str
    seed: int
    project: str
    tags: list[str]
    group: str | None = Field(description="Runs that differ in their seed only share it.")
    note: str
    created_at: Instant
    started_at: float | None
    ended_at: float | None
    steps: int = Field(description="Environment steps learned from.")
    episodes: int
    mean_return: float | None = Field(description="Over the last stop.window training episodes.")
    updates: int
    version: str | None = Field(description="EPOCH.STEP of the newest policy.")
    seconds: float = Field(description="Of training, over all resumptions.")
    steps_per_second: float
    weights_sha256: str | None
    checkpoint: str | None = Field(description="EPOCH.STEP of the newest checkpoint.")
    reason: str | None = Field(description="Why it failed, stopped, paused or is done.")
    actors: int = Field(description="Actors wanted.")
    restarts: int
    managed: bool = Field(description="Whether the server keeps it going.")
    stream: str
    disk_bytes: int
    revision: int = Field(description="Grows with every change; the ETag.")


class DesiredView(View):
    """What commands want of a run."""

    state: Literal["running", "paused", "stopped", "deleted"]
    actors: int
    learner: int
    settings: dict[str, Any] = Field(description="Hyperparameters changed while running.")


class RunDetail(RunView):
    """A run with all that is known of it."""

    spec: dict[str, Any]
    desired: DesiredView
    settings: dict[str, Any] = Field(description="The hyperparameters as they are now.")
    live_settings: list[str] = Field(description="Those that may change while it runs.")
    best: str | None = Field(description="EPOCH.STEP of the best checkpoint.")


class CommandView(View):
    """A command and what came of it."""

    id: str
    run: str
    verb: str
    arguments: dict[str, Any]
    who: str
    at: Instant
    outcome: Literal["applied", "refused"]
    reason: str | None
    old: dict[str, Any] | None = Field(description="What it changed, as it was.")
    new: dict[str, Any] | None
    applied_at: float
    sequence: int


class Accepted(View):
    """The answer to a verb: the command as it is recorded, and the run."""

    command: CommandView
    run: RunView | None


class Started(View):
    """The answer to a start: the runs, one for each seed."""

    group: str | None
    runs: list[RunView]
    commands: list[CommandView]


class Metrics(View):
    """Columns of equal length; null where a report lacks a number."""

    run: str
    names: list[str] = Field(description="All names the run has.")
    columns: dict[str, list[float | None]] = Field(
        description="steps, seconds and time, and the names asked for."
    )
    total: int = Field(description="Reports since `since`, before downsampling.")
    last_step: float | None = Field(description="Pass it as `since` to get what is new.")


class ActorView(View):
    slot: int
    guest: bool
    pid: int | None = None
    host: str | None = None
    version: str | None
    lag: float | None = Field(description="Updates behind the newest policy.")
    steps_per_second: float | None
    episodes: int | None
    mean_return: float | None
    restarts: int
    alive: bool
    reported_at: float | None
    gateway: dict[str, float] | None = Field(
        None, description="How clients and the gateway are doing, where the experience comes through one."
    )


class CheckpointView(View):
    run: str
    version: str
    at: Instant
    bytes: int
    steps: int | None
    best: bool


class LogLine(View):
    process: str
    text: str


class Logs(View):
    """Lines of a run's processes; follow by asking again with `after` = `next`."""

    run: str
    processes: list[str]
    lines: list[LogLine]
    next: str


class Event(View):
    time: Instant
    event: str
    process: str | None = None
    fields: dict[str, Any] = {}


class StateView(View):
    run: str
    state: State
    reason: str | None
    at: Instant


class EvaluationView(View):
    id: str
    run: str
    state: Literal["queued", "running", "done", "failed"]
    checkpoint: str
    episodes: int
    seed: int
    at: Instant
    mean: float | None
    std: float | None
    returns: list[float]
    lengths: list[int]
    seconds: float | None
    reason: str | None


class RecordingView(View):
    """One recorded episode."""

    id: str
    run: str
    state: Literal["queued", "done", "failed"]
    checkpoint: str
    seed: int
    at: Instant
    total_reward: float | None = Field(description="The episode's return; null until it is done.")
    length: int
    frames: int
    bytes: int
    reason: str | None


class Difference(View):
    """A path of the spec whose values differ."""

    path: str
    values: dict[str, Any] = Field(description="Run → value; null where the run lacks it.")


class Curve(View):
    """One metric of a run, or of a group of seeds with mean and interval."""

    label: str
    runs: list[str]
    steps: list[float]
    mean: list[float | None]
    low: list[float | None] = Field(
        description="Mean minus 1.96 standard errors; the mean itself for one run."
    )
    high: list[float | None]


class Comparison(View):
    metric: str
    runs: list[RunView]
    differences: list[Difference]
    curves: list[Curve]


class EnvironmentView(View):
    id: str
    installed: bool
    missing: str | None = Field(None, description="How to install what it needs.")
    preset: bool = Field(description="Whether tuned defaults exist.")


class EnvironmentDetail(EnvironmentView):
    observation: dict[str, Any] | None = None
    action: dict[str, Any] | None = None
    max_episode_steps: int | None = None
    reward_threshold: float | None = None
    defaults: dict[str, Any] = Field({}, description="The spec a run of it would have.")


class AlgorithmView(View):
    name: str
    summary: str
    live: list[str] = Field(description="Settings that may change while a run goes on.")
    actions: list[str] = Field(description="Action spaces it can learn in, as Gymnasium names them.")


class AlgorithmDetail(AlgorithmView):
    schema_: dict[str, Any] = Field(alias="schema", serialization_alias="schema")
    defaults: dict[str, Any]


class ProjectView(View):
    project: str
    runs: int
    live: int
    disk_bytes: int


class GroupView(View):
    group: str
    runs: list[str]
    seeds: list[int]


class TokenView(View):
    id: str
    name: str
    role: Role
    created_at: Instant
    created_by: str
    expires_at: float | None
    revoked_at: float | None


class NewToken(TokenView):
    token: str = Field(description="Shown once, now; only its hash is kept.")


class ServerView(View):
    """What this server is and how it does."""

    version: str
    started_at: Instant
    host: str
    pid: int
    home: str
    executor: str = Field(description="What starts its processes, and where they run.")
    stream: str
    stream_seconds: float | None = Field(
        description="How long the stream took to answer its last question; null where it gave none."
    )
    database: str = Field(description="Its kind and place, without a password.")
    runs: dict[str, int] = Field(description="State → how many.")
    commands_behind: int
    disk_free_bytes: int
    viewers: int
    checks: dict[str, str] = Field(description="Part → ok, or what is wrong.")


# -- what is asked ---------------------------------------------------------------------------------


class StartRequest(Request):
    """A spec: only `environment` is required; the rest as in `penstock spec CartPole-v1`."""

    model_config = ConfigDict(extra="allow", frozen=True)

    environment: Annotated[str, Field(min_length=1, max_length=512)] | dict[str, Any]
    name: RunId | None = Field(None, description="The run's id; default: one such as cartpole-k3v9.")
    project: Word | None = None
    tags: list[Word] = Field([], max_length=32)
    note: str = Field("", max_length=2000)
    seeds: int = Field(1, ge=1, le=64, description="Start this many runs that differ in their seed.")


class ResumeRequest(Request):
    """New stop conditions, where the old ones hold already."""

    stop: dict[Literal["steps", "target", "window", "seconds", "updates"], float | int | None] = {}


class ScaleActorsRequest(Request):
    actors: int = Field(ge=0, le=16)


class ScaleLearnerRequest(Request):
    learner: int = Field(ge=0, le=1)


class SetRequest(Request):
    settings: dict[str, Any] = Field(
        min_length=1, max_length=64, description="As in {'learning_rate': 1e-4}."
    )


class RollbackRequest(Request):
    command: str | None = Field(
        None, max_length=64, description="Id of the change to take back; default: the last."
    )


class EvaluateRequest(Request):
    checkpoint: str = Field("best", max_length=64, description="best, newest or EPOCH.STEP.")
    episodes: int = Field(10, ge=1, le=10_000)
    seed: int = Field(0, ge=0, lt=1 << 53)


class RecordRequest(Request):
    checkpoint: str = Field("best", max_length=64, description="best, newest or EPOCH.STEP.")
    seed: int = Field(0, ge=0, lt=1 << 53, description="The same seed gives the same episode.")


class ForkRequest(Request):
    at: str = Field("newest", max_length=64, description="EPOCH.STEP, a step, best or newest.")
    changes: dict[str, Any] = Field(
        {}, max_length=64, description="Paths of the spec: {'ppo.learning_rate': 1e-4}."
    )
    name: RunId | None = None


class LabelRequest(Request):
    """What is left out stays as it is."""

    project: Word | None = None
    tags: list[Word] | None = Field(None, max_length=32)
    note: str | None = Field(None, max_length=2000)


class TokenRequest(Request):
    name: Word
    role: Role = Role.VIEWER
    days: float | None = Field(None, gt=0, le=3650, description="Until it expires; null: never.")
