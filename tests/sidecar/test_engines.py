"""Command lines, environments and health words of the engine adapters."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from engine_kit import (
    chat,
    fake_model,
    lines,
    quick_settings,
    refusal,
    running,
    status_of,
    target_of,
    until,
    upstream_of,
)
from turnout_rules.model import Model, Upstream
from turnout_sidecar.engines import engine_for
from turnout_sidecar.engines.base import CannotLaunch, Launch, Place


def launch(engine: Any, model: Model, path: str = "", device: str = "gpu1") -> Launch:
    upstream = Upstream(name="local", engine=engine, models={model.name: model})
    place = Place(port=4321, threads=3, device=device, environ={"PATH": path})
    return engine_for(upstream).launch(target_of(upstream, model.name), place)


def value_of(command: tuple[str, ...], flag: str) -> str:
    return command[command.index(flag) + 1]


def program(folder: Path, name: str) -> str:
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(folder)


def test_vllm_always_gets_limits_of_a_workstation(tmp_path: Path) -> None:
    done = launch("vllm", Model(name="m", model_path="org/model"), program(tmp_path, "vllm"))
    assert done.command[1:3] == ("serve", "org/model")
    assert value_of(done.command, "--max-num-seqs") == "2"
    assert value_of(done.command, "--gpu-memory-utilization") == "0.6"
    assert value_of(done.command, "--host") == "127.0.0.1"
    assert done.env["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
    assert done.env["CUDA_VISIBLE_DEVICES"] == "1"
    assert "VLLM_SERVER_DEV_MODE" not in done.env


def test_vllm_takes_the_settings_and_passes_extra_arguments_through() -> None:
    model = Model(
        name="m",
        model_path="org/model",
        python="/opt/vllm/bin/python",
        quantization="gptq",
        kv_cache_dtype="fp8",
        max_model_len=2048,
        max_num_seqs=4,
        gpu_memory_utilization=0.7,
        args=("--enforce-eager",),
        env={"OMP_NUM_THREADS": "1"},
        sleep=True,
    )
    done = launch("vllm", model)
    assert done.command[0] == "/opt/vllm/bin/python"
    for flag, value in (
        ("--quantization", "gptq"),
        ("--kv-cache-dtype", "fp8"),
        ("--max-model-len", "2048"),
        ("--max-num-seqs", "4"),
        ("--gpu-memory-utilization", "0.7"),
    ):
        assert value_of(done.command, flag) == value
    assert done.command[-1] == "--enforce-eager"
    assert "--enable-sleep-mode" in done.command
    assert done.env["VLLM_SERVER_DEV_MODE"] == "1"
    assert done.env["OMP_NUM_THREADS"] == "1"
    assert "PYTORCH_CUDA_ALLOC_CONF" not in done.env


def test_llama_server_on_the_path_comes_first_and_gets_context_for_every_slot(
    tmp_path: Path,
) -> None:
    gguf = tmp_path / "m.gguf"
    gguf.write_bytes(b"GGUF")
    model = Model(name="m", model_path=str(gguf), max_num_seqs=3, max_model_len=1000)
    done = launch("llamacpp", model, program(tmp_path, "llama-server"))
    assert done.command[0].endswith("/llama-server")
    assert value_of(done.command, "-c") == "3000"
    assert value_of(done.command, "-np") == "3"
    assert value_of(done.command, "-t") == "3"
    assert value_of(done.command, "--alias") == "m"
    assert int(value_of(done.command, "--cache-ram")) <= 1024


def test_without_llama_server_the_wheel_is_used(tmp_path: Path) -> None:
    gguf = tmp_path / "m.gguf"
    gguf.write_bytes(b"GGUF")
    pytest.importorskip("xllamacpp")
    done = launch("llamacpp", Model(name="m", model_path=str(gguf), args=("-t", "1")))
    assert done.command[:3] == (sys.executable, "-m", "turnout_sidecar.runners.llamacpp")
    assert done.command[-2:] == ("-t", "1")
    assert done.command.count("-t") == 1


@pytest.mark.parametrize(
    ("engine", "model", "remedy"),
    [
        ("vllm", Model(name="m", model_path="x"), "python:"),
        ("nanovllm", Model(name="m", model_path="x"), "python:"),
        ("llamacpp", Model(name="m", model_path="/nowhere.gguf"), "model_path"),
        ("command", Model(name="m", command=("serve",)), "{port}"),
    ],
)
def test_what_is_missing_is_said_with_its_remedy(engine: Any, model: Model, remedy: str) -> None:
    with pytest.raises(CannotLaunch, match=remedy.replace("{", "\\{")):
        launch(engine, model)


def test_commands_get_their_placeholders_and_keep_other_braces() -> None:
    model = Model(name="m", command=("serve", "--on={port}", "{model}", '{"json": 1}'))
    assert launch("command", model).command == ("serve", "--on=4321", "m", '{"json": 1}')


@pytest.mark.parametrize(
    ("engine", "status", "meaning"),
    [
        ("llamacpp", 503, "loading"),
        ("llamacpp", 200, "ready"),
        ("vllm", 503, "dead"),
        ("vllm", 200, "ready"),
        ("command", 404, "ready"),
        ("external", 401, "ready"),
        ("external", 502, "dead"),
        ("ray", 200, "ready"),
    ],
)
def test_health_answers_mean_what_the_engine_means(engine: Any, status: int, meaning: str) -> None:
    assert engine_for(Upstream(name="u", engine=engine)).health(status) == meaning


async def test_an_engine_that_cannot_be_launched_fails_with_the_remedy(tmp_path: Path) -> None:
    local = upstream_of(Model(name="m", model_path="/nowhere.gguf"), engine="llamacpp")
    async with running(tmp_path, local) as backends:
        refused = await refusal(chat(backends, target_of(local, "m")))
        assert refused.status == 503
        assert "model_path" in refused.message


VLLM = """
import os, sys
args = sys.argv[sys.argv.index("--host"):]
port = args[args.index("--port") + 1]
name = args[args.index("--served-model-name") + 1]
engine, journal = {engine!r}, {journal!r}
os.execv(sys.executable, [sys.executable, "-S", engine, "--port", port, "--name", name,
                          "--journal", journal])
"""


async def test_vllm_is_put_to_sleep_for_others_and_woken_before_it_is_asked(
    tmp_path: Path,
) -> None:
    from engine_kit import FAKE_ENGINE, MIB

    journal = tmp_path / "journal"
    package = tmp_path / "site" / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True)
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").touch()
    (package / "api_server.py").write_text(
        VLLM.format(engine=str(FAKE_ENGINE), journal=str(journal))
    )
    weights = tmp_path / "weights.bin"
    with weights.open("wb") as file:
        file.truncate(300 * MIB)
    env = {"PYTHONPATH": str(tmp_path / "site")}
    models = {n: Model(name=n, python=sys.executable, env=env, sleep=True, ttl_s=0.5) for n in "ab"}
    local = Upstream(name="local", engine="vllm", models=models)
    async with running(tmp_path, local, settings=quick_settings()) as backends:
        target = target_of(local, "a")
        assert await chat(backends, target)
        await until(lambda: status_of(backends, "local/a").state == "sleeping")
        assert await chat(backends, target)
        assert len(lines(journal, "start")) == 1
        assert len(lines(journal, "sleep")) == 1
        assert len(lines(journal, "wake")) == 1


async def test_a_ready_engine_that_exits_with_0_counts_as_crashed(tmp_path: Path) -> None:
    local = upstream_of(fake_model("a", "--exit-after-s", "0.2"))
    async with running(tmp_path, local) as backends:
        await chat(backends, target_of(local, "a"))
        await until(lambda: status_of(backends, "local/a").crashes == 1)
        assert status_of(backends, "local/a").state == "stopped"
