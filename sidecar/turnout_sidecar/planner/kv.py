"""Bytes of KV cache: layers × KV heads × (key + value size) × bytes an element, per token. Pure.

Grouped KV heads count once a group (GQA), latent attention keeps one small vector a layer (MLA),
and windowed layers stop growing at their window.
"""

from __future__ import annotations

from turnout_sidecar.planner.shape import Shape

# Quantized caches of llama.cpp hold blocks of 32 values with their scales (ggml, block_q8_0 … ).
_ELEMENT_BYTES = {
    **dict.fromkeys(("f32", "float32", "float"), 4.0),
    **dict.fromkeys(("f16", "bf16", "float16", "bfloat16", "half"), 2.0),
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "int8"), 1.0),
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    **dict.fromkeys(("q4_0", "iq4_nl"), 18 / 32),
}


def element_bytes(shape: Shape, kv_cache_dtype: str) -> float:
    """Of the cache; `auto` and unknown names mean the model's own dtype."""
    return _ELEMENT_BYTES.get(kv_cache_dtype, shape.element_bytes)


def bytes_per_token(shape: Shape, kv_cache_dtype: str = "") -> float:
    """While no window is full."""
    return shape.layers * _layer_bytes(shape, kv_cache_dtype)


def request_bytes(shape: Shape, tokens: int, kv_cache_dtype: str = "") -> int:
    """Of one request of `tokens`."""
    full = shape.layers - shape.windowed_layers
    kept = min(tokens, shape.window) if shape.window else tokens
    per_layer = _layer_bytes(shape, kv_cache_dtype)
    return int(per_layer * (full * tokens + shape.windowed_layers * kept))


def tokens_within(shape: Shape, size: int, kv_cache_dtype: str = "") -> int:
    """The longest request whose cache takes at most `size` bytes, up to the model's own limit."""
    low, high = 0, shape.max_context or 1 << 22
    while low < high:
        middle = (low + high + 1) // 2
        if request_bytes(shape, middle, kv_cache_dtype) <= size:
            low = middle
        else:
            high = middle - 1
    return low


def _layer_bytes(shape: Shape, kv_cache_dtype: str) -> float:
    size = element_bytes(shape, kv_cache_dtype)
    if shape.latent_size:
        return shape.latent_size * size
    return shape.kv_heads * (shape.key_size + shape.value_size) * size
