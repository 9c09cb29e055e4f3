"""Caches and states of published models, by hand: what their files say, then the arithmetic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from model_folders import DEEPSEEK_V3, gguf, model_folder
from turnout_rules.model import Model, Target, Upstream
from turnout_sidecar.planner import (
    Measured,
    Measurements,
    Room,
    kv,
    make_plan,
    read_model,
    wish_for,
)
from turnout_sidecar.planner.config_shape import shape_of_config
from turnout_sidecar.planner.gguf_shape import shape_of_gguf
from turnout_sidecar.planner.kv import Layout
from turnout_sidecar.planner.measured import told, told_by_vllm
from turnout_sidecar.planner.projector import projector_bytes

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
F16, F32 = 2, 4
CELLS = Layout(key_type="f16", value_type="f16", step=256, ahead=512)
BLOCKS = Layout(step=16, ahead=2_048)


def heads(count: int, size: int) -> dict[str, Any]:
    return {
        "attention.head_count_kv": count,
        "attention.key_length": size,
        "attention.value_length": size,
    }


def windows(window: int, pattern: Any = None) -> dict[str, Any]:
    found = {"attention.sliding_window": window}
    return found if pattern is None else found | {"attention.sliding_window_pattern": pattern}


def ssm(kernel: int, inner: int, state: int, ranks: int, groups: int) -> dict[str, Any]:
    names = ("conv_kernel", "inner_size", "state_size", "time_step_rank", "group_count")
    return {
        f"ssm.{n}": v for n, v in zip(names, (kernel, inner, state, ranks, groups), strict=True)
    }


def header(family: str, blocks: int, hidden: int, count: int, **more: Any) -> dict[str, Any]:
    own = {
        "block_count": blocks,
        "embedding_length": hidden,
        "attention.head_count": count,
        **more,
    }
    return {"general.architecture": family} | {f"{family}.{k}": v for k, v in own.items()}


QWEN35_27B = {
    **heads(4, 256),
    **ssm(4, 6_144, 128, 48, 16),
    "nextn_predict_layers": 1,
}
QWEN35_STATE = 48 * (3 * (6_144 + 2 * 16 * 128) + 128 * 6_144) * F32
QWEN3_NEXT = heads(2, 256) | ssm(4, 4_096, 128, 32, 16)
QWEN3_NEXT_STATE = 36 * (3 * (4_096 + 2 * 16 * 128) + 128 * 4_096) * F32
DEEPSEEK = {
    "attention.head_count_kv": 1,
    "attention.key_length": 576,
    "attention.value_length": 512,
    "attention.key_length_mla": 192,
    "attention.value_length_mla": 128,
}
LFM2_HEADS = [0, 0, 8, 0, 0, 8, 0, 0, 8, 0, 8, 0, 8, 0, 8, 0]
GEMMA4_26B = {
    "attention.head_count_kv": [8, 8, 8, 8, 8, 2] * 5,
    "attention.key_length": 512,
    "attention.value_length": 512,
    "attention.key_length_swa": 256,
    "attention.value_length_swa": 256,
    **windows(1_024, [True] * 5 + [False]),
}
GEMMA4_26B |= windows(1_024, ([True] * 5 + [False]) * 5)
GEMMA4_E4B = {
    **GEMMA4_26B,
    "attention.head_count_kv": 2,
    "attention.shared_kv_layers": 18,
    **windows(512, ([True] * 5 + [False]) * 7),
}

# (header, tokens, requests, bytes of caches and states)
GGUFS: dict[str, tuple[dict[str, Any], int, int, int]] = {
    "Gemma 3 27B: 10 of 62 layers are full, 52 keep 1,024 and the batch of 512": (
        header("gemma3", 62, 5_376, 32, **heads(16, 128), **windows(1_024)),
        *(131_072, 1),
        (10 * 131_072 + 52 * 1_536) * 16 * (128 + 128) * F16,
    ),
    "Gemma 3 4B, two requests": (
        header("gemma3", 34, 2_560, 8, **heads(4, 256), **windows(1_024)),
        *(8_192, 2),
        2 * (5 * 8_192 + 29 * 1_536) * 4 * (256 + 256) * F16,
    ),
    "Gemma 4 26B: 5 full layers with 2 wide heads, 25 windowed with 8": (
        header("gemma4", 30, 2_816, 16, **GEMMA4_26B),
        *(65_536, 1),
        5 * 65_536 * 2 * (512 + 512) * F16 + 25 * 1_536 * 8 * (256 + 256) * F16,
    ),
    "Gemma 4 E4B: the last 18 of 42 layers use the cache of others": (
        header("gemma4", 42, 2_560, 8, **GEMMA4_E4B),
        *(32_768, 1),
        4 * 32_768 * 2 * (512 + 512) * F16 + 20 * 1_024 * 2 * (256 + 256) * F16,
    ),
    "Gemma 3n E4B: 20 of 35 layers have a cache, every fifth is full": (
        header("gemma3n", 35, 2_048, 8, **heads(2, 256), **windows(512)),
        *(32_768, 1),
        (4 * 32_768 + 16 * 1_024) * 2 * (256 + 256) * F16,
    ),
    "Qwen3.5 27B: Ollama's log says 16,384 MiB of cache at 262,144": (
        header("qwen35", 65, 5_120, 24, **QWEN35_27B, full_attention_interval=4),
        *(262_144, 1),
        16_384 * MIB + QWEN35_STATE,
    ),
    "Qwen3.5 27B, whose header leaves the interval out": (
        header("qwen35", 65, 5_120, 24, **QWEN35_27B),
        *(262_144, 1),
        16_384 * MIB + QWEN35_STATE,
    ),
    "Qwen3.5 35B-A3B: 5,120 MiB at 262,144": (
        header("qwen35moe", 41, 2_048, 16, **QWEN3_NEXT, nextn_predict_layers=1),
        *(262_144, 1),
        5_120 * MIB + 30 * (3 * (4_096 + 2 * 16 * 128) + 128 * 4_096) * F32,
    ),
    "Qwen3-Next 80B: 12 of 48 layers": (
        header("qwen3next", 48, 2_048, 16, **QWEN3_NEXT),
        *(131_072, 2),
        2 * (12 * 131_072 * 2 * (256 + 256) * F16 + QWEN3_NEXT_STATE),
    ),
    "DeepSeek-V3: latents": (
        header("deepseek2", 61, 7_168, 128, **DEEPSEEK),
        *(32_768, 1),
        61 * 32_768 * 576 * F16,
    ),
    "DeepSeek-V3 of an old file: heads of their own": (
        header(
            *("deepseek2", 61, 7_168, 128),
            **{"attention.key_length": 192, "attention.value_length": 128},
        ),
        *(4_096, 1),
        61 * 4_096 * 128 * (192 + 128) * F16,
    ),
    "DeepSeek-V3.2: latents, and an indexer's keys": (
        header("deepseek32", 61, 7_168, 128, **DEEPSEEK, **{"attention.indexer.key_length": 128}),
        *(32_768, 1),
        61 * 32_768 * (576 + 128) * F16,
    ),
    "gpt-oss-20b: every other layer keeps 128 and the batch": (
        header("gpt-oss", 24, 2_880, 64, **heads(8, 64), **windows(128)),
        *(131_072, 1),
        (12 * 131_072 + 12 * 768) * 8 * (64 + 64) * F16,
    ),
    "Llama 4 Scout: three of four layers see a chunk of 8,192": (
        header("llama4", 48, 5_120, 40, **heads(8, 128)),
        *(131_072, 1),
        (12 * 131_072 + 36 * 8_704) * 8 * (128 + 128) * F16,
    ),
    "Mistral 7B: the engine does not use its window": (
        header("llama", 32, 4_096, 32, **heads(8, 128), **windows(4_096)),
        *(32_768, 1),
        32 * 32_768 * 8 * (128 + 128) * F16,
    ),
    "Llama 3.3 Nemotron 49B: some layers have no heads": (
        header(
            *("deci", 4, 8_192, 64),
            **{"attention.head_count_kv": [8, 0, 8, 0], "attention.key_length": 128},
        ),
        *(4_096, 1),
        2 * 4_096 * 8 * (128 + 128) * F16,
    ),
    "LFM2 1.2B: 6 of 16 layers, convolutions keep 2 inputs": (
        header(
            *("lfm2", 16, 2_048, 32),
            **{"attention.head_count_kv": LFM2_HEADS, "shortconv.l_cache": 3},
        ),
        *(32_768, 1),
        6 * 32_768 * 8 * (64 + 64) * F16 + 10 * 2 * 2_048 * F32,
    ),
    "Mamba2 2.7B: states only, whatever the context": (
        header("mamba2", 64, 2_560, 0, **ssm(4, 5_120, 128, 80, 1)),
        *(131_072, 4),
        4 * 64 * (3 * (5_120 + 2 * 128) + 128 * 5_120) * F32,
    ),
    "Falcon-H1 1.5B: every layer has both": (
        header("falcon-h1", 24, 2_048, 8, **heads(2, 128), **ssm(4, 3_072, 256, 48, 1)),
        *(16_384, 1),
        24 * (16_384 * 2 * 256 * F16 + (3 * (3_072 + 2 * 256) + 256 * 3_072) * F32),
    ),
    "Granite 4.0 H Tiny: 4 of 40 layers": (
        header(
            *("granitehybrid", 40, 1_536, 12),
            **{"attention.head_count_kv": [0, 0, 0, 0, 0, 4, 0, 0, 0, 0] * 4},
            **ssm(4, 3_072, 128, 48, 1),
        ),
        *(131_072, 1),
        4 * 131_072 * 4 * (128 + 128) * F16 + 36 * (3 * (3_072 + 256) + 128 * 3_072) * F32,
    ),
    "Nemotron-H: attention, states, and blocks that are neither": (
        header(
            *("nemotron_h", 4, 4_096, 32),
            **{"attention.head_count_kv": [0, 0, 8, 0], "feed_forward_length": [0, 21_504, 0, 0]},
            **{"attention.key_length": 128, "attention.value_length": 128},
            **ssm(4, 8_192, 128, 128, 8),
        ),
        *(8_192, 1),
        8_192 * 8 * 256 * F16 + 2 * (3 * (8_192 + 2 * 8 * 128) + 128 * 8_192) * F32,
    ),
    "Kimi Linear 48B: 7 of 27 layers keep latents": (
        header(
            *("kimi-linear", 27, 2_304, 32),
            **(DEEPSEEK | {"attention.head_count_kv": [0, 0, 0, 1] * 6 + [0, 0, 1]}),
            **{"kda.head_dim": 128, "ssm.conv_kernel": 4},
        ),
        *(131_072, 1),
        7 * 131_072 * 576 * F16 + 20 * 32 * 128 * (3 * 3 + 128) * F32,
    ),
    "RWKV 7: states only": (
        header("rwkv7", 32, 2_560, 0, **{"wkv.head_size": 64, "token_shift_count": 2}),
        *(4_096, 1),
        32 * 2_560 * (64 + 2) * F32,
    ),
    "BERT: nothing is kept": (header("bert", 12, 384, 12), 512, 4, 0),
}


@pytest.mark.parametrize("name", GGUFS)
def test_a_gguf_models_caches_are_those_of_the_hand(name: str) -> None:
    said, tokens, requests, expected = GGUFS[name]
    shape = shape_of_gguf(said)
    assert not shape.is_guess
    assert kv.cache_bytes(shape, tokens, CELLS, requests) == expected


GEMMA3_27B = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 5_376,
        "intermediate_size": 21_504,
        "num_attention_heads": 32,
        "num_hidden_layers": 62,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "sliding_window": 1_024,
    },
    "torch_dtype": "bfloat16",
}
GEMMA3_4B = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 2_560,
        "intermediate_size": 10_240,
        "num_hidden_layers": 34,
        "sliding_window": 1_024,
    },
}
GEMMA4_26B_CONFIG = {
    "model_type": "gemma4",
    "text_config": {
        "model_type": "gemma4_text",
        "hidden_size": 2_816,
        "num_hidden_layers": 30,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "num_global_key_value_heads": 2,
        "head_dim": 256,
        "global_head_dim": 512,
        "num_kv_shared_layers": 0,
        "sliding_window": 1_024,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 5,
    },
}
DELTA = {
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
}
QWEN3_NEXT_80B = {
    "model_type": "qwen3_next",
    "hidden_size": 2_048,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_num_value_heads": 32,
    "full_attention_interval": 4,
    **DELTA,
}
QWEN35_27B_CONFIG = {
    "model_type": "qwen3_5",
    "text_config": {
        "model_type": "qwen3_5_text",
        "hidden_size": 5_120,
        "num_hidden_layers": 64,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "linear_num_value_heads": 48,
        "mamba_ssm_dtype": "float32",
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 16,
        **DELTA,
    },
}
NEXT_STATE = 36 * (3 * (2 * 128 * 16 + 128 * 32) + 32 * 128 * 128) * F16
CONFIG_STATE = 48 * (3 * (2 * 128 * 16 + 128 * 48) * F16 + 48 * 128 * 128 * F32)
JAMBA = {
    "model_type": "jamba",
    "hidden_size": 4_096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "attn_layer_period": 8,
    "attn_layer_offset": 4,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
}
NEMOTRON_H = {
    "model_type": "nemotron_h",
    "hidden_size": 4_480,
    "num_hidden_layers": 6,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "hybrid_override_pattern": "M-M*-M",
    "mamba_num_heads": 128,
    "mamba_head_dim": 80,
    "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
}
KIMI_LINEAR = {
    "model_type": "kimi_linear",
    "hidden_size": 2_304,
    "num_hidden_layers": 8,
    "num_attention_heads": 32,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "linear_attn_config": {
        "full_attn_layers": [4, 8],
        "kda_layers": [1, 2, 3, 5, 6, 7],
        "num_heads": 32,
        "head_dim": 128,
        "short_conv_kernel_size": 4,
    },
}
GPT_OSS = {
    "model_type": "gpt_oss",
    "hidden_size": 2_880,
    "num_hidden_layers": 24,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
}
FALCON_H1 = {
    "model_type": "falcon_h1",
    "hidden_size": 2_048,
    "num_hidden_layers": 24,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "mamba_d_ssm": 3_072,
    "mamba_d_state": 256,
    "mamba_d_conv": 4,
    "mamba_n_groups": 1,
}
CONFIGS: dict[str, tuple[dict[str, Any], int, int]] = {
    "Gemma 3 27B": (
        GEMMA3_27B,
        131_072,
        (10 * 131_072 + 52 * (1_024 + 2_048)) * 16 * 256 * F16,
    ),
    "Gemma 3 4B, which leaves its heads to the class": (
        GEMMA3_4B,
        8_192,
        (5 * 8_192 + 29 * (1_024 + 2_048)) * 4 * 512 * F16,
    ),
    "Gemma 4 26B": (
        GEMMA4_26B_CONFIG,
        65_536,
        5 * 65_536 * 2 * 1_024 * F16 + 25 * (1_024 + 2_048) * 8 * 512 * F16,
    ),
    "Qwen3-Next 80B": (QWEN3_NEXT_80B, 131_072, 12 * 131_072 * 2 * 512 * F16 + NEXT_STATE),
    "Qwen3-Next 80B, which leaves its interval to the class": (
        {k: v for k, v in QWEN3_NEXT_80B.items() if k != "full_attention_interval"},
        131_072,
        12 * 131_072 * 2 * 512 * F16 + NEXT_STATE,
    ),
    "Qwen3.5 27B": (QWEN35_27B_CONFIG, 262_144, 16 * GIB + CONFIG_STATE),
    "DeepSeek-V3": (DEEPSEEK_V3, 32_768, 61 * 32_768 * 576 * F16),
    "DeepSeek-V3.2: indexer keys of 8 bits, with a scale each": (
        DEEPSEEK_V3 | {"model_type": "deepseek_v32", "index_head_dim": 128},
        32_768,
        61 * 32_768 * (576 * F16 + 128 + 4),
    ),
    "gpt-oss-20b": (GPT_OSS, 131_072, (12 * 131_072 + 12 * 2_176) * 8 * 128 * F16),
    "Jamba: 4 of 32 layers": (
        JAMBA,
        65_536,
        4 * 65_536 * 8 * 256 * F16 + 28 * (3 * 8_192 + 16 * 8_192) * F16,
    ),
    "Nemotron-H": (
        NEMOTRON_H,
        8_192,
        8_192 * 8 * 256 * F16 + 3 * (3 * (10_240 + 2 * 8 * 128) + 128 * 10_240) * F16,
    ),
    "Kimi Linear": (
        KIMI_LINEAR,
        131_072,
        2 * 131_072 * 576 * F16 + 6 * (3 * 3 * 4_096 * F16 + 32 * 128 * 128 * F32),
    ),
    "Falcon-H1": (
        FALCON_H1,
        16_384,
        24 * (16_384 * 2 * 256 * F16 + (3 * (3_072 + 512) + 256 * 3_072) * F16),
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_configurations_caches_are_those_of_the_hand(name: str) -> None:
    config, tokens, expected = CONFIGS[name]
    shape = shape_of_config(config)
    assert not shape.is_guess
    assert kv.cache_bytes(shape, tokens, BLOCKS) == pytest.approx(expected, rel=0.001)


# -- settings -------------------------------------------------------------------------------------


def target(args: tuple[str, ...] = (), path: str = "m.gguf", **fields: Any) -> Target:
    model = Model(name="m", model_path=path, args=args, **fields)
    upstream = Upstream(name="l", engine="llamacpp", models={"m": model})
    return Target("l/m", upstream, model)


@pytest.mark.parametrize(
    ("args", "setting", "keys", "values"),
    [
        ((), "", 2.0, 2.0),
        (("-ctk", "q8_0"), "", 34 / 32, 2.0),
        (("--cache-type-v=q4_0",), "", 2.0, 18 / 32),
        ((), "q8_0", 34 / 32, 34 / 32),
        (("-ctv", "f16"), "q8_0", 34 / 32, 2.0),
    ],
)
def test_keys_and_values_have_types_of_their_own(
    args: tuple[str, ...], setting: str, keys: float, values: float
) -> None:
    layout = wish_for(target(args, kv_cache_dtype=setting)).layout
    shape = shape_of_gguf(header("llama", 32, 4_096, 32, **heads(8, 128)))
    assert kv.bytes_per_token(shape, layout) == 32 * 8 * 128 * (keys + values)


def test_a_unified_cache_gives_windowed_layers_one_window_for_all() -> None:
    shape = shape_of_gguf(header("gemma3", 6, 256, 8, **heads(2, 64), **windows(512)))
    one = kv.cache_bytes(shape, 8_192, CELLS, 4)
    unified = kv.cache_bytes(shape, 8_192, msgspec.structs.replace(CELLS, is_unified=True), 4)
    token = 2 * (64 + 64) * F16
    assert one == 4 * (8_192 + 5 * 1_024) * token
    assert unified == (4 * 8_192 + 5 * (4 * 512 + 512)) * token
    everything = msgspec.structs.replace(CELLS, keeps_all=True)
    assert kv.cache_bytes(shape, 8_192, everything, 4) == 4 * 6 * 8_192 * token


def test_draft_and_projector_are_part_of_the_plan(tmp_path: Path) -> None:
    tiny = header("llama", 4, 256, 8, **heads(2, 64)) | {"llama.context_length": 4_096}
    draft = gguf(tmp_path / "d.gguf", tiny, tensors={"a.weight": (1 << 20,)})
    vision = {
        "general.architecture": "clip",
        "clip.projector_type": "gemma3",
        "clip.vision.image_size": 896,
        "clip.vision.patch_size": 14,
        "clip.vision.embedding_length": 1_152,
        "clip.vision.feed_forward_length": 4_304,
    }
    eyes = gguf(tmp_path / "v.gguf", vision, tensors={"b.weight": (1 << 21,)})
    assert projector_bytes(vision) == 64 * 64 * 4 * (6 * 1_152 + 2 * 4_304)
    files = read_model(str(draft))
    wish = wish_for(target(("-md", str(draft), "-mm", str(eyes))))
    assert (wish.draft, wish.projector) == (str(draft), str(eyes))
    room = Room("cpu", 64 * GIB, 64 * GIB)
    alone = make_plan(wish, files, room)
    both = make_plan(
        wish, msgspec.structs.replace(files, draft=files, projector=read_model(str(eyes))), room
    )
    assert both.weight_bytes == alone.weight_bytes * 2 + eyes.stat().st_size
    assert both.kv_total_bytes == 2 * alone.kv_total_bytes
    assert both.overhead_bytes > alone.overhead_bytes + projector_bytes(vision)


def test_copies_of_states_and_windows_count_where_they_are_kept(tmp_path: Path) -> None:
    said = header("qwen35", 65, 5_120, 24, **QWEN35_27B) | {"qwen35.context_length": 4_096}
    files = read_model(str(gguf(tmp_path / "q.gguf", said)))
    room = Room("cpu", 64 * GIB, 64 * GIB)
    none, four = (
        make_plan(wish_for(target(args, max_num_seqs=2)), files, room)
        for args in (("--ctx-checkpoints", "0"), ())
    )
    assert four.overhead_bytes - none.overhead_bytes == 4 * 2 * QWEN35_STATE


# -- what is not known ----------------------------------------------------------------------------


def test_a_family_that_is_not_known_is_a_guess_and_is_started_all_the_same(tmp_path: Path) -> None:
    said = header("nevermet", 64, 4_096, 32) | {"nevermet.context_length": 131_072}
    files = read_model(str(gguf(tmp_path / "n.gguf", said)))
    wish = wish_for(target(max_model_len=131_072))
    room = Room("cpu", 8 * GIB, 16 * GIB)
    plan = make_plan(wish, files, room)
    assert plan.total_bytes > room.total_bytes
    assert (plan.fits, plan.is_guess) == (True, True)
    assert plan.warning.startswith("the architecture 'nevermet' is not known here")
    known = Measurements(tmp_path / "measured.json")
    seen = Measured(
        total_bytes=3 * GIB, cache_bytes=2 * GIB, context=131_072, requests=wish.max_num_seqs
    )
    known.keep(files.digest, seen)
    files = msgspec.structs.replace(files, measured=known.of(files.digest))
    plan = make_plan(wish, files, room)
    assert (plan.total_bytes, plan.fits, plan.is_guess) == (3 * GIB, True, False)
    assert plan.source == "measured at an earlier start"
    shorter = make_plan(wish_for(target(max_model_len=65_536)), files, room)
    assert shorter.total_bytes == 2 * GIB
    assert not make_plan(wish, files, Room("cpu", 2 * GIB, 16 * GIB)).fits


def test_other_bytes_of_a_model_are_another_model(tmp_path: Path) -> None:
    digests = set()
    for hidden in (64, 128):
        path = gguf(tmp_path / f"{hidden}.gguf", header("nevermet", 2, hidden, 2))
        digests.add(read_model(str(path)).digest)
    assert len(digests) == 2
    folder = model_folder(
        tmp_path / "hub",
        {
            "model_type": "nevermet",
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "hidden_size": 64,
        },
        weight_bytes=100,
    )
    assert read_model(str(folder)).digest
    known = gguf(tmp_path / "known.gguf", header("llama", 2, 64, 2))
    assert read_model(str(known)).digest == ""


def test_a_broken_file_of_measurements_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "deeper" / "measured.json"
    known = Measurements(path)
    assert known.of("x") is None
    seen = Measured(total_bytes=1, context=2, requests=3)
    known.keep("x", seen)
    assert known.of("x") == seen
    path.write_bytes(b'{"x": {"total_bytes": "many"}}')
    assert known.of("x") is None


def test_start_up_lines_are_added_up_for_the_fullest_card() -> None:
    lines = [
        "load_tensors:   CPU_Mapped model buffer size =   500.00 MiB",
        "load_tensors:        CUDA0 model buffer size =  4000.00 MiB",
        "load_tensors:        CUDA1 model buffer size =  3000.00 MiB",
        "llama_kv_cache:      CUDA0 KV buffer size =   512.00 MiB",
        "llama_memory_recurrent:      CUDA0 RS buffer size =   128.00 MiB",
        "llama_context:  CUDA_Host  output buffer size =     0.58 MiB",
        "sched_reserve:      CUDA0 compute buffer size =   300.00 MiB",
        "sched_reserve:  CUDA_Host compute buffer size =    20.00 MiB",
        "a prompt that says buffer size = none MiB",
    ]
    assert told(lines, is_on_card=True) == (4_940 * MIB, 640 * MIB)
    assert told(lines, is_on_card=False) == (int(520.58 * MIB), 0)
    assert told(lines[-1:], is_on_card=True) == (0, 0)
    vllm = [
        "INFO 12-07 11:00:00 [gpu_worker.py:298] Available KV cache memory: 3.18 GiB",
        "INFO 12-07 11:00:00 [kv_cache_utils.py:1087] GPU KV cache size: 34,736 tokens",
    ]
    assert told_by_vllm(vllm) == (int(3.18 * GIB), 34_736)
