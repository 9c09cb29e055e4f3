"""vLLM: `vllm serve`, with limits of a workstation instead of a GPU server's."""

from __future__ import annotations

import shutil
from pathlib import Path

from turnout_rules.model import Model, Target
from turnout_sidecar.engines.arguments import card_env
from turnout_sidecar.engines.base import (
    CannotLaunch,
    Engine,
    Health,
    Launch,
    Metrics,
    Place,
    Request,
    model_file,
)

DEFAULT_GPU_SHARE = 0.6
"""vLLM's own default of 0.9 and more leaves no room for a desktop on the same card."""


class VllmEngine(Engine):
    """Its port answers nothing until it is ready; asleep, `/health` says 200 and chats hang."""

    name = "vllm"
    uses_gpu = True
    metrics = Metrics(
        running=("vllm:num_requests_running",),
        waiting=("vllm:num_requests_waiting",),
        kv_usage=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    )
    sleep_requests = (Request(method="POST", path="/sleep?level=1"),)
    wake_requests = (Request(method="POST", path="/wake_up"),)

    def health(self, status: int) -> Health:
        """503 is an engine core that died; while loading the port is closed."""
        return "ready" if status == 200 else "dead" if status == 503 else "loading"

    def launch(self, target: Target, place: Place) -> Launch:
        """`--max-num-seqs` and the memory share are always given: the defaults fill the card."""
        model = target.model
        share = model.gpu_memory_utilization or DEFAULT_GPU_SHARE
        command = (*self._program(target, place), "--host", "127.0.0.1")
        command += ("--port", str(place.port))
        command += ("--served-model-name", self.served_name(target))
        command += ("--max-num-seqs", str(self.seats(target)))
        command += ("--gpu-memory-utilization", f"{share:g}")
        if model.max_model_len or model.context:
            command += ("--max-model-len", str(model.max_model_len or model.context))
        if model.quantization:
            command += ("--quantization", model.quantization)
        if model.kv_cache_dtype:
            command += ("--kv-cache-dtype", model.kv_cache_dtype)
        if self.can_sleep(model) and place.device != "cpu":
            # The CPU build refuses the flag; it sleeps without it, but gives no memory back.
            command += ("--enable-sleep-mode",)
        return Launch(command=command + model.args, env=self._env(model, place))

    def _program(self, target: Target, place: Place) -> tuple[str, ...]:
        model = target.model
        path = model_file(model)
        if model.python:
            module = "vllm.entrypoints.openai.api_server"
            return (model.python, "-m", module, "--model", path)
        found = shutil.which("vllm", path=place.environ.get("PATH"))
        if found is None:
            raise CannotLaunch(
                f"{target.name}: vLLM is not on the PATH; install it in its own environment "
                "and set `python:` to that environment's interpreter"
            )
        return (found, "serve", path)

    def _env(self, model: Model, place: Place) -> dict[str, str]:
        env = {
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "OMP_NUM_THREADS": str(place.threads),
        }
        env |= card_env(model, place.device)
        if Path(model.model_path).expanduser().exists():
            env |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
        if self.can_sleep(model):
            # Sleep mode maps memory itself, which expandable segments exclude.
            del env["PYTORCH_CUDA_ALLOC_CONF"]
            env["VLLM_SERVER_DEV_MODE"] = "1"
        return env | model.env
