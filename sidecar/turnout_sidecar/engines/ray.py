"""`ray`: an OpenAI-compatible Ray Serve endpoint, which brings placement and replica queues."""

from __future__ import annotations

from turnout_sidecar.engines.external import ExternalEngine


class RayEngine(ExternalEngine):
    """Ray Serve's own proxy answers `/-/healthz` at the root of the host."""

    name = "ray"
    health_path = "/-/healthz"
