"""What weighs on a device, and whether it fits: the arithmetic between a wish and a plan. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from turnout_sidecar.engines.base import DEFAULT_CONTEXT
from turnout_sidecar.planner import kv, llamacpp_memory
from turnout_sidecar.planner.measured import Measured, told, told_by_vllm
from turnout_sidecar.planner.model_files import ModelFiles
from turnout_sidecar.planner.shape import Shape
from turnout_sidecar.planner.wish import GIB, Wish

SHARE_ENGINES = ("vllm", "nanovllm")
# Working memory. vLLM: an allowance, not a measurement, for CUDA context, PyTorch, captured graphs
# and the profile run; its own start-up log tells the true figure. On a CPU: Python with PyTorch.
_VLLM_GPU_BYTES = int(1.25 * GIB)
_VLLM_CPU_BYTES = int(1.5 * GIB)
_QUANTIZED_SHARE = {"fp8": 0.55, "bitsandbytes": 0.33, "bnb": 0.33}
"""Of 16-bit files, where the engine quantizes while it loads; embeddings stay as they are."""
_MOST_REQUESTS = 1 << 16


class Room(msgspec.Struct, frozen=True):
    """The device an engine would run on; of several cards, the one with the least free."""

    device: str
    free_bytes: int
    total_bytes: int = 0
    drives_display: bool = False

    @property
    def is_card(self) -> bool:
        """Whether it is a graphics card."""
        return self.device != "cpu"


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What weighs on the device, while a plan is judged."""

    wish: Wish
    room: Room
    files: ModelFiles
    weights: int
    """On this device, draft model and projector included."""
    fixed: int
    """Besides, whatever the settings."""
    context: int
    kv_share: float
    """Of a request's whole cache, what lies on this device."""

    @property
    def shape(self) -> Shape | None:
        """None: only the files' size is known."""
        return self.files.shape

    @property
    def seats(self) -> int:
        """Requests at once, as set."""
        return self.wish.max_num_seqs

    @property
    def is_share_engine(self) -> bool:
        """Whether its engine has a room of its own that caches must fit in."""
        return self.wish.engine in SHARE_ENGINES

    @property
    def takes_share(self) -> bool:
        """Whether the engine takes a share of the card, whatever it needs."""
        return self.is_share_engine and self.room.is_card

    def caches(self, tokens: int, requests: int) -> int:
        """Caches and states of so many requests of so many tokens, on this device."""
        if self.shape is None:
            return 0
        if seen := self.files.measured:
            share = tokens * requests / max(1, seen.context * seen.requests)
            return math.ceil(seen.cache_bytes * share)
        size = kv.cache_bytes(self.shape, tokens, self.wish.layout, requests)
        draft = self.files.draft
        if draft is not None and draft.shape is not None:
            size += kv.cache_bytes(draft.shape, tokens, self.wish.draft_layout, requests)
        return math.ceil(size * self.kv_share)

    def overhead(self, tokens: int, requests: int) -> int:
        """What the engine holds besides weights and caches."""
        if seen := self.files.measured:
            return max(0, seen.total_bytes - seen.cache_bytes - self.weights)
        if self.wish.engine != "llamacpp":
            return self.fixed
        size, is_card = self.fixed, self.room.is_card
        for files in (self.files, self.files.draft):
            if files is not None and files.shape is not None:
                size += llamacpp_memory.scratch_bytes(
                    self.wish, files.shape, tokens, requests, is_on_card=is_card
                )
                if not is_card:
                    size += llamacpp_memory.checkpoint_bytes(self.wish, files.shape, requests)
        return size

    def held(self, tokens: int, requests: int) -> int:
        """All of it, of an engine that takes what it needs."""
        return self.weights + self.overhead(tokens, requests) + self.caches(tokens, requests)

    @property
    def base(self) -> int:
        """As set, without any cache."""
        return self.weights + self.overhead(self.context, self.seats)

    @property
    def request(self) -> int:
        """The cache of one of the requests, at full context; 0: unknown, or none."""
        if self.is_share_engine:
            return self.caches(self.context, 1)
        return math.ceil(self.caches(self.context, self.seats) / self.seats)

    @property
    def total(self) -> int:
        """What the engine will hold."""
        if self.takes_share:
            return int(self.room.total_bytes * self.wish.gpu_share)
        if self.is_share_engine:
            return self.base + self.wish.cpu_kv_bytes
        return self.held(self.context, self.seats)

    @property
    def limit(self) -> int:
        """What may be held: the engine's share, or what is free."""
        return self.total if self.is_share_engine else self.room.free_bytes

    @property
    def for_kv(self) -> int:
        """What the cache may take."""
        return self.limit - self.base

    def most_requests(self, tokens: int) -> int:
        """As many of `tokens` as fit."""
        return kv.largest(_MOST_REQUESTS, lambda n: self.held(tokens, n) <= self.limit)

    def longest(self, requests: int, limit: int | None = None) -> int:
        """The longest that so many requests may be; `limit`: bytes of all, instead of what is."""
        most = self.limit if limit is None else limit
        if self.shape is None or most <= self.weights:
            return 0
        tokens = kv.longest(self.shape)
        return kv.largest(tokens, lambda n: self.held(n, requests) <= most)


def load_of(wish: Wish, files: ModelFiles, room: Room) -> Load:
    """What `wish` puts on the device."""
    shape = files.shape
    weights_share, kv_share = _shares(wish, shape) if room.is_card else (1.0, 1.0)
    extra = [one for one in (files.draft, files.projector) if one is not None]
    weights = math.ceil(_weights(wish, files) * weights_share)
    return Load(
        wish=wish,
        room=room,
        files=files,
        weights=weights + sum(one.weight_bytes for one in extra),
        fixed=_fixed(wish, files, room),
        # llama.cpp, too, gives each slot its model's own limit.
        context=wish.context or (shape.max_context if shape else 0) or DEFAULT_CONTEXT,
        kv_share=kv_share,
    )


def measured_in(
    lines: Sequence[str], wish: Wish, files: ModelFiles, room: Room, held: int
) -> Measured | None:
    """What an engine's start-up lines, or `held` bytes of its process, say; None: nothing.

    vLLM prints how many tokens its cache holds, llama.cpp the sizes of its buffers.
    """
    load = load_of(wish, files, room)
    if load.is_share_engine:
        size, tokens = told_by_vllm(lines)
        if not size or not tokens:
            return None
        return Measured(total_bytes=load.total, cache_bytes=size, context=tokens, requests=1)
    total, caches = told(lines, is_on_card=room.is_card)
    program = llamacpp_memory.CARD_BYTES if room.is_card else llamacpp_memory.PROGRAM_BYTES
    total = max(held, total + program if total else 0)
    if not total:
        return None
    return Measured(
        total_bytes=total, cache_bytes=caches, context=load.context, requests=load.seats
    )


def _shares(wish: Wish, shape: Shape | None) -> tuple[float, float]:
    """(share of the weights, share of the cache) on each card."""
    layers = 1.0
    if wish.gpu_layers is not None and shape is not None:
        # The layer after the last is the output's.
        layers = min(1.0, wish.gpu_layers / (shape.layers + 1))
    heads = 1.0
    if shape is not None and not shape.is_latent:
        # A KV head is not cut in two: beyond their number, cards hold copies. Latents are copied.
        heads = 1 / min(wish.tensor_parallel, max(1, shape.kv_heads))
    caches = 0.0 if wish.keeps_cache_in_ram else layers / wish.pipeline_parallel * heads
    return layers / wish.cards, caches


def _weights(wish: Wish, files: ModelFiles) -> int:
    if files.is_quantized:
        return files.weight_bytes
    return int(files.weight_bytes * _QUANTIZED_SHARE.get(wish.quantization, 1.0))


def _fixed(wish: Wish, files: ModelFiles, room: Room) -> int:
    if wish.engine in SHARE_ENGINES:
        return _VLLM_GPU_BYTES if room.is_card else _VLLM_CPU_BYTES
    if wish.engine != "llamacpp" or files.shape is None:
        return 0
    program = llamacpp_memory.CARD_BYTES if room.is_card else llamacpp_memory.PROGRAM_BYTES
    return program + (files.projector.scratch_bytes if files.projector else 0)


def gib(size: int) -> str:
    """`5.6 GiB`."""
    return f"{size / GIB:.1f} GiB"
