"""A policy version: the pair (epoch, step), ordered, never going back."""

import re
from typing import NamedTuple

from penstock.errors import ConfigError


class Version(NamedTuple):
    """A learner that starts takes the next epoch; each update is the next step."""

    epoch: int
    step: int

    def __str__(self) -> str:
        return f"{self.epoch}.{self.step}"

    @classmethod
    def parse(cls, text: str) -> "Version":
        """Read `EPOCH.STEP`, as `str` writes it."""
        if not re.fullmatch(r"\d+\.\d+", text):
            raise ConfigError(f"{text!r} is not a version; write EPOCH.STEP, as in 1.250")
        epoch, step = text.split(".")
        return cls(int(epoch), int(step))


NONE = Version(0, -1)
"""What an actor holds before it has any policy."""
