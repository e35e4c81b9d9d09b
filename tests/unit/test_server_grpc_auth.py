"""Wrong tokens make their address wait, and nobody whose token was right a while ago."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import grpc
import pytest

from penstock.control.permissions import Principal, Role
from penstock.control.tokens import Tokens
from penstock.errors import Denied
from penstock.server import grpc_auth
from penstock.server.grpc import refusal
from penstock.server.grpc_auth import Gatekeeper, TooMany, Unknown
from penstock.server.rates import Limits


class Table:
    """Tokens that are right, by their secret."""

    def __init__(self, *right: str) -> None:
        self.right = set(right)

    def authenticate(self, secret: str) -> Principal:
        if secret not in self.right:
            raise Denied("the token is not known")
        return Principal("name", Role.ADMIN)


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setattr(grpc_auth, "KNOWN_SECONDS", -1.0)  # every call looks the token up
    table = Table("pst_old", "pst_new")
    keeper = Gatekeeper(cast(Tokens, table), Limits(failures_per_minute=3))

    def call(secret: str, peer: str = "ipv4:10.0.0.1:999") -> Principal:
        metadata = [("authorization", f"Bearer {secret}")]
        return asyncio.run(keeper(metadata, peer, "send_experience"))

    call.table = table  # type: ignore[attr-defined]
    return call


def test_a_wrong_neighbour_does_not_lock_out_who_was_right(ask: Any) -> None:
    ask("pst_old")
    for _ in range(3):
        with pytest.raises(Unknown):
            ask("pst_wrong")
    with pytest.raises(TooMany) as caught:
        ask("pst_wrong")
    assert refusal(caught.value)[0] is grpc.StatusCode.RESOURCE_EXHAUSTED, "for clients that is not the end"
    ask("pst_old")
    with pytest.raises(TooMany):
        ask("pst_new")
    ask("pst_new", "ipv4:10.0.0.2:999")


def test_a_token_that_was_revoked_is_trusted_no_more(ask: Any) -> None:
    ask("pst_old")
    ask.table.right.clear()
    with pytest.raises(Unknown):
        ask("pst_old")
    for _ in range(2):
        with pytest.raises(Unknown):
            ask("pst_wrong")
    with pytest.raises(TooMany):
        ask("pst_old")
