"""Prometheus metrics of the proxy, on a loopback port of their own.

Labels are names from the rules and fixed words; no text, key or client address is ever a label.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from turnout_rules.decision import Decision

_DECISION_BUCKETS = (
    *(0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005),
    *(0.01, 0.05, 0.1, 0.5, 1.0, 5.0),
)


class Metrics:
    """All series of one proxy process."""

    def __init__(self) -> None:
        """A registry of its own, so that several addons in one process never clash."""
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "turnout_requests",
            "Requests decided, by where they went.",
            ("route", "target", "layer"),
            registry=self.registry,
        )
        self.decision_seconds = Histogram(
            "turnout_decision_seconds",
            "From a request's last byte to its decision, classifier included.",
            ("layer",),
            buckets=_DECISION_BUCKETS,
            registry=self.registry,
        )
        self.refused = Counter(
            "turnout_refused",
            "Requests answered by the proxy itself.",
            ("code",),
            registry=self.registry,
        )
        self.classifications = Counter(
            "turnout_classifications",
            "Questions to the sidecar's classifier, by how they ended.",
            ("outcome",),
            registry=self.registry,
        )
        self.reloads = Counter(
            "turnout_reloads", "Rule reloads, by result.", ("result",), registry=self.registry
        )
        self.rules_are_broken = Gauge(
            "turnout_rules_broken",
            "1 while the files on disk cannot be used and older rules are in force.",
            registry=self.registry,
        )
        self.failures = Counter(
            "turnout_hook_failures",
            "Errors inside the addon that became the fail-open or fail-closed policy.",
            registry=self.registry,
        )

    def decided(self, decision: Decision) -> None:
        """Count one decision and its time."""
        self.requests.labels(decision.route or "", decision.target, decision.layer).inc()
        self.decision_seconds.labels(decision.layer).observe(decision.elapsed_us / 1e6)

    def serve(self, port: int) -> tuple[int, Callable[[], None]]:
        """Listen on loopback; returns the real port and a function that stops the server."""
        server, thread = start_http_server(port, addr="127.0.0.1", registry=self.registry)

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join(timeout=5)

        return server.server_port, stop
