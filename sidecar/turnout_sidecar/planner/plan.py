"""What an engine will hold with these settings, whether it fits, and what would make it fit. Pure.

Engines that take a fixed share of the card (vLLM, nano-vllm) hold that share whatever the model
needs; inside it weights, working memory and at least one full-length request must find room. All
others hold weights, the whole KV cache and their working memory. Of an engine that spreads over
several cards, a plan tells what the fullest of them holds.
"""

from __future__ import annotations

import math

import msgspec

from turnout_sidecar.engines.base import DEFAULT_CONTEXT
from turnout_sidecar.planner import kv
from turnout_sidecar.planner.model_files import ModelFiles
from turnout_sidecar.planner.shape import Shape
from turnout_sidecar.planner.wish import GIB, Wish

MIB = 1 << 20
SHARE_ENGINES = ("vllm", "nanovllm")
# Working memory. vLLM: an allowance, not a measurement, for CUDA context, PyTorch, captured graphs
# and the profile run; its own start-up log tells the true figure. On a CPU: Python with PyTorch.
_VLLM_GPU_BYTES = int(1.25 * GIB)
_VLLM_CPU_BYTES = int(1.5 * GIB)
# llama.cpp: program and graph, then a compute buffer of 32-bit logits and activations; of a batch
# of 512 tokens half are ever touched (SmolLM2-135M, 8,192 tokens: 330 MiB measured, 374 planned).
_LLAMACPP_BYTES = 48 * MIB
_LLAMACPP_ROWS = 256
_LLAMACPP_ACTIVATIONS = 8
# On a card the buffer for all 512 rows is there from the start (Llama-3-8B: 258.5 MiB printed with
# flash attention), and a CUDA context takes 300 to 500 MiB before anything is loaded.
_LLAMACPP_GPU_BYTES = 448 * MIB
_LLAMACPP_GPU_ROWS = 512
_QUANTIZED_SHARE = {"fp8": 0.55, "bitsandbytes": 0.33, "bnb": 0.33}
"""Of 16-bit files, where the engine quantizes while it loads; embeddings stay as they are."""


_LIGHTER = "use a smaller or more strongly quantized model"
_LARGEST_SHARE = 0.9
"""Not advised beyond."""
_SAFE_SHARE = 0.7
"""Of a card that also drives a screen, whose compositor and browser take 1 to 3 GiB."""
_CONTEXT_STEP, _SHORTEST_CONTEXT = 256, 1_024
"""Advised contexts are multiples of the one and not below the other."""


class Room(msgspec.Struct, frozen=True):
    """The device an engine would run on; of several cards, the one with the least free."""

    device: str
    free_bytes: int
    total_bytes: int = 0
    drives_display: bool = False


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One backend's memory, in bytes; of several cards, on each."""

    name: str
    engine: str
    device: str
    cards: int = 1
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
    warning: str = ""
    """What is unwise although it fits."""
    max_num_seqs: int = 0
    """The most full-length requests at once that fit."""
    context: int = 0
    """The longest requests that fit, with `max_num_seqs` as set."""
    source: str = ""


class _Load(msgspec.Struct, frozen=True, kw_only=True):
    """What weighs on the device, while a plan is judged."""

    wish: Wish
    room: Room
    shape: Shape | None
    weights: int
    overhead: int
    context: int
    kv_share: float
    """Of a request's whole cache, what lies on this device."""

    @property
    def base(self) -> int:
        """Without any cache."""
        return self.weights + self.overhead

    @property
    def request(self) -> int:
        """The cache of one request at full context; 0: unknown."""
        if self.shape is None:
            return 0
        whole = kv.request_bytes(self.shape, self.context, self.wish.kv_cache_dtype)
        return math.ceil(whole * self.kv_share)

    @property
    def takes_share(self) -> bool:
        """Whether the engine takes a share of the card, whatever it needs."""
        return self.wish.engine in SHARE_ENGINES and self.room.device != "cpu"

    @property
    def total(self) -> int:
        """What the engine will hold."""
        if self.takes_share:
            return int(self.room.total_bytes * self.wish.gpu_share)
        if self.wish.engine in SHARE_ENGINES:
            return self.base + self.wish.cpu_kv_bytes
        return self.base + self.request * self.wish.max_num_seqs

    @property
    def for_kv(self) -> int:
        """What the cache may take: the rest of the engine's share, or of what is free."""
        is_fixed = self.wish.engine in SHARE_ENGINES
        return (self.total if is_fixed else self.room.free_bytes) - self.base

    def tokens_within(self, size: int) -> int:
        """The longest request whose cache takes so much here."""
        if self.shape is None or size <= 0 or not self.kv_share:
            return 0
        return kv.tokens_within(self.shape, int(size / self.kv_share), self.wish.kv_cache_dtype)


def make_plan(wish: Wish, files: ModelFiles, room: Room) -> Plan:
    """The plan for one backend on one device."""
    load = _load(wish, files, room)
    request, for_kv, shape = load.request, load.for_kv, files.shape
    problem, advice = _judge(load)
    token = kv.bytes_per_token(shape, wish.kv_cache_dtype) if shape else 0.0
    longest = load.tokens_within(for_kv // max(1, wish.max_num_seqs))
    return Plan(
        name=wish.name,
        engine=wish.engine,
        device=room.device,
        cards=wish.cards if room.device != "cpu" else 1,
        weight_bytes=load.weights,
        kv_token_bytes=token * load.kv_share,
        kv_request_bytes=request,
        kv_total_bytes=request * wish.max_num_seqs,
        overhead_bytes=load.overhead,
        total_bytes=load.total,
        free_bytes=room.free_bytes,
        fits=not problem,
        problem=problem,
        advice=advice,
        warning=_warning(load),
        max_num_seqs=max(0, for_kv // request) if request else wish.max_num_seqs,
        context=longest if shape else load.context,
        source=files.source,
    )


def _load(wish: Wish, files: ModelFiles, room: Room) -> _Load:
    shape = files.shape
    weights_share, kv_share = (1.0, 1.0) if room.device == "cpu" else _shares(wish, shape)
    own = shape.max_context if shape else 0
    return _Load(
        wish=wish,
        room=room,
        shape=shape,
        weights=math.ceil(_weights(wish, files) * weights_share),
        overhead=_overhead(wish, shape, room),
        context=wish.context or own or DEFAULT_CONTEXT,
        kv_share=kv_share,
    )


def _shares(wish: Wish, shape: Shape | None) -> tuple[float, float]:
    """(share of the weights, share of the cache) on each card."""
    layers = 1.0
    if wish.gpu_layers is not None and shape is not None:
        # The layer after the last is the output's.
        layers = min(1.0, wish.gpu_layers / (shape.layers + 1))
    heads = 1.0
    if shape is not None and not shape.latent_size:
        # A KV head is not cut in two: beyond their number, cards hold copies. Latents are copied.
        heads = 1 / min(wish.tensor_parallel, max(1, shape.kv_heads))
    return layers / wish.cards, layers / wish.pipeline_parallel * heads


def _weights(wish: Wish, files: ModelFiles) -> int:
    if files.is_quantized:
        return files.weight_bytes
    return int(files.weight_bytes * _QUANTIZED_SHARE.get(wish.quantization, 1.0))


def _overhead(wish: Wish, shape: Shape | None, room: Room) -> int:
    is_on_card = room.device != "cpu"
    if wish.engine in SHARE_ENGINES:
        return _VLLM_GPU_BYTES if is_on_card else _VLLM_CPU_BYTES
    if wish.engine != "llamacpp" or shape is None:
        return 0
    row = 4 * (shape.vocabulary + _LLAMACPP_ACTIVATIONS * shape.hidden_size)
    if is_on_card:
        return _LLAMACPP_GPU_BYTES + _LLAMACPP_GPU_ROWS * row
    return _LLAMACPP_BYTES + _LLAMACPP_ROWS * row


def _judge(load: _Load) -> tuple[str, str]:
    """(why it does not fit, the setting that would make it fit); both empty if it fits."""
    if load.takes_share:
        return _judge_share(load)
    room = load.room
    if load.total > room.free_bytes:
        problem = f"needs {gib(load.total)}, {gib(room.free_bytes)} is free on {room.device}"
        return problem, _smaller(load)
    if load.wish.engine in SHARE_ENGINES and load.request > load.for_kv:
        wanted = math.ceil(load.request / GIB)
        problem = f"a request of {load.context} tokens needs {gib(load.request)} of KV cache"
        return problem, f"set env VLLM_CPU_KVCACHE_SPACE: {wanted}"
    return "", ""


def _judge_share(load: _Load) -> tuple[str, str]:
    room, wish, least = load.room, load.wish, load.base + load.request
    if load.total > room.free_bytes:
        problem = (
            f"takes {wish.gpu_share:.0%} of the card, {gib(load.total)}; "
            f"{gib(room.free_bytes)} is free on {room.device}"
        )
        share = math.floor(100 * room.free_bytes / max(1, room.total_bytes)) / 100
        if share * room.total_bytes >= least:
            return problem, f"set gpu_memory_utilization: {share:g}"
        return problem, _shorter(load, room.free_bytes - load.base) or _LIGHTER
    if load.for_kv < load.request or load.for_kv <= 0:
        problem = (
            f"weights and working memory take {gib(load.base)} of its {gib(load.total)}; "
            f"a request of {load.context} tokens needs {gib(load.request)} more"
        )
        return problem, _roomier(load, least)
    return "", ""


def _roomier(load: _Load, least: int) -> str:
    """A larger share where the card allows it, or a shorter context."""
    room, shorter = load.room, _shorter(load, load.for_kv)
    share = math.ceil(100 * least / max(1, room.total_bytes)) / 100
    if share > _LARGEST_SHARE or share * room.total_bytes > room.free_bytes:
        return shorter or _LIGHTER
    larger = f"gpu_memory_utilization: {share:g}"
    return f"{shorter}, or {larger}" if shorter else f"set {larger}"


def _smaller(load: _Load) -> str:
    """The setting that takes away what is too much."""
    if not load.request:
        return _LIGHTER
    if (seats := load.for_kv // load.request) >= 1:
        return f"set max_num_seqs: {seats}"
    return _shorter(load, load.for_kv) or _fewer_layers(load) or _LIGHTER


def _shorter(load: _Load, for_kv: int) -> str:
    tokens = load.tokens_within(for_kv)
    tokens -= tokens % _CONTEXT_STEP
    return f"set max_model_len: {tokens}" if tokens >= _SHORTEST_CONTEXT else ""


def _fewer_layers(load: _Load) -> str:
    """llama.cpp keeps in RAM what the card does not take."""
    is_llamacpp = load.wish.engine == "llamacpp" and load.room.device != "cpu"
    if not is_llamacpp or load.shape is None or load.wish.gpu_layers is not None:
        return ""
    all_layers = load.shape.layers + 1
    each = (load.total - load.overhead) / all_layers
    layers = int((load.room.free_bytes - load.overhead) / each)
    if layers < 1:
        return ""
    return f'set args: ["-ngl", "{layers}"], {layers} of {all_layers} layers on the card'


def _warning(load: _Load) -> str:
    share = load.wish.gpu_share
    if not load.takes_share or not load.room.drives_display or share <= _SAFE_SHARE:
        return ""
    left = gib(int(load.room.total_bytes * (1 - share)))
    return (
        f"{load.room.device} also drives a screen, and gpu_memory_utilization {share:g} "
        f"leaves it {left}; {_SAFE_SHARE:g} or less is safe"
    )


def gib(size: int) -> str:
    """`5.6 GiB`."""
    return f"{size / GIB:.1f} GiB"
