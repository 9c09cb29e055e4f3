"""nano-vllm: a library without a server; ours is started in the environment that has it."""

from __future__ import annotations

from pathlib import Path

from turnout_rules.model import Target
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
from turnout_sidecar.engines.vllm import DEFAULT_GPU_SHARE

# Not named like the package: its folder comes first on the path of what it runs as a script.
_RUNNER = Path(__file__).parent.parent / "runners" / "nano_server.py"


class NanoVllmEngine(Engine):
    """CUDA only, Qwen3 only."""

    name = "nanovllm"
    uses_gpu = True
    metrics = Metrics(
        running=("nanovllm:requests_running",), waiting=("nanovllm:requests_waiting",)
    )

    def launch(self, target: Target, place: Place) -> Launch:
        """The runner is one file without our packages, so that any environment can run it."""
        model = target.model
        if not model.python:
            raise CannotLaunch(
                f"{target.name}: set `python:` to the interpreter of the environment "
                "in which nano-vllm is installed"
            )
        share = model.gpu_memory_utilization or DEFAULT_GPU_SHARE
        command = (
            *(model.python, str(_RUNNER), "--model", model_file(model)),
            *("--host", "127.0.0.1", "--port", str(place.port)),
            *("--served-model-name", self.served_name(target)),
            *("--max-num-seqs", str(self.seats(target))),
            *("--max-model-len", str(context_of(model))),
            *("--gpu-memory-utilization", f"{share:g}"),
        )
        env = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
        env |= card_env(model, place.device)
        return Launch(command=command + model.args, env=env | model.env)
