"""Who asks: real tokens in a real database."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection

from penstock.control.permissions import Role
from penstock.control.tokens import Tokens, first_token
from penstock.errors import Denied
from penstock.lineage.database import Lineage
from penstock.server.auth import Gate, TooMany, bearer, tells_secret
from penstock.server.rates import Limits


@pytest.fixture
def tokens(tmp_path: Path) -> Iterator[Tokens]:
    lineage = Lineage(f"sqlite:///{tmp_path / 'penstock.db'}")
    yield Tokens(tmp_path, lineage)
    lineage.close()


def connection(address: str = "10.0.0.1") -> HTTPConnection:
    return HTTPConnection({"type": "http", "headers": [], "client": (address, 1)})


def test_the_first_token_is_the_owners(tokens: Tokens, tmp_path: Path) -> None:
    gate = Gate(tokens, Limits())
    principal = asyncio.run(gate(connection(), first_token(tmp_path)[0]))
    assert principal.role is Role.ADMIN


def test_an_address_that_guesses_waits_and_others_do_not(tokens: Tokens, tmp_path: Path) -> None:
    async def story() -> None:
        gate = Gate(tokens, Limits(failures_per_minute=3))
        secret = first_token(tmp_path)[0]
        await gate(connection(), secret)
        for number in range(3):
            with pytest.raises(Denied, match="unknown"):
                await gate(connection(), f"pst_{number}")
        with pytest.raises(TooMany) as waits:
            await gate(connection(), "pst_3")
        assert 0 < waits.value.seconds <= 20
        with pytest.raises(Denied, match="unknown"):
            await gate(connection("10.0.0.2"), "pst_4")
        assert (await gate(connection(), secret)).role is Role.ADMIN  # known to be right before

    asyncio.run(story())


@pytest.mark.parametrize(
    "values", [[], ["Bearer"], ["Bearer  "], ["Basic x"], ["Bearer a", "Bearer a"], ["Bearer " + "x" * 300]]
)
def test_only_one_bearer_is_understood(values: list[str]) -> None:
    with pytest.raises(Denied):
        bearer(Headers(raw=[(b"authorization", value.encode()) for value in values]))


def test_the_scheme_has_no_case() -> None:
    assert bearer(Headers({"Authorization": "bEaReR pst_x"})) == "pst_x"


@pytest.mark.parametrize(
    ("query", "tells"),
    [(b"", False), (b"limit=5", False), (b"token=x", True), (b"TOKEN=", True), (b"search=pst_abc", True),
     (b"a=1&access%5Ftoken=x", True), (b"search=token", False)],
)  # fmt: skip
def test_a_secret_in_a_query_is_seen(query: bytes, tells: bool) -> None:
    assert tells_secret({"query_string": query}) is tells
