"""The settings of a target that its memory depends on, a person's own `args:` included. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from turnout_rules.model import Model, Target
from turnout_sidecar.engines.arguments import parallel_cards, share_of, value_of, whole_of
from turnout_sidecar.engines.base import DEFAULT_CONTEXT
from turnout_sidecar.engines.vllm import DEFAULT_GPU_SHARE

GIB = 1 << 30
_CPU_KV_GIB = 4
"""vLLM's default of VLLM_CPU_KVCACHE_SPACE."""
_EMPTY_CARDS = ("", "-1")


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that memory depends on."""

    name: str
    engine: str
    max_num_seqs: int
    context: int | None
    """Tokens a request may have; None: the model's own limit (vLLM), or a safe one."""
    kv_cache_dtype: str = ""
    quantization: str = ""
    gpu_share: float = 0.0
    cpu_kv_bytes: int = _CPU_KV_GIB * GIB
    gpu_layers: int | None = None
    """llama.cpp: layers on the card, the others in RAM; None: as many as there are."""
    tensor_parallel: int = 1
    """Cards that share each layer: weights and KV heads are divided."""
    pipeline_parallel: int = 1
    """Groups of cards that share the layers."""

    @property
    def cards(self) -> int:
        """How many cards it spreads over."""
        return self.tensor_parallel * self.pipeline_parallel


def wish_for(target: Target) -> Wish:
    """The wish that a target's settings express."""
    model, engine = target.model, target.upstream.engine or ""
    return _llamacpp(target) if engine == "llamacpp" else _share_engine(target, model, engine)


def named_cards(model: Model) -> list[str] | None:
    """What its own `CUDA_VISIBLE_DEVICES` names, none for an empty one; None: it says nothing."""
    return visible_cards(model.env)


def visible_cards(environ: Mapping[str, str]) -> list[str] | None:
    """The same of any environment."""
    value = environ.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return None
    return [name for part in value.split(",") if (name := part.strip()) not in _EMPTY_CARDS]


def _share_engine(target: Target, model: Model, engine: str) -> Wish:
    """vLLM and nano-vllm; harmless for command lines of any kind, which have no such flags."""
    args = model.args if engine == "vllm" else ()
    context = whole_of(args, "--max-model-len") or model.max_model_len or model.context
    if context is None and engine != "vllm":
        context = DEFAULT_CONTEXT
    space = model.env.get("VLLM_CPU_KVCACHE_SPACE", "")
    share = share_of(args, "--gpu-memory-utilization") or model.gpu_memory_utilization
    tensor, pipeline = parallel_cards(model) if engine == "vllm" else (1, 1)
    return Wish(
        name=target.name,
        engine=engine,
        max_num_seqs=max(1, whole_of(args, "--max-num-seqs") or model.max_num_seqs),
        context=context,
        kv_cache_dtype=value_of(args, "--kv-cache-dtype") or model.kv_cache_dtype,
        quantization=value_of(args, "--quantization", "-q") or model.quantization,
        gpu_share=share or DEFAULT_GPU_SHARE,
        cpu_kv_bytes=(int(space) if space.isdecimal() else _CPU_KV_GIB) * GIB,
        tensor_parallel=max(1, tensor),
        pipeline_parallel=max(1, pipeline),
    )


def _llamacpp(target: Target) -> Wish:
    """`-c` is the context of all slots together."""
    model = target.model
    seats = max(1, whole_of(model.args, "-np", "--parallel") or model.max_num_seqs)
    context = model.max_model_len or model.context or DEFAULT_CONTEXT
    if (whole := whole_of(model.args, "-c", "--ctx-size")) is not None:
        # 0 asks for the model's own limit.
        context = whole // seats if whole else 0
    cache = value_of(model.args, "-ctk", "--cache-type-k") or model.kv_cache_dtype
    return Wish(
        name=target.name,
        engine="llamacpp",
        max_num_seqs=seats,
        context=context or None,
        kv_cache_dtype=cache,
        gpu_layers=whole_of(model.args, "-ngl", "--gpu-layers", "--n-gpu-layers"),
        # It splits the layers over all cards that it sees.
        pipeline_parallel=max(1, len(named_cards(model) or ())),
    )
