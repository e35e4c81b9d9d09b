"""The same promises on a real PostgreSQL, and what only a server can do: be away, and come back."""

from collections.abc import Iterator

import pytest

from penstock.errors import Unavailable
from penstock.lineage import engines
from penstock.lineage.database import Lineage
from tests.postgres import Postgres, running_postgres
from tests.unit.test_lineage import LineageContract, a_run, names, put


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


class TestPostgres(LineageContract):
    @pytest.fixture
    def url(self, postgres: Postgres) -> str:
        return postgres.url()

    def test_a_writer_that_holds_the_lock_makes_others_unavailable(
        self, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(engines, "LOCK_SECONDS", 0.3)
        slow, other = Lineage(url), Lineage(url)
        with slow.write() as write:
            write.put_run(a_run("a"))
            with pytest.raises(Unavailable, match="locked"):
                put(other, a_run("b"))
            assert names(other) == []  # readers do not wait
        put(other, a_run("b"))
        assert names(other) == ["a", "b"]
        slow.close()
        other.close()

    def test_a_server_that_is_away_is_unavailable_and_back_again_is_used(
        self, postgres: Postgres, url: str
    ) -> None:
        lineage = Lineage(url)
        put(lineage, a_run("a"))
        postgres.stop()
        try:
            with pytest.raises(Unavailable, match="cannot be used") as caught:
                names(lineage)
            assert "SELECT" not in str(caught.value)
            with pytest.raises(Unavailable):
                put(lineage, a_run("b"))
            with pytest.raises(Unavailable):
                Lineage(url)
        finally:
            postgres.start()
        put(lineage, a_run("b"))
        assert names(lineage) == ["a", "b"]
        assert not lineage.lost()
        lineage.close()

    def test_a_server_that_ends_within_a_transaction_stores_none_of_it(
        self, postgres: Postgres, url: str
    ) -> None:
        lineage = Lineage(url)
        with pytest.raises(Unavailable), lineage.write() as write:  # noqa: PT012
            write.put_run(a_run("a"))
            postgres.stop()
            postgres.start()
            write.put_run(a_run("b"))
        assert names(lineage) == []
        lineage.close()

    def test_a_wrong_password_or_database_is_a_sentence_without_it(self, postgres: Postgres) -> None:
        with pytest.raises(Unavailable, match="does not exist") as caught:
            Lineage(postgres.url("nobodys").replace("postgres@", "postgres:secret@"))
        assert "secret" not in str(caught.value)
