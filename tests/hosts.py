"""Hosts of our own on one machine: network namespaces, joined to this one by a link that can be cut."""

import contextlib
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from tests.lacking import lacking

_numbers = itertools.count(os.getpid() % 200 + 1)


@dataclass(frozen=True)
class Host:
    """A network namespace; its only way out is a link to this machine."""

    name: str
    link: str
    here: str
    """Where this machine answers; an address of its loopback, so that a cut link does not take it away."""

    def command(self, arguments: Sequence[str]) -> list[str]:
        """The same command, on that host."""
        return ["ip", "netns", "exec", self.name, *arguments]

    def cut(self) -> None:
        """From now on packets vanish both ways, without a word to either end."""
        _ip("link", "set", self.link, "down")

    def mend(self) -> None:
        _ip("link", "set", self.link, "up")


def needs_hosts() -> None:
    """Namespaces need root and iproute2; where CI lacks them it must not pass for that."""
    if shutil.which("ip") is None:
        pytest.fail("network namespaces need iproute2: apt-get install iproute2")
    if os.geteuid() != 0:
        lacking("network namespaces need root")


@contextlib.contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    """Some hosts that reach this machine at `host.here`; gone at the end."""
    needs_hosts()
    mark = next(_numbers)
    here = f"10.214.{mark}.1"
    made: list[Host] = []
    _ip("address", "add", f"{here}/32", "dev", "lo")
    try:
        for index in range(count):
            made.append(_host(mark, index, here))  # noqa: PERF401 - what was made is unmade, also half way
        yield made
    finally:
        for host in made:
            _ip("netns", "delete", host.name, check=False)
            _ip("link", "delete", host.link, check=False)
        _ip("address", "delete", f"{here}/32", "dev", "lo", check=False)


def _host(mark: int, index: int, here: str) -> Host:
    name, link = f"pst{mark}-{index}", f"pst{mark}v{index}"
    gateway, address = (f"10.213.{mark}.{4 * index + last}" for last in (1, 2))
    _ip("netns", "add", name)
    _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
    _ip("address", "add", f"{gateway}/30", "dev", link)
    _ip("link", "set", link, "up")
    for words in (
        ("address", "add", f"{address}/30", "dev", "eth0"),
        ("link", "set", "eth0", "up"),
        ("link", "set", "lo", "up"),
        ("route", "add", "default", "via", gateway),
    ):
        _ip("-n", name, *words)
    return Host(name, link, here)


def _ip(*words: str, check: bool = True) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"ip {' '.join(words)}: {done.stderr.strip()}")
