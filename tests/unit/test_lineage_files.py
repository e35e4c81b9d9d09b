"""What happens to a database that is a file, and to its address."""

import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.errors import ConfigError, PenstockError, Unavailable
from penstock.lineage import engines, urls
from penstock.lineage.database import Lineage
from tests.unit.test_lineage import a_run, names, page, put


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "penstock.db"


def url(file: Path) -> str:
    return f"sqlite:///{file}"


def test_only_its_owner_reads_it(file: Path) -> None:
    lineage = Lineage(url(file))
    put(lineage, a_run("a"))
    assert {path.stat().st_mode & 0o777 for path in file.parent.iterdir()} == {0o600}
    lineage.close()
    file.chmod(0o644)
    Lineage(url(file)).close()
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_database_locked_for_long_is_unavailable_and_readers_go_on(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "LOCK_SECONDS", 0.3)
    lineage = Lineage(url(file))
    put(lineage, a_run("a"))
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    with pytest.raises(Unavailable, match="locked"):
        put(lineage, a_run("b"))
    assert 0.2 < time.monotonic() - began < 3
    assert names(lineage) == ["a"]
    other.execute("ROLLBACK")
    other.close()
    put(lineage, a_run("b"))
    assert names(lineage) == ["a", "b"]
    lineage.close()


def test_a_database_locked_at_the_start_is_unavailable(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "LOCK_SECONDS", 0.3)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(Unavailable, match="locked"):
        Lineage(url(file))
    other.close()


@pytest.mark.parametrize(
    "content", [b"this is no database, but it is long enough to be looked at " * 100, b"x" * 3]
)
def test_a_file_that_is_no_database_is_named_with_the_fix(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(ConfigError, match="move its file away") as caught:
        Lineage(url(file))
    assert str(file) in str(caught.value)
    assert file.read_bytes() == content


def test_a_file_broken_in_the_middle_is_an_error_of_ours(file: Path) -> None:
    lineage = Lineage(url(file))
    put(lineage, *(a_run(f"r{number}") for number in range(300)))
    lineage.close()
    content = bytearray(file.read_bytes())
    content[4096 * 2 :] = b"\xff" * (len(content) - 4096 * 2)
    file.write_bytes(content)
    with pytest.raises(PenstockError, match="move its file away"):
        page(Lineage(url(file)))


def test_a_database_that_vanished_is_noticed_before_anything_is_written_into_nowhere(file: Path) -> None:
    lineage = Lineage(url(file))
    assert not lineage.lost()
    for path in list(file.parent.iterdir()):
        path.unlink()
    assert lineage.lost()
    with pytest.raises(Unavailable, match="removed"):
        put(lineage, a_run("a"))
    with pytest.raises(Unavailable, match="removed"):
        names(lineage)
    again = Lineage(url(file))
    assert lineage.lost()  # another file of that name is not the one it has open
    put(again, a_run("a"))
    assert names(again) == ["a"]
    lineage.reopen()
    assert not lineage.lost()
    put(lineage, a_run("b"))
    assert names(again) == ["a", "b"]
    lineage.close()
    again.close()


def test_a_folder_where_nothing_may_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be opened"):
        Lineage(url(tmp_path / "nowhere" / "penstock.db"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match="cannot be opened"):
        Lineage(url(tmp_path / "folder"))


@pytest.mark.parametrize(
    "address",
    [
        "",
        "nonsense",
        "mysql://u:secret@h/d",
        "sqlite://",
        "sqlite:///:memory:",
        "postgresql://u:secret@h:port/d",
    ],
)
def test_a_wrong_address_is_refused_without_its_password(address: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Lineage(address)
    assert "secret" not in str(caught.value)


def test_addresses_show_no_password_and_homes_may_have_odd_names(tmp_path: Path) -> None:
    shown = urls.shown(urls.parse("postgresql://ada:secret@db.example:5432/penstock?sslpassword=secret"))
    assert shown == "postgresql://ada@db.example:5432/penstock"
    home = tmp_path / "ho me?x#%20"
    home.mkdir()
    lineage = Lineage(urls.default_url(home))
    put(lineage, a_run("a"))
    assert (home / "penstock.db").is_file()
    lineage.close()


def test_postgres_without_its_driver_tells_what_to_install() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from penstock.errors import ConfigError\n"
        "from penstock.lineage.database import Lineage\n"
        "try: Lineage('postgresql://u:secret@127.0.0.1:1/d')\n"
        "except ConfigError as error: print(error)\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told == "a database in PostgreSQL needs: pip install 'penstock[postgres]'\n"
