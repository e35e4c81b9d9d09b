"""Verbs: what can be done to a run. Each is accepted once its command is synced in the log."""

from starlette.responses import Response

from penstock.control.views import (
    Accepted,
    EvaluateRequest,
    ForkRequest,
    ResumeRequest,
    RollbackRequest,
    RunView,
    ScaleActorsRequest,
    ScaleLearnerRequest,
    SetRequest,
)
from penstock.server.rest.parts import ControlDep, Key, Run, Who, make_router, run_path
from penstock.server.rest.runs import accepted, started

router = make_router("verbs")

# what is done without a body
RESUME, ROLLBACK, EVALUATE, FORK = ResumeRequest(), RollbackRequest(), EvaluateRequest(), ForkRequest()


@router.post("/runs/{run}/stop", status_code=202, response_model=Accepted)
def stop_training(control: ControlDep, who: Who, run: Run, key: Key = None) -> Response:
    """Drain, save a checkpoint and end; the run can be resumed."""
    return accepted(control.commander.stop(who, run, key), run)


@router.post("/runs/{run}/pause", status_code=202, response_model=Accepted)
def pause_training(control: ControlDep, who: Who, run: Run, key: Key = None) -> Response:
    """Save a checkpoint and wait; resume goes on exactly there."""
    return accepted(control.commander.pause(who, run, key), run)


@router.post("/runs/{run}/resume", status_code=202, response_model=Accepted)
def resume_training(
    control: ControlDep, who: Who, run: Run, request: ResumeRequest = RESUME, key: Key = None
) -> Response:
    """Go on where the run's newest checkpoint and log end, with other stop conditions if they are given."""
    return accepted(control.commander.resume(who, run, request, key), run)


@router.post("/runs/{run}/actors", status_code=202, response_model=Accepted)
def scale_actors(
    control: ControlDep, who: Who, run: Run, request: ScaleActorsRequest, key: Key = None
) -> Response:
    """Change how many actors feed the learner: 0 to 16."""
    return accepted(control.commander.scale_actors(who, run, request.actors, key), run)


@router.post("/runs/{run}/learner", status_code=202, response_model=Accepted)
def scale_learner(
    control: ControlDep, who: Who, run: Run, request: ScaleLearnerRequest, key: Key = None
) -> Response:
    """Take the learner away (0) or bring it back (1)."""
    return accepted(control.commander.scale_learner(who, run, request.learner, key), run)


@router.post("/runs/{run}/settings", status_code=202, response_model=Accepted)
def set_hyperparameters(
    control: ControlDep, who: Who, run: Run, request: SetRequest, key: Key = None
) -> Response:
    """Change hyperparameters from the next update on; `live_settings` of the run names those that can."""
    return accepted(control.commander.set_hyperparameters(who, run, request.settings, key), run)


@router.post("/runs/{run}/settings/rollback", status_code=202, response_model=Accepted)
def rollback_hyperparameters(
    control: ControlDep, who: Who, run: Run, request: RollbackRequest = ROLLBACK, key: Key = None
) -> Response:
    """Take back the last change of hyperparameters, or the one named."""
    return accepted(control.commander.rollback(who, run, request.command, key), run)


@router.post("/runs/{run}/checkpoints", status_code=202, response_model=Accepted)
def save_checkpoint(control: ControlDep, who: Who, run: Run, key: Key = None) -> Response:
    """Save a checkpoint now."""
    return accepted(control.commander.save_checkpoint(who, run, key), run)


@router.post("/runs/{run}/evaluations", status_code=202, response_model=Accepted)
def evaluate_policy(
    control: ControlDep, who: Who, run: Run, request: EvaluateRequest = EVALUATE, key: Key = None
) -> Response:
    """Play episodes with a checkpoint's policy, without exploring; Location is where the result will be."""
    told = control.commander.evaluate(who, run, request, key)
    return accepted(told, run, f"{run_path(run)}/evaluations/{told.command.id}")


@router.post("/runs/{run}/forks", status_code=201, response_model=RunView)
def fork_run(
    control: ControlDep, who: Who, run: Run, request: ForkRequest = FORK, key: Key = None
) -> Response:
    """Start a new run from what this one had learned at some version, with other settings if they are given."""
    return started(control.commander.fork(who, run, request, key))
