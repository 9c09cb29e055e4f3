"""The shape of a model from its Hugging Face `config.json`, as vLLM reads it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnout_sidecar.planner import families
from turnout_sidecar.planner.recurrent_states import state_bytes
from turnout_sidecar.planner.shape import Cache, Shape, gathered, whole

_DTYPE_BYTES = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0, "float8_e4m3fn": 1.0}
_INDEXER_BLOCK = 128
"""An indexer's keys are 8 bits with a 32-bit scale for so many (vLLM, models/deepseek_v2.py)."""

# What published files leave to the class (transformers, models/*/configuration_*.py).
_CLASS_DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma2": {"head_dim": 256, "sliding_window": 4_096, "sliding_window_pattern": 2},
    "gemma3": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262_208,
        "sliding_window": 4_096,
        "sliding_window_pattern": 6,
        "max_position_embeddings": 131_072,
        "tie_word_embeddings": True,
    },
    "gemma3n": {"head_dim": 256, "sliding_window": 512, "sliding_window_pattern": 5},
    "gemma4": {"head_dim": 256, "global_head_dim": 512, "sliding_window_pattern": 6},
    "cohere2": {"sliding_window": 4_096, "sliding_window_pattern": 4},
    "gpt_oss": {"head_dim": 64, "sliding_window": 128, "sliding_window_pattern": 2},
    "llama4": {"attention_chunk_size": 8_192, "head_dim": 128},
    "mistral": {"num_key_value_heads": 8},
    "mixtral": {"num_key_value_heads": 8},
    "qwen3_next": {"full_attention_interval": 4, "head_dim": 256, "num_key_value_heads": 2},
    "qwen3_5": {"full_attention_interval": 4, "head_dim": 256},
    "qwen3_5_moe": {"full_attention_interval": 4, "head_dim": 256, "num_key_value_heads": 2},
}
_WINDOW_KINDS = ("sliding_attention", "chunked_attention")
_STATELESS_KINDS = ("moe", "mlp", "-", "E")


def shape_of_config(config: Mapping[str, Any]) -> Shape:
    """From a Hugging Face `config.json`; raises ValueError naming what is missing."""
    text = _text_part(config)
    layers = whole(text, "num_hidden_layers", "n_layer", "num_layers")
    hidden = whole(text, "hidden_size", "n_embd", "d_model")
    family = str(text.get("model_type", ""))
    heads = whole(text, "num_attention_heads", "n_head", default=0 if "mamba" in family else None)
    head = whole(text, "head_dim", "attention_head_dim", default=hidden // max(1, heads))
    kv_heads = whole(text, "num_key_value_heads", "num_kv_heads", default=heads)
    if text.get("multi_query") and "num_key_value_heads" not in text:
        kv_heads = 1
    vocabulary = whole(text, "vocab_size", default=0)
    dtype = str(text.get("torch_dtype") or text.get("dtype") or "bfloat16").removeprefix("torch.")
    element = _DTYPE_BYTES.get(dtype, 2.0)
    kinds = layer_kinds(text, layers)
    recurrent = sum(_has_state(kind) for kind in kinds)
    return Shape(
        layers=layers,
        caches=_caches(text, kinds, kv_heads, head),
        state_bytes=recurrent * state_bytes(text, hidden, heads, element) if recurrent else 0,
        kv_heads=kv_heads,
        is_latent="kv_lora_rank" in text,
        hidden_size=hidden,
        row_size=5 * hidden + 3 * whole(text, "intermediate_size", default=4 * hidden),
        vocabulary=vocabulary,
        max_context=whole(text, "max_position_embeddings", "n_positions", default=0),
        element_bytes=element,
        embedding_parameters=vocabulary * hidden * (1 if text.get("tie_word_embeddings") else 2),
        linear_parameters=_linear(text, layers, hidden, heads, kv_heads, head),
        weight_bits=_weight_bits(config, element),
        family=family,
        is_guess=bool(family) and family.removesuffix("_text") not in families.KNOWN_CONFIG,
    )


def layer_kinds(text: Mapping[str, Any], layers: int) -> Sequence[str]:
    """What each layer is: `full_attention`, `sliding_attention`, `mamba`, … as its file says.

    Source of the keys: transformers, models/*/configuration_*.py.
    """
    for name in ("layer_types", "layers_block_type", "block_types"):
        if isinstance(kinds := text.get(name), list) and kinds:
            return [str(kind) for kind in kinds][:layers]
    if isinstance(pattern := text.get("hybrid_override_pattern"), str):
        return ["attention" if sign == "*" else {"M": "mamba"}.get(sign, sign) for sign in pattern]
    family = str(text.get("model_type", ""))
    if family in ("mamba", "mamba2", "falcon_mamba"):
        return ["mamba"] * layers
    if family == "falcon_h1":
        return ["hybrid"] * layers
    if (full := _full_layers(text, layers)) is not None:
        return ["full_attention" if n in full else "linear_attention" for n in range(layers)]
    return _windowed_kinds(text, layers)


def _text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = config.get("text_config") or config.get("llm_config")
    text = {**config, **inner} if isinstance(inner, dict) else config
    family = str(text.get("model_type", "")).removesuffix("_text").removesuffix("_unified")
    return {**_CLASS_DEFAULTS.get(family, {}), **text}


def _full_layers(text: Mapping[str, Any], layers: int) -> set[int] | None:
    """Numbers of the layers with attention, where the others have a state; None: all have it."""
    linear = text.get("linear_attn_config")
    if isinstance(linear, dict) and isinstance(linear.get("full_attn_layers"), list):
        return {int(n) - 1 for n in linear["full_attn_layers"]}  # counted from 1 there
    for name in ("attn_layer_indices", "full_attn_idxs", "hybrid_layer_ids"):
        if isinstance(indices := text.get(name), list):
            return {int(n) for n in indices}
    if isinstance(flags := text.get("attn_type_list"), list):
        return {n for n, flag in enumerate(flags) if flag == 1}
    if period := whole(text, "attn_layer_period", default=0):
        offset = whole(text, "attn_layer_offset", default=0)
        return {n for n in range(layers) if n % period == offset}
    if every := whole(text, "full_attention_interval", default=0):
        return {n for n in range(layers) if (n + 1) % every == 0}
    return None


def _windowed_kinds(text: Mapping[str, Any], layers: int) -> list[str]:
    none = ["full_attention"] * layers
    if text.get("model_type") in ("llama4_text", "llama4"):
        flags = text.get("no_rope_layers")
        if isinstance(flags, list) and flags:
            return ["chunked_attention" if flag else "full_attention" for flag in flags]
        return [
            "full_attention" if (n + 1) % 4 == 0 else "chunked_attention" for n in range(layers)
        ]
    if not whole(text, "sliding_window", default=0) or text.get("use_sliding_window") is False:
        return none
    every = whole(text, "sliding_window_pattern", "_sliding_window_pattern", default=0)
    if every > 1:
        return _every(every, layers, "sliding_attention")
    first = whole(text, "max_window_layers", default=0) if text.get("use_sliding_window") else 0
    return none[:first] + ["sliding_attention"] * max(0, layers - first)


def _every(count: int, layers: int, other: str) -> list[str]:
    return ["full_attention" if (n + 1) % count == 0 else other for n in range(layers)]


def _has_state(kind: str) -> bool:
    return kind not in _STATELESS_KINDS and ("attention" not in kind or "linear" in kind)


def _caches(
    text: Mapping[str, Any], kinds: Sequence[str], kv_heads: int, head: int
) -> tuple[Cache, ...]:
    """Source: vLLM, v1/kv_cache_interface.py; for global heads transformers, models/gemma4."""
    window = whole(text, "sliding_window", default=0)
    chunk = whole(text, "attention_chunk_size", default=window)
    own = max(0, len(kinds) - whole(text, "num_kv_shared_layers", default=0))
    rank = whole(text, "kv_lora_rank", default=0)
    indexer = whole(text, "index_head_dim", default=0)
    wide = whole(text, "global_head_dim", default=head)
    few = whole(text, "num_global_key_value_heads", default=kv_heads)
    value = whole(text, "v_head_dim", default=0)
    found = []
    for kind in kinds[:own]:
        if ("attention" not in kind and kind != "hybrid") or "linear" in kind:
            continue
        if rank:
            keys = rank + whole(text, "qk_rope_head_dim", default=0)
            flat = indexer + 4 * (indexer // _INDEXER_BLOCK)
            found.append(Cache(keys=keys, flat_bytes=flat))
        elif kind in _WINDOW_KINDS:
            reach = chunk if kind == "chunked_attention" else window
            found.append(
                Cache(keys=kv_heads * head, values=kv_heads * (value or head), window=reach)
            )
        else:
            found.append(Cache(keys=few * wide, values=few * (value or wide)))
    return gathered(found)


def _linear(
    text: Mapping[str, Any], layers: int, hidden: int, heads: int, kv_heads: int, head: int
) -> int:
    """Weights of all linear layers: attention projections and (gated) feed-forward, experts too."""
    attention = hidden * head * (2 * heads + 2 * kv_heads)
    width = whole(text, "intermediate_size", "n_inner", default=4 * hidden)
    gates = 2 if text.get("model_type") in ("gpt2", "opt", "falcon", "gpt_neox") else 3
    dense = gates * hidden * width
    experts = whole(text, "num_local_experts", "num_experts", "n_routed_experts", default=0)
    if not experts:
        return layers * (attention + dense)
    expert_width = whole(text, "moe_intermediate_size", default=width)
    shared = whole(text, "n_shared_experts", default=0)
    sparse = gates * hidden * expert_width * (experts + shared)
    first = whole(text, "first_k_dense_replace", default=0)
    return layers * attention + first * dense + (layers - first) * sparse


def _weight_bits(config: Mapping[str, Any], element: float) -> float:
    quantized = config.get("quantization_config")
    if not isinstance(quantized, dict):
        return 8 * element
    bits = quantized.get("bits") or (4 if quantized.get("load_in_4bit") else 8)
    group = quantized.get("group_size")
    # Each group of weights has a 16-bit scale and, at `bits`, a zero point (GPTQ, AWQ).
    extra = (16 + bits) / group if isinstance(group, int) and group > 0 else 0.0
    return float(bits) + extra if isinstance(bits, int) else 8 * element
