"""What an engine will hold with these settings, whether it fits, and what would make it fit. Pure.

Engines that take a fixed share of the card (vLLM, nano-vllm) hold that share whatever the model
needs; inside it weights, working memory and at least one full-length request must find room. All
others hold weights, the whole KV cache and their working memory.
"""

from __future__ import annotations

import math

import msgspec

from turnout_rules.model import Target
from turnout_sidecar.engines.base import DEFAULT_CONTEXT
from turnout_sidecar.engines.vllm import DEFAULT_GPU_SHARE
from turnout_sidecar.planner import kv
from turnout_sidecar.planner.model_files import ModelFiles
from turnout_sidecar.planner.shape import Shape

GIB = 1 << 30
MIB = 1 << 20
SHARE_ENGINES = ("vllm", "nanovllm")
# Working memory. vLLM: CUDA context, PyTorch and captured graphs took 1.0 to 1.8 GiB beside weights
# and cache with models of 3B to 14B on 12 to 24 GB cards in its own start-up logs; the profile run
# for 2,048 batched tokens is in it. On a CPU: Python with PyTorch.
_VLLM_GPU_BYTES = int(1.25 * GIB)
_VLLM_CPU_BYTES = int(1.5 * GIB)
_VLLM_CPU_KV_GIB = 4  # vLLM's default of VLLM_CPU_KVCACHE_SPACE
# llama.cpp: program and graph, then a compute buffer of 32-bit logits and activations; of a batch
# of 512 tokens half are ever touched (SmolLM2-135M, 8,192 tokens: 330 MiB measured, 374 planned).
_LLAMACPP_BYTES = 48 * MIB
_LLAMACPP_ROWS = 256
_LLAMACPP_ACTIVATIONS = 8
_QUANTIZED_SHARE = {"fp8": 0.55, "bitsandbytes": 0.33, "bnb": 0.33}
"""Of 16-bit files, where the engine quantizes while it loads; embeddings stay as they are."""


class Room(msgspec.Struct, frozen=True):
    """The device an engine would run on."""

    device: str
    free_bytes: int
    total_bytes: int = 0


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
    cpu_kv_bytes: int = _VLLM_CPU_KV_GIB * GIB


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One backend's memory, in bytes."""

    name: str
    engine: str
    device: str
    weight_bytes: int
    kv_token_bytes: float
    kv_request_bytes: int
    """Of one request at full context."""
    kv_total_bytes: int
    """Of `max_num_seqs` such requests."""
    overhead_bytes: int
    total_bytes: int
    """What the engine will hold."""
    free_bytes: int
    fits: bool
    problem: str = ""
    advice: str = ""
    """The setting that would make it fit; empty where none would, or none is needed."""
    max_num_seqs: int = 0
    """The most full-length requests at once that fit."""
    context: int = 0
    """The longest requests that fit, with `max_num_seqs` as set."""
    source: str = ""


def wish_for(target: Target) -> Wish:
    """The wish that a target's settings express."""
    model, engine = target.model, target.upstream.engine or ""
    context = model.max_model_len or model.context
    if context is None and engine != "vllm":
        context = DEFAULT_CONTEXT
    space = model.env.get("VLLM_CPU_KVCACHE_SPACE", "")
    return Wish(
        name=target.name,
        engine=engine,
        max_num_seqs=max(1, model.max_num_seqs),
        context=context,
        kv_cache_dtype=model.kv_cache_dtype,
        quantization=model.quantization,
        gpu_share=model.gpu_memory_utilization or DEFAULT_GPU_SHARE,
        cpu_kv_bytes=(int(space) if space.isdecimal() else _VLLM_CPU_KV_GIB) * GIB,
    )


def make_plan(wish: Wish, files: ModelFiles, room: Room) -> Plan:
    """The plan for one backend on one device."""
    shape = files.shape
    weights = _weights(wish, files)
    context = _context(wish, shape)
    request = kv.request_bytes(shape, context, wish.kv_cache_dtype) if shape else 0
    overhead = _overhead(wish, shape, room)
    budget, total = _budget(wish, room, weights + overhead, request)
    for_kv = budget - weights - overhead
    problem, advice = _judge(wish, room, shape, context, total, for_kv, request)
    per_seat = for_kv // max(1, wish.max_num_seqs)
    return Plan(
        name=wish.name,
        engine=wish.engine,
        device=room.device,
        weight_bytes=weights,
        kv_token_bytes=kv.bytes_per_token(shape, wish.kv_cache_dtype) if shape else 0.0,
        kv_request_bytes=request,
        kv_total_bytes=request * wish.max_num_seqs,
        overhead_bytes=overhead,
        total_bytes=total,
        free_bytes=room.free_bytes,
        fits=not problem,
        problem=problem,
        advice=advice,
        max_num_seqs=max(0, for_kv // request) if request else wish.max_num_seqs,
        context=kv.tokens_within(shape, per_seat, wish.kv_cache_dtype) if shape else context,
        source=files.source,
    )


def _weights(wish: Wish, files: ModelFiles) -> int:
    if files.is_quantized:
        return files.weight_bytes
    return int(files.weight_bytes * _QUANTIZED_SHARE.get(wish.quantization, 1.0))


def _context(wish: Wish, shape: Shape | None) -> int:
    own = shape.max_context if shape else 0
    return wish.context or own or DEFAULT_CONTEXT


def _overhead(wish: Wish, shape: Shape | None, room: Room) -> int:
    if wish.engine in SHARE_ENGINES:
        return _VLLM_CPU_BYTES if room.device == "cpu" else _VLLM_GPU_BYTES
    if wish.engine != "llamacpp" or shape is None:
        return 0
    row = shape.vocabulary + _LLAMACPP_ACTIVATIONS * shape.hidden_size
    return _LLAMACPP_BYTES + _LLAMACPP_ROWS * 4 * row


def _budget(wish: Wish, room: Room, base: int, request: int) -> tuple[int, int]:
    """(bytes that weights, working memory and cache may take together, bytes the engine holds)."""
    if wish.engine not in SHARE_ENGINES:
        return room.free_bytes, base + request * wish.max_num_seqs
    if room.device == "cpu":
        held = base + wish.cpu_kv_bytes
        return held, held
    held = int(room.total_bytes * wish.gpu_share)
    return held, held


def _judge(
    wish: Wish,
    room: Room,
    shape: Shape | None,
    context: int,
    total: int,
    for_kv: int,
    request: int,
) -> tuple[str, str]:
    """(why it does not fit, the setting that would make it fit); both empty if it fits."""
    if wish.engine in SHARE_ENGINES and room.device != "cpu":
        return _judge_share(wish, room, shape, context, total, for_kv, request)
    if total > room.free_bytes:
        problem = f"needs {gib(total)}, {gib(room.free_bytes)} is free on {room.device}"
        return problem, _smaller(wish, shape, context, room.free_bytes - total, request)
    if wish.engine in SHARE_ENGINES and request > for_kv:
        wanted = math.ceil(request / GIB)
        problem = f"a request of {context} tokens needs {gib(request)} of KV cache"
        return problem, f"set env VLLM_CPU_KVCACHE_SPACE: {wanted}"
    return "", ""


def _judge_share(
    wish: Wish,
    room: Room,
    shape: Shape | None,
    context: int,
    total: int,
    for_kv: int,
    request: int,
) -> tuple[str, str]:
    base = total - for_kv
    if total > room.free_bytes:
        problem = (
            f"takes {wish.gpu_share:.0%} of the card, {gib(total)}; "
            f"{gib(room.free_bytes)} is free on {room.device}"
        )
        share = math.floor(100 * room.free_bytes / max(1, room.total_bytes)) / 100
        if share * room.total_bytes >= base + request:
            return problem, f"set gpu_memory_utilization: {share:g}"
        return problem, _shorter(wish, shape, room.free_bytes - base) or _lighter()
    if for_kv < request or for_kv <= 0:
        problem = (
            f"weights and working memory take {gib(base)} of its {gib(total)}; "
            f"a request of {context} tokens needs {gib(request)} more"
        )
        share = math.ceil(100 * (base + request) / max(1, room.total_bytes)) / 100
        if share <= 0.9 and share * room.total_bytes <= room.free_bytes:
            shorter = _shorter(wish, shape, for_kv)
            more = f"set gpu_memory_utilization: {share:g}"
            return problem, f"{shorter}, or {more.removeprefix('set ')}" if shorter else more
        return problem, _shorter(wish, shape, for_kv) or _lighter()
    return "", ""


def _smaller(wish: Wish, shape: Shape | None, context: int, lacking: int, request: int) -> str:
    """The setting that takes away the `-lacking` bytes that are too many."""
    if shape is None or not request:
        return _lighter()
    for_kv = request * wish.max_num_seqs + lacking
    if (seats := for_kv // request) >= 1:
        return f"set max_num_seqs: {seats}"
    return _shorter(wish, shape, for_kv) or _lighter()


def _shorter(wish: Wish, shape: Shape | None, for_kv: int) -> str:
    tokens = kv.tokens_within(shape, for_kv, wish.kv_cache_dtype) if shape and for_kv > 0 else 0
    tokens -= tokens % 256
    return f"set max_model_len: {tokens}" if tokens >= 1_024 else ""


def _lighter() -> str:
    return "use a smaller or more strongly quantized model"


def gib(size: int) -> str:
    """`5.6 GiB`."""
    return f"{size / GIB:.1f} GiB"
