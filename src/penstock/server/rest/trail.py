"""The audit trail: every command that was accepted, by whom, and what came of it."""

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from penstock.control.views import CommandView, Page
from penstock.server.rest.parts import ControlDep, Cursor, Id, Limit, answer, make_router

router = make_router("audit trail")

Filter = Annotated[str | None, Query(max_length=100)]


@router.get("/commands", response_model=Page[CommandView])
def list_commands(
    control: ControlDep,
    run: Filter = None,
    who: Filter = None,
    verb: Filter = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Commands, newest first; deleted runs stay in it."""
    return answer(control.reads.commands(run, who, verb, limit, cursor))


@router.get("/commands/{id}", response_model=CommandView)
def get_command(control: ControlDep, id: Id) -> Response:
    """One command: who gave it, when, what it changed."""
    return answer(control.reads.command(id))
