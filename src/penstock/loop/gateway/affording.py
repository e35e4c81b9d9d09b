"""Whether the memory of this machine can hold a policy, before anything is started for it.

A low estimate: it refuses what cannot be, and lets through what may be just too large.
"""

from itertools import pairwise
from math import prod
from pathlib import Path

import numpy as np
import psutil

from penstock.errors import ConfigError
from penstock.loop.gateway.sizes import row_bytes
from penstock.model.clients import shape_of
from penstock.model.spaces import Spaces
from penstock.model.spec import Spec

COPIES = 4
"""Of each weight while learning: itself, its gradient and two moments of Adam."""
_CGROUP = Path("/sys/fs/cgroup/memory.max")


def check_memory(spec: Spec, available: int | None = None) -> None:
    """Raise ConfigError that names the key where the machine (or `available` bytes) cannot hold it."""
    most = memory_here() if available is None else available
    spaces = shape_of(spec.environment.kwargs).spaces()
    needs = {
        "algorithm_parameters.buf_size": replay_bytes(spec, spaces),
        "hidden_sizes (network.hidden)": network_bytes(spec, spaces),
    }
    for key, size in needs.items():
        if size > most:
            raise ConfigError(
                f"{key} needs {_gigabytes(size)} of memory, and the gateway's machine has {_gigabytes(most)}; "
                "make it smaller"
            )


def replay_bytes(spec: Spec, spaces: Spaces) -> int:
    """What replay memory takes: a row has the observation before and the one after; 0 without one."""
    seen = sum(
        prod(column.shape) * np.dtype(column.dtype).itemsize for column in spaces.observation.columns.values()
    )
    return int(spec.settings.get("buffer", 0)) * (row_bytes(spaces) + seen)


def network_bytes(spec: Spec, spaces: Spaces) -> int:
    """What the weights of the policy's network take while it learns."""
    # of a set of items each row goes through the same network
    seen = sum(column.shape[-1] for column in spaces.observation.columns.values())
    widths = [seen, *spec.network.hidden, 1]
    return sum(before * after for before, after in pairwise(widths)) * 4 * COPIES


def memory_here() -> int:
    """Bytes of this machine, or of the container that the gateway is in."""
    total = int(psutil.virtual_memory().total)
    try:
        return min(total, int(_CGROUP.read_text()))
    except (OSError, ValueError):  # no container, or "max"
        return total


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
