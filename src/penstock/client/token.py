"""Where a client finds its token; it never leaves the metadata of a call."""

import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.errors import ConfigError

MAX_TOKEN = 4096


def home() -> Path:
    return Path(os.environ.get("PENSTOCK_HOME") or "~/.penstock").expanduser()


def find_token(raw: Mapping[str, Any], address: str, where: str) -> str:
    """`token`, else `token_file`, else PENSTOCK_TOKEN, else on loopback PENSTOCK_HOME/token, else none."""
    if "token" in raw and "token_file" in raw:
        raise ConfigError(f"{where}: token and token_file are both given; leave one out")
    if "token" in raw:
        return _clean(str(raw["token"]), f"{where}: token")
    if "token_file" in raw:
        file = Path(raw["token_file"]).expanduser()
        found = _read(file)
        if found is None:
            raise ConfigError(f"{where}: token_file names {file}, which cannot be read")
        return _clean(found, str(file))
    if os.environ.get("PENSTOCK_TOKEN"):
        return _clean(os.environ["PENSTOCK_TOKEN"], "PENSTOCK_TOKEN")
    if is_loopback(address):
        return _clean(_read(home() / "token") or "", str(home() / "token"))
    return ""


def is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name: 127.example.org is anybody's
        return False


def check_secrecy(token: str, address: str, encrypted: bool, insecure: bool, where: str) -> None:
    """Raise ConfigError where a token would travel in plain text to another machine."""
    if token and not (encrypted or insecure or is_loopback(address)):
        raise ConfigError(
            f"{where}: the token would travel to {address} in plain text; give tls ({{}} trusts what the system "
            "trusts), or insecure: true if something in between encrypts"
        )


def _read(file: Path) -> str | None:
    try:
        with file.open(encoding="utf-8") as opened:
            return opened.read(MAX_TOKEN + 1)
    except (OSError, UnicodeDecodeError):
        return None


def _clean(token: str, where: str) -> str:
    token = token.strip(" \t\n\r\v\f")
    if len(token) > MAX_TOKEN or not all("!" <= letter <= "~" for letter in token):
        raise ConfigError(f"{where} does not hold a token: it is too long or has letters no token has")
    return token
