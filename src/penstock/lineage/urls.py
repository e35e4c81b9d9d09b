"""The address of a database: what is accepted, and what may be shown of it."""

from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from penstock.errors import ConfigError

EXAMPLES = "write sqlite:////absolute/path.db or postgresql://USER:PASSWORD@HOST/DATABASE"


def default_url(home: Path) -> str:
    """The database of a home that names no other."""
    return URL.create("sqlite", database=str(home / "penstock.db")).render_as_string()


def parse(text: str) -> URL:
    """The address with its driver; raise ConfigError, without a password in it."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        raise ConfigError(f"the database's address cannot be read; {EXAMPLES}") from error
    kind = url.get_backend_name()
    if kind in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    if kind != "sqlite":
        raise ConfigError(f"{kind} is no database penstock knows; {EXAMPLES}")
    if url.database in (None, "", ":memory:") or url.database.startswith("file:"):
        raise ConfigError(f"a database must lie in a file; {EXAMPLES}")
    return url.set(drivername="sqlite+pysqlite", database=str(Path(url.database).expanduser().absolute()))


def shown(url: URL) -> str:
    """For people: without driver and password; what a query might hold of secrets is left out too."""
    plain = URL.create(url.get_backend_name(), url.username, None, url.host, url.port, url.database)
    return plain.render_as_string()
