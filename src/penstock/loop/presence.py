"""Which server looks after this machine's runs: a small file that commands and keepers read."""

import contextlib
from pathlib import Path

import msgspec

from penstock.errors import Damaged
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
