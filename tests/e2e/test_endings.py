"""Answers of targets that the proxy asks directly: what ends too early is told, no more."""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import Any

import httpx2
import pytest
from aiohttp import web

from proxy_kit import Reply, Seen
from proxy_streams import sse

CONTENT = {
    "/v1/chat/completions": b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n',
    "/v1/completions": b'data: {"choices":[{"text":"hi"}]}\n\n',
    "/v1/responses": (
        b'data: {"type":"response.output_text.delta","delta":"hi","sequence_number":41}\n\n'
    ),
    "/v1/messages": (
        b'data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"hi"}}\n\n'
    ),
}
BODY: dict[str, Any] = {
    "model": "m",
    "stream": True,
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "debug"}],
    "prompt": "debug",
    "input": "debug",
}


async def post(setup: Any, path: str, words: str = "debug") -> tuple[int, httpx2.Headers, bytes]:
    context = ssl.create_default_context(cafile=str(setup.proxy.bundle))
    body = json.loads(json.dumps(BODY).replace("debug", words))
    if path != "/v1/completions":
        del body["prompt"]
    if path != "/v1/responses":
        del body["input"]
    else:
        del body["messages"]
    async with (
        asyncio.timeout(20),
        httpx2.AsyncClient(proxy=setup.proxy.url, verify=context, trust_env=False) as client,
    ):
        response = await client.post(setup.origin.url + path, json=body)
    return response.status_code, response.headers, response.content


def ending(*pieces: bytes, content_type: str = "text/event-stream", **headers: str) -> Reply:
    async def reply(request: web.Request, seen: Seen) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": content_type, **headers})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        return response

    return reply


def event(body: bytes) -> Any:
    return json.loads(body.strip().splitlines()[-1].removeprefix(b"data: "))


@pytest.mark.parametrize("path", CONTENT)
async def test_a_stream_without_its_closing_event_gets_an_error_event(
    setup: Any, path: str
) -> None:
    setup.other.reply = ending(b": hi\n\n", CONTENT[path])
    status, headers, body = await post(setup, path)
    assert status == 200
    assert headers["x-turnout-target"] == "other/code-model"
    assert body.startswith(b": hi\n\n" + CONTENT[path] + b"\n\n")
    told = event(body)
    if path == "/v1/responses":
        assert (told["type"], told["code"], told["sequence_number"]) == (
            "error",
            "upstream_broken",
            42,
        )
    elif path == "/v1/messages":
        assert b"\n\nevent: error\ndata: " in body
        assert told["type"] == "error"
    else:
        assert told["error"]["code"] == "upstream_broken"


async def test_a_stream_with_its_closing_event_arrives_to_the_byte(setup: Any) -> None:
    content = CONTENT["/v1/chat/completions"]
    setup.other.reply = sse([content])
    _, _, body = await post(setup, "/v1/chat/completions")
    assert body == content + b"data: [DONE]\n\n"


@pytest.mark.parametrize("pieces", [[], [b": keep-alive\n\n"], [b"\n"]])
async def test_a_stream_that_brings_nothing_gets_an_error_event(
    setup: Any, pieces: list[bytes]
) -> None:
    setup.other.reply = ending(*pieces)
    status, _, body = await post(setup, "/v1/chat/completions")
    assert status == 200
    assert event(body)["error"]["code"] == "upstream_empty"


async def test_an_empty_body_of_unknown_length_becomes_an_error_body(setup: Any) -> None:
    setup.other.reply = ending(content_type="application/json")
    _, _, body = await post(setup, "/v1/chat/completions")
    assert json.loads(body)["error"]["code"] == "upstream_empty"


async def test_an_empty_body_of_length_0_becomes_an_error(setup: Any) -> None:
    async def reply(request: web.Request, seen: Seen) -> web.StreamResponse:
        return web.Response(status=200, content_type="application/json")

    setup.other.reply = reply
    status, headers, body = await post(setup, "/v1/messages")
    assert status == 502
    assert headers["x-turnout-route"] == "code"
    assert int(headers["content-length"]) == len(body)
    assert json.loads(body)["turnout"] == {"code": "upstream_empty", "route": "code"}


async def test_nothing_is_added_where_the_length_is_announced(setup: Any) -> None:
    content = CONTENT["/v1/chat/completions"]
    setup.other.reply = ending(content, **{"content-length": str(len(content))})
    assert (await post(setup, "/v1/chat/completions"))[2] == content


async def test_what_passes_to_its_origin_is_never_added_to(setup: Any) -> None:
    content = CONTENT["/v1/chat/completions"]
    setup.origin.reply = ending(content)
    assert (await post(setup, "/v1/chat/completions", "plain words"))[2] == content
    setup.origin.reply = ending()
    status, _, body = await post(setup, "/v1/chat/completions", "plain words")
    assert (status, body) == (200, b"")
