"""Tools of those who give access to others."""

from typing import Annotated

from pydantic import Field

from penstock.control.permissions import Role
from penstock.control.views import NewToken, TokenRequest, TokenView
from penstock.server.mcp.arguments import Key
from penstock.server.mcp.desk import BEGINS, DESTROYS, READS, Desk, Offer
from penstock.server.mcp.results import TokenList


def list_tokens(desk: Desk) -> TokenList:
    """All tokens with name, role and expiry, also expired and revoked ones; never their secrets."""
    return TokenList(tokens=desk.backend.tokens.list())


def create_token(
    desk: Desk,
    name: Annotated[str, Field(min_length=1, max_length=64, description="Whose it is.")],
    role: Annotated[
        Role, Field(description="viewer sees, operator steers runs, admin deletes and gives tokens.")
    ] = Role.VIEWER,
    days: Annotated[float | None, Field(gt=0, le=3650, description="Until it expires; null: never.")] = None,
    key: Key = None,
) -> NewToken:
    """Give a token. Its secret is in this answer only, and so in this conversation: do it when the person asked for it.

    Prefer the smallest role and an expiry.
    """
    return desk.commander.create_token(desk.who, TokenRequest(name=name, role=role, days=days), key)


def revoke_token(
    desk: Desk,
    id: Annotated[str, Field(max_length=64, description="As list_tokens tells it.")],
    key: Key = None,
) -> TokenView:
    """Revoke a token: whoever holds it is refused from now on. It cannot be undone."""
    return desk.commander.revoke_token(desk.who, id, key)


OFFERS = (
    Offer(list_tokens, "List tokens", READS),
    Offer(create_token, "Create a token", BEGINS),
    Offer(revoke_token, "Revoke a token", DESTROYS),
)
