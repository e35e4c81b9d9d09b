"""One control, many faces: what REST can do, an assistant and a terminal can do."""

import pytest

from penstock.control.feed import KINDS
from penstock.control.permissions import NEEDED
from penstock.server.grpc_auth import OPERATIONS
from penstock.server.mcp import OFFERS, WITHOUT_TOOL
from penstock.server.rest import ROUTERS
from penstock.server.watch_talk import OPERATION

COMMANDS = {
    "start_training": "start", "stop_training": "stop", "pause_training": "pause", "resume_training": "resume",
    "scale_actors": "scale", "scale_learner": "scale", "set_hyperparameters": "set",
    "rollback_hyperparameters": "undo", "evaluate_policy": "evaluate", "save_checkpoint": "checkpoint",
    "fork_run": "fork", "label_run": "label", "delete_run": "delete", "list_runs": "runs", "get_status": "show",
    "get_spec": "show", "list_actors": "show", "list_checkpoints": "show", "list_events": "show",
    "list_states": "show", "list_evaluations": "show", "get_evaluation": "evaluate", "get_metrics": "metrics",
    "get_logs": "logs", "download_checkpoint": "download", "compare_runs": "compare", "list_commands": "commands",
    "get_command": "commands", "list_environments": "environments", "get_environment": "environments",
    "list_algorithms": "algorithms", "get_algorithm": "algorithms", "get_spec_schema": "spec",
    "resolve_spec": "spec", "list_projects": "runs", "list_groups": "runs", "get_server": "server",
    "record_play": "play", "list_recordings": "recordings", "download_recording": "play",
    "list_tokens": "token", "create_token": "token", "revoke_token": "token",
}  # fmt: skip
"""Operation → the command that does or shows it."""

WITHOUT_COMMAND = {
    "get_ready", "get_prometheus", "get_openapi", "get_health", "watch_metrics", "watch_states", "watch_logs",
    "watch_play",
}  # fmt: skip
"""For machines: probes, scrapers, generators of clients, and the feeds (their commands: `logs --follow`, `play`)."""


def operations() -> set[str]:
    return {route.name for router in ROUTERS for route in router.routes} & NEEDED.keys()


def test_every_rest_operation_has_its_tool_or_says_why_not():
    tools = {offer.name for offer in OFFERS}
    assert operations() - tools == WITHOUT_TOOL.keys() & operations()
    assert tools <= NEEDED.keys()


def test_every_rest_operation_has_its_command():
    from penstock.cli import app

    assert operations() - COMMANDS.keys() <= WITHOUT_COMMAND
    known = set(app)
    assert set(COMMANDS.values()) <= known, set(COMMANDS.values()) - known


@pytest.mark.parametrize("operation", sorted(NEEDED))
def test_every_permission_belongs_to_something(operation: str):
    others = {*KINDS.values(), OPERATION, *OPERATIONS.values()}
    assert operation in operations() | others
