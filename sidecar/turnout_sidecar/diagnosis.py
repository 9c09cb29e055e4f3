"""Why an engine died: its exit code and last lines, read against a table of known troubles. Pure.

The lines are those of vLLM, PyTorch, CUDA and llama.cpp as their sources print them. The first row
that matches counts, so what explains more stands above what only follows from it.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

LINES_READ = 200
_LINE_CHARS = 1_000
_QUOTED_CHARS = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why an engine died, in plain words, and what to do."""

    kind: str
    message: str
    remedy: str = ""
    retry_settings: Mapping[str, Any] = field(default_factory=dict)
    """Smaller settings that the engine's own message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A row: how it looks in a log, what it is, what to do."""

    kind: str
    looks_like: re.Pattern[str]
    message: str
    remedy: str
    settings: Callable[[re.Match[str]], Mapping[str, Any]] = lambda found: {}
    holds: Callable[[re.Match[str]], bool] = lambda found: True
    """Whether the figures in the line mean this trouble, where words alone do not tell."""


def _seen(*lines: str) -> re.Pattern[str]:
    return re.compile("|".join(lines), re.IGNORECASE)


def _estimated_length(found: re.Match[str]) -> Mapping[str, Any]:
    """vLLM names the longest context that fits; whole blocks of 16 tokens are what it can use."""
    length = int(found["length"]) // 16 * 16
    return {"max_model_len": length} if length >= 256 else {}


def _free_share(found: re.Match[str]) -> Mapping[str, Any]:
    """The share of the card that was free, less a hundredth for what moves meanwhile."""
    free, total = float(found["free"]), float(found["total"])
    share = int(100 * free / total - 1) / 100 if total else 0.0
    return {"gpu_memory_utilization": share} if share >= 0.1 else {}


_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def _has_room(found: re.Match[str]) -> bool:
    """PyTorch advises against fragmentation whenever it runs out; only this tells that it is."""
    asked, free, idle = (_bytes(found[name]) for name in ("asked", "free", "idle"))
    return free + idle >= asked


def _bytes(size: str | None) -> float:
    number, _, unit = (size or "0 KiB").partition(" ")
    return float(number) * _UNITS[unit]


OUT_OF_MEMORY = "out_of_memory"
MEMORY_KINDS = frozenset({OUT_OF_MEMORY, "fragmentation"})
"""Deaths after which the same model is tried once more with smaller settings."""

TROUBLES: tuple[Trouble, ...] = (
    Trouble(
        kind=OUT_OF_MEMORY,
        looks_like=_seen(r"estimated maximum model length is (?P<length>\d{1,9})"),
        message="the KV cache for a request of full length does not fit beside the weights",
        remedy="lower max_model_len, raise gpu_memory_utilization, or set kv_cache_dtype: fp8",
        settings=_estimated_length,
    ),
    Trouble(
        kind=OUT_OF_MEMORY,
        looks_like=_seen(
            r"free memory on device[^()]{0,80}\((?P<free>[\d.]{1,8})/(?P<total>[\d.]{1,8}) GiB\)"
            r".{0,80}less than desired GPU memory utilization"
        ),
        message="less of the card is free than gpu_memory_utilization asks for",
        remedy="lower gpu_memory_utilization, or end what holds the card (turnout doctor lists it)",
        settings=_free_share,
    ),
    Trouble(
        kind=OUT_OF_MEMORY,
        looks_like=_seen("no available memory for the cache blocks"),
        message="weights and working memory leave nothing of the engine's share for the KV cache",
        remedy="raise gpu_memory_utilization, lower max_model_len, or use a smaller model",
    ),
    Trouble(
        kind="fragmentation",
        looks_like=_seen(
            r"out of memory\. Tried to allocate (?P<asked>\d[\d.]{0,7} [KMG]iB)"
            r".{0,200}?(?P<free>\d[\d.]{0,7} [KMG]iB) (?:is )?free"
            r"(?:.{0,400}?(?P<idle>\d[\d.]{0,7} [KMG]iB) is reserved by PyTorch but unallocated)?"
        ),
        holds=_has_room,
        message="the card has memory left, but in pieces too small for the allocation",
        remedy=(
            "keep PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (Turnout sets it unless `env:` "
            "or sleep mode replaces it), or lower max_num_seqs"
        ),
    ),
    Trouble(
        kind=OUT_OF_MEMORY,
        looks_like=_seen(
            "torch.OutOfMemoryError",
            "CUDA out of memory",
            "cudaMalloc failed: out of memory",
            "CUDA error: out of memory",
            "cudaErrorMemoryAllocation",
            "unable to allocate CUDA0 buffer",
            r"unable to allocate \w+ buffer",
            "failed to allocate buffer for kv cache",
            "failed to allocate compute (?:pp )?buffers",
            "failed to fit params to free device memory",
            "hipErrorOutOfMemory",
        ),
        message="CUDA out of memory: weights, KV cache and working memory outgrew the card",
        remedy="lower max_num_seqs or max_model_len, set kv_cache_dtype, or use a smaller model",
    ),
    Trouble(
        kind=OUT_OF_MEMORY,
        looks_like=_seen(
            "std::bad_alloc",
            r"\bMemoryError\b",
            "cannot allocate memory",
            "ggml_aligned_malloc",
            "DefaultCPUAllocator: (?:can't allocate|not enough) memory",
        ),
        message="the machine's own memory (RAM) ran out",
        remedy="lower max_num_seqs or max_model_len, stop other programs, or use a smaller model",
    ),
    Trouble(
        kind="wrong_quantization",
        looks_like=_seen(
            r"quantization method specified in the model config \(\w+\) does not match",
            r"(?:unknown|unsupported|invalid) quantization",
            r"quantization method .{0,60}is not supported",
            r"minimum capability.{0,80}quantization",
            "cannot find the config file for (?:awq|gptq)",
        ),
        message="the model's quantization is not what `quantization:` says, or the card lacks it",
        remedy="leave `quantization:` out (the model's config.json names its own), or correct it",
    ),
    Trouble(
        kind="broken_model",
        looks_like=_seen(
            "invalid magic characters",
            "failed to load model from file",
            "error loading model:",
            "HeaderTooLarge",
            "MetadataIncompleteBuffer",
            "safetensors_rust.SafetensorError",
            r"tensor '.{1,80}' data is not within the file bounds",
            "model is corrupted or incomplete",
            "unexpected end of (?:file|input)",
            "PytorchStreamReader failed",
        ),
        message="the model's file is broken or incomplete",
        remedy="fetch it again and compare its checksum",
    ),
    Trouble(
        kind="missing_model",
        looks_like=_seen(
            r"no such file or directory.{0,120}(?:\.gguf|config\.json|safetensors)",
            r"(?:\.gguf|config\.json|safetensors).{0,120}no such file or directory",
            "is not a local folder and is not a valid model identifier",
            "Can't load the configuration of",
            "does not appear to have a file named config.json",
            "we couldn't connect to .{0,80}to load the files",
        ),
        message="the model is not where model_path says",
        remedy="correct model_path, or fetch the model",
    ),
    Trouble(
        kind="wrong_settings",
        looks_like=_seen(
            r"max_model_len \(\d+\) is greater than the derived max_model_len",
            r"error: unrecognized arguments: .{1,120}",
            r"error: (?:invalid argument|unknown argument): .{1,120}",
            r"error: argument .{1,120}",
            "Sleep mode is not supported on current platform",
        ),
        message="the engine refuses its settings",
        remedy="correct the model's settings or `args:`",
    ),
    Trouble(
        kind="no_gpu",
        looks_like=_seen(
            "no CUDA-capable device is detected",
            "Found no NVIDIA driver",
            "CUDA driver version is insufficient",
            "failed to infer device type",
            "no kernel image is available for execution",
        ),
        message="the engine finds no graphics card that it can use",
        remedy="check the driver with nvidia-smi, and `turnout doctor`",
    ),
    Trouble(
        kind="port_taken",
        looks_like=_seen("address already in use", "couldn't bind HTTP server socket"),
        message="another program took the engine's port",
        remedy="it is tried again on another port",
    ),
    Trouble(
        kind="missing_library",
        looks_like=_seen(
            r"ModuleNotFoundError: No module named '.{1,60}'",
            r"ImportError: .{1,120}",
            r"error while loading shared libraries: .{1,120}",
        ),
        message="the engine's environment lacks something",
        remedy="repair the environment that `python:` or the PATH names",
    ),
)
_CORE_DIED = re.compile(
    r"EngineCore (?:failed to start|encountered (?:a fatal|an) )|EngineDeadError"
    r"|Engine core initialization failed"
)


def cause_of(reason: str, code: int | None, lines: Sequence[str]) -> Cause:
    """The diagnosis of an unasked end.

    `reason`: `exit`, `stalled`, `hung` or `dead`; `code`: the exit code if the process ended by
    itself, negative for a signal; `lines`: the engine's last output, oldest first.
    """
    recent = [line[:_LINE_CHARS] for line in lines[-LINES_READ:]]
    text = "\n".join(recent)
    for trouble in TROUBLES:
        found = trouble.looks_like.search(text)
        if found and trouble.holds(found):
            quoted = _line_around(text, found.start())
            return Cause(
                kind=trouble.kind,
                message=f"{trouble.message} ({quoted})",
                remedy=trouble.remedy,
                retry_settings=trouble.settings(found),
            )
    return _by_its_end(reason, code, text)


def _by_its_end(reason: str, code: int | None, text: str) -> Cause:
    """Where no line tells: how it ended does."""
    if reason == "stalled":
        return Cause(
            kind="stalled",
            message="its start made no progress: no output, no memory growth, no CPU time",
            remedy="see `turnout logs`; a slow disk needs a larger start_timeout_s",
        )
    if reason == "hung":
        return Cause(
            kind="hung",
            message="it answered no health check and did nothing",
            remedy="it is started anew",
        )
    if reason == "dead" or _CORE_DIED.search(text):
        return Cause(
            kind="core_died",
            message="its inference process died behind the API",
            remedy="it is started anew; see `turnout logs` for why",
        )
    if code is not None and code < 0:
        return _by_signal(-code)
    if code == 0:
        return Cause(
            kind="exited",
            message="it ended with code 0 though nobody had asked it to",
            remedy="see `turnout logs`; vLLM does so when its inference process dies",
        )
    return Cause(
        kind="exited",
        message=f"it ended with code {code} and no line that is known",
        remedy="see `turnout logs`",
    )


def _by_signal(number: int) -> Cause:
    if number == signal.SIGKILL:
        return Cause(
            kind="killed",
            message="it was killed (SIGKILL): by the kernel when memory ran out, or by a person",
            remedy="if `dmesg` speaks of oom-kill: lower max_num_seqs, or use a smaller model",
        )
    return Cause(
        kind="killed",
        message=f"it died of {_signal_name(number)}",
        remedy="see `turnout logs`",
    )


def _line_around(text: str, at: int) -> str:
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    line = text[start : end if end >= 0 else len(text)].strip()
    return line if len(line) <= _QUOTED_CHARS else f"{line[:_QUOTED_CHARS]}…"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
