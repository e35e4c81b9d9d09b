"""The library an application links: NumPy and gRPC only. See docs/client.md.

from penstock.client import RL4SysAgent     # the face that RL4Sys documents
from penstock.client import Agent           # the short form
"""

from penstock.client.agent import RL4SysAgent
from penstock.client.short import Agent
from penstock.client.trajectory import Action, Trajectory

__all__ = ["Action", "Agent", "RL4SysAgent", "Trajectory"]
