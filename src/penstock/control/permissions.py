"""Who may do what: one table that REST, WebSocket, MCP and gRPC all ask. What is not in it is denied."""

from dataclasses import dataclass
from enum import StrEnum

from penstock.errors import Denied


class Role(StrEnum):
    """Each may do what the one before it may."""

    VIEWER = "viewer"
    """Sees everything but tokens."""
    OPERATOR = "operator"
    """Starts, steers and stops runs."""
    ADMIN = "admin"
    """Deletes runs, gives and revokes tokens."""

    @property
    def rank(self) -> int:
        return list(Role).index(self)


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody who showed a token, or who sits at this machine."""

    name: str
    role: Role
    token: str = ""
    """The id of the token, not the token."""


_VIEWER = """
get_server get_ready get_prometheus get_openapi list_runs get_status get_spec get_metrics list_actors list_checkpoints
download_checkpoint get_logs list_events list_states list_evaluations get_evaluation compare_runs list_commands
get_command list_environments get_environment list_algorithms get_algorithm get_spec_schema resolve_spec
list_projects list_groups list_recordings download_recording watch_metrics watch_states watch_logs watch_play
fetch_policy act_remotely
"""
_OPERATOR = """
start_training stop_training pause_training resume_training scale_actors scale_learner set_hyperparameters
rollback_hyperparameters evaluate_policy record_play save_checkpoint fork_run label_run open_policy send_experience
"""
_ADMIN = "delete_run list_tokens create_token revoke_token"

NEEDED: dict[str, Role] = {
    operation: role
    for role, operations in ((Role.VIEWER, _VIEWER), (Role.OPERATOR, _OPERATOR), (Role.ADMIN, _ADMIN))
    for operation in operations.split()
}
"""Operation → the least role that may do it."""


def check(principal: Principal, operation: str) -> None:
    """Raise Denied unless `principal` may do it."""
    needed = NEEDED.get(operation)
    if needed is None:
        raise Denied(f"{operation} is nothing anybody may do here")
    if principal.role.rank < needed.rank:
        raise Denied(
            f"{operation} needs the role {needed}; the token of {principal.name} is a {principal.role}'s: ask an "
            f"admin for one (penstock token create --role {needed})"
        )
