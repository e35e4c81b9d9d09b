"""A real Apache Kafka on this machine, for tests and development."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.broker.cluster import Broker

__all__ = ["Broker"]


def __getattr__(name: str) -> Any:
    """The cluster is imported when somebody uses it: `penstock --help` need not wait for it."""
    if name == "Broker":
        from penstock.broker.cluster import Broker

        return Broker
    raise AttributeError(name)
