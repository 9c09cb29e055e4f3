"""Published models as their configurations say, and folders and headers made from those."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

LLAMA2_7B = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "vocab_size": 32000,
    "torch_dtype": "float16",
    "max_position_embeddings": 4096,
}
OPT_13B = {
    "model_type": "opt",
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "hidden_size": 5120,
    "vocab_size": 50272,
    "torch_dtype": "float16",
}
LLAMA3_8B = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
    "max_position_embeddings": 8192,
}
LLAMA31_405B = {
    "model_type": "llama",
    "num_hidden_layers": 126,
    "num_attention_heads": 128,
    "num_key_value_heads": 8,
    "hidden_size": 16384,
    "torch_dtype": "bfloat16",
}
QWEN25_7B = {
    "model_type": "qwen2",
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "torch_dtype": "bfloat16",
    "max_position_embeddings": 32768,
    "sliding_window": 131072,
    "use_sliding_window": False,
    "tie_word_embeddings": False,
}
QWEN25_72B = {
    "model_type": "qwen2",
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "hidden_size": 8192,
    "torch_dtype": "bfloat16",
}
QWEN3_30B = {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "hidden_size": 2048,
    "vocab_size": 151936,
    "num_experts": 128,
    "moe_intermediate_size": 768,
    "intermediate_size": 6144,
    "torch_dtype": "bfloat16",
    "max_position_embeddings": 262144,
}
GEMMA2_27B = {
    "model_type": "gemma2",
    "num_hidden_layers": 46,
    "num_attention_heads": 32,
    "num_key_value_heads": 16,
    "head_dim": 128,
    "hidden_size": 4608,
    "intermediate_size": 36864,
    "vocab_size": 256000,
    "tie_word_embeddings": True,
    "sliding_window": 4096,
    "torch_dtype": "bfloat16",
    "max_position_embeddings": 8192,
}
MISTRAL_7B = {
    "model_type": "mistral",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "vocab_size": 32000,
    "sliding_window": 4096,
    "max_position_embeddings": 32768,
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "hidden_size": 7168,
    "torch_dtype": "bfloat16",
}
INT4 = {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}}


def model_folder(folder: Path, config: dict[str, Any], weight_bytes: int = 0) -> Path:
    """A model's folder; its weights are a sparse file, which takes no room on disk."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if weight_bytes:
        with (folder / "model.safetensors").open("wb") as file:
            file.write(safetensors_header(weight_bytes))
            file.truncate(weight_bytes)
    return folder


def safetensors_header(file_bytes: int) -> bytes:
    """The beginning of a safetensors file that is `file_bytes` long in all."""
    width = 120
    tensor = {"dtype": "U8", "shape": [file_bytes], "data_offsets": [0, file_bytes - 8 - width]}
    return struct.pack("<Q", width) + json.dumps({"w": tensor}).ljust(width).encode()


def gguf(
    path: Path,
    pairs: dict[str, Any],
    *,
    tokens: int = 0,
    version: int = 3,
    tensors: dict[str, tuple[int, ...]] | int = 0,
) -> Path:
    """A GGUF file with this header; its tensors are 32-bit zeros, which take no room on disk.

    `tensors`: names and shapes, or how many of 32 numbers each.
    """
    if isinstance(tensors, int):
        tensors = {f"w{number}": (32,) for number in range(tensors)}
    count = len(pairs) + bool(tokens)
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), count)
    for key, value in pairs.items():
        out += _text(key) + _typed(value)
    if tokens:
        out += _text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, tokens)
        out += b"".join(_text(f"t{n}") for n in range(tokens))
    offset = 0
    for name, shape in tensors.items():
        out += _text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
        out += struct.pack("<IQ", 0, offset)
        offset += _aligned(4 * math.prod(shape))
    with path.open("wb") as file:
        file.write(out)
        if tensors:
            file.truncate(_aligned(len(out)) + offset)
    return path


def _aligned(size: int) -> int:
    return -(-size // 32) * 32


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _typed(value: Any) -> bytes:
    if isinstance(value, list):
        kind, _ = _single(value[0])
        # Numbers of lists are signed in published files.
        kind = 5 if kind == 4 else kind
        return struct.pack("<IIQ", 9, kind, len(value)) + b"".join(_single(v)[1] for v in value)
    kind, data = _single(value)
    return struct.pack("<I", kind) + data


def _single(value: Any) -> tuple[int, bytes]:
    if isinstance(value, str):
        return 8, _text(value)
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    return 4, struct.pack("<I", value)
