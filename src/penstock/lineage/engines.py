"""Connections that lose nothing: SQLite with immediate write transactions, PostgreSQL with one writer at a time.

pysqlite left to itself begins transactions late, and two read-modify-writes at once then lose one of them
without an error. So the driver's own handling is off, and each write transaction takes the lock first.
"""

import sqlite3
import time
from typing import Any

import msgspec
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL

from penstock.errors import ConfigError

LOCK_SECONDS = 5.0
"""How long a transaction waits for another before it is given up."""
STATEMENT_SECONDS = 30
WRITERS_LOCK = 0x50454E53
"""Key of the advisory lock; it belongs to one database, not to the whole server."""
READERS = 8


def engine(url: URL, *, writes: bool) -> Engine:
    """Connections of which each transaction is one writer's alone, or a reader's snapshot."""
    options: dict[str, Any] = {
        "json_serializer": lambda value: msgspec.json.encode(value).decode(),
        "json_deserializer": msgspec.json.decode,
        "pool_timeout": 2 * LOCK_SECONDS,
        "pool_size": 1 if writes else READERS,
        "max_overflow": 0 if writes else 4 * READERS,
    }
    return (
        _sqlite(url, options, writes)
        if url.get_backend_name() == "sqlite"
        else _postgres(url, options, writes)
    )


def _sqlite(url: URL, options: dict[str, Any], writes: bool) -> Engine:
    made = create_engine(url, connect_args={"timeout": LOCK_SECONDS}, **options)

    @event.listens_for(made, "connect")
    def _connect(connection: Any, _: object) -> None:
        connection.isolation_level = None
        for pragma in (
            "foreign_keys = ON",
            "synchronous = NORMAL",
            f"query_only = {'OFF' if writes else 'ON'}",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(made, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return made


def set_wal(made: Engine) -> None:
    """Let readers read while somebody writes; the file remembers it. SQLite itself does not wait here."""
    until = time.monotonic() + LOCK_SECONDS
    while True:
        connection = made.raw_connection()
        try:
            connection.cursor().execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.05)
        finally:
            connection.close()


def _postgres(url: URL, options: dict[str, Any], writes: bool) -> Engine:
    try:
        made = create_engine(
            url,
            isolation_level="READ COMMITTED" if writes else "REPEATABLE READ",
            connect_args={"connect_timeout": int(LOCK_SECONDS)},
            pool_pre_ping=True,  # the server may have been restarted since
            **options,
        )
    except ImportError as error:
        raise ConfigError("a database in PostgreSQL needs: pip install 'penstock[postgres]'") from error

    @event.listens_for(made, "begin")
    def _begin(connection: Connection) -> None:
        begin = f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'; SET LOCAL statement_timeout = '{STATEMENT_SECONDS}s'"
        then = f"SELECT pg_advisory_xact_lock({WRITERS_LOCK})" if writes else "SET TRANSACTION READ ONLY"
        connection.exec_driver_sql(f"{begin}; {then}")

    return made
