"""`pass` with `fallback`: the origin first, another if it fails before any content has come."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
    provider,
    sidecar,
    write_rules,
)

pytestmark = pytest.mark.usefixtures("own_folders")
ROUTES = """
routes:
  - {name: kept, match: [.*], target: pass, fallback: [one/a, two/b]}
"""
KEY = "sk-client-secret-4711"
PATH = "/v1/chat/completions"


@asynccontextmanager
async def planes(
    tmp_path: Path, origin: Behaviour, one: Behaviour | None = None
) -> AsyncIterator[tuple[Sidecar, Provider, Provider, Provider]]:
    async with (
        provider(origin) as own,
        provider(one or answering("first")) as first,
        provider(answering("second")) as second,
    ):
        upstreams = (
            f"upstreams:\n  one: {{base_url: {first.url}}}\n  two: {{base_url: {second.url}}}\n"
        )
        settings = f"proxy: {{intercept: [api.example], origin: '{own.url}'}}\n"
        rules = write_rules(tmp_path / "rules", ROUTES, upstreams, settings)
        async with sidecar(rules) as it:
            yield it, own, first, second


def handed_over(own: Provider, key: str = KEY, to: str = "") -> dict[str, str]:
    """The headers that the proxy sends for such a request."""
    return {
        "content-type": "application/json",
        "x-turnout-route": "kept",
        "x-turnout-targets": "pass, one/a, two/b",
        "x-turnout-pass-to": to or own.url.removesuffix("/v1") + PATH + "?beta=1",
        "x-turnout-pass-Authorization": f"Bearer {key}",
        "x-turnout-pass-Cookie": "a=b",
        "x-turnout-pass-Content-Type": "application/json",
        "x-turnout-pass-X-Session": "s-1",
    }


async def ask(
    it: Sidecar, headers: dict[str, str], words: str = "hi", *more: dict[str, Any], **fields: Any
) -> tuple[int, dict[str, str], bytes]:
    messages = [{"role": "user", "content": words}, *more]
    raw = json.dumps({"model": "gpt-4o", "messages": messages, **fields}).encode()
    return await post(it, headers, raw)


async def post(
    it: Sidecar, headers: dict[str, str], raw: bytes
) -> tuple[int, dict[str, str], bytes]:
    async with (
        asyncio.timeout(15),
        aiohttp.ClientSession() as session,
        session.post(it.url + PATH, data=raw, headers=headers) as response,
    ):
        got = {name.lower(): value for name, value in response.headers.items()}
        return response.status, got, await response.read()


async def test_the_origin_gets_the_request_as_its_client_sent_it(tmp_path: Path) -> None:
    async def with_cookie(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = await answering("own")(http, body)
        response.headers["set-cookie"] = "session=1"
        return response

    raw = b'{"model" :"gpt-4o", "messages": [{"role":"user","content":"hi"}]}  '
    async with planes(tmp_path, with_cookie) as (it, own, first, _):
        status, headers, body = await post(it, handed_over(own), raw)
    assert (status, headers["x-turnout-target"]) == (200, "pass")
    assert headers["set-cookie"] == "session=1"
    assert b"own" in body
    assert own.raw == [raw]
    assert own.paths == [PATH + "?beta=1"]
    sent = own.headers[0]
    assert sent["authorization"] == f"Bearer {KEY}"
    assert (sent["cookie"], sent["x-session"]) == ("a=b", "s-1")
    assert not [name for name in sent if name.startswith("x-turnout-")]
    assert first.bodies == []


async def test_a_compressed_body_is_passed_as_it_is(tmp_path: Path) -> None:
    raw = gzip.compress(json.dumps({"model": "m", "messages": [{"role": "user"}]}).encode())
    async with planes(tmp_path, answering("own")) as (it, own, _, _):
        packed = {"content-encoding": "gzip", "x-turnout-pass-Content-Encoding": "gzip"}
        status, _, _ = await post(it, handed_over(own) | packed, raw)
    assert status == 200
    assert own.headers[0]["content-encoding"] == "gzip"
    assert int(own.headers[0]["content-length"]) == len(raw)


async def empty(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(http)
    return response


async def broken(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    assert http.transport is not None
    http.transport.abort()
    return web.Response()


FAILS: dict[str, Behaviour] = {
    "429": failing(429),
    "500": failing(500),
    "503": failing(503),
    "529": failing(529),
    "broken": broken,
    "empty": empty,
}


@pytest.mark.parametrize(("kind", "origin"), FAILS.items(), ids=FAILS)
@pytest.mark.parametrize("is_stream", [False, True])
async def test_an_origin_that_fails_before_content_is_stood_in_for(
    tmp_path: Path, kind: str, origin: Behaviour, is_stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    if kind == "empty" and not is_stream:
        origin = failing(200, None, {"choices": []})
    async with planes(tmp_path, origin) as (it, own, first, _):
        status, headers, body = await ask(it, handed_over(own), stream=is_stream)
        shown = it.service.render_metrics().decode()
    assert (status, headers["x-turnout-target"]) == (200, "one/a")
    assert headers["x-turnout-attempts"] == f"pass={kind}, one/a=200"
    assert b"first" in body
    assert first.bodies[0]["model"] == "a"
    crossed = json.dumps(first.headers)
    assert KEY not in crossed
    assert not {"cookie", "x-session", "authorization"} & first.headers[0].keys()
    assert KEY not in caplog.text + shown
    assert f'turnout_attempts_total{{outcome="{kind}",target="pass"}} 1.0' in shown


async def test_an_origin_that_cannot_be_reached_is_stood_in_for(tmp_path: Path) -> None:
    async with planes(tmp_path, answering("own")) as (it, own, _, _):
        to = f"http://api.example:1{PATH}"
        _, headers, _ = await ask(it, handed_over(own, to=to))
    assert headers["x-turnout-attempts"] == "pass=connect, one/a=200"


@pytest.mark.parametrize("status", [302, 400, 401, 403, 404, 413, 422])
async def test_any_other_answer_of_the_origin_is_the_clients(tmp_path: Path, status: int) -> None:
    said = {"error": {"code": "context_length_exceeded", "message": "prompt is too long"}}
    headers = {"location": "/elsewhere"} if status == 302 else None
    async with planes(tmp_path, failing(status, headers, said)) as (it, own, first, _):
        raw = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]}).encode()
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                it.url + PATH, data=raw, headers=handed_over(own), allow_redirects=False
            ) as response,
        ):
            got, body = response.status, await response.json()
    assert (got, body) == (status, said)
    assert first.bodies == []


async def test_the_rest_of_the_turn_follows_who_stood_in(tmp_path: Path) -> None:
    behaviours = [failing(529), answering("own again")]

    async def recovering(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return await (behaviours.pop(0) if len(behaviours) > 1 else behaviours[0])(http, body)

    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    loop = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
    ]
    async with planes(tmp_path, recovering) as (it, own, first, _):
        headers = handed_over(own)
        served = [(await ask(it, headers, "do it"))[1]["x-turnout-target"]]
        served.append((await ask(it, headers, "do it", *loop))[1]["x-turnout-target"])
        served.append((await ask(it, headers, "do it", *loop))[1]["x-turnout-target"])
        other = (await ask(it, handed_over(own, key="another"), "do it"))[1]["x-turnout-target"]
        fresh = (await ask(it, headers, "something else"))[1]["x-turnout-target"]
    assert served == ["one/a", "one/a", "one/a"]
    assert (other, fresh) == ("pass", "pass")
    assert len(first.bodies) == 3


async def test_a_turn_goes_back_only_if_nobody_else_answers(tmp_path: Path) -> None:
    origins, ones = [failing(503), answering("own")], [answering("first"), failing(500)]

    def changing(behaviours: list[Behaviour]) -> Behaviour:
        async def behave(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
            return await (behaviours.pop(0) if len(behaviours) > 1 else behaviours[0])(http, body)

        return behave

    async with planes(tmp_path, changing(origins), changing(ones)) as (it, own, _, second):
        headers = handed_over(own)
        await ask(it, headers)
        _, got, _ = await ask(it, headers)
        assert got["x-turnout-attempts"] == "one/a=500, two/b=200"
        second.behaviour = failing(500)
        _, got, _ = await ask(it, headers)
    assert got["x-turnout-attempts"] == "two/b=500, one/a=500, pass=200"


async def test_behind_content_nothing_is_tried_again(tmp_path: Path) -> None:
    async def breaks_off(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(http)
        await response.write(chunk("begun"))
        await asyncio.sleep(0.05)
        assert http.transport is not None
        http.transport.abort()
        return response

    async with planes(tmp_path, breaks_off) as (it, own, first, _):
        _, headers, body = await ask(it, handed_over(own), stream=True)
    assert headers["x-turnout-target"] == "pass"
    assert b"begun" in body
    assert b"upstream_broken" in body
    assert first.bodies == []


async def test_an_origins_rest_is_that_of_one_clients_key(tmp_path: Path) -> None:
    async with planes(tmp_path, failing(429, {"retry-after": "60"})) as (it, own, _, _):
        await ask(it, handed_over(own), "one")
        _, mine, _ = await ask(it, handed_over(own), "two")
        _, others, _ = await ask(it, handed_over(own, key="another"), "three")
        async with aiohttp.ClientSession() as session:
            health = await (await session.get(it.url + "/healthz")).json()
        metrics = it.service.render_metrics().decode()
    assert mine["x-turnout-attempts"] == "pass=resting, one/a=200"
    assert others["x-turnout-attempts"] == "pass=429, one/a=200"
    assert list(health["resting"]) == ["pass"]
    assert 'turnout_target_rest_seconds{target="pass"}' in metrics


@pytest.mark.parametrize(
    "to",
    [
        "http://127.0.0.1:9/v1/chat/completions",
        "http://169.254.169.254/latest/meta-data",
        "http://api.example.evil.test/v1/chat/completions",
        "http://user:pw@api.example/v1/chat/completions",
        "file:///etc/passwd",
        "http://[",
    ],
)
async def test_the_gateway_is_no_way_to_other_servers(tmp_path: Path, to: str) -> None:
    async with planes(tmp_path, answering("own")) as (it, own, first, _):
        status, _, body = await ask(it, handed_over(own, to=to))
        assert (own.bodies, first.bodies) == ([], [])
    assert status == 403
    assert json.loads(body)["error"]["code"] == "foreign_origin"


async def test_the_origin_is_reached_through_the_company_proxy(tmp_path: Path) -> None:
    async with provider(answering("own")) as way, provider(answering("first")) as first:
        upstreams = f"upstreams:\n  one: {{base_url: {first.url}}}\n"
        company = way.url.removesuffix("/v1")
        settings = f"proxy: {{intercept: ['*.example'], upstream_proxy: '{company}'}}\n"
        routes = ROUTES.replace(", two/b", "")
        rules = write_rules(tmp_path / "rules", routes, upstreams, settings)
        async with sidecar(rules) as it:
            to = f"http://api.example{PATH}"
            status, headers, _ = await ask(it, handed_over(way, to=to))
    assert (status, headers["x-turnout-target"]) == (200, "pass")
    assert way.headers[0]["host"] == "api.example"


async def test_without_an_origin_a_pass_is_still_no_target(tmp_path: Path) -> None:
    async with planes(tmp_path, answering("own")) as (it, _, first, _):
        status, _, _ = await ask(it, {"content-type": "application/json"})
    assert status == 404
    assert first.bodies == []
