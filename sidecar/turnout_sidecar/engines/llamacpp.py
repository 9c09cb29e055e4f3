"""llama.cpp: `llama-server` from the PATH, else the same server out of the `xllamacpp` wheel."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

from turnout_rules.model import Model, Target
from turnout_sidecar.engines.arguments import card_env
from turnout_sidecar.engines.base import (
    CannotLaunch,
    Engine,
    Launch,
    Metrics,
    Place,
    context_of,
    model_file,
)

_CACHE_RAM_MIB = 256
"""Prompt cache in host memory; the engine's own default of 8 GiB would never show in a plan."""
CHECKPOINTS = 4
"""Copies of a request's recurrent states and windows, to go back to when a conversation branches.
The engine's own default of 32 holds gigabytes that would never show in a plan."""


class LlamaCppEngine(Engine):
    """GGUF models on the CPU or the GPU."""

    name = "llamacpp"
    metrics = Metrics(
        running=("llamacpp:requests_processing",),
        waiting=("llamacpp:requests_deferred",),
        kv_usage=("llamacpp:kv_cache_usage_ratio",),
    )

    def launch(self, target: Target, place: Place) -> Launch:
        """One slot per allowed request; the context is split between slots, hence the product."""
        model = target.model
        path = model_file(model)
        if not Path(path).is_file():
            raise CannotLaunch(
                f"{target.name}: there is no model file {path}; "
                "set model_path to a .gguf file, or run `turnout models pull`"
            )
        slots = self.seats(target)
        command = (*self._program(model, place), "-m", path, "--host", "127.0.0.1")
        command += ("--port", str(place.port), "-c", str(context_of(model) * slots))
        command += ("-np", str(slots), "--alias", self.served_name(target))
        command += ("--cache-ram", str(_CACHE_RAM_MIB), "--ctx-checkpoints", str(CHECKPOINTS))
        command += ("--metrics", "--no-webui", "--offline")
        if "-t" not in model.args and "--threads" not in model.args:
            command += ("-t", str(place.threads), "-tb", str(place.threads))
        if model.kv_cache_dtype and model.kv_cache_dtype != "auto":
            command += ("-ctk", model.kv_cache_dtype, "-ctv", model.kv_cache_dtype)
        return Launch(command=command + model.args, env=card_env(model, place.device) | model.env)

    def _program(self, model: Model, place: Place) -> tuple[str, ...]:
        path = place.environ.get("PATH")
        if not model.python and (found := shutil.which("llama-server", path=path)):
            return (found,)
        if not model.python and importlib.util.find_spec("xllamacpp") is None:
            raise CannotLaunch(
                "llama.cpp is not here: put llama-server on the PATH, "
                "or install the wheel with `pip install 'turnout[local]'`"
            )
        python = model.python or sys.executable
        return (python, "-m", "turnout_sidecar.runners.llamacpp")
