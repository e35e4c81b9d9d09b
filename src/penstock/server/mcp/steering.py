"""Tools that steer runs: each states what should be, and returns once that is recorded."""

import time
from typing import Annotated, Any, Literal

import anyio
from pydantic import Field

from penstock.control.views import (
    Accepted,
    EvaluateRequest,
    EvaluationView,
    ForkRequest,
    LabelRequest,
    RecordRequest,
    ResumeRequest,
    Started,
    StartRequest,
)
from penstock.errors import ConfigError, NotFound
from penstock.server.mcp.arguments import Key, Run
from penstock.server.mcp.desk import BEGINS, DESTROYS, STEERS, Desk, Offer
from penstock.server.mcp.results import EvaluationBrief, RunBrief, StartedRuns, Steered, of

LOOK_SECONDS = (0.2, 1.0)
"""Between two looks whether an evaluation is done: short at first."""


def start_training(
    desk: Desk,
    environment: Annotated[
        str, Field(min_length=1, max_length=512, description="Such as CartPole-v1 (see list_environments).")
    ],
    algorithm: Annotated[
        str | None,
        Field(max_length=64, description="ppo, impala, dqn, sac …; default: what suits the environment."),
    ] = None,
    actors: Annotated[int | None, Field(ge=0, le=16, description="Processes that make experience.")] = None,
    steps: Annotated[int | None, Field(ge=1, description="End after this many environment steps.")] = None,
    target: Annotated[
        float | None, Field(description="End once the mean training return reaches it.")
    ] = None,
    seconds: Annotated[float | None, Field(gt=0, description="End after this much training time.")] = None,
    seed: Annotated[int | None, Field(ge=0)] = None,
    seeds: Annotated[
        int, Field(ge=1, le=64, description="Start so many runs that differ in their seed.")
    ] = 1,
    settings: Annotated[
        dict[str, Any],
        Field(description="Hyperparameters, as in {'learning_rate': 0.001} (see get_algorithm)."),
    ] = {},  # noqa: B006 - pydantic copies it
    spec: Annotated[
        dict[str, Any], Field(description="Any other part of the spec, as in {'pace': {'lead': 0}}.")
    ] = {},  # noqa: B006
    name: Annotated[
        str | None, Field(max_length=63, description="The run's id; default: one is made.")
    ] = None,
    project: Annotated[str | None, Field(max_length=64)] = None,
    tags: Annotated[list[str], Field(max_length=32)] = [],  # noqa: B006
    note: Annotated[str, Field(max_length=2000, description="Why this run is made.")] = "",
    key: Key = None,
) -> StartedRuns:
    """Start training a policy; returns at once with the run's id. Only `environment` is required.

    What is left out has tuned defaults. A run ends at the first stop condition that holds (steps, target, seconds);
    without any it goes on to the environment's default. To learn whether a change helps, start several seeds and
    use compare_runs. It trains on this server's machine: do not start more than a few runs at once.
    """
    wanted = _spec(environment, algorithm, settings, spec)
    stop = {"steps": steps, "target": target, "seconds": seconds}
    _merge(wanted, "stop", {word: value for word, value in stop.items() if value is not None})
    _merge(wanted, "actors", {} if actors is None else {"count": actors})
    if seed is not None:
        wanted["seed"] = seed
    request = StartRequest(**wanted, name=name, project=project, tags=tags, note=note, seeds=seeds)
    return _started(desk.commander.start(desk.who, request, key))


def fork_run(
    desk: Desk,
    run: Run,
    at: Annotated[str, Field(max_length=64, description="newest, best, EPOCH.STEP or a step.")] = "newest",
    changes: Annotated[
        dict[str, Any], Field(description="Paths of the spec, as in {'ppo.learning_rate': 0.0001}.")
    ] = {},  # noqa: B006
    name: Annotated[str | None, Field(max_length=63)] = None,
    key: Key = None,
) -> StartedRuns:
    """Start a new run from what another had learned at some point, with other settings; the old one is untouched.

    This is how to change what set_hyperparameters cannot.
    """
    request = ForkRequest(at=at, changes=changes, name=name)
    return _started(desk.commander.fork(desk.who, run, request, key))


def stop_training(desk: Desk, run: Run, key: Key = None) -> Steered:
    """End a run: it drains, saves a checkpoint and stops. Nothing is lost; resume_training goes on from there."""
    return _steered(desk.commander.stop(desk.who, run, key), "get_status tells when it is stopped.")


def pause_training(desk: Desk, run: Run, key: Key = None) -> Steered:
    """Let a run rest: it saves a checkpoint and waits, using no processor. resume_training goes on exactly there."""
    return _steered(desk.commander.pause(desk.who, run, key), "get_status tells when it is paused.")


def resume_training(
    desk: Desk,
    run: Run,
    stop: Annotated[
        dict[Literal["steps", "target", "window", "seconds", "updates"], float | int | None],
        Field(description="New stop conditions where the old ones hold already; null removes one."),
    ] = {},  # noqa: B006
    key: Key = None,
) -> Steered:
    """Go on with a run that is paused, stopped, done, failed or interrupted, exactly where it was.

    A run that is done needs a later stop condition, as in {'steps': 500000}.
    """
    request = ResumeRequest(stop=stop)
    return _steered(
        desk.commander.resume(desk.who, run, request, key), "get_status tells when it is running."
    )


def scale_actors(
    desk: Desk, run: Run, actors: Annotated[int, Field(ge=0, le=16)], key: Key = None
) -> Steered:
    """Change how many actor processes feed a run's learner. More help only while the machine has idle cores."""
    told = desk.commander.scale_actors(desk.who, run, actors, key)
    return _steered(told, "list_actors shows them come or go within seconds.")


def scale_learner(
    desk: Desk, run: Run, learner: Annotated[int, Field(ge=0, le=1)], key: Key = None
) -> Steered:
    """Take a run's learner away (0) or bring it back (1); without one, actors wait and nothing is lost."""
    return _steered(
        desk.commander.scale_learner(desk.who, run, learner, key), "get_status tells how it stands."
    )


def set_hyperparameters(
    desk: Desk,
    run: Run,
    settings: Annotated[
        dict[str, Any], Field(min_length=1, max_length=64, description="As in {'learning_rate': 0.0001}.")
    ],
    key: Key = None,
) -> Steered:
    """Change hyperparameters of a run while it learns, from its next update on; all of them or none.

    get_status names in live_settings those that can. The change is recorded with old and new values;
    rollback_hyperparameters takes it back.
    """
    told = desk.commander.set_hyperparameters(desk.who, run, settings, key)
    return _steered(told, "Watch get_metrics for its effect; rollback_hyperparameters takes it back.")


def rollback_hyperparameters(
    desk: Desk,
    run: Run,
    command: Annotated[
        str | None, Field(max_length=64, description="Id of the change to take back; default: the last one.")
    ] = None,
    key: Key = None,
) -> Steered:
    """Take back a change of hyperparameters: what it changed is set as it was before."""
    return _steered(desk.commander.rollback(desk.who, run, command, key), "get_status shows the settings.")


def save_checkpoint(desk: Desk, run: Run, key: Key = None) -> Steered:
    """Save a checkpoint of a live run now, besides those it saves by itself."""
    return _steered(desk.commander.save_checkpoint(desk.who, run, key), "list_checkpoints shows it soon.")


def label_run(
    desk: Desk,
    run: Run,
    project: Annotated[str | None, Field(max_length=64)] = None,
    tags: Annotated[list[str] | None, Field(max_length=32, description="Replaces all its tags.")] = None,
    note: Annotated[str | None, Field(max_length=2000)] = None,
    key: Key = None,
) -> Steered:
    """Change a run's project, tags or note; what is left out stays as it is. Good for writing conclusions down."""
    if project is None and tags is None and note is None:
        raise ConfigError("nothing to change was given")
    request = LabelRequest(project=project, tags=tags, note=note)
    return _steered(desk.commander.label(desk.who, run, request, key), "list_runs finds it by these words.")


async def evaluate_policy(
    desk: Desk,
    run: Run,
    checkpoint: Annotated[str, Field(max_length=64, description="best, newest or EPOCH.STEP.")] = "best",
    episodes: Annotated[int, Field(ge=1, le=10_000)] = 10,
    seed: Annotated[int, Field(ge=0, lt=1 << 53)] = 0,
    wait_seconds: Annotated[
        float, Field(ge=0, le=300, description="How long to wait for the result.")
    ] = 30.0,
    key: Key = None,
) -> EvaluationBrief:
    """Play episodes with a checkpoint's policy, without exploring, and tell the mean return and its spread.

    Waits for the result; where it takes longer, the answer has state queued or running and the id for get_evaluation.
    The same seed plays the same episodes, so policies can be compared.
    """
    request = EvaluateRequest(checkpoint=checkpoint, episodes=episodes, seed=seed)
    told: Accepted = await desk.away(desk.commander.evaluate, desk.who, run, request, key)
    found = await _wait(desk, run, told.command.id, wait_seconds)
    if found is None:
        found = _queued(told, run, request)
    late = (
        f"Call get_evaluation with id {found.id} in a while."
        if found.state in ("queued", "running")
        else None
    )
    return EvaluationBrief.of(found, late)


def record_play(
    desk: Desk,
    run: Run,
    checkpoint: Annotated[str, Field(max_length=64, description="best, newest or EPOCH.STEP.")] = "best",
    seed: Annotated[int, Field(ge=0, lt=1 << 53)] = 0,
    key: Key = None,
) -> Steered:
    """Record one episode of a checkpoint's policy as a GIF for people; to judge a policy use evaluate_policy."""
    request = RecordRequest(checkpoint=checkpoint, seed=seed)
    return _steered(
        desk.commander.record(desk.who, run, request, key),
        "list_recordings shows it with this command's id; it takes some seconds.",
    )


def delete_run(
    desk: Desk,
    run: Run,
    confirm: Annotated[bool, Field(description="Must be true, after the person has agreed to lose it.")],
    key: Key = None,
) -> Steered:
    """Delete a run that has ended, with its checkpoints, metrics and logs. Nothing brings it back: ask the person."""
    if not confirm:
        raise ConfigError(
            f"nothing was deleted: ask the person, then call delete_run with confirm=true for {run}"
        )
    return _steered(desk.commander.delete(desk.who, run, key), "It is gone from list_runs within seconds.")


OFFERS = (
    Offer(start_training, "Start training", BEGINS),
    Offer(stop_training, "Stop a run", STEERS),
    Offer(pause_training, "Pause a run", STEERS),
    Offer(resume_training, "Resume a run", STEERS),
    Offer(scale_actors, "Scale actors", STEERS),
    Offer(scale_learner, "Scale the learner", STEERS),
    Offer(set_hyperparameters, "Set hyperparameters", STEERS),
    Offer(rollback_hyperparameters, "Roll hyperparameters back", BEGINS),
    Offer(evaluate_policy, "Evaluate a policy", BEGINS),
    Offer(record_play, "Record an episode", BEGINS),
    Offer(save_checkpoint, "Save a checkpoint", BEGINS),
    Offer(fork_run, "Fork a run", BEGINS),
    Offer(label_run, "Label a run", STEERS),
    Offer(delete_run, "Delete a run", DESTROYS),
)


def _spec(
    environment: str, algorithm: str | None, settings: dict[str, Any], spec: dict[str, Any]
) -> dict[str, Any]:
    """One spec of the arguments; raise ConfigError where they leave open what is meant."""
    if twice := [word for word in ("name", "project", "tags", "note", "seeds") if word in spec]:
        raise ConfigError(f"{twice[0]} is no part of a spec; give it as an argument of its own")
    wanted = dict(spec)
    more = wanted.pop("environment", {})
    wanted["environment"] = {**more, "id": environment} if isinstance(more, dict) and more else environment
    if algorithm is not None:
        wanted["algorithm"] = algorithm
    if settings:
        named = wanted.get("algorithm")
        if not isinstance(named, str):
            raise ConfigError("settings belong to an algorithm: name it too, as in algorithm=ppo")
        _merge(wanted, named, settings)
    return wanted


def _merge(wanted: dict[str, Any], group: str, values: dict[str, Any]) -> None:
    before = wanted.get(group, {})
    if values:
        wanted[group] = {**(before if isinstance(before, dict) else {}), **values}


def _started(told: Started) -> StartedRuns:
    return StartedRuns(
        runs=[of(RunBrief, run) for run in told.runs],
        group=told.group,
        commands=[command.id for command in told.commands],
        next_step="get_status tells when it is running (some seconds), get_metrics how it learns.",
    )


def _steered(told: Accepted, next_step: str) -> Steered:
    command = told.command
    return Steered(
        command=command.id, verb=command.verb, outcome=command.outcome, old=command.old, new=command.new,
        run=None if told.run is None else of(RunBrief, told.run), next_step=next_step,
    )  # fmt: skip


async def _wait(desk: Desk, run: str, id: str, seconds: float) -> EvaluationView | None:
    """The evaluation once it is over, or as it stands after `seconds`; None where it has not begun."""
    begun, pause, found = time.monotonic(), LOOK_SECONDS[0], None
    while True:
        try:
            found = await desk.away(desk.reads.evaluation, run, id)
        except NotFound:
            found = None
        spent = time.monotonic() - begun
        if (found is not None and found.state in ("done", "failed")) or spent >= seconds:
            return found
        state = "queued" if found is None else found.state
        await desk.progress(spent, seconds, f"the evaluation is {state}")
        await anyio.sleep(min(pause, seconds - spent))
        pause = min(LOOK_SECONDS[1], pause * 1.5)


def _queued(told: Accepted, run: str, request: EvaluateRequest) -> EvaluationView:
    return EvaluationView(
        id=told.command.id, run=run, state="queued", checkpoint=request.checkpoint, episodes=request.episodes,
        seed=request.seed, at=told.command.at, mean=None, std=None, returns=[], lengths=[], seconds=None,
        reason=None,
    )  # fmt: skip
