"""How a model's attention and weights are shaped, from `config.json` or a GGUF header. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What memory depends on. Sizes are in elements, `parameters` in weights (0: unknown)."""

    layers: int
    kv_heads: int
    key_size: int
    """Of one head."""
    value_size: int
    latent_size: int = 0
    """MLA: elements a layer keeps per token instead of keys and values (DeepSeek-V2 paper)."""
    window: int = 0
    """Tokens that windowed layers look back on; 0: none does."""
    windowed_layers: int = 0
    hidden_size: int = 0
    vocabulary: int = 0
    max_context: int = 0
    """Tokens; 0: the files do not say."""
    element_bytes: float = 2.0
    """Of the model's own dtype, which is the KV cache's unless `kv_cache_dtype` names another."""
    embedding_parameters: int = 0
    linear_parameters: int = 0
    weight_bits: float = 16.0
    """Of linear layers as stored, group scales included."""

    @property
    def parameters(self) -> int:
        """All weights."""
        return self.embedding_parameters + self.linear_parameters


_DTYPE_BYTES = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0, "float8_e4m3fn": 1.0}
# Models whose GGUF header names a window but not which layers use it: every n-th layer is full
# (llama.cpp, src/llama-model.cpp, `set_swa_pattern`).
_FULL_EVERY = {"gemma2": 2, "gemma3": 6, "gemma3n": 5, "cohere2": 4, "gpt-oss": 2, "exaone4": 4}


def shape_of_config(config: Mapping[str, Any]) -> Shape:
    """From a Hugging Face `config.json`; raises ValueError naming what is missing."""
    inner = config.get("text_config")
    text = {**config, **inner} if isinstance(inner, dict) else config
    layers = _whole(text, "num_hidden_layers", "n_layer", "num_layers")
    heads = _whole(text, "num_attention_heads", "n_head")
    hidden = _whole(text, "hidden_size", "n_embd", "d_model")
    head = _whole(text, "head_dim", default=hidden // max(1, heads))
    kv_heads = _whole(text, "num_key_value_heads", "num_kv_heads", default=heads)
    if text.get("multi_query") and "num_key_value_heads" not in text:
        kv_heads = 1
    rank = _whole(text, "kv_lora_rank", default=0)
    window, windowed = _windows(text, layers)
    vocabulary = _whole(text, "vocab_size", default=0)
    dtype = str(text.get("torch_dtype") or text.get("dtype") or "bfloat16")
    embeddings = vocabulary * hidden * (1 if text.get("tie_word_embeddings") else 2)
    full_attention = _attention_layers(text, layers)
    return Shape(
        layers=full_attention,
        kv_heads=kv_heads,
        key_size=head,
        value_size=_whole(text, "v_head_dim", default=head),
        latent_size=rank + _whole(text, "qk_rope_head_dim", default=0) if rank else 0,
        window=window,
        windowed_layers=min(windowed, full_attention),
        hidden_size=hidden,
        vocabulary=vocabulary,
        max_context=_whole(text, "max_position_embeddings", "n_positions", default=0),
        element_bytes=_DTYPE_BYTES.get(dtype.removeprefix("torch."), 2.0),
        embedding_parameters=embeddings,
        linear_parameters=_linear(text, layers, hidden, heads, kv_heads, head),
        weight_bits=_weight_bits(config, dtype),
    )


def shape_of_gguf(header: Mapping[str, Any]) -> Shape:
    """From a GGUF header; raises ValueError naming what is missing."""
    family = str(header.get("general.architecture", ""))
    own = {k.removeprefix(family + "."): v for k, v in header.items() if k.startswith(family + ".")}
    layers = _whole(own, "block_count")
    heads = _most(own, "attention.head_count")
    hidden = _whole(own, "embedding_length")
    per_layer = own.get("attention.head_count_kv")
    kv_heads = _most(own, "attention.head_count_kv") if per_layer is not None else heads
    if isinstance(per_layer, list):
        # Layers without attention (state-space blocks of hybrids) keep no cache.
        layers = sum(1 for count in per_layer if count)
    size = hidden // max(1, heads)
    rank = _whole(own, "attention.kv_lora_rank", default=0)
    is_latent = rank and "attention.key_length_mla" in own
    window = _whole(own, "attention.sliding_window", default=0)
    every = _FULL_EVERY.get(family)
    tokens = header.get("tokenizer.ggml.tokens", 0)
    return Shape(
        layers=layers,
        kv_heads=kv_heads,
        key_size=_whole(own, "attention.key_length", default=size),
        value_size=_whole(own, "attention.value_length", default=size),
        latent_size=rank + _whole(own, "rope.dimension_count", default=0) if is_latent else 0,
        window=window if every else 0,
        windowed_layers=layers - layers // every if window and every else 0,
        hidden_size=hidden,
        vocabulary=_whole(own, "vocab_size", default=tokens if isinstance(tokens, int) else 0),
        max_context=_whole(own, "context_length", default=0),
    )


def _windows(text: Mapping[str, Any], layers: int) -> tuple[int, int]:
    """(window, how many layers use it)."""
    window = text.get("sliding_window")
    if not isinstance(window, int) or window <= 0 or text.get("use_sliding_window") is False:
        return 0, 0
    kinds = text.get("layer_types")
    if isinstance(kinds, list):
        return window, sum(1 for kind in kinds if kind == "sliding_attention")
    every = text.get("sliding_window_pattern")
    if isinstance(every, int) and every > 1:
        return window, layers - layers // every
    if text.get("model_type") == "gemma2":
        return window, layers - layers // 2
    return window, layers


def _attention_layers(text: Mapping[str, Any], layers: int) -> int:
    """Layers that keep a KV cache; linear-attention layers of hybrids keep a small fixed state."""
    kinds = text.get("layer_types")
    if not isinstance(kinds, list):
        return layers
    return sum(1 for kind in kinds if "attention" in str(kind) and "linear" not in str(kind))


def _linear(
    text: Mapping[str, Any], layers: int, hidden: int, heads: int, kv_heads: int, head: int
) -> int:
    """Weights of all linear layers: attention projections and (gated) feed-forward, experts too."""
    attention = hidden * head * (2 * heads + 2 * kv_heads)
    width = _whole(text, "intermediate_size", "n_inner", default=4 * hidden)
    gates = 2 if text.get("model_type") in ("gpt2", "opt", "falcon", "gpt_neox") else 3
    dense = gates * hidden * width
    experts = _whole(text, "num_local_experts", "num_experts", "n_routed_experts", default=0)
    if not experts:
        return layers * (attention + dense)
    expert_width = _whole(text, "moe_intermediate_size", default=width)
    shared = _whole(text, "n_shared_experts", default=0)
    sparse = gates * hidden * expert_width * (experts + shared)
    first = _whole(text, "first_k_dense_replace", default=0)
    return layers * attention + first * dense + (layers - first) * sparse


def _weight_bits(config: Mapping[str, Any], dtype: str) -> float:
    plain = 8 * _DTYPE_BYTES.get(dtype.removeprefix("torch."), 2.0)
    quantized = config.get("quantization_config")
    if not isinstance(quantized, dict):
        return plain
    bits = quantized.get("bits") or (4 if quantized.get("load_in_4bit") else 8)
    group = quantized.get("group_size")
    # Each group of weights has a 16-bit scale and, at `bits`, a zero point (GPTQ, AWQ).
    extra = (16 + bits) / group if isinstance(group, int) and group > 0 else 0.0
    return float(bits) + extra if isinstance(bits, int) else plain


def _whole(values: Mapping[str, Any], *names: str, default: int | None = None) -> int:
    for name in names:
        value = values.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40:
            return value
    if default is None:
        raise ValueError(f"it does not say `{names[0]}`")
    return default


def _most(values: Mapping[str, Any], name: str) -> int:
    """A number, or the largest of a list with one for each layer."""
    value = values.get(name)
    if isinstance(value, list) and value and all(isinstance(v, int) for v in value):
        return int(max(value))
    return _whole(values, name)
