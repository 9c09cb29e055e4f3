"""What an engine will hold with these settings, whether it fits, and what would make it fit. Pure.

Engines that take a fixed share of the card (vLLM, nano-vllm) hold that share whatever the model
needs; inside it weights, working memory and at least one full-length request must find room. All
others hold weights, the whole KV cache and their working memory. Of an engine that spreads over
several cards, a plan tells what the fullest of them holds.
"""

from __future__ import annotations

import math

import msgspec

from turnout_sidecar.planner import kv
from turnout_sidecar.planner.load import Load, Room, gib, load_of
from turnout_sidecar.planner.model_files import ModelFiles
from turnout_sidecar.planner.wish import GIB, Wish

_LIGHTER = "use a smaller or more strongly quantized model"
_LARGEST_SHARE = 0.9
"""Not advised beyond."""
_SAFE_SHARE = 0.7
"""Of a card that also drives a screen, whose compositor and browser take 1 to 3 GiB."""
_CONTEXT_STEP, _SHORTEST_CONTEXT = 256, 1_024
"""Advised contexts are multiples of the one and not below the other."""


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
    is_guess: bool = False
    """The model's family is not known here, and it was not measured yet."""


def make_plan(wish: Wish, files: ModelFiles, room: Room) -> Plan:
    """The plan for one backend on one device."""
    load = load_of(wish, files, room)
    request, shape = load.request, files.shape
    problem, advice = _judge(load)
    is_guess = shape is not None and shape.is_guess and files.measured is None
    if is_guess and load.weights <= room.free_bytes:
        # Nobody would ever know better if it were never started.
        problem = advice = ""
    return Plan(
        name=wish.name,
        engine=wish.engine,
        device=room.device,
        cards=wish.cards if room.is_card else 1,
        weight_bytes=load.weights,
        kv_token_bytes=(kv.bytes_per_token(shape, wish.layout) if shape else 0.0) * load.kv_share,
        kv_request_bytes=request,
        kv_total_bytes=load.caches(load.context, load.seats),
        overhead_bytes=load.base - load.weights,
        total_bytes=load.total,
        free_bytes=room.free_bytes,
        fits=not problem,
        problem=problem,
        advice=advice,
        warning=_warning(load, is_guess=is_guess),
        max_num_seqs=load.most_requests(load.context) if request else wish.max_num_seqs,
        context=load.longest(load.seats) if shape else load.context,
        source="measured at an earlier start" if files.measured else files.source,
        is_guess=is_guess,
    )


def _judge(load: Load) -> tuple[str, str]:
    """(why it does not fit, the setting that would make it fit); both empty if it fits."""
    if load.takes_share:
        return _judge_share(load)
    room = load.room
    if load.total > room.free_bytes:
        problem = f"needs {gib(load.total)}, {gib(room.free_bytes)} is free on {room.device}"
        return problem, _smaller(load)
    if load.is_share_engine and load.request > load.for_kv:
        wanted = math.ceil(load.request / GIB)
        problem = f"a request of {load.context} tokens needs {gib(load.request)} of KV cache"
        return problem, f"set env VLLM_CPU_KVCACHE_SPACE: {wanted}"
    return "", ""


def _judge_share(load: Load) -> tuple[str, str]:
    room, wish, least = load.room, load.wish, load.base + load.request
    if load.total > room.free_bytes:
        problem = (
            f"takes {wish.gpu_share:.0%} of the card, {gib(load.total)}; "
            f"{gib(room.free_bytes)} is free on {room.device}"
        )
        share = math.floor(100 * room.free_bytes / max(1, room.total_bytes)) / 100
        if share * room.total_bytes >= least:
            return problem, f"set gpu_memory_utilization: {share:g}"
        return problem, _shorter(load, room.free_bytes) or _LIGHTER
    if load.for_kv < load.request or load.for_kv <= 0:
        problem = (
            f"weights and working memory take {gib(load.base)} of its {gib(load.total)}; "
            f"a request of {load.context} tokens needs {gib(load.request)} more"
        )
        return problem, _roomier(load, least)
    return "", ""


def _roomier(load: Load, least: int) -> str:
    """A larger share where the card allows it, or a shorter context."""
    room, shorter = load.room, _shorter(load, load.limit)
    share = math.ceil(100 * least / max(1, room.total_bytes)) / 100
    if share > _LARGEST_SHARE or share * room.total_bytes > room.free_bytes:
        return shorter or _LIGHTER
    larger = f"gpu_memory_utilization: {share:g}"
    return f"{shorter}, or {larger}" if shorter else f"set {larger}"


def _smaller(load: Load) -> str:
    """The setting that takes away what is too much."""
    if not load.request:
        return _LIGHTER
    if seats := load.most_requests(load.context):
        return f"set max_num_seqs: {seats}"
    return _shorter(load, load.limit) or _fewer_layers(load) or _LIGHTER


def _shorter(load: Load, limit: int) -> str:
    """A context that a single request fits in."""
    tokens = load.longest(1, limit)
    tokens -= tokens % _CONTEXT_STEP
    return f"set max_model_len: {tokens}" if tokens >= _SHORTEST_CONTEXT else ""


def _fewer_layers(load: Load) -> str:
    """llama.cpp keeps in RAM what the card does not take."""
    is_llamacpp = load.wish.engine == "llamacpp" and load.room.is_card
    if not is_llamacpp or load.shape is None or load.wish.gpu_layers is not None:
        return ""
    all_layers = load.shape.layers + 1
    besides = load.base - load.weights
    each = (load.total - besides) / all_layers
    layers = int((load.room.free_bytes - besides) / each)
    if layers < 1:
        return ""
    return f'set args: ["-ngl", "{layers}"], {layers} of {all_layers} layers on the card'


def _warning(load: Load, *, is_guess: bool) -> str:
    share = load.wish.gpu_share
    if is_guess and load.shape is not None:
        return (
            f"the architecture {load.shape.family!r} is not known here, so this is a guess; "
            "its first start is measured"
        )
    if not load.takes_share or not load.room.drives_display or share <= _SAFE_SHARE:
        return ""
    left = gib(int(load.room.total_bytes * (1 - share)))
    return (
        f"{load.room.device} also drives a screen, and gpu_memory_utilization {share:g} "
        f"leaves it {left}; {_SAFE_SHARE:g} or less is safe"
    )
