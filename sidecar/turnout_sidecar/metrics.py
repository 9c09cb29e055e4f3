"""The sidecar's Prometheus metrics, on a registry of their own.

Labels come from the table (routes, targets) and fixed words only, never from prompts, keys or
client-chosen names: a model name that a client made up is counted under its upstream's `*`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from turnout_rules.decision import PASS
from turnout_rules.model import Target

_DECISION_BUCKETS = (1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 5e-2, 0.4, 1)
_WAIT_BUCKETS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_BACKEND_FACTS = {
    "running": "Requests a local engine works on",
    "waiting": "Requests that wait for a local engine",
    "seats": "Requests a local engine may work on at once",
    "need_bytes": "Memory a local engine was planned to need",
    "rss_bytes": "Host memory a local engine holds",
    "starts": "Starts of a local engine",
    "crashes": "Unasked ends of a local engine",
}


class Metrics:
    """All counters and gauges; the attributes are the metrics."""

    def __init__(self) -> None:
        """A fresh registry, so that two sidecars in one process do not share counts."""
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._describe_decisions()
        self._describe_traffic()
        self._describe_state()

    def _describe_decisions(self) -> None:
        registry = self.registry
        self.decisions = Counter(
            "turnout_decisions",
            "Decisions made here, by route and layer",
            ["route", "layer", "source"],
            registry=registry,
        )
        self.decision_seconds = Histogram(
            "turnout_decision_seconds",
            "Time a decision took, the classifier included",
            ["layer"],
            buckets=_DECISION_BUCKETS,
            registry=registry,
        )
        self.classifications = Counter(
            "turnout_classifications",
            "What the classifier said: accepted, unsure, late, failed, off",
            ["outcome"],
            registry=registry,
        )

    def _describe_traffic(self) -> None:
        registry = self.registry
        self.requests = Counter(
            "turnout_gateway_requests",
            "Requests answered by the gateway",
            ["endpoint", "target", "status"],
            registry=registry,
        )
        self.attempts = Counter(
            "turnout_attempts",
            "Attempts at targets, by outcome (status, connect, timeout, context, resting, …)",
            ["target", "outcome"],
            registry=registry,
        )
        self.first_byte_seconds = Histogram(
            "turnout_first_byte_seconds",
            "From the request's arrival to the first byte of the answer",
            ["target"],
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )
        self.request_seconds = Histogram(
            "turnout_request_seconds",
            "From the request's arrival to the last byte of the answer",
            ["target"],
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )
        self.keepalives = Counter(
            "turnout_keepalive_comments", "SSE comments sent to waiting streams", registry=registry
        )

    def _describe_state(self) -> None:
        registry = self.registry
        self.requests_running = Gauge(
            "turnout_num_requests_running", "Gateway requests being answered", registry=registry
        )
        self.requests_waiting = Gauge(
            "turnout_num_requests_waiting",
            "Gateway requests without a first byte yet",
            ["priority"],
            registry=registry,
        )
        self.resting = Gauge(
            "turnout_target_rest_seconds",
            "Seconds a failing target still rests",
            ["target"],
            registry=registry,
        )
        self.reloads = Counter(
            "turnout_rules_reloads", "Changes of the rules folder", ["outcome"], registry=registry
        )
        self.rules_ok = Gauge(
            "turnout_rules_ok", "1 if the folder's rules are the ones in force", registry=registry
        )
        self.backends = Gauge(
            "turnout_backend_state",
            "1 for the state a local engine is in",
            ["backend", "state"],
            registry=registry,
        )
        self.backend_facts = {
            name: Gauge(f"turnout_backend_{name}", words, ["backend"], registry=registry)
            for name, words in _BACKEND_FACTS.items()
        }
        self.batch_requests = Counter(
            "turnout_batch_requests", "Batch requests finished", ["outcome"], registry=registry
        )

    def show_backends(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Set the engines' gauges to `Backends.status()` as rows; engines that are gone vanish."""
        self.backends.clear()
        for gauge in self.backend_facts.values():
            gauge.clear()
        for row in rows:
            name = str(row["name"])
            self.backends.labels(name, str(row.get("state", ""))).set(1)
            for fact, gauge in self.backend_facts.items():
                gauge.labels(name).set(row.get(fact) or 0)

    def render(self) -> bytes:
        """The text exposition."""
        return generate_latest(self.registry)


def target_label(target: Target) -> str:
    """The target's name, or `upstream/*` where any model name goes; `pass` for any origin."""
    if target.name == PASS:
        return PASS
    return f"{target.upstream.name}/*" if target.upstream.is_open else target.name
