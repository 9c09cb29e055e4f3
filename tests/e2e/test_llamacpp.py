"""Real llama.cpp with a real small model, started, shared, swapped, killed and cleaned up."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import aiohttp
import pytest

from engine_kit import (
    MIB,
    chat,
    is_alive,
    quick_settings,
    running,
    status_of,
    target_of,
    until,
    upstream_of,
)
from model_folders import gguf
from turnout_rules.model import Model, Upstream
from turnout_sidecar.model_store import path_of

pytestmark = [pytest.mark.local, pytest.mark.timeout(240)]


@pytest.fixture
def llama() -> Upstream:
    """Two models of the same weights."""
    pytest.importorskip("xllamacpp", reason="the `local` extra is not installed")
    if path_of("smollm2") is None:
        pytest.skip("the model is not here: run `turnout models pull`")
    models = (
        Model(name=name, model_path="smollm2", max_num_seqs=4, max_model_len=512, args=("-t", "1"))
        for name in ("one", "two")
    )
    return upstream_of(*models, engine="llamacpp")


async def test_fifty_cold_requests_start_one_process(tmp_path: Path, llama: Upstream) -> None:
    async with running(tmp_path, llama) as backends:
        target = target_of(llama, "one")
        answers = await asyncio.gather(
            *(chat(backends, target, client=str(i), timeout_s=120) for i in range(50))
        )
        assert len(answers) == 50
        assert all(answers)
        assert status_of(backends, "local/one").starts == 1


async def test_two_models_in_the_room_of_one_lose_no_request(
    tmp_path: Path, llama: Upstream
) -> None:
    settings = quick_settings(ram_budget_bytes=300 * MIB)
    async with running(tmp_path, llama, settings=settings) as backends:
        for name in ("one", "two"):  # what they hold is known from now on
            await chat(backends, target_of(llama, name))
        before = sum(s.starts for s in backends.status())
        room = asyncio.Semaphore(20)

        async def one(i: int) -> str:
            async with room:
                name = ("one", "two")[i % 2]
                return await chat(backends, target_of(llama, name), timeout_s=120)

        answers = await asyncio.gather(*(one(i) for i in range(200)))
        assert len(answers) == 200
        starts = sum(s.starts for s in backends.status()) - before
        print(f"200 alternating requests, {starts} starts")
        assert starts <= 40


async def test_kill_in_the_middle_of_a_stream_breaks_it_and_the_next_request_works(
    tmp_path: Path, llama: Upstream
) -> None:
    async with running(tmp_path, llama) as backends:
        target = target_of(llama, "one")
        with pytest.raises((aiohttp.ClientError, OSError)):
            async with backends.lease(target, timeout_s=60) as lease:
                body = {
                    "model": lease.model,
                    "messages": [{"role": "user", "content": "Tell me a long story."}],
                    "max_tokens": 400,
                    "stream": True,
                }
                async with (
                    aiohttp.ClientSession(trust_env=False) as session,
                    session.post(f"{lease.base_url}/chat/completions", json=body) as answer,
                ):
                    await answer.content.readany()
                    os.kill(status_of(backends, "local/one").pid or 0, signal.SIGKILL)
                    await answer.content.read()
        assert await chat(backends, target, timeout_s=60, retries=2)
        assert status_of(backends, "local/one").starts == 2


async def test_kill_in_the_middle_of_a_start_loses_no_waiter(
    tmp_path: Path, llama: Upstream
) -> None:
    async with running(tmp_path, llama) as backends:
        target = target_of(llama, "one")
        tasks = [asyncio.create_task(chat(backends, target, timeout_s=60)) for _ in range(4)]
        await until(lambda: status_of(backends, "local/one").pid)
        os.kill(status_of(backends, "local/one").pid or 0, signal.SIGKILL)
        assert len(await asyncio.gather(*tasks)) == 4


async def test_a_broken_model_file_is_reported_not_retried_for_ever(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="the `local` extra is not installed")
    # Whole by its own account, so that only the engine can find out.
    broken = gguf(tmp_path / "broken.gguf", {"general.architecture": "llama"}, tensors=3)
    local = upstream_of(Model(name="m", model_path=str(broken)), engine="llamacpp")
    async with running(tmp_path, local) as backends:
        from turnout_sidecar.backends import Refused

        with pytest.raises(Refused, match="failed"):
            await chat(backends, target_of(local, "m"))
        assert status_of(backends, "local/m").starts == 1


async def test_sigterm_ends_it_at_once(tmp_path: Path, llama: Upstream) -> None:
    async with running(tmp_path, llama) as backends:
        await chat(backends, target_of(llama, "one"), timeout_s=60)
        pid = status_of(backends, "local/one").pid or 0
        await backends.stop_backend("local/one")
        assert not is_alive(pid)
        assert not any("killing it" in line for line in backends.logs("local/one", 50))
