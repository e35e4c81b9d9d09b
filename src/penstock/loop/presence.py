"""Which server looks after this machine's runs, and which gateway: small files that commands and keepers read."""

import contextlib
import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import msgspec

from penstock.errors import ConfigError, Conflict, Damaged
from penstock.loop.files import read_json, write_atomically
from penstock.loop.processes import identify, is_alive
from penstock.model.run import Keeper

LOCK = "server.lock"
"""Held by the server of a home."""
GATEWAY_LOCK = "gateway.lock"
"""Held by its gateway: two would write the same rounds."""


class Presence(msgspec.Struct, frozen=True):
    """A server and where it answers."""

    process: Keeper
    address: str
    """As in http://127.0.0.1:8080."""


def hold(home: Path, lock: str, what: str, present: Callable[[Path], Presence | None], end: str) -> TextIO:
    """Be the only one of its kind in this home until the file is closed; raise Conflict where another is."""
    try:
        file = (home / lock).open("a+")
    except OSError as error:
        raise ConfigError(f"{home} cannot be written to: {error.strerror}; set PENSTOCK_HOME") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        other = present(home)
        where = (
            f"at {other.address} (pid {other.process.pid})" if other else "that is just starting or ending"
        )
        raise Conflict(f"{home} has a {what} already, {where}; use it, or {end}") from error
    return file


def announce(home: Path, address: str) -> None:
    """Say that this process is the server."""
    process = identify()
    assert process is not None
    write_atomically(home / "server.json", msgspec.json.encode(Presence(process, address)))


def announce_gateway(home: Path, address: str) -> None:
    """Say that this process is the gateway, and where clients reach it."""
    process = identify()
    assert process is not None
    write_atomically(home / "gateway.json", msgspec.json.encode(Presence(process, address)))


def gateway_of(home: Path) -> Presence | None:
    """The gateway of this home that runs now, if there is one."""
    with contextlib.suppress(Damaged):
        presence = read_json(home / "gateway.json", Presence)
        return presence if is_alive(presence.process, home / GATEWAY_LOCK) else None
    return None


def withdraw(home: Path) -> None:
    """Say that there is none any more."""
    (home / "server.json").unlink(missing_ok=True)


def server_of(home: Path) -> Presence | None:
    """The server of this home that runs now, if there is one."""
    with contextlib.suppress(Damaged):
        presence = read_json(home / "server.json", Presence)
        return presence if is_alive(presence.process, home / LOCK) else None
    return None
