"""Bytes that one recurrent layer of a Hugging Face model keeps of a request. Pure.

Source: vLLM, model_executor/layers/mamba/mamba_utils.py, `MambaStateShapeCalculator` and
`MambaStateDtypeCalculator`. A convolution keeps its last inputs, in the model's dtype; what follows
it keeps a matrix, in the dtype that the configuration names, else in the model's, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnout_sidecar.planner.shape import whole

_FLOAT = 4.0


def state_bytes(text: Mapping[str, Any], hidden: int, heads: int, element: float) -> int:
    """0 where the configuration has no key of a recurrent layer that is known here."""
    named = str(text.get("mamba_ssm_dtype") or text.get("mamba_ssm_cache_dtype") or "")
    matrix = _FLOAT if named.removeprefix("torch.") == "float32" else element
    if "linear_num_value_heads" in text:
        return _delta_net(text, element, matrix)
    if isinstance(text.get("linear_attn_config"), dict):
        return _delta_attention(text["linear_attn_config"], element)
    if reach := whole(text, "conv_L_cache", default=0):
        return int((reach - 1) * whole(text, "conv_dim", default=hidden) * element)
    if "attn_type_list" in text or text.get("model_type") == "minimax":
        # Lightning attention: a matrix of head by head, for each (MiniMax-Text-01).
        return int(heads * whole(text, "head_dim", default=hidden // max(1, heads)) ** 2 * _FLOAT)
    return _mamba(text, hidden, element, matrix)


def _delta_net(text: Mapping[str, Any], element: float, matrix: float) -> int:
    """Gated delta net: Qwen3-Next, Qwen3.5."""
    key, value = (whole(text, f"linear_{kind}_head_dim", default=128) for kind in ("key", "value"))
    key_heads = whole(text, "linear_num_key_heads", default=0)
    value_heads = whole(text, "linear_num_value_heads")
    inputs = 2 * key * key_heads + value * value_heads
    kept = max(0, whole(text, "linear_conv_kernel_dim", default=4) - 1)
    return int(kept * inputs * element + value_heads * value * key * matrix)


def _delta_attention(own: Mapping[str, Any], element: float) -> int:
    """Kimi delta attention: three convolutions, and a 32-bit matrix."""
    heads, size = whole(own, "num_heads", default=0), whole(own, "head_dim", default=0)
    kept = max(0, whole(own, "short_conv_kernel_size", default=4) - 1)
    return int(3 * kept * heads * size * element + heads * size * size * _FLOAT)


def _mamba(text: Mapping[str, Any], hidden: int, element: float, matrix: float) -> int:
    """Mamba 1 and 2, under the names that Jamba, Bamba, Granite, Nemotron-H, Zamba2 give them."""
    state = whole(text, "mamba_d_state", "ssm_state_size", "state_size", default=0)
    kernel = whole(text, "mamba_d_conv", "conv_kernel", default=4)
    groups = whole(text, "mamba_n_groups", "mamba_ngroups", "n_groups", default=0)
    heads = whole(text, "mamba_num_heads", "mamba_n_heads", "n_mamba_heads", default=0)
    head = whole(text, "mamba_head_dim", "mamba_d_head", "mamba_headdim", default=0)
    expanded = hidden * whole(text, "mamba_expand", "expand", default=2)
    inner = whole(text, "mamba_d_ssm", "mamba_intermediate_size", default=0)
    inner = inner or (heads * head if head else expanded)
    if text.get("model_type") in ("mamba", "falcon_mamba"):
        inner = whole(text, "intermediate_size", default=expanded)
    return int(max(0, kernel - 1) * (inner + 2 * groups * state) * element + inner * state * matrix)
