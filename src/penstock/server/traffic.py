"""How many requests, how they were answered and how long that took: by operation, never by path."""

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import Scope

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Traffic:
    """Counts and times requests by operation, of which there are as many as routes."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "penstock_http_requests", "Requests.", ("operation", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "penstock_http_seconds", "Seconds until an answer began.", ("operation",), buckets=BUCKETS,
            registry=self.registry,
        )  # fmt: skip

    def saw(self, scope: Scope, status: int, seconds: float) -> None:
        """Count one answered request; `scope` knows its route."""
        operation = getattr(scope.get("route"), "name", None) or "none"
        self._requests.labels(operation, f"{status // 100}xx").inc()
        self._seconds.labels(operation).observe(seconds)
