"""Tiny models of several families that the real llama.cpp loads: all weights are zero.

Names and shapes of tensors are llama.cpp's (src/models, `load_arch_tensors`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from model_folders import gguf

HIDDEN, WIDE, HEADS, HEAD = 256, 512, 8, 64
CONTEXT = 32_768
Tensors = dict[str, tuple[int, ...]]
_BYTES = [f"<0x{n:02X}>" for n in range(256)]
_TOKENS = ["<unk>", "<s>", "</s>", *_BYTES, *(f"w{n}" for n in range(741))]
VOCABULARY = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": _TOKENS,
    "tokenizer.ggml.scores": [0.0] * len(_TOKENS),
    "tokenizer.ggml.token_type": [2, 3, 3, *[6] * 256, *[1] * 741],
}
_WHOLE: Tensors = {"token_embd.weight": (HIDDEN, len(_TOKENS)), "output_norm.weight": (HIDDEN,)}


def tiny(path: Path, family: str, **changed: Any) -> Path:
    """A file of `family` at `path`; `changed` are header keys, dots written as `__`."""
    layers, pairs, block = FAMILIES[family]
    pairs = pairs | {key.replace("__", "."): value for key, value in changed.items()}
    layers = pairs.pop("block_count", layers)
    plain = {
        "block_count": layers,
        "context_length": CONTEXT,
        "embedding_length": HIDDEN,
        "feed_forward_length": WIDE,
        "attention.head_count": HEADS,
        "attention.layer_norm_rms_epsilon": 1e-6,
    }
    header = {"general.architecture": family}
    header |= {f"{family}.{key}": value for key, value in (plain | pairs).items()}
    tensors = dict(_WHOLE)
    for layer in range(layers):
        found = block(layer, plain | pairs)
        tensors |= {f"blk.{layer}.{name}": shape for name, shape in found.items()}
    if family == "lfm2":
        tensors["token_embd_norm.weight"] = tensors.pop("output_norm.weight")
    if family == "gemma4":
        tensors["rope_freqs.weight"] = (HEAD,)
    return gguf(path, header | VOCABULARY, tensors=tensors)


def _weights(**shapes: tuple[int, ...]) -> Tensors:
    return {f"{name}.weight": shape for name, shape in shapes.items()}


def _attention(heads: int, head: int = HEAD, query: int = HEADS) -> Tensors:
    return _weights(
        attn_norm=(HIDDEN,),
        attn_q=(HIDDEN, query * head),
        attn_k=(HIDDEN, heads * head),
        attn_v=(HIDDEN, heads * head),
        attn_output=(HEADS * head, HIDDEN),
    )


def _normed(head: int = HEAD) -> Tensors:
    return _weights(attn_q_norm=(head,), attn_k_norm=(head,))


def _dense() -> Tensors:
    return _weights(ffn_gate=(HIDDEN, WIDE), ffn_up=(HIDDEN, WIDE), ffn_down=(WIDE, HIDDEN))


def _experts(count: int = 8, width: int = 128) -> Tensors:
    return _weights(
        ffn_gate_inp=(HIDDEN, count),
        ffn_gate_exps=(HIDDEN, width, count),
        ffn_up_exps=(HIDDEN, width, count),
        ffn_down_exps=(width, HIDDEN, count),
    )


def _llama(layer: int, pairs: dict[str, Any]) -> Tensors:
    return _attention(2) | _weights(ffn_norm=(HIDDEN,)) | _dense()


def _qwen3moe(layer: int, pairs: dict[str, Any]) -> Tensors:
    return _attention(2) | _normed() | _weights(ffn_norm=(HIDDEN,)) | _experts()


def _gemma3(layer: int, pairs: dict[str, Any]) -> Tensors:
    norms = _weights(post_attention_norm=(HIDDEN,), ffn_norm=(HIDDEN,), post_ffw_norm=(HIDDEN,))
    return _attention(2) | _normed() | norms | _dense()


def _gemma4(layer: int, pairs: dict[str, Any]) -> Tensors:
    is_short = pairs["attention.sliding_window_pattern"][layer]
    head = HEAD if is_short else 2 * HEAD
    norms = _weights(post_attention_norm=(HIDDEN,), ffn_norm=(HIDDEN,), post_ffw_norm=(HIDDEN,))
    heads = pairs["attention.head_count_kv"][layer]
    return _attention(heads, head) | _normed(head) | norms | _dense()


def _deepseek2(layer: int, pairs: dict[str, Any]) -> Tensors:
    rank, rope, head = 128, 64, 128
    return _dense() | _weights(
        attn_norm=(HIDDEN,),
        attn_q_a=(HIDDEN, 96),
        attn_q_a_norm=(96,),
        attn_q_b=(96, HEADS * head),
        attn_kv_a_mqa=(HIDDEN, rank + rope),
        attn_kv_a_norm=(rank,),
        attn_k_b=(head - rope, rank, HEADS),
        attn_v_b=(rank, head, HEADS),
        attn_output=(HEADS * head, HIDDEN),
        ffn_norm=(HIDDEN,),
    )


def _qwen35(layer: int, pairs: dict[str, Any]) -> Tensors:
    state, groups, ranks, kernel = 64, 4, 8, 4
    norms = _weights(attn_norm=(HIDDEN,), post_attention_norm=(HIDDEN,))
    if (layer + 1) % pairs.get("full_attention_interval", 4) == 0:
        return _attention(2, query=2 * HEADS) | _normed() | norms | _dense()
    values, inputs = state * ranks, state * (2 * groups + ranks)
    linear = _weights(
        attn_qkv=(HIDDEN, inputs),
        attn_gate=(HIDDEN, values),
        ssm_conv1d=(kernel, inputs),
        ssm_beta=(HIDDEN, ranks),
        ssm_alpha=(HIDDEN, ranks),
        ssm_norm=(state,),
        ssm_out=(values, HIDDEN),
    )
    return norms | linear | {"ssm_dt.bias": (ranks,), "ssm_a": (ranks,)} | _dense()


def _mamba_part(inner: int = 512, state: int = 64, ranks: int = 8, groups: int = 1) -> Tensors:
    inputs = inner + 2 * groups * state
    named = _weights(
        ssm_in=(HIDDEN, inner + inputs + ranks),
        ssm_conv1d=(4, inputs),
        ssm_norm=(inner // groups, groups),
        ssm_out=(inner, HIDDEN),
    )
    rest = {"ssm_conv1d.bias": (inputs,), "ssm_dt.bias": (ranks,)}
    return named | rest | {"ssm_a": (1, ranks), "ssm_d": (1, ranks)}


def _mamba2(layer: int, pairs: dict[str, Any]) -> Tensors:
    return _mamba_part() | _weights(attn_norm=(HIDDEN,))


def _falcon_h1(layer: int, pairs: dict[str, Any]) -> Tensors:
    return _mamba_part() | _attention(2) | {"ffn_norm": (HIDDEN,)} | _dense()


def _lfm2(layer: int, pairs: dict[str, Any]) -> Tensors:
    norms = _weights(ffn_norm=(HIDDEN,), attn_norm=(HIDDEN,))
    if heads := pairs["attention.head_count_kv"][layer]:
        size = HIDDEN // HEADS
        return _attention(heads, size) | _normed(size) | norms | _dense()
    conv = {
        "shortconv.conv.weight": (3, HIDDEN),
        "shortconv.in_proj.weight": (HIDDEN, 3 * HIDDEN),
        "shortconv.out_proj.weight": (HIDDEN, HIDDEN),
    }
    return norms | conv | _dense()


_HEADS = {
    "attention.head_count_kv": 2,
    "attention.key_length": HEAD,
    "attention.value_length": HEAD,
}
_MAMBA = {
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 512,
    "ssm.state_size": 64,
    "ssm.time_step_rank": 8,
    "ssm.group_count": 1,
}
_DELTA = {
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 512,
    "ssm.state_size": 64,
    "ssm.time_step_rank": 8,
    "ssm.group_count": 4,
    "rope.dimension_sections": [11, 11, 10, 0],
}
_EXPERTS = {"expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 128}
FAMILIES: dict[str, tuple[int, dict[str, Any], Callable[[int, dict[str, Any]], Tensors]]] = {
    "llama": (4, _HEADS | {"rope.dimension_count": HEAD}, _llama),
    "qwen3moe": (4, _HEADS | _EXPERTS, _qwen3moe),
    "gemma3": (12, _HEADS | {"attention.sliding_window": 512}, _gemma3),
    "gemma4": (
        6,
        {
            "attention.sliding_window": 512,
            "attention.sliding_window_pattern": [True, True, False] * 2,
            "attention.head_count_kv": [4, 4, 1] * 2,
            "attention.key_length": 2 * HEAD,
            "attention.value_length": 2 * HEAD,
            "attention.key_length_swa": HEAD,
            "attention.value_length_swa": HEAD,
            "rope.dimension_count_swa": HEAD,
            "embedding_length_per_layer_input": 0,
        },
        _gemma4,
    ),
    "deepseek2": (
        4,
        {
            "attention.head_count_kv": 1,
            "attention.q_lora_rank": 96,
            "attention.kv_lora_rank": 128,
            "attention.key_length": 192,
            "attention.value_length": 128,
            "attention.key_length_mla": 128,
            "attention.value_length_mla": 128,
            "rope.dimension_count": 64,
            "leading_dense_block_count": 4,
            "expert_shared_count": 1,
            **_EXPERTS,
        },
        _deepseek2,
    ),
    "qwen35": (8, _HEADS | _DELTA, _qwen35),
    "mamba2": (4, _MAMBA | {"attention.head_count": 0}, _mamba2),
    "falcon-h1": (4, _HEADS | _MAMBA, _falcon_h1),
    "lfm2": (6, {"attention.head_count_kv": [0, 0, 2] * 2, "shortconv.l_cache": 3}, _lfm2),
}
