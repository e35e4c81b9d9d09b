"""Host and Origin headers, read strictly: what is not exactly understood is no host.

A page that rebinds its name to a loopback address still sends its own name as Host, and a foreign page still
sends its own Origin; so both are compared with what this server is called, also on loopback.
"""

import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import TypeVar

T = TypeVar("T")

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
DEFAULT_PORTS = {"http": 80, "https": 443}

_AUTHORITY = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9_](?:[a-z0-9_.-]{0,251}[a-z0-9_])?)(?::([0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class Authority:
    """A host, and its port where one is given."""

    host: str
    port: int | None


def authority(text: str) -> Authority | None:
    """`name`, `name:port`, `1.2.3.4:port`, `[::1]:port`, whatever the case; None for anything else."""
    matched = _AUTHORITY.fullmatch(text.lower()) if text.isascii() else None
    if matched is None:
        return None
    host, port = _plain(matched[1]), int(matched[2]) if matched[2] else None
    if host is None or (port is not None and not 0 < port < 65536):
        return None
    return Authority(host, port)


def origin(text: str) -> tuple[str, Authority] | None:
    """The scheme and authority of an Origin; None for `null` and anything that is none."""
    scheme, separator, rest = text.partition("://")
    scheme, found = scheme.lower(), authority(rest)
    if not separator or scheme not in DEFAULT_PORTS or found is None:
        return None
    return scheme, Authority(found.host, found.port or DEFAULT_PORTS[scheme])


class Names:
    """What this server is called and which pages may speak to it."""

    def __init__(self, allowed_hosts: Iterable[str], allowed_origins: Iterable[str]) -> None:
        """Raise ValueError for a name that could never match."""
        self._hosts = {_must(authority(name), name) for name in allowed_hosts}
        self._origins = {_must(origin(name), name) for name in allowed_origins}

    def host(self, values: list[str]) -> Authority | None:
        """The one Host, if it is one of ours."""
        found = authority(values[0]) if len(values) == 1 else None
        if found is None or not {found, Authority(found.host, None)} & self._hosts:
            return None
        return found

    def may_speak(self, values: list[str], scheme: str, host: Authority) -> bool:
        """Whether a request to `host` may come from a page of these Origins: of none, of our own or an allowed one."""
        if not values:
            return True
        found = origin(values[0]) if len(values) == 1 else None
        if found is None:
            return False
        own = {"ws": "http", "wss": "https"}.get(scheme, scheme)
        return found in self._origins or found == (own, Authority(host.host, host.port or DEFAULT_PORTS[own]))


def names_of(host: str) -> tuple[str, ...]:
    """The Host headers a server bound to `host` expects: loopback's, and its own where it has one."""
    bare = host.strip("[]").lower()
    if bare in ("", "0.0.0.0", "::"):  # noqa: S104
        return (*LOOPBACK, socket.gethostname().lower())
    if bare in ("localhost", "127.0.0.1", "::1"):
        return LOOPBACK
    return (*LOOPBACK, f"[{bare}]" if ":" in bare else bare)


def _plain(host: str) -> str | None:
    """One spelling for each address; None where it is no address but looks like one."""
    try:
        if host.startswith("["):
            return f"[{IPv6Address(host[1:-1]).compressed}]"
        if re.fullmatch(r"[0-9.]+|0x[0-9a-f.x]*", host):
            return str(IPv4Address(host))
    except AddressValueError:
        return None
    return None if ".." in host else host


def _must(found: T | None, name: str) -> T:
    if found is None:
        raise ValueError(
            f"{name!r} is no host or origin; they look like example.org:8080 and https://example.org"
        )
    return found
