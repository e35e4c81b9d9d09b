"""A real PostgreSQL for tests, on loopback, in a folder that goes away with it."""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.debian import installed

START_SECONDS = 60
NO_DATABASE_LOCALE = ("--locale=C.UTF-8", "--encoding=UTF8", "--auth=trust", "--no-sync")


class Postgres:
    """A server that runs; each test may have a database of its own."""

    def __init__(self, binaries: Path, folder: Path, port: int) -> None:
        self._binaries, self._folder, self.port = binaries, folder, port
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Return once it answers; also after `stop`, with what it held."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self._folder),
            "fsync": "off",
        }
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = [self._binaries / "postgres", "-D", self._folder / "data", "-p", str(self.port), *words]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_as_postgres(), *map(str, command)], stdout=log, stderr=log, cwd=self._folder
            )
        until = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                pytest.fail(f"PostgreSQL does not start:\n{(self._folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End it at once, as somebody does who pulls the plug."""
        if self._process is not None:
            self._process.send_signal(3)  # SIGQUIT: no waiting for clients
            self._process.wait(30)
            self._process = None

    def url(self, database: str | None = None) -> str:
        """The address of a new, empty database, or of one by name."""
        name = database or f"t{uuid.uuid4().hex[:12]}"
        if database is None:
            self.query("postgres", f"CREATE DATABASE {name}")
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}"

    def query(self, database: str, statement: str) -> str:
        address = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-d", database)
        command = [str(self._binaries / "psql"), *address, "-tAqc", statement]
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd="/").stdout.strip()

    def _answers(self) -> bool:
        try:
            return self.query("postgres", "SELECT 1") == "1"
        except subprocess.CalledProcessError:
            return False


@contextlib.contextmanager
def running_postgres() -> Iterator[Postgres]:
    """A server with an empty cluster; ended and removed at the end, also when tests fail."""
    binaries = _binaries()
    folder = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
    server = Postgres(binaries, folder, _free_port())
    try:
        if _as_postgres():
            shutil.chown(folder, "postgres")
        make = [str(binaries / "initdb"), "-D", str(folder / "data"), "-U", "postgres", *NO_DATABASE_LOCALE]
        subprocess.run([*_as_postgres(), *make], check=True, capture_output=True, cwd=folder)
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _binaries() -> Path:
    """Where Debian puts them; these tests are never skipped."""
    return installed(_installed, "postgresql")[-1]


def _installed() -> list[Path]:
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if not found and (initdb := shutil.which("initdb")):
        return [Path(initdb).resolve().parent]
    return sorted(found, key=lambda path: int(path.parent.name))


def _as_postgres() -> list[str]:
    """PostgreSQL refuses to be root."""
    if os.geteuid() != 0:
        return []
    user = pwd.getpwnam("postgres")
    return [
        "setpriv",
        f"--reuid={user.pw_uid}",
        f"--regid={user.pw_gid}",
        "--clear-groups",
        "--pdeathsig",
        "KILL",
    ]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
