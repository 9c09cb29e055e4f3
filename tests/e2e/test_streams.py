"""Streams go through as they come, byte for byte, many at once, and end when the client leaves."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from typing import Any

import httpx2
import pytest
from aiohttp import web

from proxy_kit import Seen, wait_until
from proxy_streams import sse

CLIENTS = 200


def url(setup: Any) -> str:
    return f"{setup.origin.url}/v1/chat/completions"


def ask(text: str) -> dict[str, Any]:
    return {"model": "m", "stream": True, "messages": [{"role": "user", "content": text}]}


def client(setup: Any, **more: Any) -> httpx2.AsyncClient:
    context = ssl.create_default_context(cafile=str(setup.proxy.bundle))
    return httpx2.AsyncClient(
        proxy=setup.proxy.url, verify=context, trust_env=False, timeout=60.0, **more
    )


async def test_no_event_waits_for_the_next(setup: Any) -> None:
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def reply(request: web.Request, seen: Seen) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for number in range(3):
            await response.write(b"data: %d\n\n" % number)
            async with asyncio.timeout(10):
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(gate.wait(), loop))
            loop.call_soon_threadsafe(gate.clear)
        return response

    setup.other.reply = reply
    async with (
        asyncio.timeout(20),
        client(setup) as c,
        c.stream("POST", url(setup), json=ask("debug")) as r,
    ):
        got = []
        async for chunk in r.aiter_raw():
            got.append(chunk)
            gate.set()
    assert b"".join(got) == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"
    assert len(got) == 3


async def test_a_character_split_at_every_byte_arrives_byte_identical(setup: Any) -> None:
    text = 'data: {"choices":[{"delta":{"content":"翻译🙂é"}}]}\n\n'.encode()
    chunks = []
    for cut in range(1, len(text)):
        chunks += [text[:cut], text[cut:]]
    chunks += [b"data: %d\n\n" % n for n in range(10_000 - len(chunks))]
    setup.other.reply = sse(chunks)
    async with (
        asyncio.timeout(60),
        client(setup) as c,
        c.stream("POST", url(setup), json=ask("debug")) as r,
    ):
        got = b"".join([chunk async for chunk in r.aiter_raw()])
    assert got == b"".join(chunks) + b"data: [DONE]\n\n"


async def test_a_client_that_leaves_mid_stream_is_noticed_upstream(setup: Any) -> None:
    setup.other.reply = sse([b"data: x\n\n"] * 10_000, pause_s=0.02)
    async with asyncio.timeout(20), client(setup) as c:
        async with c.stream("POST", url(setup), json=ask("debug")) as r:
            async for _ in r.aiter_raw():
                break
        left = time.monotonic()
    disconnected = await asyncio.to_thread(wait_until, lambda: setup.other.disconnects, 5.0)
    assert disconnected[0] - left < 2.0


async def test_two_hundred_streams_at_once_none_lost_none_mixed(setup: Any) -> None:
    async def reply(request: web.Request, seen: Seen) -> web.StreamResponse:
        mark = json.loads(seen.body)["messages"][0]["content"].split()[-1].encode()
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for _ in range(5):
            await response.write(b"data: %s\n\n" % mark)
            await asyncio.sleep(0.05)
        return response

    setup.other.reply = reply

    async def one(c: httpx2.AsyncClient, number: int) -> bytes:
        async with c.stream("POST", url(setup), json=ask(f"debug this n{number}")) as r:
            assert r.status_code == 200
            return b"".join([chunk async for chunk in r.aiter_raw()])

    limits = httpx2.Limits(max_connections=CLIENTS)
    async with asyncio.timeout(60), client(setup, limits=limits) as c:
        answers = await asyncio.gather(*(one(c, n) for n in range(CLIENTS)))
    assert answers == [b"data: n%d\n\n" % n * 5 for n in range(CLIENTS)]


@pytest.mark.parametrize("status", [200, 429, 500])
async def test_a_compressed_answer_arrives_as_it_was_sent(setup: Any, status: int) -> None:
    import gzip

    body = gzip.compress(b'{"error": {"message": "slow down"}}')

    async def reply(request: web.Request, seen: Seen) -> web.StreamResponse:
        headers = {"content-encoding": "gzip", "content-type": "application/json"}
        return web.Response(body=body, status=status, headers=headers)

    setup.other.reply = reply
    async with (
        asyncio.timeout(20),
        client(setup) as c,
        c.stream("POST", url(setup), json=ask("debug")) as r,
    ):
        assert r.status_code == status
        assert b"".join([chunk async for chunk in r.aiter_raw()]) == body
