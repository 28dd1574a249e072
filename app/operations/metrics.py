r"""What this process counts itself, and the text in which Prometheus reads everything. A registry for each application, none for all.

No label holds a tenant, an id, a name that somebody gave or a data value: labels are the service's own words alone.
"""

from __future__ import annotations

import platform
from collections.abc import MutableMapping
from typing import Any, final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics, generate_latest
from prometheus_client.registry import Collector

from zetadp.version import VERSION

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
"""Up to the longest calculation that an answer waits for; streams last as long as their jobs and come last."""

disable_created_metrics()  # the time since which a counter counts: nobody here asks, and it doubles what is sent

METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
UNROUTED = "none"
"""The route of what reached none: a path of the client's own must not become a label."""
STATIC = "/static"


@final
class Metrics:
    """Counters of this process, and whatever collectors are added to them."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter("zetadp_requests", "Requests answered.", ("route", "method", "status"), registry=self._registry)
        self._seconds = Histogram(
            "zetadp_request_seconds",
            "Time to the first byte of the answer.",
            ("route", "method"),
            buckets=SECONDS,
            registry=self._registry,
        )
        self._problems = Counter("zetadp_problems", "Requests answered with a problem, by its type.", ("type",), registry=self._registry)
        self._tries = Counter("zetadp_webhook_tries", "Tries to deliver a webhook.", ("outcome",), registry=self._registry)
        for outcome in ("taken", "not_taken", "given_up"):
            self._tries.labels(outcome)
        for kind in ("budget-exceeded", "database-unavailable", "storage-full", "internal-error"):
            self._problems.labels(kind)  # 0 from the start: a rate needs a point before the first
        build = Gauge("zetadp_build_info", "Always 1; the version is in the labels.", ("version", "python"), registry=self._registry)
        build.labels(VERSION, platform.python_version()).set(1)
        ProcessCollector(registry=self._registry)

    def add(self, collector: Collector) -> None:
        """Have this collector asked at every reading. Raises ValueError where one of its names is taken."""
        self._registry.register(collector)

    def remove(self, collector: Collector) -> None:
        """Ask it no more."""
        self._registry.unregister(collector)

    def text(self) -> bytes:
        """Everything, as it is now."""
        return generate_latest(self._registry)

    def answered(self, scope: MutableMapping[str, Any], status: int, seconds: float) -> None:
        """Count a request whose answer begins now."""
        route, method = route_of(scope), str(scope["method"])
        method = method if method in METHODS else "other"
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route, method).observe(seconds)
        problem = scope.get("state", {}).get("problem")
        if status >= 400 and problem is not None:
            self._problems.labels(problem).inc()

    def webhook_tried(self, outcome: str) -> None:
        """Count a try."""
        self._tries.labels(outcome).inc()


def route_of(scope: MutableMapping[str, Any]) -> str:
    """The template of the path, like ``/v1/jobs/{job_id}``."""
    path = str(scope["path"])
    if (route := scope.get("route")) is None:
        return STATIC if path.startswith(f"{STATIC}/") and "endpoint" in scope else UNROUTED
    # Routers are included below a prefix that the route itself doesn't know.
    template = str(route.path)
    return f"/v1{template}" if path.startswith("/v1/") and not template.startswith("/v1/") else template
