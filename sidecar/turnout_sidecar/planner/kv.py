"""Bytes of KV cache and of recurrent state: what each layer keeps of a token, times tokens. Pure.

Grouped KV heads count once a group (GQA), latent attention keeps one small vector a layer (MLA),
windowed layers stop growing at their window, and recurrent layers do not grow at all.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from turnout_sidecar.planner.shape import Cache, Shape

# Quantized caches of llama.cpp hold blocks of 32 values with their scales (ggml, block_q8_0 … ).
_ELEMENT_BYTES = {
    **dict.fromkeys(("f32", "float32", "float"), 4.0),
    **dict.fromkeys(("f16", "bf16", "float16", "bfloat16", "half"), 2.0),
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla", "int8"), 1.0),
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    **dict.fromkeys(("q4_0", "iq4_nl"), 18 / 32),
}


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine lays caches out."""

    key_type: str = ""
    value_type: str = ""
    """Empty, `auto` and unknown names mean the model's own dtype."""
    step: int = 1
    """Room is taken for so many tokens at a time."""
    ahead: int = 0
    """Tokens that a windowed layer keeps beyond its window: those of the batch under way."""
    is_unified: bool = False
    """One cache for all requests together, instead of one for each."""
    keeps_all: bool = False
    """Windows save nothing."""


PLAIN = Layout()


def bytes_per_token(shape: Shape, layout: Layout = PLAIN) -> float:
    """While no window is full."""
    return sum(cache.layers * token_bytes(shape, cache, layout) for cache in shape.caches)


def cache_bytes(shape: Shape, tokens: int, layout: Layout = PLAIN, requests: int = 1) -> int:
    """Of `requests` at once, `tokens` each, states included.

    Source: llama.cpp, src/llama-kv-cache-iswa.cpp and src/llama-context.cpp (`n_ctx_seq`), for the
    padding and for windowed layers; vLLM, v1/kv_cache_interface.py, for blocks.
    """
    streams = 1 if layout.is_unified else requests
    cells = _stepped(tokens * requests // streams, layout.step)
    size = 0.0
    for cache in shape.caches:
        kept = _kept(cells, cache.window, layout, requests)
        size += cache.layers * token_bytes(shape, cache, layout) * kept * streams
    return int(size) + shape.state_bytes * requests


def token_bytes(shape: Shape, cache: Cache, layout: Layout) -> float:
    """Of one token in one layer."""
    keys = _ELEMENT_BYTES.get(layout.key_type, shape.element_bytes)
    values = _ELEMENT_BYTES.get(layout.value_type, shape.element_bytes)
    return cache.keys * keys + cache.values * values + cache.flat_bytes


def mask_cells(shape: Shape, tokens: int, layout: Layout = PLAIN, requests: int = 1) -> int:
    """Cells that a token is masked against: there is one mask for full and one for other layers."""
    cells = _stepped(tokens * requests if layout.is_unified else tokens, layout.step)
    windows = {cache.window for cache in shape.caches}
    return sum(_kept(cells, window, layout, requests) for window in windows)


def largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `most` that `fits`, which must hold for all below one that does."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def longest(shape: Shape) -> int:
    """Tokens that no request goes beyond."""
    return shape.max_context or 1 << 22


def _kept(cells: int, window: int, layout: Layout, requests: int) -> int:
    """Of `cells`, what a layer with this window keeps in one cache."""
    if not window or layout.keeps_all:
        return cells
    wanted = window * (requests if layout.is_unified else 1) + layout.ahead
    return _stepped(min(cells, wanted), layout.step)


def _stepped(count: int, step: int) -> int:
    return -(-count // step) * step
