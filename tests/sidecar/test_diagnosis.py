# ruff: noqa: E501 - the lines of engines are as long as they are
"""Why engines die: every row of the trouble table, by the lines that real engines print."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from engine_kit import chat, fake_model, quick_settings, refusal, running, target_of, upstream_of
from turnout_rules.model import Model
from turnout_sidecar.diagnosis import cause_of

# (kind, lines as vLLM, PyTorch and llama.cpp print them, settings that the message itself names)
LINES = [
    (
        "out_of_memory",
        "ValueError: To serve at least one request with the models's max seq len (262144), (24.0 GiB "
        "KV cache is needed, which is larger than the available KV cache memory (3.18 GiB). Based on "
        "the available memory, the estimated maximum model length is 34736. Try increasing "
        "`gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine.",
        {"max_model_len": 34_736},
    ),
    (
        "out_of_memory",
        "ValueError: Free memory on device (31.44/47.38 GiB) on startup is less than desired GPU "
        "memory utilization (0.95, 45.01 GiB). Decrease GPU memory utilization or reduce GPU memory "
        "used by other processes.",
        {"gpu_memory_utilization": 0.65},
    ),
    (
        "out_of_memory",
        "ValueError: No available memory for the cache blocks. Try increasing "
        "`gpu_memory_utilization` when initializing the engine.",
        {},
    ),
    (
        "out_of_memory",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        {},
    ),
    ("out_of_memory", "RuntimeError: CUDA out of memory occurred when warming up sampler", {}),
    (
        "out_of_memory",
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: "
        "cudaMalloc failed: out of memory",
        {},
    ),
    ("out_of_memory", "llama_model_load: error loading model: unable to allocate CUDA0 buffer", {}),
    ("out_of_memory", "llama_kv_cache_init: failed to allocate buffer for kv cache", {}),
    ("out_of_memory", "graph_reserve: failed to allocate compute pp buffers", {}),
    ("out_of_memory", "common_init: failed to fit params to free device memory", {}),
    ("out_of_memory", "terminate called after throwing an instance of 'std::bad_alloc'", {}),
    (
        "fragmentation",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total "
        "capacity of 11.76 GiB of which 2.31 GiB is free. Of the allocated memory 7.10 GiB is "
        "allocated by PyTorch, and 2.05 GiB is reserved by PyTorch but unallocated. If reserved but "
        "unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        {},
    ),
    (
        "out_of_memory",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
        "capacity of 11.76 GiB of which 312.00 MiB is free. Of the allocated memory 10.50 GiB is "
        "allocated by PyTorch, and 600.00 MiB is reserved by PyTorch but unallocated. If reserved but "
        "unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        {},
    ),
    (
        "wrong_quantization",
        "ValueError: Quantization method specified in the model config (awq) does not match the "
        "quantization method specified in the `quantization` argument (gptq).",
        {},
    ),
    ("wrong_quantization", "pydantic_core.ValidationError: Unknown quantization method: int3", {}),
    (
        "broken_model",
        "gguf_init_from_file_impl: invalid magic characters: '<htm', expected 'GGUF'",
        {},
    ),
    ("broken_model", "safetensors_rust.SafetensorError: Error while deserializing header", {}),
    (
        "broken_model",
        "llama_model_load: error loading model: tensor 'blk.5.ffn_up.weight' data is not within the "
        "file bounds, model is corrupted or incomplete",
        {},
    ),
    (
        "missing_model",
        "OSError: ./models/x is not a local folder and is not a valid model identifier listed on",
        {},
    ),
    ("missing_model", "failed to open GGUF file './x.gguf': No such file or directory x.gguf", {}),
    ("wrong_settings", "vllm: error: unrecognized arguments: --max-nums-seqs", {}),
    (
        "wrong_settings",
        "User-specified max_model_len (131072) is greater than the derived max_model_len "
        "(max_position_embeddings=32768.0)",
        {},
    ),
    ("no_gpu", "RuntimeError: No CUDA-capable device is detected", {}),
    ("no_gpu", "RuntimeError: Failed to infer device type", {}),
    ("port_taken", "OSError: [Errno 98] Address already in use", {}),
    ("missing_library", "ModuleNotFoundError: No module named 'vllm'", {}),
]


@pytest.mark.parametrize(("kind", "line", "settings"), LINES, ids=[row[1][:40] for row in LINES])
def test_a_line_of_the_log_tells_the_cause(
    kind: str, line: str, settings: dict[str, object]
) -> None:
    noise = ["INFO 12-01 10:00:00 loading weights"] * 20
    after = ["RuntimeError: Engine core initialization failed. See root cause above."]
    cause = cause_of("exit", 1, [*noise, line, *after])
    assert cause.kind == kind
    assert cause.retry_settings == settings
    assert cause.remedy
    assert line[:30] in cause.message


@pytest.mark.parametrize(
    ("reason", "code", "kind", "words"),
    [
        ("exit", 0, "exited", "code 0 though nobody had asked"),
        ("exit", 3, "exited", "code 3 and no line that is known"),
        ("exit", -9, "killed", "SIGKILL"),
        ("exit", -11, "killed", "SIGSEGV"),
        ("exit", -99, "killed", "signal 99"),
        ("stalled", None, "stalled", "no progress"),
        ("hung", None, "hung", "no health check"),
        ("dead", None, "core_died", "inference process died"),
    ],
)
def test_without_such_a_line_the_end_itself_tells(
    reason: str, code: int | None, kind: str, words: str
) -> None:
    cause = cause_of(reason, code, ["INFO ready", "a prompt of somebody"])
    assert cause.kind == kind
    assert words in cause.message
    assert "somebody" not in cause.message + cause.remedy


def test_a_core_that_died_behind_an_exit_of_0_is_named() -> None:
    cause = cause_of("exit", 0, ["EngineCore encountered a fatal error.", "EngineDeadError"])
    assert cause.kind == "core_died"


def test_only_the_end_of_a_long_log_is_read_and_long_lines_are_cut() -> None:
    flood = ["CUDA out of memory"] + ["x" * 100_000] * 1_000
    started = time.perf_counter()
    assert cause_of("exit", 1, flood).kind == "exited"
    assert time.perf_counter() - started < 5.0
    cause = cause_of("exit", 1, [f"CUDA out of memory {'y' * 10_000}"])
    assert len(cause.message) < 400


# -- with a process that dies so ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("invalid magic characters: '<htm'", "broken or incomplete"),
        ("ValueError: Unknown quantization method: int3", "quantization"),
        ("vllm: error: unrecognized arguments: --x", "refuses its settings"),
    ],
)
async def test_an_engine_that_dies_at_start_is_answered_with_cause_and_remedy(
    tmp_path: Path, line: str, words: str
) -> None:
    local = upstream_of(fake_model("m", "--say", line, "--exit-code", "1"))
    async with running(tmp_path, local, settings=quick_settings()) as backends:
        refused = await refusal(chat(backends, target_of(local, "m")))
        assert refused.status == 503
        assert words in str(refused)
        (status,) = backends.status()
        assert (status.state, status.starts) == ("failed", 1)
        assert status.remedy


async def test_the_settings_that_the_message_names_are_used_for_the_one_retry(
    tmp_path: Path,
) -> None:
    line = "the estimated maximum model length is 2000"
    model = fake_model("m", "--say", line, "--exit-code", "1", max_model_len=8_192)
    local = upstream_of(model)
    async with running(tmp_path, local, settings=quick_settings()) as backends:
        refused = await refusal(chat(backends, target_of(local, "m")))
        assert refused.status == 503
        (status,) = backends.status()
        assert (status.state, status.starts) == ("failed", 2)
        log = "\n".join(backends.logs("local/m", 100))
        assert "retried with max_model_len 8192 → 2000" in log


async def test_an_earlier_lifes_lines_do_not_explain_a_later_death(tmp_path: Path) -> None:
    script = (
        "import sys,pathlib\n"
        f"m = pathlib.Path({str(tmp_path / 'second')!r})\n"
        "m.exists() or print('CUDA out of memory', flush=True); m.touch(); sys.exit(7)\n"
    )
    command = (sys.executable, "-c", script, "{port}")
    local = upstream_of(Model(name="m", command=command, max_num_seqs=2))
    async with running(tmp_path, local, settings=quick_settings()) as backends:
        refused = await refusal(chat(backends, target_of(local, "m")))
        assert "code 7" in str(refused)
