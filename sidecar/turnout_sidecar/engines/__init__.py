"""Engine adapters: one small interface, one module an engine."""

from __future__ import annotations

from turnout_rules.model import Upstream
from turnout_sidecar.engines.base import Engine
from turnout_sidecar.engines.command import CommandEngine
from turnout_sidecar.engines.external import ExternalEngine
from turnout_sidecar.engines.llamacpp import LlamaCppEngine
from turnout_sidecar.engines.nanovllm import NanoVllmEngine
from turnout_sidecar.engines.ray import RayEngine
from turnout_sidecar.engines.vllm import VllmEngine

_ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (
        VllmEngine(),
        LlamaCppEngine(),
        NanoVllmEngine(),
        CommandEngine(),
        ExternalEngine(),
        RayEngine(),
    )
}


def engine_for(upstream: Upstream) -> Engine:
    """The adapter of an upstream; someone else's URL is `external`."""
    return _ENGINES[upstream.engine or "external"]
