"""Memory plans: against published figures, against the article's sizes, and what they advise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_folders import (
    DEEPSEEK_V3,
    GEMMA2_27B,
    INT4,
    LLAMA2_7B,
    LLAMA3_8B,
    LLAMA31_405B,
    MISTRAL_7B,
    OPT_13B,
    QWEN3_30B,
    QWEN25_7B,
    QWEN25_72B,
    gguf,
    model_folder,
)
from turnout_sidecar import model_store
from turnout_sidecar.planner import (
    ModelFiles,
    Room,
    UnreadableModelError,
    Wish,
    kv,
    make_plan,
    read_model,
)
from turnout_sidecar.planner.config_shape import shape_of_config
from turnout_sidecar.planner.kv import Layout
from turnout_sidecar.planner.shape import Shape

GIB = 1 << 30
GB = 10**9


def longest_within(shape: Shape, size: int) -> int:
    return kv.largest(kv.longest(shape), lambda n: kv.cache_bytes(shape, n) <= size)


def windowed(shape: Shape) -> dict[int, int]:
    return {cache.window: cache.layers for cache in shape.caches if cache.window}


KV_PUBLISHED = [
    # vLLM's paper (PagedAttention, section 3): 800 KB a token for OPT-13B
    (OPT_13B, 819_200),
    # "Insights into DeepSeek-V3", table 1: 70.272, 327.680 and 516.096 KB a token
    (DEEPSEEK_V3, 70_272),
    (QWEN25_72B, 327_680),
    (LLAMA31_405B, 516_096),
    # 0.5 MB a token without, a quarter of that with grouped KV heads
    (LLAMA2_7B, 524_288),
    (LLAMA3_8B, 131_072),
]


@pytest.mark.parametrize(("config", "expected"), KV_PUBLISHED)
def test_kv_cache_a_token_is_what_was_published(config: dict[str, Any], expected: int) -> None:
    assert kv.bytes_per_token(shape_of_config(config)) == expected


def test_vllms_own_message_is_reproduced() -> None:
    """24.0 GiB for 262,144 tokens; 34,736 tokens in the 3.18 GiB that were available."""
    shape = shape_of_config(QWEN3_30B)
    assert kv.cache_bytes(shape, 262_144) == 24 * GIB
    assert longest_within(shape, int(3.18 * GIB)) == pytest.approx(34_736, rel=0.002)


@pytest.mark.parametrize(
    ("config", "billions"),
    [
        (LLAMA2_7B, 6.74),
        (LLAMA3_8B, 8.03),
        (QWEN25_7B, 7.61),
        (GEMMA2_27B, 27.2),
        (QWEN3_30B, 30.5),
    ],
)
def test_weights_are_counted_as_the_model_cards_do(config: dict[str, Any], billions: float) -> None:
    assert shape_of_config(config).parameters / GB == pytest.approx(billions, rel=0.01)


@pytest.mark.parametrize(
    ("config", "gigabytes"),
    [
        (LLAMA2_7B, 14),  # "a 7B model needs about 14 GB in FP16"
        (LLAMA2_7B | INT4, 4),  # "about 4 GB in INT4"
        (GEMMA2_27B | INT4, 15),  # "27B about 15 GB in INT4"
        (GEMMA2_27B, 54),  # "over 50 GB in FP16"
    ],
)
def test_the_articles_four_sizes(tmp_path: Path, config: dict[str, Any], gigabytes: int) -> None:
    files = read_model(str(model_folder(tmp_path, config)))
    assert files.weight_bytes / GB == pytest.approx(gigabytes, rel=0.1)
    assert files.source == "estimated from config.json"


def test_five_requests_of_1024_tokens_can_outgrow_half_of_int4_weights() -> None:
    shape = shape_of_config(LLAMA2_7B)
    assert 5 * kv.cache_bytes(shape, 1_024) > 2.6 * GB


def test_windowed_layers_stop_growing() -> None:
    mistral = shape_of_config(MISTRAL_7B)
    assert kv.cache_bytes(mistral, 8_192) == kv.cache_bytes(mistral, 4_096)
    gemma = shape_of_config(GEMMA2_27B)
    assert windowed(gemma) == {4_096: 23}
    per_layer = kv.bytes_per_token(gemma) / 46
    assert kv.cache_bytes(gemma, 8_192) == int(per_layer * (23 * 8_192 + 23 * 4_096))
    assert windowed(shape_of_config(QWEN25_7B)) == {}  # configured, and switched off


@pytest.mark.parametrize(
    ("extra", "layers", "short"),
    [
        ({"layer_types": ["full_attention", "linear_attention"] * 16}, 16, 0),
        (
            {"layer_types": ["sliding_attention"] * 24 + ["full_attention"] * 8}
            | {"sliding_window": 1_024},
            32,
            24,
        ),
        ({"sliding_window": 512, "sliding_window_pattern": 4}, 32, 24),
        ({"text_config": LLAMA3_8B | {"num_hidden_layers": 8}}, 8, 0),
    ],
)
def test_layers_of_other_kinds(extra: dict[str, Any], layers: int, short: int) -> None:
    shape = shape_of_config(LLAMA3_8B | extra)
    assert (shape.cached_layers, sum(windowed(shape).values())) == (layers, short)


def test_the_cache_can_be_quantized() -> None:
    shape = shape_of_config(LLAMA3_8B)
    plain = kv.bytes_per_token(shape)
    both = {name: Layout(key_type=name, value_type=name) for name in ("fp8", "q8_0", "auto")}
    assert kv.bytes_per_token(shape, both["fp8"]) == plain / 2
    assert kv.bytes_per_token(shape, both["q8_0"]) == plain / 2 * 34 / 32
    assert kv.bytes_per_token(shape, both["auto"]) == plain
    assert kv.bytes_per_token(shape, Layout(key_type="q8_0")) == plain / 2 * (1 + 34 / 64)


SHAPES = st.sampled_from([LLAMA3_8B, MISTRAL_7B, GEMMA2_27B, DEEPSEEK_V3]).map(shape_of_config)


@given(shape=SHAPES, size=st.integers(0, 200 * GIB))
def test_the_longest_request_that_fits_fits_and_one_more_token_does_not(
    shape: Any, size: int
) -> None:
    shape = msgspec.structs.replace(shape, max_context=0)
    tokens = longest_within(shape, size)
    assert kv.cache_bytes(shape, tokens) <= size
    assert tokens == 1 << 22 or kv.cache_bytes(shape, tokens + 1) > size


# -- files ----------------------------------------------------------------------------------------


def test_weights_come_from_the_safetensors_index_first(tmp_path: Path) -> None:
    folder = model_folder(tmp_path, LLAMA3_8B, weight_bytes=7_000)
    assert read_model(str(folder)).weight_bytes == 7_000
    index = '{"metadata": {"total_size": 16060522496}, "weight_map": {}}'
    (folder / "model.safetensors.index.json").write_text(index)
    assert read_model(str(folder)).weight_bytes == 16_060_522_496


def test_a_gguf_header_tells_the_shape(tmp_path: Path) -> None:
    pairs = {
        "general.architecture": "llama",
        "general.name": "x",
        "llama.block_count": 32,
        "llama.context_length": 8192,
        "llama.embedding_length": 4096,
        "llama.attention.head_count": 32,
        "llama.attention.head_count_kv": 8,
        "llama.rope.freq_base": 500000.0,
    }
    files = read_model(str(gguf(tmp_path / "m.gguf", pairs, tokens=9_000)))
    assert files.shape is not None
    assert kv.bytes_per_token(files.shape) == 131_072
    assert (files.shape.vocabulary, files.shape.max_context) == (9_000, 8_192)


def test_a_gguf_of_several_parts_counts_them_all(tmp_path: Path) -> None:
    pairs = {
        "general.architecture": "qwen3next",
        "qwen3next.block_count": 4,
        "qwen3next.embedding_length": 64,
        "qwen3next.attention.head_count": 4,
        "qwen3next.attention.head_count_kv": [0, 2, 0, 2],
    }
    first = gguf(tmp_path / "m-00001-of-00002.gguf", pairs)
    with pytest.raises(UnreadableModelError, match=r"m-00002-of-00002\.gguf is missing"):
        read_model(str(first))
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(b"x" * 5_000)
    files = read_model(str(first))
    assert files.weight_bytes == first.stat().st_size + 5_000
    assert files.shape is not None
    assert files.shape.cached_layers == 1  # every fourth, and it has two heads


def test_mla_and_windows_of_ggufs(tmp_path: Path) -> None:
    base = {"block_count": 61, "embedding_length": 7168, "attention.head_count": 128}
    deepseek = {
        **base,
        "attention.head_count_kv": 1,
        "attention.kv_lora_rank": 512,
        "attention.key_length": 576,
        "attention.key_length_mla": 192,
        "attention.value_length_mla": 128,
        "rope.dimension_count": 64,
    }
    pairs = {"general.architecture": "deepseek2"} | {
        f"deepseek2.{k}": v for k, v in deepseek.items()
    }
    files = read_model(str(gguf(tmp_path / "d.gguf", pairs)))
    assert files.shape is not None
    assert kv.bytes_per_token(files.shape) == 70_272
    gemma = {**base, "block_count": 48, "attention.sliding_window": 1024}
    pairs = {"general.architecture": "gemma3"} | {f"gemma3.{k}": v for k, v in gemma.items()}
    files = read_model(str(gguf(tmp_path / "g.gguf", pairs)))
    assert files.shape is not None
    assert windowed(files.shape) == {1_024: 40}


@pytest.mark.local
def test_the_real_model_is_planned_a_little_above_what_it_was_measured_at() -> None:
    path = model_store.path_of("smollm2")
    assert path is not None, "run `turnout models pull`"
    files = read_model(str(path))
    wish = Wish(name="s", engine="llamacpp", max_num_seqs=2, context=4_096)
    plan = make_plan(wish, files, Room("cpu", 8 * GIB, 16 * GIB))
    assert 330 << 20 <= plan.total_bytes <= 400 << 20  # 330 MiB resident, measured
    assert plan.kv_token_bytes == 23_040


def test_a_hub_name_is_found_in_the_local_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UnreadableModelError, match="there is no model at Org/Name-7B"):
        read_model("Org/Name-7B")
    model_folder(tmp_path / "models--Org--Name-7B/snapshots/abc", LLAMA3_8B, weight_bytes=99)
    assert read_model("Org/Name-7B").weight_bytes == 99


BROKEN = [
    (b"", "ends in the middle"),
    (b"GGUX" + bytes(60), "no GGUF file"),
    (b"GGUF\x09\0\0\0" + bytes(60), "version 9"),
    (b"GGUF\x03\0\0\0" + bytes(8) + b"\xff" * 8, "claims 18446744073709551615 entries"),
    (b"GGUF\x03\0\0\0" + bytes(8) + b"\1" + bytes(7) + b"\xff" * 8, "claims a text"),
    (
        b"GGUF\x03\0\0\0" + bytes(8) + b"\1" + bytes(7) + b"\1" + bytes(7) + b"k\x63\0\0\0",
        "unknown type 99",
    ),
    (
        b"GGUF\x03\0\0\0" + bytes(8) + b"\1" + bytes(7) + b"\1" + bytes(7) + b"k"
        b"\x09\0\0\0\x08\0\0\0" + b"\xff" * 8,
        "claims an array",
    ),
]


@pytest.mark.parametrize(("content", "message"), BROKEN)
def test_broken_headers_are_told_not_believed(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(UnreadableModelError, match=message):
        read_model(str(path))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[]", "holds no object"),
        ("{}", "does not say `num_hidden_layers`"),
        ('{"num_hidden_layers": -1}', "does not say `num_hidden_layers`"),
    ],
)
def test_broken_configurations_are_told(tmp_path: Path, config: str, message: str) -> None:
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(UnreadableModelError, match=message):
        read_model(str(tmp_path))


# -- verdicts -------------------------------------------------------------------------------------

QWEN_INT4 = ModelFiles(
    weight_bytes=int(5.58 * GB),
    shape=shape_of_config(QWEN25_7B),
    source="safetensors index",
    is_quantized=True,
)


def vllm(**fields: Any) -> Wish:
    defaults = {"name": "vllm/main", "engine": "vllm", "max_num_seqs": 4, "context": 4_096}
    return Wish(**{**defaults, "gpu_share": 0.7, **fields})


def test_a_share_of_the_card_is_what_vllm_holds() -> None:
    plan = make_plan(vllm(), QWEN_INT4, Room("gpu0", 11 * GIB, 12 * GIB))
    assert plan.fits
    assert plan.total_bytes == int(12 * GIB * 0.7)
    assert plan.max_num_seqs == 8
    assert plan.kv_request_bytes == 4_096 * 57_344


def test_a_share_larger_than_what_is_free_is_named_with_the_share_that_fits() -> None:
    plan = make_plan(vllm(), QWEN_INT4, Room("gpu0", 8 * GIB, 12 * GIB))
    assert not plan.fits
    assert plan.problem == "takes 70% of the card, 8.4 GiB; 8.0 GiB is free on gpu0"
    assert plan.advice == "set gpu_memory_utilization: 0.66"
    fixed = make_plan(vllm(gpu_share=0.66), QWEN_INT4, Room("gpu0", 8 * GIB, 12 * GIB))
    assert fixed.fits


def test_a_context_that_the_share_cannot_hold_is_named_with_the_one_that_fits() -> None:
    room = Room("gpu0", 12 * GIB, 12 * GIB)
    plan = make_plan(vllm(context=131_072, gpu_share=0.6), QWEN_INT4, room)
    assert not plan.fits
    assert "a request of 131072 tokens needs 7.0 GiB more" in plan.problem
    assert plan.advice.startswith("set max_model_len: ")
    tokens = int(plan.advice.split()[2].rstrip(","))
    assert make_plan(vllm(context=tokens, gpu_share=0.6), QWEN_INT4, room).fits


def test_weights_that_outgrow_the_card_ask_for_another_model() -> None:
    files = ModelFiles(weight_bytes=16 * GB, shape=shape_of_config(LLAMA3_8B), source="")
    plan = make_plan(vllm(gpu_share=0.9), files, Room("gpu0", 12 * GIB, 12 * GIB))
    assert not plan.fits
    assert plan.advice == "use a smaller or more strongly quantized model"


def test_quantizing_while_loading_counts_and_files_that_are_quantized_do_not_count_twice() -> None:
    files = ModelFiles(weight_bytes=16 * GB, shape=shape_of_config(LLAMA3_8B), source="")
    room = Room("gpu0", 24 * GIB, 24 * GIB)
    assert make_plan(vllm(quantization="fp8"), files, room).weight_bytes == int(16 * GB * 0.55)
    assert make_plan(vllm(quantization="fp8"), QWEN_INT4, room).weight_bytes == int(5.58 * GB)


def llamacpp(**fields: Any) -> Wish:
    return Wish(
        **{"name": "l", "engine": "llamacpp", "max_num_seqs": 4, "context": 8_192, **fields}
    )


LLAMA3_Q4 = ModelFiles(
    weight_bytes=int(4.92 * GB), shape=shape_of_config(LLAMA3_8B), source="", is_quantized=True
)


@pytest.mark.parametrize(
    ("free_gib", "advice"),
    [
        (16, ""),
        (8, "set max_num_seqs: 3"),
        (6, "set max_num_seqs: 1"),
        (5.5, "set max_model_len: "),
        (4, "use a smaller or more strongly quantized model"),
    ],
)
def test_llama_cpp_holds_the_whole_cache_and_is_told_what_to_lower(
    free_gib: float, advice: str
) -> None:
    plan = make_plan(llamacpp(), LLAMA3_Q4, Room("cpu", int(free_gib * GIB), 32 * GIB))
    assert plan.fits == (not advice)
    assert plan.advice.startswith(advice)
    if advice.startswith("set"):
        name, value = plan.advice.removeprefix("set ").split(": ")
        key = {"max_num_seqs": "max_num_seqs", "max_model_len": "context"}[name]
        changed = {key: int(value)} | ({} if key == "max_num_seqs" else {"max_num_seqs": 1})
        fixed = make_plan(llamacpp(**changed), LLAMA3_Q4, Room("cpu", int(free_gib * GIB)))
        assert fixed.fits


@given(
    seats=st.integers(1, 64),
    context=st.integers(256, 131_072),
    free=st.integers(1, 96 * GIB),
    engine=st.sampled_from(["vllm", "llamacpp"]),
)
def test_the_largest_settings_that_a_plan_names_do_fit(
    seats: int, context: int, free: int, engine: str
) -> None:
    wish = Wish(name="x", engine=engine, max_num_seqs=seats, context=context, gpu_share=0.6)
    room = Room("gpu0" if engine == "vllm" else "cpu", free, 96 * GIB)
    plan = make_plan(wish, LLAMA3_Q4, room)
    if engine == "llamacpp" and plan.max_num_seqs:
        most = msgspec.structs.replace(wish, max_num_seqs=plan.max_num_seqs)
        assert make_plan(most, LLAMA3_Q4, room).fits
        over = msgspec.structs.replace(wish, max_num_seqs=plan.max_num_seqs + 1)
        assert not make_plan(over, LLAMA3_Q4, room).fits
    if engine == "llamacpp" and plan.context:
        longest = msgspec.structs.replace(wish, context=plan.context)
        assert make_plan(longest, LLAMA3_Q4, room).fits
    assert plan.fits == (not plan.problem)
