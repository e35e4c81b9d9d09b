"""Tokens: opaque secrets of which only the hash is kept. The first one is made at the first start.

Everybody else's are commands in the log like all others, so the index of them can be made again.
"""

import hashlib
import hmac
import os
import secrets
import threading
import time
from pathlib import Path

from penstock.control.permissions import Principal, Role
from penstock.control.views import TokenView
from penstock.errors import Damaged, Denied
from penstock.lineage.database import Lineage
from penstock.lineage.rows import TokenRow
from penstock.loop.files import write_atomically

PREFIX = "pst_"
FIRST = "first"
REFRESH_SECONDS = 1.0
"""Another process may change the same database; ours tells at once."""


def new_secret() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def first_token(home: Path) -> tuple[str, bool]:
    """The token of this home's owner and whether it was made just now; readable by its owner only."""
    file = home / "token"
    if not file.exists():
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(file, f"{new_secret()}\n".encode())
        return file.read_text().strip(), True
    secret = file.read_text().strip()
    if not secret.startswith(PREFIX) or len(secret) < 32:
        raise Damaged(f"{file} holds no token; remove it, and the next start makes a new one")
    if file.stat().st_mode & 0o077:
        os.chmod(file, 0o600)
    return secret, False


class Tokens:
    """Who a secret belongs to; used by many threads."""

    def __init__(self, home: Path, lineage: Lineage) -> None:
        self._lineage = lineage
        self._first = hashed(first_token(home)[0])
        self._known: dict[str, TokenRow] = {}
        self._read_at = float("-inf")
        self._lock = threading.Lock()

    def authenticate(self, secret: str) -> Principal:
        """Whose token this is; raise Denied where it is unknown, expired or revoked."""
        digest = hashed(secret)
        if hmac.compare_digest(digest, self._first):
            return Principal("owner", Role.ADMIN, FIRST)
        row = self._rows().get(digest)
        if row is None:
            raise Denied("this token is unknown; the first one is in PENSTOCK_HOME/token")
        if row.revoked_at is not None:
            raise Denied(f"the token {row.id} of {row.name} was revoked; ask an admin for another")
        if row.expires_at is not None and row.expires_at <= time.time():
            raise Denied(f"the token {row.id} of {row.name} has expired; ask an admin for another")
        return Principal(row.name, Role(row.role), row.id)

    def list(self) -> "list[TokenView]":
        with self._lineage.read() as reads:
            return [TokenView.model_validate(row) for row in reads.tokens()]

    def changed(self) -> None:
        """A token was given or revoked: look again."""
        self._read_at = float("-inf")

    def _rows(self) -> dict[str, TokenRow]:
        with self._lock:
            if time.monotonic() - self._read_at > REFRESH_SECONDS:
                with self._lineage.read() as reads:
                    self._known = {row.sha256: row for row in reads.tokens()}
                self._read_at = time.monotonic()
            return self._known
