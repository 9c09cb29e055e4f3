"""Broken files of a model, and programs that are not here, are named before a start."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine_kit import FAKE_ENGINE, chat, refusal, running, status_of, target_of, upstream_of
from model_folders import LLAMA3_8B, gguf, model_folder, safetensors_header
from proxy_kit import write_rules
from turnout_cli.commands.check import check
from turnout_cli.main import main
from turnout_rules.model import Model, Target, Upstream
from turnout_sidecar import model_store
from turnout_sidecar.model_faults import faults_of
from turnout_sidecar.startable import obstacle, remarks

LLAMA = {"general.architecture": "llama", "general.type": "model"}


def whole(path: Path, **more: Any) -> Path:
    return gguf(path, {**LLAMA, **more}, tokens=10, tensors=3)


def cut(path: Path, left: int) -> Path:
    path.write_bytes(path.read_bytes()[:left])
    return path


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def two_parts(folder: Path, present: tuple[int, ...], name: int = 1) -> Path:
    for n in present:
        whole(folder / f"m-{n:05}-of-00003.gguf")
    return folder / f"m-{name:05}-of-00003.gguf"


FILES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "whole": (lambda d: whole(d / "m.gguf"), ""),
    "all parts": (lambda d: two_parts(d, (1, 2, 3)), ""),
    "one byte short": (lambda d: cut(whole(d / "m.gguf"), -1), "is cut short"),
    "half a header": (lambda d: cut(whole(d / "m.gguf"), 100), "in the middle of its header"),
    "eight bytes": (lambda d: cut(whole(d / "m.gguf"), 8), "in the middle of its header"),
    "empty": (lambda d: written(d / "m.gguf", b""), "is empty"),
    "zeros": (lambda d: written(d / "m.gguf", bytes(99)), "is no GGUF file"),
    "a web page": (lambda d: written(d / "m.gguf", b"<!DOCTYPE html><html>"), "web page"),
    "a refusal": (lambda d: written(d / "m.gguf", b'{"error": "gated"}'), "download was refused"),
    "an LFS pointer": (
        lambda d: written(d / "m.gguf", b"version https://git-lfs.github.com/spec/v1\noid"),
        "git lfs pull",
    ),
    "an old format": (lambda d: written(d / "m.gguf", b"tjgg" + bytes(40)), "older than GGUF"),
    "a future version": (lambda d: gguf(d / "m.gguf", LLAMA, version=9), "unknown version 9"),
    "a part missing": (lambda d: two_parts(d, (1, 3)), "m-00002-of-00003.gguf is missing"),
    "a part cut short": (
        lambda d: (two_parts(d, (1, 2, 3)), cut(d / "m-00003-of-00003.gguf", -1))[0],
        "m-00003-of-00003.gguf is cut short",
    ),
    "not the first part": (lambda d: two_parts(d, (1, 2, 3), 2), "not the first of its parts"),
    "a projector": (
        lambda d: gguf(d / "m.gguf", {"general.architecture": "clip"}, tensors=1),
        "is a projector",
    ),
    "an adapter": (lambda d: whole(d / "m.gguf", **{"general.type": "adapter"}), "is an adapter"),
    "a vocabulary": (lambda d: gguf(d / "m.gguf", LLAMA, tokens=5), "holds no weights"),
    "a folder": (lambda d: (whole(d / "m.gguf"), d)[1], "name the .gguf file"),
    "nothing": (lambda d: d / "m.gguf", "there is no "),
}


def llama(path: Path | str, **more: Any) -> Target:
    model = Model(name="m", model_path=str(path), **more)
    return Target("local/m", Upstream(name="local", engine="llamacpp", models={"m": model}), model)


def said(target: Target) -> str:
    return "\n".join(f"{f.message}; {f.remedy}" for f in faults_of(target))


@pytest.mark.parametrize("case", FILES.values(), ids=FILES)
def test_a_gguf_file_is_whole_or_named(case: Any, tmp_path: Path) -> None:
    make, expected = case
    found = said(llama(make(tmp_path)))
    assert bool(found) == bool(expected)
    assert expected in found


def test_a_real_model_is_whole_and_a_byte_less_is_not(tmp_path: Path) -> None:
    path = model_store.path_of("smollm2")
    if path is None:
        pytest.skip("the small model is not here")
    assert not said(llama("smollm2"))
    part = tmp_path / "m.gguf"
    part.write_bytes(path.read_bytes()[:-1])
    size = model_store.MODELS["smollm2"].size
    assert f"{size - 1:,} of {size:,} bytes are here" in said(llama(part))


def test_a_projector_beside_a_model_is_a_remark_unless_it_is_used_or_refused(
    tmp_path: Path,
) -> None:
    path = whole(tmp_path / "m.gguf")
    gguf(tmp_path / "mmproj-F16.gguf", {"general.architecture": "clip"}, tensors=1)
    ((remark, remedy),) = remarks(llama(path))
    assert "mmproj-F16.gguf lies beside the model" in remark
    assert f"--mmproj, {tmp_path / 'mmproj-F16.gguf'}" in remedy
    assert not any(f.is_fatal for f in faults_of(llama(path)))
    for args in (("--mmproj", "x.gguf"), ("-mm", "x"), ("--mmproj=x",), ("--no-mmproj",)):
        assert not remarks(llama(path, args=args))


def tensors(size: int) -> bytes:
    return safetensors_header(size).ljust(size, b"\0")


FOLDERS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "whole": (lambda d: None, ""),
    "cut short": (lambda d: written(d / "model.safetensors", tensors(900)[:500]), "500 of 900"),
    "empty": (lambda d: written(d / "model.safetensors", b""), "is empty"),
    "zeros": (lambda d: written(d / "model.safetensors", bytes(900)), "no safetensors file"),
    "half a header": (
        lambda d: written(d / "model.safetensors", struct.pack("<Q", 500) + b"{"),
        "middle of its header",
    ),
    "no object": (
        lambda d: written(d / "model.safetensors", struct.pack("<Q", 4) + b"[[]]"),
        "no safetensors file",
    ),
    "a pointer": (
        lambda d: written(d / "model.safetensors", b"version https://git-lfs.github.com/spec/v1"),
        "git lfs pull",
    ),
    "no weights": (lambda d: (d / "model.safetensors").unlink(), "there are no weights"),
    "a download that has not ended": (
        lambda d: (d / "model.safetensors").rename(d / "abc.incomplete"),
        "abc.incomplete, a download that has not ended",
    ),
    "no config": (lambda d: (d / "config.json").unlink(), "no config.json"),
    "half a config": (lambda d: written(d / "config.json", b'{"model_type": "lla'), "cut short"),
    "a shard that the index names": (
        lambda d: written(
            d / "model.safetensors.index.json",
            json.dumps(
                {"weight_map": {"a": "model.safetensors", "b": "other.safetensors"}}
            ).encode(),
        ),
        "lacks other.safetensors",
    ),
    "a shard that the names promise": (
        lambda d: (d / "model.safetensors").rename(d / "model-00001-of-00003.safetensors"),
        "lacks model-00002-of-00003.safetensors and 1 more",
    ),
}


@pytest.mark.parametrize("engine", ["vllm", "nanovllm"])
@pytest.mark.parametrize("case", FOLDERS.values(), ids=FOLDERS)
def test_a_folder_is_whole_or_named(case: Any, engine: Any, tmp_path: Path) -> None:
    make, expected = case
    folder = model_folder(tmp_path / "m", LLAMA3_8B)
    written(folder / "model.safetensors", tensors(900))
    make(folder)
    model = Model(name="m", model_path=str(folder), python=sys.executable)
    found = said(Target("local/m", Upstream(name="local", engine=engine), model))
    assert bool(found) == bool(expected)
    assert expected in found


def test_the_name_of_a_hub_model_and_a_commands_own_files_are_no_fault() -> None:
    for engine, path in (("vllm", "Qwen/Qwen3-0.6B"), ("command", "")):
        model = Model(name="m", model_path=path)
        assert not faults_of(Target("local/m", Upstream(name="local", engine=engine), model))


RULES = """
upstreams:
  local:
    engine: {engine}
    models:
      m: {model}
routes:
  - {{name: r, match: [.*], target: local/m}}
"""


def rules_of(folder: Path, engine: str, **model: Any) -> Path:
    text = RULES.format(engine=engine, model=json.dumps(model))
    return write_rules(folder / "rules", routes=text, turnout="classifier: {kind: 'off'}\n")


def test_check_plan_and_the_doctor_name_a_broken_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DATA", "RUNTIME"):
        monkeypatch.setenv(f"TURNOUT_{name}_DIR", str(tmp_path / name))
    path = cut(whole(tmp_path / "m.gguf"), -1)
    folder = rules_of(tmp_path, "llamacpp", model_path=str(path))
    problems, _ = check(folder)
    found = [p for p in problems if p.code == "cannot-start"]
    assert [(Path(p.file).name, p.line) for p in found] == [("routes.yaml", 6)]
    assert "is cut short" in found[0].message and found[0].remedy == "fetch it again"
    for command in (["plan", "--rules"], ["doctor", "--rules"]):
        assert main([*command, str(folder)]) == 1
        assert "is cut short" in " ".join(capsys.readouterr().out.split())


def test_plan_shows_a_projector_that_is_not_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = {"llama.block_count": 2, "llama.embedding_length": 64, "llama.context_length": 512}
    heads = {"llama.attention.head_count": 4, "llama.feed_forward_length": 128}
    path = whole(tmp_path / "m.gguf", **pairs, **heads)
    gguf(tmp_path / "mmproj.gguf", {"general.architecture": "clip"}, tensors=1)
    main(["plan", "--rules", str(rules_of(tmp_path, "llamacpp", model_path=str(path)))])
    assert "mmproj.gguf lies beside the model" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "code", "severity", "words"),
    [
        (["no-such-program", "{port}"], "cannot-start", "warning", "no program no-such-program"),
        (["/no/such/program", "{port}"], "cannot-start", "warning", "no program /no/such/program"),
        (["./fake", "--port", "80"], "missing-port", "error", "holds no {port}"),
    ],
)
def test_check_names_a_command_that_cannot_run(
    command: list[str], code: str, severity: str, words: str, tmp_path: Path
) -> None:
    problems, _ = check(rules_of(tmp_path, "command", command=command))
    ((found_code, line, found_severity, message),) = [
        (p.code, p.line, p.severity, p.message) for p in problems if p.code == code
    ]
    assert (found_code, line, found_severity) == (code, 6, severity)
    assert words in message


async def test_the_503_names_what_is_missing(tmp_path: Path) -> None:
    broken = cut(whole(tmp_path / "m.gguf"), -1)
    local = upstream_of(
        Model(name="gone", command=("no-such-program", "{port}")),
        Model(name="portless", command=(sys.executable,)),
        Model(name="broken", command=(sys.executable, "{port}"), model_path=str(broken)),
    )
    words = {"gone": "no program no-such-program", "portless": "{port}", "broken": "is cut short"}
    async with running(tmp_path, local) as backends:
        for name, expected in words.items():
            refused = await refusal(chat(backends, target_of(local, name)))
            assert (refused.status, refused.code) == (503, "engine_failed")
            assert expected in refused.message and refused.retry_after_s


async def test_a_program_in_the_home_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    program = written(
        tmp_path / "my-engine", f'#!/bin/sh\nexec {sys.executable} {FAKE_ENGINE} "$@"\n'.encode()
    )
    program.chmod(0o755)
    model = Model(name="m", command=("~/my-engine", "--port", "{port}", "--name", "{model}"))
    local = upstream_of(model)
    assert obstacle(target_of(local, "m"), {}) == ("", "")
    async with running(tmp_path, local) as backends:
        assert await chat(backends, target_of(local, "m"))
        assert status_of(backends, "local/m").state == "ready"
