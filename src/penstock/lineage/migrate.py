"""Bringing a database to the tables of this version, once, whoever opens it first."""

from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import OperationalError, ProgrammingError

from penstock.errors import ConfigError
from penstock.lineage.faults import REBUILT

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0001"
"""The newest of `migrations/versions`."""
VERSION_TABLE = "penstock_revision"


def migrate(engine: Engine, database: str) -> None:
    """Make the tables what they should be, in one transaction; raise ConfigError where that cannot be."""
    with engine.begin() as connection:
        found = revision(connection)
        if found == HEAD:
            return
        from alembic import command  # only now: importing it takes longer than opening the database

        settings = config(connection)
        if found is not None and found not in _known(settings):
            raise ConfigError(
                f"the database {database} was made by a newer penstock (revision {found}); "
                f"upgrade penstock, or {REBUILT}"
            )
        try:
            command.upgrade(settings, "head")
        except (OperationalError, ProgrammingError) as error:
            if "already exists" not in str(error.orig):
                raise
            raise ConfigError(
                f"the database {database} holds tables of somebody else; give penstock a database of its own"
            ) from error


def revision(connection: Connection) -> str | None:
    """What the database says it is; None where it is new."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608


def config(connection: Connection) -> "Config":
    """Alembic's view of us; there is no ini file."""
    from alembic.config import Config

    settings = Config()
    settings.set_main_option("script_location", "penstock.lineage:migrations")
    settings.attributes.update(connection=connection, version_table=VERSION_TABLE)
    return settings


def _known(settings: "Config") -> set[str]:
    from alembic.script import ScriptDirectory

    return {script.revision for script in ScriptDirectory.from_config(settings).walk_revisions()}
