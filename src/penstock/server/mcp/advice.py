"""Errors as an assistant can use them: the sentence, and what to do next."""

from penstock.errors import ConfigError, Conflict, Denied, NotFound, PenstockError, Unavailable

_MISSING = {
    "checkpoint": "Call list_checkpoints to see those it has, or save_checkpoint for a new one.",
    "evaluation": "Call list_evaluations to see those it has.",
    "command": "Call list_commands to see them.",
    "token": "Call list_tokens to see them.",
    "environment": "Call list_environments with a part of the name.",
    "algorithm": "Call list_algorithms to see them.",
    "log": "Call get_logs without `process` to see which processes have one.",
    "change": "Call list_commands with verb=set to see what was changed.",
    "run": "Call list_runs to see which there are.",
}
"""A word of the sentence → where to look."""

_WRONG = {
    "set_hyperparameters": "get_status names in live_settings what may change; for the rest use fork_run.",
    "rollback_hyperparameters": "Call list_commands with verb=set to see what was changed.",
    "fork_run": "Call get_spec for the paths of the spec, list_checkpoints for where a fork may begin.",
    "scale_actors": "A run has 0 to 16 actors.",
    "label_run": "Give project, tags or note.",
    "list_runs": "Correct the filter, the sort or the cursor and call it again.",
    "list_commands": "Correct the filter or the cursor and call it again.",
}
"""Tool → what to do about wrong arguments."""

_MOMENT = {
    "start_training": "Choose another name, or leave it out.",
    "fork_run": "Choose another name, or leave it out.",
    "create_token": "Revoke it, or ask again with another key.",
    "delete_run": "A run must have ended: call stop_training, then get_status until it has.",
    "resume_training": "Call get_status: a run that is live needs no resuming.",
}
"""Tool → what to do about a request at the wrong moment."""


def advice(tool: str, error: PenstockError) -> str:
    """What to tell the assistant."""
    return f"{_sentence(error)} {_next(tool, error)}"


def _sentence(error: PenstockError) -> str:
    text = str(error).strip() or type(error).__name__
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _next(tool: str, error: PenstockError) -> str:
    match error:
        case NotFound():
            words = str(error).lower()
            return next(
                (hint for word, hint in _MISSING.items() if f"no {word}" in words), _nowhere(tool, words)
            )
        case Denied():
            return "Do not try again: tell the person which role is needed."
        case Conflict():
            return _MOMENT.get(tool, "Call get_status to see its state and what is wanted of it.")
        case ConfigError():
            return _WRONG.get(tool, "Correct it; resolve_spec checks a spec without starting anything.")
        case Unavailable():
            return "Try again in a few seconds; get_server tells what is wrong."
        case _:
            return "This is a fault of the server; get_logs and list_events of the run may tell more."


def _nowhere(tool: str, words: str) -> str:
    if "algorithm" in tool or "algorithm" in words:
        return _MISSING["algorithm"]
    if "environment" in tool or "environment" in words:
        return _MISSING["environment"]
    return next((hint for word, hint in _MISSING.items() if word in words), _MISSING["run"])
