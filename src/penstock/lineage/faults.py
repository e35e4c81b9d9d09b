"""What a database can do to a caller, as errors of ours; the words of a statement never leave here."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    SQLAlchemyError,
    StatementError,
)

from penstock.errors import ConfigError, Conflict, Damaged, PenstockError, Unavailable

BROKEN = ("file is not a database", "malformed", "file is encrypted")
LOCKED = ("locked", "lock timeout", "deadlock")
ODD = ("binding parameter", "cannot adapt type", "but expression is of type")
"""A value of a type that its column does not take."""
AWAY = (OperationalError, InterfaceError, sqlite3.OperationalError)
REBUILT = "move its file away, or name an empty database: the index is made again from the runs and the log"


@contextmanager
def translated(database: str) -> Iterator[None]:
    """Raise what happens inside as an error of ours; `database` is its address as it may be shown."""
    try:
        yield
    except PenstockError:
        raise
    except (DBAPIError, sqlite3.Error) as error:
        _raise(error, database)
    except StatementError as error:  # a value that could not even be sent
        raise ConfigError(f"the database cannot hold that value: {_reason(error)}") from error
    except SQLAlchemyError as error:  # waiting for a connection, mostly
        raise Unavailable(f"the database {database} has no time: {_reason(error)}; try again") from error


@contextmanager
def sending(database: str) -> Iterator[None]:
    """The same around one statement, whose values may be such as no database takes."""
    with translated(database):
        try:
            yield
        except (OverflowError, UnicodeEncodeError) as error:
            raise ConfigError(f"the database cannot hold that value: {error}") from error


def _raise(error: DBAPIError | sqlite3.Error, database: str) -> NoReturn:
    reason = _reason(error)
    if isinstance(error, IntegrityError):
        raise Conflict(f"the database {database} refuses that: {reason}") from error
    if isinstance(error, DataError) or any(word in reason for word in ODD):
        raise ConfigError(f"the database cannot hold that value: {reason}") from error
    if any(word in reason for word in BROKEN):
        raise Damaged(f"the database {database} is damaged ({reason}); {REBUILT}") from error
    if any(word in reason for word in LOCKED):
        raise Unavailable(
            f"the database {database} is locked by another process ({reason}); try again, or end that process"
        ) from error
    if isinstance(error, AWAY) or getattr(error, "connection_invalidated", False):
        raise Unavailable(f"the database {database} cannot be used: {reason}; try again") from error
    raise Damaged(f"the database {database} is not as penstock made it ({reason}); {REBUILT}") from error


def _reason(error: Exception) -> str:
    """The first line of what the driver said: no statement, no values."""
    told = getattr(error, "orig", None) or error
    lines = str(told).strip().splitlines()
    return lines[0] if lines else type(told).__name__
