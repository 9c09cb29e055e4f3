"""Fallback before the first byte: what moves a request on, what does not, who rests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from sidecar_kit import (
    Behaviour,
    Provider,
    Sidecar,
    answering,
    chunk,
    failing,
    hanging,
    provider,
    sidecar,
    write_rules,
)
from turnout_rules.answers import MAX_PREAMBLE_BYTES

pytestmark = pytest.mark.usefixtures("own_folders")
ROUTES = """
routes:
  - {name: all, match: [.*], target: one/a, fallback: [two/b], timeout_ms: 700}
"""
LONE = "routes:\n  - {name: all, match: [.*], target: one/a}\n"
DEAD = "http://127.0.0.1:9/v1"


@asynccontextmanager
async def gateway(
    tmp_path: Path,
    first: Behaviour | str,
    second: Behaviour | str = "",
    routes: str = ROUTES,
    settings: str = "",
    two: str = "",
) -> AsyncIterator[tuple[Sidecar, list[Provider]]]:
    async with AsyncExitStack() as stack:
        providers, urls = [], []
        for behaviour in (first, second or answering("second")):
            if isinstance(behaviour, str):
                urls.append(behaviour)
                continue
            it = await stack.enter_async_context(provider(behaviour))
            providers.append(it)
            urls.append(it.url)
        upstreams = (
            f"upstreams:\n  one: {{base_url: {urls[0]}}}\n  two: {{base_url: {urls[1]}{two}}}\n"
        )
        rules = write_rules(tmp_path / "rules", routes, upstreams, settings)
        yield await stack.enter_async_context(sidecar(rules)), providers


async def ask(
    it: Sidecar, named: dict[str, str] | None = None, **more: Any
) -> tuple[int, dict[str, str], bytes]:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **more}
    async with (
        asyncio.timeout(15),
        aiohttp.ClientSession() as session,
        session.post(it.url + "/v1/chat/completions", json=body, headers=named) as response,
    ):
        headers = {k.lower(): v for k, v in response.headers.items()}
        return response.status, headers, await response.read()


async def broken(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    assert http.transport is not None
    http.transport.abort()
    return web.Response()


async def silent_after_headers(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(http)
    await asyncio.sleep(60)
    return response


OVERFLOW = {"error": {"code": "context_length_exceeded", "message": "too long"}}
MOVES_ON: list[tuple[str, Behaviour | str]] = [
    ("connect", DEAD),
    ("timeout", hanging),
    ("timeout", silent_after_headers),
    ("broken", broken),
    ("429", failing(429, {"retry-after": "9"})),
    ("500", failing(500)),
    ("503", failing(503)),
    ("context", failing(400, None, OVERFLOW)),
]


@pytest.mark.parametrize(("kind", "first"), MOVES_ON, ids=[str(n) for n in range(len(MOVES_ON))])
@pytest.mark.parametrize("is_stream", [False, True])
async def test_the_next_target_serves(
    tmp_path: Path, kind: str, first: Behaviour | str, is_stream: bool
) -> None:
    async with gateway(tmp_path, first) as (it, _):
        status, headers, body = await ask(it, stream=is_stream)
    assert status == 200
    assert b"second" in body
    assert headers["x-turnout-target"] == "two/b"
    assert headers["x-turnout-attempts"] == f"one/a={kind}, two/b=200"


@pytest.mark.parametrize("status", [400, 401, 404, 422])
async def test_a_client_error_is_not_tried_elsewhere(tmp_path: Path, status: int) -> None:
    async with gateway(tmp_path, failing(status)) as (it, providers):
        got, headers, _ = await ask(it)
    assert got == status
    assert headers["x-turnout-target"] == "one/a"
    assert providers[1].bodies == []


async def test_the_body_is_rewritten_for_each_attempt(tmp_path: Path) -> None:
    async with gateway(tmp_path, failing(500)) as (it, providers):
        await ask(it)
    assert providers[0].bodies[0]["model"] == "a"
    assert providers[1].bodies[0]["model"] == "b"


async def test_when_all_fail_the_last_answer_is_the_clients(tmp_path: Path) -> None:
    async with gateway(tmp_path, failing(500), failing(503, {"retry-after": "7"})) as (it, _):
        status, headers, body = await ask(it)
    assert status == 503
    assert headers["retry-after"] == "7"
    assert json.loads(body)["error"]["message"] == "no (503)"
    assert headers["x-turnout-attempts"] == "one/a=500, two/b=503"


@pytest.mark.parametrize(
    ("first", "status", "code"),
    [(DEAD, 502, "upstream_unreachable"), (hanging, 504, "upstream_timeout")],
)
async def test_a_lone_dead_target_is_a_clear_error(
    tmp_path: Path, first: Behaviour | str, status: int, code: str
) -> None:
    settings = "sidecar: {first_byte_timeout_ms: 400}\n"
    async with gateway(tmp_path, first, routes=LONE, settings=settings) as (it, _):
        got, _, body = await ask(it)
    assert (got, json.loads(body)["error"]["code"]) == (status, code)


async def test_after_the_first_byte_nothing_is_tried_again(tmp_path: Path) -> None:
    async def breaks_off(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(http)
        await response.write(chunk("begun"))
        await asyncio.sleep(0.05)
        assert http.transport is not None
        http.transport.abort()
        return response

    async with gateway(tmp_path, breaks_off) as (it, providers):
        status, headers, body = await ask(it, stream=True)
    assert status == 200
    assert headers["x-turnout-target"] == "one/a"
    assert b"begun" in body
    assert b"upstream_broken" in body
    assert providers[1].bodies == []


def half_a_body(size: int) -> Behaviour:
    async def behave(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "application/json"})
        await response.prepare(http)
        await response.write(b'{"half":"' + b"x" * size)
        await asyncio.sleep(0.05)
        assert http.transport is not None
        http.transport.abort()
        return response

    return behave


async def test_a_plain_answer_that_breaks_off_is_answered_by_the_next(tmp_path: Path) -> None:
    async with gateway(tmp_path, half_a_body(10)) as (it, _):
        status, headers, body = await ask(it)
    assert status == 200
    assert b"second" in body
    assert headers["x-turnout-attempts"] == "one/a=broken, two/b=200"


async def test_a_long_plain_answer_that_breaks_off_is_never_taken_for_whole(
    tmp_path: Path,
) -> None:
    async with gateway(tmp_path, half_a_body(MAX_PREAMBLE_BYTES + 1)) as (it, _):
        with pytest.raises(aiohttp.ClientError):
            await ask(it)


async def test_a_failing_target_rests_and_is_passed_over(tmp_path: Path) -> None:
    async with gateway(tmp_path, failing(500)) as (it, providers):
        for _ in range(3):
            await ask(it)
        _, headers, _ = await ask(it)
        assert len(providers[0].bodies) == 3
        assert headers["x-turnout-attempts"] == "one/a=resting, two/b=200"
        assert "one/a" in it.service.dispatcher.resting.resting(it.service.now())


async def test_retry_after_is_honoured(tmp_path: Path) -> None:
    async with gateway(tmp_path, failing(429, {"retry-after": "30"}), routes=LONE) as (it, them):
        assert (await ask(it))[0] == 429
        status, headers, body = await ask(it)
    assert status == 429
    assert json.loads(body)["error"]["code"] == "upstream_resting"
    assert 25 <= int(headers["retry-after"]) <= 30
    assert len(them[0].bodies) == 1


async def test_a_lone_target_that_rests_is_tried_all_the_same(tmp_path: Path) -> None:
    async with gateway(tmp_path, failing(500), routes=LONE) as (it, providers):
        for _ in range(5):
            await ask(it)
    assert len(providers[0].bodies) == 5


async def test_a_rested_target_is_probed_and_heals(tmp_path: Path) -> None:
    behaviours = [failing(500)] * 3 + [answering("healed")]

    async def changing(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return await (behaviours.pop(0) if len(behaviours) > 1 else behaviours[0])(http, body)

    settings = "sidecar: {cooldown_s: 0.3}\n"
    async with gateway(tmp_path, changing, settings=settings) as (it, _):
        for _ in range(4):
            await ask(it)
        await asyncio.sleep(0.35)
        _, headers, body = await ask(it)
    assert b"healed" in body
    assert headers["x-turnout-target"] == "one/a"


async def test_a_fallback_that_cannot_serve_is_passed_over(tmp_path: Path) -> None:
    two = ", models: {b: {context: 10}}"
    async with gateway(tmp_path, failing(500), two=two) as (it, providers):
        body = {"messages": [{"role": "user", "content": "long " * 200}]}
        targets = {"x-turnout-targets": "one/a, two/b", "x-turnout-route": "all"}
        status, headers, _ = await ask(it, targets, **body)
    assert status == 500
    assert "two/b=unfit" in headers["x-turnout-attempts"]
    assert providers[1].bodies == []


async def test_a_connection_that_idled_out_is_no_failure(tmp_path: Path) -> None:
    async def closing(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        assert http.transport is not None
        asyncio.get_running_loop().call_later(0.05, http.transport.abort)
        return await answering("hello")(http, body)

    async with gateway(tmp_path, closing, routes=LONE) as (it, _):
        for _ in range(3):
            assert (await ask(it))[0] == 200
            await asyncio.sleep(0.06)
