"""Tokens: who may come in. Only admins see them, and nobody sees a secret twice."""

from starlette.responses import Response

from penstock.control.views import NewToken, TokenRequest, TokenView
from penstock.server.rest.parts import ControlDep, Id, Key, Who, answer, make_router

router = make_router("tokens")


@router.get("/tokens", response_model=list[TokenView])
def list_tokens(control: ControlDep) -> Response:
    """All tokens, also expired and revoked ones, without their secrets."""
    return answer(control.tokens.list())


@router.post("/tokens", status_code=201, response_model=NewToken)
def create_token(control: ControlDep, who: Who, request: TokenRequest, key: Key = None) -> Response:
    """A new token; its secret is in this answer and nowhere else."""
    return answer(control.commander.create_token(who, request, key), 201)


@router.delete("/tokens/{id}", response_model=TokenView)
def revoke_token(control: ControlDep, who: Who, id: Id, key: Key = None) -> Response:
    """Revoke a token; whoever holds it is refused from now on."""
    return answer(control.commander.revoke_token(who, id, key))
