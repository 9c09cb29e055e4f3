"""Streams that wait: comments keep them open, errors and answers then come as events."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from aiohttp import web

from sidecar_kit import Behaviour, answering, failing, provider, sidecar, write_rules

pytestmark = pytest.mark.usefixtures("own_folders")
ROUTES = "routes:\n  - {name: all, match: [.*], target: one/a}\n"
SETTINGS = "sidecar: {keepalive_s: 0.1}\n"


def late(behaviour: Behaviour, seconds: float = 0.35) -> Behaviour:
    async def behave(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return await behaviour(http, body)

    return behave


async def stream(
    tmp_path: Path, behaviour: Behaviour, path: str = "/v1/chat/completions"
) -> tuple[int, dict[str, str], bytes]:
    async with provider(behaviour) as it:
        upstreams = f"upstreams:\n  one: {{base_url: {it.url}}}\n"
        rules = write_rules(tmp_path / "rules", ROUTES, upstreams, SETTINGS)
        body = {"model": "m", "max_tokens": 9, "stream": True}
        body["messages"] = [{"role": "user", "content": "hi"}]
        async with (
            sidecar(rules) as gateway,
            aiohttp.ClientSession() as session,
            asyncio.timeout(10),
            session.post(gateway.url + path, json=body) as response,
        ):
            headers = {k.lower(): v for k, v in response.headers.items()}
            return response.status, headers, await response.read()


async def test_a_waiting_stream_gets_comments_then_its_answer(tmp_path: Path) -> None:
    status, headers, body = await stream(tmp_path, late(answering("hello")))
    assert status == 200
    assert headers["content-type"] == "text/event-stream"
    assert headers["x-turnout-route"] == "all"
    assert body.startswith(b": keep-alive\n\n: keep-alive\n\n")
    assert b"hello0" in body
    assert body.endswith(b"data: [DONE]\n\n")


async def test_a_quick_stream_gets_none(tmp_path: Path) -> None:
    _, _, body = await stream(tmp_path, answering("hello"))
    assert b": keep-alive" not in body


async def test_a_late_failure_comes_as_an_error_event(tmp_path: Path) -> None:
    status, _, body = await stream(tmp_path, late(failing(500)))
    assert status == 200
    event = body.strip().splitlines()[-1]
    assert json.loads(event.removeprefix(b"data: "))["error"]["message"] == "no (500)"


@pytest.mark.parametrize("status", [400, 401])
async def test_a_late_client_error_too(tmp_path: Path, status: int) -> None:
    _, _, body = await stream(tmp_path, late(failing(status)))
    event = body.strip().splitlines()[-1]
    assert json.loads(event.removeprefix(b"data: "))["error"]["message"] == f"no ({status})"


async def test_anthropics_clients_get_their_own_error_event(tmp_path: Path) -> None:
    _, _, body = await stream(tmp_path, late(failing(503)), "/v1/messages")
    assert b"\nevent: error\ndata: {" in body


async def test_a_plain_request_waits_without_a_byte(tmp_path: Path) -> None:
    async with provider(late(answering("hello"))) as it:
        upstreams = f"upstreams:\n  one: {{base_url: {it.url}}}\n"
        rules = write_rules(tmp_path / "rules", ROUTES, upstreams, SETTINGS)
        async with (
            sidecar(rules) as gateway,
            openai.AsyncOpenAI(base_url=gateway.url + "/v1", api_key="x") as client,
        ):
            message: Any = {"role": "user", "content": "hi"}
            answer = await client.chat.completions.create(model="m", messages=[message])
    assert answer.choices[0].message.content == "hello"


async def test_the_openai_client_reads_over_the_comments(tmp_path: Path) -> None:
    async with provider(late(answering("hello"))) as it:
        upstreams = f"upstreams:\n  one: {{base_url: {it.url}}}\n"
        rules = write_rules(tmp_path / "rules", ROUTES, upstreams, SETTINGS)
        async with (
            sidecar(rules) as gateway,
            openai.AsyncOpenAI(base_url=gateway.url + "/v1", api_key="x") as client,
        ):
            message: Any = {"role": "user", "content": "hi"}
            parts = await client.chat.completions.create(model="m", messages=[message], stream=True)
            words = [part.choices[0].delta.content async for part in parts]
    assert words == [f"hello{n} " for n in range(5)]
