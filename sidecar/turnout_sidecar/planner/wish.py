"""The settings of a target that its memory depends on, a person's own `args:` included. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from turnout_rules.model import Model, Target
from turnout_sidecar.engines.arguments import (
    has_flag,
    parallel_cards,
    share_of,
    value_of,
    whole_of,
)
from turnout_sidecar.engines.base import DEFAULT_CONTEXT
from turnout_sidecar.engines.llamacpp import CHECKPOINTS
from turnout_sidecar.engines.vllm import DEFAULT_GPU_SHARE
from turnout_sidecar.planner.kv import PLAIN, Layout

GIB = 1 << 30
_CPU_KV_GIB = 4
"""vLLM's default of VLLM_CPU_KVCACHE_SPACE."""
_EMPTY_CARDS = ("", "-1")
_VLLM_BLOCK, _VLLM_BATCH = 16, 2_048
"""Tokens (vLLM, engine/arg_utils.py, for an API server on cards below 70 GiB)."""
_CELLS = 256
"""llama.cpp pads caches to so many (src/llama-context.cpp, `n_ctx_seq`)."""
_ROWS, _BATCH = 512, 2_048
"""llama.cpp's defaults of `-ub` and `-b` (common/common.h)."""

_READER_FLAGS = ("--embeddings", "--embedding", "--rerank", "--reranking")


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that memory depends on."""

    name: str
    engine: str
    max_num_seqs: int
    context: int | None
    """Tokens a request may have; None: the model's own limit (vLLM), or a safe one."""
    layout: Layout = PLAIN
    quantization: str = ""
    gpu_share: float = 0.0
    cpu_kv_bytes: int = _CPU_KV_GIB * GIB
    gpu_layers: int | None = None
    """llama.cpp: layers on the card, the others in RAM; None: as many as there are."""
    keeps_cache_in_ram: bool = False
    """llama.cpp: whatever the card takes of the layers, it takes none of their cache."""
    rows: int = _ROWS
    """llama.cpp: tokens that are worked on at once."""
    is_reader: bool = False
    """llama.cpp: it answers with vectors or ranks, for which every token's result counts."""
    checkpoints: int = 0
    """llama.cpp: copies of a request's states and windows in RAM."""
    draft: str = ""
    """llama.cpp: the path of a draft model."""
    draft_layout: Layout = PLAIN
    projector: str = ""
    """llama.cpp: the path of a projector for images or audio."""
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
        layout=_blocks(value_of(args, "--kv-cache-dtype") or model.kv_cache_dtype, args, engine),
        quantization=value_of(args, "--quantization", "-q") or model.quantization,
        gpu_share=share or DEFAULT_GPU_SHARE,
        cpu_kv_bytes=(int(space) if space.isdecimal() else _CPU_KV_GIB) * GIB,
        tensor_parallel=max(1, tensor),
        pipeline_parallel=max(1, pipeline),
    )


def _blocks(cache_type: str, args: Sequence[str], engine: str) -> Layout:
    """Keys and values have one type; a window keeps what the batch under way adds."""
    if engine != "vllm":
        return Layout(key_type=cache_type, value_type=cache_type)
    return Layout(
        key_type=cache_type,
        value_type=cache_type,
        step=whole_of(args, "--block-size") or _VLLM_BLOCK,
        ahead=whole_of(args, "--max-num-batched-tokens") or _VLLM_BATCH,
        keeps_all=has_flag(args, "--disable-hybrid-kv-cache-manager"),
    )


def _llamacpp(target: Target) -> Wish:
    """`-c` is the context of all slots together. Context shift changes no size."""
    model = target.model
    args = model.args
    seats = max(1, whole_of(args, "-np", "--parallel") or model.max_num_seqs)
    context = model.max_model_len or model.context or DEFAULT_CONTEXT
    if (total := whole_of(args, "-c", "--ctx-size")) is not None:
        # 0 asks for the model's own limit.
        context = total // seats if total else 0
    batch = whole_of(args, "-b", "--batch-size") or _BATCH
    rows = min(batch, whole_of(args, "-ub", "--ubatch-size") or _ROWS)
    checkpoints = whole_of(args, "--ctx-checkpoints", "--swa-checkpoints", "-ctxcp")
    return Wish(
        name=target.name,
        engine="llamacpp",
        max_num_seqs=seats,
        context=context or None,
        layout=_cells(args, model.kv_cache_dtype, "", rows),
        # It splits the layers over all cards that it sees.
        pipeline_parallel=max(1, len(named_cards(model) or ())),
        gpu_layers=whole_of(args, "-ngl", "--gpu-layers", "--n-gpu-layers"),
        keeps_cache_in_ram=has_flag(args, "-nkvo", "--no-kv-offload"),
        rows=rows,
        is_reader=has_flag(args, *_READER_FLAGS),
        checkpoints=CHECKPOINTS if checkpoints is None else checkpoints,
        draft=value_of(args, "-md", "--model-draft", "--spec-draft-model"),
        draft_layout=_cells(args, "", "d", rows),
        projector=value_of(args, "-mm", "--mmproj"),
    )


def _cells(args: Sequence[str], both: str, draft: str, rows: int) -> Layout:
    """What is not said is f16: `-ctk` alone leaves the values so."""
    names = {"k": ["--spec-draft-type-k"], "v": ["--spec-draft-type-v"]} if draft else {}
    types = {
        kind: value_of(
            args,
            f"-ct{kind}{draft}",
            f"--cache-type-{kind}{'-draft' if draft else ''}",
            *names.get(kind, ()),
        )
        for kind in "kv"
    }
    return Layout(
        key_type=types["k"] or both or "f16",
        value_type=types["v"] or both or "f16",
        step=_CELLS,
        ahead=rows,
        is_unified=has_flag(args, "-kvu", "--kv-unified"),
        keeps_all=has_flag(args, "--swa-full"),
    )
