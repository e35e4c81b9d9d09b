"""Penstock: distributed reinforcement learning on a log of experience."""

__version__ = "0.1.0"
