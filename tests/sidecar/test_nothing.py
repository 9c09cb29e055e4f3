"""A 200 that brings nothing moves a request on, in each format, as a stream and as a body."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from sidecar_kit import Behaviour, Provider, Sidecar, provider, sidecar, write_rules
from turnout_rules.answers import MAX_PREAMBLE_BYTES
from turnout_sidecar import exchanging

pytestmark = pytest.mark.usefixtures("own_folders")
ROUTES = "routes:\n  - {name: all, match: [.*], target: one/a, fallback: [two/b]}\n"
LONE = "routes:\n  - {name: all, match: [.*], target: one/a}\n"
PATHS = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
USER = [{"role": "user", "content": "hi"}]
ASKED: dict[str, dict[str, Any]] = {
    "chat": {"messages": USER},
    "completions": {"prompt": "hi"},
    "responses": {"input": "hi"},
    "messages": {"messages": USER, "max_tokens": 9},
}
CREATED = {"id": "r", "status": "in_progress", "error": None, "output": []}
STARTED = {"id": "m", "type": "message", "role": "assistant", "content": []}
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


def events(*values: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(v).encode() + b"\n\n" for v in values)


def named(*values: Any) -> bytes:
    return b"".join(
        b"event: " + v["type"].encode() + b"\r\ndata: " + json.dumps(v).encode() + b"\r\n\r\n"
        for v in values
    )


PREAMBLE = {
    "chat": events({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}),
    "completions": events({"choices": [{"index": 0, "text": ""}]}),
    "responses": named(
        {"type": "response.created", "sequence_number": 0, "response": CREATED},
        {"type": "response.in_progress", "sequence_number": 1, "response": CREATED},
    ),
    "messages": named({"type": "message_start", "message": STARTED}, {"type": "ping"}),
}
CONTENT = {
    "chat": events({"choices": [{"index": 0, "delta": {"content": "good"}}]}),
    "completions": events({"choices": [{"index": 0, "text": "good"}]}),
    "responses": named(
        {"type": "response.output_text.delta", "sequence_number": 2, "delta": "good"}
    ),
    "messages": named(
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "good"}}
    ),
}
CLOSING = {
    "chat": b"data: [DONE]\n\n",
    "completions": b"data: [DONE]\n\n",
    "responses": named({"type": "response.completed", "sequence_number": 3, "response": CREATED}),
    "messages": named({"type": "message_stop"}),
}
ERROR = {
    "chat": events({"error": {"message": "no", "code": 500}}) + b"data: [DONE]\n\n",
    "completions": events({"error": {"message": "no", "code": 500}}),
    "responses": named(
        {"type": "response.failed", "response": {**CREATED, "error": {"message": "no"}}}
    ),
    "messages": named(OVERLOADED),
}
BODY: dict[str, Any] = {
    "chat": {"choices": [{"message": {"content": "good"}}]},
    "completions": {"choices": [{"text": "good"}]},
    "responses": {"status": "completed", "error": None, "output": [{"content": "good"}]},
    "messages": {"type": "message", "content": [{"type": "text", "text": "good"}]},
}
STREAM = "text/event-stream"
JSON = "application/json"


def sending(pieces: Iterable[bytes], content_type: str = STREAM, pause_s: float = 0) -> Behaviour:
    kept = list(pieces)

    async def behave(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": content_type})
        await response.prepare(http)
        for piece in kept:
            await response.write(piece)
            await asyncio.sleep(pause_s)
        return response

    return behave


def good(endpoint: str, *, is_stream: bool = True) -> Behaviour:
    if is_stream:
        return sending([PREAMBLE[endpoint], CONTENT[endpoint], CLOSING[endpoint]])
    return sending([json.dumps(BODY[endpoint]).encode()], JSON)


@asynccontextmanager
async def gateway(
    tmp_path: Path, first: Behaviour, second: Behaviour, *, routes: str = ROUTES, settings: str = ""
) -> AsyncIterator[tuple[Sidecar, list[Provider]]]:
    async with provider(first) as one, provider(second) as two:
        upstreams = f"upstreams:\n  one: {{base_url: {one.url}}}\n  two: {{base_url: {two.url}}}\n"
        rules = write_rules(tmp_path / "rules", routes, upstreams, settings)
        async with sidecar(rules) as it:
            yield it, [one, two]


async def ask(
    it: Sidecar, endpoint: str, *, is_stream: bool = True
) -> tuple[int, dict[str, str], bytes]:
    body = {"model": "m", "stream": is_stream, **ASKED[endpoint]}
    async with (
        asyncio.timeout(15),
        aiohttp.ClientSession() as session,
        session.post(it.url + PATHS[endpoint], json=body) as response,
    ):
        headers = {k.lower(): v for k, v in response.headers.items()}
        return response.status, headers, await response.read()


def nothings(endpoint: str) -> dict[str, tuple[str, list[bytes]]]:
    preamble = PREAMBLE[endpoint]
    return {
        "no byte": ("empty", []),
        "comments": ("empty", [b": OPENROUTER PROCESSING\n\n"] * 3),
        "preamble": ("empty", [preamble]),
        "preamble byte by byte": ("empty", [preamble[n : n + 1] for n in range(len(preamble))]),
        "an error": ("error", [ERROR[endpoint]]),
        "preamble and error": ("error", [b": hi\n\n", preamble, ERROR[endpoint]]),
        "HTML": ("not_json", [b"<html><body>502 Bad Gateway</body></html>"]),
    }


CASES = [(endpoint, name) for endpoint in PATHS for name in nothings("chat")]


@pytest.mark.parametrize(("endpoint", "name"), CASES)
async def test_a_stream_that_brings_nothing_is_answered_by_the_next(
    tmp_path: Path, endpoint: str, name: str
) -> None:
    kind, pieces = nothings(endpoint)[name]
    content_type = "text/html" if name == "HTML" else STREAM
    async with gateway(tmp_path, sending(pieces, content_type), good(endpoint)) as (it, _):
        status, headers, body = await ask(it, endpoint)
        failures = it.service.dispatcher.resting._records["one/a"].failures
    assert status == 200
    assert body == PREAMBLE[endpoint] + CONTENT[endpoint] + CLOSING[endpoint]
    assert headers["x-turnout-attempts"] == f"one/a={kind}, two/b=200"
    assert failures == 1


EMPTY_BODIES: dict[str, tuple[str, bytes, str]] = {
    "no byte": ("empty", b"", JSON),
    "white space": ("empty", b"\n\n\n", JSON),
    "an error": ("error", b'{"error": {"message": "no", "code": 503}}', JSON),
    "an empty object": ("empty", b"{}", JSON),
    "half an object": ("not_json", b'{"choices": [{"mess', JSON),
    "HTML": ("not_json", b"<html>", "text/html"),
    "text": ("not_json", b"no healthy upstream", "text/plain"),
}


@pytest.mark.parametrize("endpoint", PATHS)
@pytest.mark.parametrize(("kind", "body", "content_type"), EMPTY_BODIES.values(), ids=EMPTY_BODIES)
async def test_a_body_that_brings_nothing_is_answered_by_the_next(
    tmp_path: Path, endpoint: str, kind: str, body: bytes, content_type: str
) -> None:
    first, second = sending([body], content_type), good(endpoint, is_stream=False)
    async with gateway(tmp_path, first, second) as (it, _):
        status, headers, got = await ask(it, endpoint, is_stream=False)
    assert (status, json.loads(got)) == (200, BODY[endpoint])
    assert headers["x-turnout-attempts"] == f"one/a={kind}, two/b=200"


@pytest.mark.parametrize("is_stream", [True, False])
async def test_three_nothings_are_a_rest(tmp_path: Path, is_stream: bool) -> None:
    first, second = sending([], STREAM if is_stream else JSON), good("chat", is_stream=is_stream)
    async with gateway(tmp_path, first, second) as (it, them):
        for _ in range(4):
            _, headers, _ = await ask(it, "chat", is_stream=is_stream)
    assert headers["x-turnout-attempts"] == "one/a=resting, two/b=200"
    assert len(them[0].bodies) == 3


TOLD: dict[str, tuple[Any, int, str]] = {
    "a code": ({"error": {"message": "no", "code": 503}}, 503, "no"),
    "a type": (OVERLOADED, 529, "Overloaded"),
    "words": ({"error": "model runner stopped"}, 502, "model runner stopped"),
    "a client's fault": (
        {"error": {"message": "bad", "type": "invalid_request_error"}},
        400,
        "bad",
    ),
}


@pytest.mark.parametrize(("error", "status", "words"), TOLD.values(), ids=TOLD)
async def test_a_lone_targets_error_in_a_200_gets_its_status(
    tmp_path: Path, error: Any, status: int, words: str
) -> None:
    for is_stream in (True, False):
        first = sending([events(error) if is_stream else json.dumps(error).encode()], JSON)
        async with gateway(tmp_path, first, first, routes=LONE) as (it, _):
            got, _, body = await ask(it, "chat", is_stream=is_stream)
        assert got == status
        assert json.loads(body)["error"]["message"] == words


async def test_a_lone_targets_nothing_is_a_clear_error(tmp_path: Path) -> None:
    async with gateway(tmp_path, sending([]), sending([]), routes=LONE) as (it, _):
        status, _, body = await ask(it, "messages")
    assert status == 502
    assert json.loads(body)["type"] == "error"
    assert json.loads(body)["turnout"]["code"] == "upstream_empty"


async def test_an_overflow_told_in_a_stream_is_not_the_targets_fault(tmp_path: Path) -> None:
    error = {"error": {"code": 400, "type": "exceed_context_size_error", "message": "no"}}
    async with gateway(tmp_path, sending([events(error)]), good("chat")) as (it, _):
        _, headers, _ = await ask(it, "chat")
        assert not it.service.dispatcher.resting._records
    assert headers["x-turnout-attempts"] == "one/a=context, two/b=200"


@pytest.mark.parametrize("endpoint", PATHS)
async def test_content_is_passed_on_as_it_comes(tmp_path: Path, endpoint: str) -> None:
    read = asyncio.Event()

    async def waits(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": STREAM})
        await response.prepare(http)
        await response.write(b": hi\n\n" + PREAMBLE[endpoint])
        await response.write(CONTENT[endpoint])
        await read.wait()
        await response.write(CLOSING[endpoint])
        return response

    asked = {"model": "m", "stream": True, **ASKED[endpoint]}
    async with (
        asyncio.timeout(15),
        gateway(tmp_path, waits, good(endpoint)) as (it, them),
        aiohttp.ClientSession() as session,
        session.post(it.url + PATHS[endpoint], json=asked) as response,
    ):
        begun = b""
        while not begun.endswith(CONTENT[endpoint]):
            begun += await response.content.readany()
        read.set()
        rest = await response.read()
        assert begun == b": hi\n\n" + PREAMBLE[endpoint] + CONTENT[endpoint]
        assert rest == CLOSING[endpoint]
        assert them[1].bodies == []


async def test_a_preamble_is_held_for_a_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchanging, "HOLD_S", 0.2)
    pieces = [PREAMBLE["messages"], CONTENT["messages"], CLOSING["messages"]]
    slow = sending(pieces, pause_s=0.6)
    started = time.monotonic()
    asked = {"model": "m", "stream": True, **ASKED["messages"]}
    async with (
        asyncio.timeout(15),
        gateway(tmp_path, slow, good("messages")) as (it, _),
        aiohttp.ClientSession() as session,
        session.post(it.url + PATHS["messages"], json=asked) as response,
    ):
        assert await response.content.readany() == pieces[0]
        assert time.monotonic() - started >= 0.2
        assert await response.read() == b"".join(pieces[1:])


async def test_a_preamble_let_go_that_ends_gets_an_error_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchanging, "HOLD_S", 0.1)
    slow = sending([PREAMBLE["responses"]], pause_s=0.5)
    async with gateway(tmp_path, slow, good("responses")) as (it, _):
        status, _, body = await ask(it, "responses")
    assert status == 200
    assert body.startswith(PREAMBLE["responses"])
    assert error_event(body)["sequence_number"] == 2


async def test_a_preamble_is_held_up_to_a_bounded_size(tmp_path: Path) -> None:
    comment = b": " + b"x" * 65_534 + b"\n"
    pieces = [comment] * (MAX_PREAMBLE_BYTES // len(comment) + 1)
    async with gateway(tmp_path, sending(pieces), good("chat")) as (it, them):
        _, headers, body = await ask(it, "chat")
    assert body.startswith(b"".join(pieces))
    assert b"upstream_broken" in body
    assert headers["x-turnout-target"] == "one/a"
    assert them[1].bodies == []


async def test_comments_alone_are_no_first_byte(tmp_path: Path) -> None:
    chatty = sending([b": OPENROUTER PROCESSING\n\n"] * 100, pause_s=0.05)
    routes = ROUTES.replace("}", ", timeout_ms: 400}")
    async with gateway(tmp_path, chatty, good("chat"), routes=routes) as (it, _):
        _, headers, _ = await ask(it, "chat")
    assert headers["x-turnout-attempts"] == "one/a=timeout, two/b=200"


async def test_the_client_is_kept_alive_while_a_preamble_is_held(tmp_path: Path) -> None:
    slow = sending([PREAMBLE["messages"]], pause_s=0.4)
    settings = "sidecar: {keepalive_s: 0.1}\n"
    async with gateway(tmp_path, slow, good("messages"), settings=settings) as (it, _):
        status, _, body = await ask(it, "messages")
    assert status == 200
    assert body.startswith(b": keep-alive\n\n")
    assert b": served by two/b\n\n" in body
    whole = PREAMBLE["messages"] + CONTENT["messages"] + CLOSING["messages"]
    assert body.endswith(whole)
    assert body.count(b"message_start") == whole.count(b"message_start")


def error_event(body: bytes) -> Any:
    return json.loads(body.strip().splitlines()[-1].removeprefix(b"data: "))


@pytest.mark.parametrize("endpoint", PATHS)
async def test_a_stream_without_its_closing_event_gets_an_error_event(
    tmp_path: Path, endpoint: str
) -> None:
    cut = sending([PREAMBLE[endpoint], CONTENT[endpoint]])
    async with gateway(tmp_path, cut, good(endpoint)) as (it, them):
        _, headers, body = await ask(it, endpoint)
    assert headers["x-turnout-target"] == "one/a"
    assert them[1].bodies == []
    assert body.startswith(PREAMBLE[endpoint] + CONTENT[endpoint])
    event = error_event(body)
    if endpoint == "responses":
        assert event["type"] == "error"
        assert event["code"] == "upstream_broken"
        assert event["sequence_number"] == 3
    elif endpoint == "messages":
        assert b"\n\nevent: error\ndata: " in body
        assert event["type"] == "error"
    else:
        assert event["error"]["code"] == "upstream_broken"


async def test_a_stream_that_breaks_off_counts_on(tmp_path: Path) -> None:
    async def breaks_off(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": STREAM})
        await response.prepare(http)
        await response.write(PREAMBLE["responses"] + CONTENT["responses"])
        for number in (3, 4, 5):
            delta = {"type": "response.output_text.delta", "delta": "x"}
            await response.write(named({**delta, "sequence_number": number}))
            await asyncio.sleep(0.02)
        assert http.transport is not None
        http.transport.abort()
        return response

    async with gateway(tmp_path, breaks_off, good("responses")) as (it, _):
        _, _, body = await ask(it, "responses")
    assert error_event(body)["sequence_number"] == 6


@pytest.mark.parametrize("endpoint", PATHS)
async def test_an_upstreams_own_error_behind_content_is_passed_on_alone(
    tmp_path: Path, endpoint: str
) -> None:
    whole = [PREAMBLE[endpoint], CONTENT[endpoint], ERROR[endpoint]]
    async with gateway(tmp_path, sending(whole), good(endpoint)) as (it, _):
        _, _, body = await ask(it, endpoint)
    assert body == b"".join(whole)
