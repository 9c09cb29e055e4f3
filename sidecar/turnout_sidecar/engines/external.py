"""`external`: an OpenAI-compatible URL that someone else runs; only its concurrency is ours."""

from __future__ import annotations

from turnout_rules.model import Target
from turnout_sidecar.engines.base import Engine, Health

UNLIMITED = 1_000_000


class ExternalEngine(Engine):
    """Never started or stopped. Cool-down after failures is the gateway's."""

    name = "external"
    health_path = "/models"
    """Relative to the base URL: the one thing every OpenAI-compatible server answers."""

    def health(self, status: int) -> Health:
        """Anything but a server's own failure says that it lives (401: it wants a key)."""
        return "ready" if status < 500 else "dead"

    def seats(self, target: Target) -> int:
        """`max_concurrency` of the upstream; without one there is no limit."""
        return target.upstream.max_concurrency or UNLIMITED
