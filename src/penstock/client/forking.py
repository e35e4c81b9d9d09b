"""A process that forks: each agent in the child goes on by itself.

gRPC's rules (its doc/fork_support.md): while a process forks no thread of it is inside gRPC, what was made before is
not used in the child, and a process that serves does not fork. So calls are given up before a fork and made again
after it, and the child makes everything anew, but not while it forks: with its next episode.
"""

import os
import weakref
from typing import Protocol


class Forking(Protocol):
    def before_fork(self) -> None:
        """Leave gRPC; within half a second."""

    def after_fork_in_parent(self) -> None:
        """Go on."""

    def after_fork(self) -> None:
        """In the child: let go of what is the parent's."""


_all: weakref.WeakSet[Forking] = weakref.WeakSet()
_parents: list[object] = []
"""Of the parent process: never used again, never taken apart here, because its threads are not here."""


def watch(agent: Forking) -> None:
    """From here on it hears of forks."""
    _all.add(agent)


def keep(inherited: object) -> None:
    """Hold on to what the parent made, so that nothing takes it apart in the child."""
    _parents.append(inherited)


def _before() -> None:
    for agent in list(_all):
        agent.before_fork()


def _after_in_parent() -> None:
    for agent in list(_all):
        agent.after_fork_in_parent()


def _after_in_child() -> None:
    for agent in list(_all):
        agent.after_fork()


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
