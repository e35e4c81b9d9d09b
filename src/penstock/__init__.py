"""Penstock: distributed reinforcement learning on a log of experience.

import penstock
run = penstock.train("CartPole-v1", algorithm="ppo", actors=2)
run.policy().act(observation)
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.api import Run, TrainedPolicy, load, runs, train

__version__ = "0.4.0"
__all__ = ["Run", "TrainedPolicy", "__version__", "load", "runs", "train"]


def __getattr__(name: str) -> Any:
    """The Python face is imported when it is used: actors and `penstock --help` do not pay for it."""
    if name in __all__:
        from penstock import api

        return getattr(api, name)
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")
