"""The spec: the whole description of a run. YAML, JSON, flags and Python all become this object.

Only `environment` is required. The hyperparameters of the algorithm stand under its own name
(`ppo: {learning_rate: 1e-3}`); reading, defaults and presets are in `penstock.config`.
"""

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from penstock.model.policy import NetworkSpec

FORMAT: Literal[1] = 1
"""Version of the spec's own format; a newer one is refused."""

KAFKA_URL = re.compile(
    r"kafka://(?P<brokers>[^\s/?#@,]+:\d{1,5}(,[^\s/?#@,]+:\d{1,5})*)(/(?P<prefix>[A-Za-z0-9_-][A-Za-z0-9._-]{0,80})?)?"
)
"""Brokers, and a prefix for the names of all topics; no password has a place in it."""


def shown_url(url: str) -> str:
    """A stream's address as it may be printed: what somebody took for the place of a password is left out."""
    return re.sub(r"//[^/]*@", "//…@", url)


Count = Annotated[int, Meta(ge=1)]
Whole = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0)]
Memory = Annotated[int, Meta(ge=64 << 20)]


class _Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Frozen, and a misspelt key is refused."""


class EnvironmentSpec(_Group, frozen=True, kw_only=True):
    """Which environment, and how it is treated."""

    id: str
    """A Gymnasium id (`CartPole-v1`, `package:Env-v0`), a class in a file (`./my_env.py:MyEnv`), or a client's
    policy (`client:NAME`; the gateway makes such runs)."""

    kwargs: dict[str, Any] = {}
    """Passed to the environment."""

    wrappers: tuple[str, ...] = ()
    """Wrapper classes, innermost first, as `package.module:Class` or `./file.py:Class`."""

    max_episode_steps: Count | None = None
    """Truncate episodes after this many steps; default: what the environment registers."""

    native: bool = False
    """Step it with envpool where installed: faster, but such a run cannot be resumed exactly."""

    step_limit_seconds: Seconds = 60.0
    """An environment that takes longer for a step or a reset counts as hung; its actor is restarted."""


class ActorsSpec(_Group, frozen=True, kw_only=True):
    """The processes that make experience."""

    count: Annotated[int, Meta(ge=0, le=16)] = 2
    """How many actor processes the keeper starts; others may join (penstock actor RUN)."""

    environments: Count = 8
    """Environments in each actor, stepped in a loop."""

    rollout: Count = 128
    """Steps of each environment in a rollout."""

    trajectories: Count | None = None
    """Of a client's policy: a rollout is made of about this many trajectories, whatever their length;
    default: `rollout` steps."""

    threads: Count = 1
    """Threads of numerical libraries in an actor."""

    restarts: Whole = 10
    """How often one actor may be restarted before the run fails; an hour without a fault refills it."""

    nice: Annotated[int, Meta(ge=0, le=19)] = 0
    """Niceness of actor processes: higher yields the processor to the learner."""

    cpus: tuple[Whole, ...] = ()
    """Processors that actors may run on, by number; default: all."""

    memory_bytes: Memory | None = None
    """Most memory of an actor's data; past it its allocations fail, and it is restarted."""


class LearnerSpec(_Group, frozen=True, kw_only=True):
    """The process that learns."""

    count: Annotated[int, Meta(ge=0, le=1)] = 1
    """0: it is parked at first, until somebody scales it (the gateway does with the first experience)."""

    threads: Count = 1
    """Threads of the learner; more than one slows the actors where cores are few."""

    restarts: Whole = 10
    """How often it may be restarted before the run fails."""

    nice: Annotated[int, Meta(ge=0, le=19)] = 0
    """Niceness of the learner process."""

    cpus: tuple[Whole, ...] = ()
    """Processors that the learner may run on, by number; default: all."""

    memory_bytes: Memory | None = None
    """Most memory of the learner's data; past it its allocations fail, and it is restarted."""


class KeeperSpec(_Group, frozen=True, kw_only=True):
    """The process that supervises actors and learner."""

    grace: Seconds = 600.0
    """Seconds a run that a server started goes on without a server; then it saves its work and waits for one."""


class PaceSpec(_Group, frozen=True, kw_only=True):
    """How far actors may run ahead of the learner."""

    lead: Whole = 1
    """Updates an actor may be ahead of the newest policy; 0 is synchronous and repeatable to the bit."""

    max_lag: Whole = 8
    """Rollouts made by a policy older than this many updates are dropped and counted."""

    actor_deadline: Seconds = 120.0
    """Seconds after which a silent slot leaves the roster, so that it cannot block the run."""


class StopSpec(_Group, frozen=True, kw_only=True):
    """When the run is done; the first condition that holds."""

    steps: Count | None = None
    """Environment steps."""

    target: float | None = None
    """Mean return over the last `window` training episodes."""

    window: Count = 100
    """Episodes in that mean."""

    seconds: Seconds | None = None
    """Seconds of training, over all resumptions."""

    updates: Count | None = None
    """Updates of the learner."""


class CheckpointSpec(_Group, frozen=True, kw_only=True):
    """What is kept to go on exactly."""

    store: str | None = None
    """A folder that several hosts see, as a path; default: the run's own folder."""

    every_seconds: Seconds = 30.0
    """Seconds between checkpoints (taken between updates)."""

    every_updates: Count | None = None
    """Updates between checkpoints, beside the clock."""

    keep: Count = 3
    """How many of the newest are kept; the best is kept beside them."""


class EvaluationSpec(_Group, frozen=True, kw_only=True):
    """Periodic evaluation in a process of its own; it decides which checkpoint is `best`."""

    every_seconds: Annotated[float, Meta(ge=0)] = 60.0
    """Seconds between evaluations; 0 turns them off."""

    episodes: Count = 10
    """Episodes of each evaluation, without exploration."""


class KafkaSpec(_Group, frozen=True, kw_only=True):
    """How Kafka is used; connection settings of one host belong into PENSTOCK_KAFKA_CONFIG instead."""

    partitions: Count = 4
    """Partitions of a run's experiences; actors beyond that number share them."""

    replication: Count | None = None
    """Copies of each topic; default: what the brokers are set to."""

    min_insync_replicas: Count | None = None
    """Copies that must have a record before it is acknowledged; default: what the brokers are set to."""

    create: bool = True
    """Whether topics may be made and changed; otherwise they must be there (penstock topics create)."""

    compression: dict[str, Literal["none", "gzip", "snappy", "lz4", "zstd"]] = {}
    """Kind of topic (experiences, model_updates, history …) → compression; default none."""

    max_record_bytes: Annotated[int, Meta(ge=1 << 20, le=1 << 30)] = 32 << 20
    """The largest record a topic of ours takes; policies are cut into smaller ones anyway."""

    write_deadline: Seconds = 300.0
    """Seconds a writer waits for brokers that are away."""

    topic_config: dict[str, str | int | float | bool] = {}
    """Passed to every topic that is made, such as `segment.ms`."""

    options: dict[str, str | int | float | bool] = {}
    """librdkafka options, such as `fetch.wait.max.ms`; secrets as `env:NAME` or `file:PATH`. What a host needs
    to connect at all stands in the file that PENSTOCK_KAFKA_CONFIG names."""


class StreamSpec(_Group, frozen=True, kw_only=True):
    """The log."""

    url: str = "embedded"
    """`embedded`: LMDB files under PENSTOCK_HOME; or `kafka://HOST:PORT[,HOST:PORT][/PREFIX]`."""

    on_gap: Literal["stop", "go_on"] = "stop"
    """What a learner does when retention has dropped experience that its checkpoint still needs."""

    retention_bytes: Annotated[int, Meta(ge=1 << 20)] = 1 << 30
    """Experience kept, in bytes; embedded, what the oldest checkpoint needs is never dropped. Kafka: an equal
    share of it in each partition."""

    retention_seconds: Seconds | None = None
    """Age at which experience is dropped; default: only `retention_bytes` counts."""

    budget_bytes: Annotated[int, Meta(ge=1 << 22)] = 4 << 30
    """Disk the run's embedded log may take; writers wait at this size."""

    kafka: KafkaSpec = KafkaSpec()
    """How Kafka is used, where it is."""


class OriginSpec(_Group, frozen=True, kw_only=True):
    """Another run, whose recorded updates this one learns before anything else."""

    run: str
    """Its id."""

    version: str
    """How far its line is followed: EPOCH.STEP."""

    replay: bool = False
    """Whether that is all: no actors, and no updates of its own."""


class Spec(_Group, frozen=True, kw_only=True):
    """One training run."""

    environment: EnvironmentSpec
    algorithm: str = "ppo"
    """ppo, impala, dqn, reinforce, sac, or an installed plugin."""
    settings: dict[str, Any] = {}
    """Hyperparameters; written under the algorithm's name in files and flags."""
    network: NetworkSpec = NetworkSpec()
    actors: ActorsSpec = ActorsSpec()
    learner: LearnerSpec = LearnerSpec()
    keeper: KeeperSpec = KeeperSpec()
    pace: PaceSpec = PaceSpec()
    stop: StopSpec = StopSpec()
    checkpoint: CheckpointSpec = CheckpointSpec()
    evaluation: EvaluationSpec = EvaluationSpec()
    stream: StreamSpec = StreamSpec()
    seed: Whole = 1
    """Everything random follows from it."""
    tensorboard: bool = True
    """Write TensorBoard events into the run's folder."""
    origin: OriginSpec | None = None
    """Where a fork or a replay comes from; `penstock fork` and `penstock replay` fill it in."""
    prometheus: Annotated[int, Meta(ge=0, le=65535)] | None = None
    """A port on loopback where the keeper serves /metrics for Prometheus; 0 takes a free one."""
    format: Literal[1] = FORMAT
