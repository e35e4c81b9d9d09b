"""Everything that can go wrong on purpose.

PenstockError
├── ConfigError     a setting is wrong; only a person can fix it
├── NotFound        no such run, policy, checkpoint or plugin
├── Conflict        a legal request at the wrong moment
│   └── Stale         what it was about has changed since
├── Denied          a token that is missing, wrong, expired or of too small a role
├── Damaged         data that fails its check: a record, a checkpoint, a weights file
├── Unavailable     a neighbour is down or full; trying again may help
│   └── Unreachable   brokers that were there are away; trying again helps once they are back
├── Diverged        learning has left the numbers; trying again would only do it again
└── EnvironmentFault  the user's environment broke its promise

The text of an error is one sentence that names the place and the fix.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class PenstockError(Exception):
    """Base of all errors raised on purpose."""


class ConfigError(PenstockError):
    """A setting is wrong; only a person can fix it."""


class NotFound(PenstockError):
    """No such run, policy, checkpoint or plugin."""


class Conflict(PenstockError):
    """A legal request at the wrong moment."""


class Stale(Conflict):
    """What the request was about has changed since."""


class Denied(PenstockError):
    """A token that is missing, wrong, expired or of too small a role."""


class Damaged(PenstockError):
    """Data that fails its check."""


class Unavailable(PenstockError):
    """A neighbour is down or full; trying again may help."""


class Unreachable(Unavailable):
    """Brokers that were there are away."""


class Diverged(PenstockError):
    """Learning has left the numbers; trying again would only do it again."""


class EnvironmentFault(PenstockError):
    """The user's environment raised, hung, or returned what its spaces do not allow."""


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint to append to an error: the known word that is really close, or all of them when few."""
    names = sorted(known)
    close = get_close_matches(word, names, n=1, cutoff=0.65)  # at 0.5 'action' was taken for 'token'
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(names)}" if names and len(names) <= 12 else ""
