"""Our server around nano-vllm's `step()`, started by its adapter like any other engine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import openai
import pytest

from engine_kit import running, status_of, target_of, until, upstream_of
from turnout_rules.model import Model
from turnout_sidecar.backends import Backends, Lease

SITE = Path(__file__).parent.parent / "engines" / "site"


@asynccontextmanager
async def served(folder: Path, step_s: float = 0.001) -> AsyncIterator[tuple[Backends, Lease]]:
    env = {"PYTHONPATH": str(SITE), "FAKE_STEP_S": str(step_s)}
    model = Model(name="q", python=sys.executable, env=env, max_num_seqs=4, max_model_len=400)
    local = upstream_of(model, engine="nanovllm")
    async with (
        running(folder, local) as backends,
        backends.lease(target_of(local, "q"), timeout_s=10) as lease,
    ):
        yield backends, lease


def client_of(lease: Lease) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=lease.base_url, api_key="none", max_retries=0)


async def test_a_chat_is_answered_and_counted(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, lease), client_of(lease) as client:
        answer = await client.chat.completions.create(
            model=lease.model, messages=[{"role": "user", "content": "你好 nano"}], temperature=0
        )
        assert answer.choices[0].message.content == "你好 nano"
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage
        assert answer.usage.completion_tokens == len("你好 nano".encode())
        assert [m.id async for m in client.models.list()] == ["q"]


async def test_characters_are_never_cut_in_a_stream(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, lease), client_of(lease) as client:
        stream = await client.chat.completions.create(
            model=lease.model,
            messages=[{"role": "user", "content": "翻译 ok"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        pieces = [c.choices[0].delta.content or "" for c in chunks if c.choices]
        assert "".join(pieces) == "翻译 ok"
        assert "\ufffd" not in "".join(pieces)
        assert len([p for p in pieces if p]) > 2
        assert chunks[-1].usage


async def test_several_run_at_once_and_are_not_mixed_up(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, lease), client_of(lease) as client:
        texts = [f"request {i} " * 3 for i in range(8)]
        answers = await asyncio.gather(
            *(
                client.chat.completions.create(
                    model=lease.model, messages=[{"role": "user", "content": text}]
                )
                for text in texts
            )
        )
        assert [a.choices[0].message.content for a in answers] == texts


async def test_max_tokens_and_stop_end_an_answer(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, lease), client_of(lease) as client:
        messages = [{"role": "user", "content": "one two three"}]
        short = await client.chat.completions.create(
            model=lease.model, messages=messages, max_tokens=3
        )
        assert (short.choices[0].message.content, short.choices[0].finish_reason) == (
            "one",
            "length",
        )
        stopped = await client.completions.create(
            model=lease.model, prompt="one two three", stop=[" three"]
        )
        assert (stopped.choices[0].text, stopped.choices[0].finish_reason) == ("one two", "stop")


async def test_a_client_that_leaves_frees_its_place_in_the_engine(tmp_path: Path) -> None:
    async with served(tmp_path, step_s=0.05) as (backends, lease), client_of(lease) as client:
        stream = await client.chat.completions.create(
            model=lease.model, messages=[{"role": "user", "content": "x" * 300}], stream=True
        )
        async for _ in stream:
            break
        await stream.close()
        await until(lambda: any("deallocated" in line for line in backends.logs("local/q", 20)))


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([{"role": "user", "content": "x" * 500}], "context"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "text only"),
        (["hello"], "role"),
    ],
)
async def test_what_cannot_be_served_is_a_400_with_the_reason(
    tmp_path: Path, messages: list[object], words: str
) -> None:
    async with served(tmp_path) as (_, lease), client_of(lease) as client:
        with pytest.raises(openai.BadRequestError, match=words):
            await client.chat.completions.create(
                model=lease.model,
                messages=messages,  # type: ignore[arg-type]
            )


async def test_an_engine_that_fails_in_a_step_ends_and_is_diagnosed(tmp_path: Path) -> None:
    async with served(tmp_path) as (backends, lease), client_of(lease) as client:
        with pytest.raises(openai.APIConnectionError):
            await client.chat.completions.create(
                model=lease.model, messages=[{"role": "user", "content": "CUDA"}]
            )
        await until(lambda: status_of(backends, "local/q").crashes == 1)
        assert "memory" in status_of(backends, "local/q").message
