"""The gateway from outside: real clients on one side, real loopback providers on the other."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import openai
import pytest
from aiohttp import web

from sidecar_kit import (
    Provider,
    Sidecar,
    answering,
    chunk,
    eventually,
    failing,
    hanging,
    provider,
    sidecar,
    write_rules,
)

pytestmark = pytest.mark.usefixtures("own_folders")
ROUTES = """
routes:
  - {name: code, match: [code, bug], priority: 10, target: one/coder}
  - {name: blocked, match: [forbidden], priority: 9, target: block, message: not today}
  - {name: fallback, match: [.*], target: one/general}
"""


@pytest.fixture
async def one() -> AsyncIterator[Provider]:
    async with provider(answering("hello")) as it:
        yield it


def upstreams(one: str, **more: str) -> str:
    text = f"upstreams:\n  one: {{base_url: {one}, api_key_env: ONE_KEY}}\n"
    return text + "".join(f"  {name}: {{base_url: {url}}}\n" for name, url in more.items())


@pytest.fixture
async def gateway(one: Provider, tmp_path: Path) -> AsyncIterator[Sidecar]:
    rules = write_rules(tmp_path / "rules", ROUTES, upstreams(one.url))
    async with sidecar(rules) as it:
        yield it


def asking(text: str, *, model: str = "turnout/auto", **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **more}


async def post(
    url: str, body: Any, path: str = "/v1/chat/completions", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {k.replace("_", "-"): v for k, v in headers.items()}
    async with (
        asyncio.timeout(20),
        aiohttp.ClientSession() as session,
        session.post(url + path, data=data, headers=named) as response,
    ):
        got = {k.lower(): v for k, v in response.headers.items()}
        return response.status, got, await response.read()


async def test_the_openai_client_is_answered_plain_and_streamed(
    gateway: Sidecar, one: Provider
) -> None:
    async with openai.AsyncOpenAI(base_url=gateway.url + "/v1", api_key="sk-mine") as client:
        plain = await client.chat.completions.create(**asking("fix this bug"))
        assert plain.choices[0].message.content == "hello"
        stream = await client.chat.completions.create(**asking("hi", stream=True))
        words = [part.choices[0].delta.content async for part in stream]
    assert words == [f"hello{n} " for n in range(5)]
    assert [body["model"] for body in one.bodies] == ["coder", "general"]


async def test_the_synchronous_openai_client_too(gateway: Sidecar) -> None:
    def ask() -> str | None:
        with openai.OpenAI(base_url=gateway.url + "/v1", api_key="sk-mine") as client:
            answer = client.chat.completions.create(**asking("hi"))
            return answer.choices[0].message.content

    assert await asyncio.to_thread(ask) == "hello"


async def test_models_lists_routes_and_auto(gateway: Sidecar) -> None:
    async with openai.AsyncOpenAI(base_url=gateway.url + "/v1", api_key="x") as client:
        names = [model.id async for model in client.models.list()]
    assert names[:2] == ["turnout/auto", "turnout/code"]


async def test_the_answer_says_who_served_it_and_why(gateway: Sidecar) -> None:
    status, headers, _ = await post(gateway.url, asking("a bug"))
    assert status == 200
    assert headers["x-turnout-route"] == "code"
    assert headers["x-turnout-target"] == "one/coder"
    assert headers["x-turnout-layer"] == "rule"
    assert int(headers["x-turnout-decision-us"]) > 0
    assert "x-turnout-attempts" not in headers


async def test_the_clients_key_and_our_headers_stay_here(gateway: Sidecar, one: Provider) -> None:
    await post(
        gateway.url,
        asking("hi"),
        authorization="Bearer sk-the-clients",
        x_api_key="sk-the-clients",
        cookie="session=sk-the-clients",
        x_turnout_priority="batch",
    )
    assert one.headers[0]["authorization"] == "Bearer sk-the-targets-own"
    assert "sk-the-clients" not in json.dumps(one.headers)
    assert not [name for name in one.headers[0] if name.startswith("x-turnout")]


@pytest.mark.parametrize(
    ("model", "target"),
    [
        ("one/anything", "anything"),
        ("turnout/code", "coder"),
        ("turnout/auto", "general"),
        ("gpt-4o", "general"),
    ],
)
async def test_the_model_name_is_a_target_a_route_or_a_wish(
    gateway: Sidecar, one: Provider, model: str, target: str
) -> None:
    status, _, _ = await post(gateway.url, asking("hi", model=model))
    assert status == 200
    assert one.bodies[0]["model"] == target


async def test_what_the_proxy_decided_is_carried_out(gateway: Sidecar, one: Provider) -> None:
    _, headers, _ = await post(
        gateway.url,
        asking("hi", model="gpt-4o"),
        x_turnout_route="code",
        x_turnout_targets="one/chosen, one/second",
        x_turnout_layer="semantic",
    )
    assert one.bodies[0]["model"] == "chosen"
    assert headers["x-turnout-layer"] == "semantic"
    assert headers["x-turnout-route"] == "code"


async def test_only_the_model_changes_in_the_body(gateway: Sidecar, one: Provider) -> None:
    body = (
        b'{ "messages":[{"role":"user","content":"hi \\u7ffb"}],\n "x-unknown" : 1e2, "model":"a"}'
    )
    await post(gateway.url, body)
    assert one.raw[0] == body.replace(b'"a"', b'"general"')


async def test_a_blocking_rule_answers_with_its_message(gateway: Sidecar, one: Provider) -> None:
    status, _, body = await post(gateway.url, asking("forbidden"))
    assert status == 403
    error = json.loads(body)
    assert error["error"]["message"] == "not today"
    assert error["turnout"] == {"code": "route_blocked", "route": "blocked"}
    assert one.bodies == []


async def test_an_unserved_model_is_not_found_in_the_clients_format(
    one: Provider, tmp_path: Path
) -> None:
    routes = "routes:\n  - {name: code, match: [code], target: one/coder}\n"
    rules = write_rules(tmp_path / "rules", routes, upstreams(one.url))
    async with sidecar(rules) as gateway:
        status, _, body = await post(gateway.url, asking("hi", model="gpt-4o"))
        assert (status, json.loads(body)["error"]["code"]) == (404, "model_not_found")
        asked = asking("hi", model="claude", max_tokens=5)
        status, _, body = await post(gateway.url, asked, "/v1/messages")
        assert (status, json.loads(body)["type"]) == (404, "error")


BAD_BODIES: list[tuple[str, bytes, dict[str, str]]] = [
    ("empty", b"", {}),
    ("not JSON", b"hello", {}),
    ("no object", b"[1, 2]", {}),
    ("a hundred thousand levels", b'{"model":"m","messages":' + b"[" * 100_000, {}),
    ("wrongly compressed", b'{"model":"m"}', {"content_encoding": "gzip"}),
    ("unknown encoding", b'{"model":"m"}', {"content_encoding": "rot13"}),
    ("a lone surrogate", b'{"model":"\\ud800","messages":[]}', {}),
    ("NaN", b'{"model":"m","messages":NaN}', {}),
    ("two models", b'{"model":"a","model":"b","messages":[]}', {}),
    ("model is a number", b'{"model":1,"messages":[]}', {}),
    ("not UTF-8", b'{"model":"\xff"}', {}),
]


@pytest.mark.parametrize(("name", "body", "headers"), BAD_BODIES, ids=[b[0] for b in BAD_BODIES])
async def test_an_unreadable_body_is_the_clients_error(
    gateway: Sidecar, name: str, body: bytes, headers: dict[str, str]
) -> None:
    status, _, answer = await post(gateway.url, body, **headers)
    assert 400 <= status < 500
    assert json.loads(answer)["error"]["message"]


@pytest.mark.parametrize(
    ("name", "expected"), [("x-turnout-route", 404), ("x-turnout-targets", 503)]
)
async def test_a_name_in_bytes_that_are_no_utf_8_is_as_unknown_as_any(
    gateway: Sidecar, name: str, expected: int
) -> None:
    body = json.dumps(asking("hi", model="gpt-4o")).encode()
    address = urlsplit(gateway.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {address.netloc}\r\n"
        f"connection: close\r\ncontent-length: {len(body)}\r\n{name}: "
    )
    writer.write(head.encode() + b"\xe9\xff/m\r\n\r\n" + body)
    async with asyncio.timeout(20):
        status, _, answer = (await reader.read()).partition(b"\r\n")
    writer.close()
    assert int(status.split()[1]) == expected
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]


@pytest.mark.parametrize("messages", [None, 5, "x", [5], [{"role": 1}], [{}], []])
async def test_messages_of_wrong_types_do_not_raise(gateway: Sidecar, messages: Any) -> None:
    status, _, answer = await post(gateway.url, {"model": "turnout/auto", "messages": messages})
    assert status < 500
    assert json.loads(answer)


async def test_a_compressed_bomb_and_a_huge_body_are_refused_by_size(
    one: Provider, tmp_path: Path
) -> None:
    settings = "reading: {max_decoded_bytes: 1000000}\n"
    rules = write_rules(tmp_path / "rules", ROUTES, upstreams(one.url), settings)
    async with sidecar(rules) as gateway:
        bomb = gzip.compress(b'{"model":"m","x":"' + b"a" * 30_000_000 + b'"}')
        status, _, _ = await post(gateway.url, bomb, content_encoding="gzip")
        assert 400 <= status < 500
        status, _, body = await post(gateway.url, b"x" * 1_000_001)
        assert (status, json.loads(body)["error"]["code"]) == (413, "body_too_large")
    assert one.bodies == []


async def test_a_compressed_body_is_read_and_goes_on_plain(gateway: Sidecar, one: Provider) -> None:
    data = gzip.compress(json.dumps(asking("a bug")).encode())
    status, _, _ = await post(gateway.url, data, content_encoding="gzip")
    assert status == 200
    assert one.bodies[0]["model"] == "coder"
    assert "content-encoding" not in one.headers[0]
    assert int(one.headers[0]["content-length"]) == len(one.raw[0])


async def test_a_websocket_upgrade_is_answered_426(gateway: Sidecar) -> None:
    async with aiohttp.ClientSession() as session:
        headers = {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-version": "13"}
        async with session.get(gateway.url + "/v1/responses", headers=headers) as response:
            assert response.status == 426


@pytest.mark.parametrize(
    "path", ["/v1/images/variations", "/v1/chat/completions/count_tokens", "/x"]
)
async def test_other_paths_are_404_in_the_api_format(gateway: Sidecar, path: str) -> None:
    status, _, body = await post(gateway.url, {}, path)
    assert status == 404
    assert json.loads(body)["turnout"]["code"] == "unknown_endpoint"


@pytest.mark.parametrize(
    ("path", "body", "more"),
    [
        ("/v1/messages/count_tokens?beta=true", asking("x" * 350), {}),
        (
            "/v1/responses/input_tokens",
            {"model": "turnout/auto", "input": "x" * 350},
            {"object": "response.input_tokens"},
        ),
    ],
)
async def test_tokens_are_estimated_and_nobody_is_asked(
    gateway: Sidecar, one: Provider, path: str, body: dict[str, Any], more: dict[str, str]
) -> None:
    status, headers, answer = await post(gateway.url, body, path)
    counted = json.loads(answer)
    assert status == 200
    assert counted == {**more, "input_tokens": counted["input_tokens"]}
    assert 100 <= counted["input_tokens"] <= 150
    assert headers["x-turnout-count"] == "estimate"
    assert one.bodies == []


async def test_what_cannot_be_counted_is_refused_in_the_api_format(gateway: Sidecar) -> None:
    status, _, body = await post(gateway.url, {"model": "m"}, "/v1/messages/count_tokens")
    assert status == 400
    assert json.loads(body)["type"] == "error"


async def test_a_stream_passes_chunk_by_chunk(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def slowly(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(http)
        await response.write(chunk("first"))
        await go_on.wait()
        await response.write(chunk("second"))
        return response

    async with provider(slowly) as it:
        rules = write_rules(tmp_path / "rules", ROUTES, upstreams(it.url))
        async with sidecar(rules) as gateway, aiohttp.ClientSession() as session:
            body = asking("hi", stream=True)
            async with session.post(gateway.url + "/v1/chat/completions", json=body) as response:
                async with asyncio.timeout(5):
                    assert b"first" in await response.content.readany()
                go_on.set()
                assert b"second" in await response.content.read()


@pytest.mark.parametrize("is_stream", [True, False])
async def test_a_client_that_leaves_stops_the_upstream(tmp_path: Path, is_stream: bool) -> None:
    async def endless(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if not body.get("stream"):
            return await hanging(http, body)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(http)
        while True:
            await response.write(chunk("x"))
            await asyncio.sleep(0.01)

    async with provider(endless) as it:
        rules = write_rules(tmp_path / "rules", ROUTES, upstreams(it.url))
        async with sidecar(rules) as gateway:
            async with aiohttp.ClientSession() as session:
                body = asking("hi", stream=is_stream)
                call = session.post(gateway.url + "/v1/chat/completions", json=body)
                if is_stream:
                    response = await call
                    await response.content.readany()
                    response.close()
                else:
                    task = asyncio.ensure_future(call)  # type: ignore[arg-type]
                    await eventually(lambda: bool(it.bodies))
                    task.cancel()
            async with asyncio.timeout(3):
                await it.gone.wait()


async def test_two_hundred_streams_at_once_are_neither_lost_nor_mixed(tmp_path: Path) -> None:
    async def echo(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return await answering(body["messages"][0]["content"], pieces=20)(http, body)

    async with provider(echo) as it:
        rules = write_rules(tmp_path / "rules", ROUTES, upstreams(it.url))
        async with sidecar(rules) as gateway:
            connector = aiohttp.TCPConnector(limit=0)
            async with aiohttp.ClientSession(connector=connector) as session, asyncio.timeout(60):

                async def ask(number: int) -> bytes:
                    body = asking(f"<{number}>", stream=True)
                    url = gateway.url + "/v1/chat/completions"
                    async with session.post(url, json=body) as response:
                        return await response.read()

                answers = await asyncio.gather(*(ask(n) for n in range(200)))
    for number, answer in enumerate(answers):
        assert answer.count(f"<{number}>".encode()) == 20
        assert answer.count(b"<") == 20
        assert answer.endswith(b"data: [DONE]\n\n")


async def test_utf8_split_at_every_byte_arrives_to_the_byte(tmp_path: Path) -> None:
    whole = chunk("翻译🙂 привет") * 3 + b"data: [DONE]\n\n"

    async def bytewise(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(http)
        for byte in whole:
            await response.write(bytes([byte]))
        return response

    async with provider(bytewise) as it:
        rules = write_rules(tmp_path / "rules", ROUTES, upstreams(it.url))
        async with sidecar(rules) as gateway:
            _, _, body = await post(gateway.url, asking("hi", stream=True))
    assert body == whole


async def test_a_gzipped_error_body_arrives_readable(tmp_path: Path) -> None:
    async def refuse(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        said = gzip.compress(b'{"error": {"message": "bad tool"}}')
        return web.Response(
            status=400,
            body=said,
            headers={"content-encoding": "gzip", "content-type": "application/json"},
        )

    async with provider(refuse) as it:
        rules = write_rules(tmp_path / "rules", ROUTES, upstreams(it.url))
        async with sidecar(rules) as gateway:
            status, headers, body = await post(
                gateway.url, asking("hi"), accept_encoding="identity"
            )
    assert status == 400
    assert json.loads(body) == {"error": {"message": "bad tool"}}
    assert "content-encoding" not in headers


async def test_redirects_are_not_followed(tmp_path: Path, one: Provider) -> None:
    async with provider(failing(307, {"location": one.url + "/chat/completions"})) as it:
        rules = write_rules(tmp_path / "rules", ROUTES, upstreams(it.url))
        async with sidecar(rules) as gateway:
            status, headers, _ = await post(gateway.url, asking("hi"))
    assert status == 502
    assert "location" not in headers
    assert one.bodies == []


async def test_a_missing_key_is_said_and_nothing_is_sent(
    tmp_path: Path, one: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ONE_KEY")
    rules = write_rules(tmp_path / "rules", ROUTES, upstreams(one.url))
    async with sidecar(rules) as gateway:
        status, _, body = await post(gateway.url, asking("hi"), authorization="Bearer sk-x")
    assert (status, json.loads(body)["error"]["code"]) == (403, "missing_key")
    assert one.bodies == []


async def test_a_human_turn_stays_with_its_model(gateway: Sidecar, one: Provider) -> None:
    first = asking("fix the bug")
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    second = asking("fix the bug")
    second["messages"] += [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
    ]
    await post(gateway.url, first)
    await post(gateway.url, second)
    assert [body["model"] for body in one.bodies] == ["coder", "coder"]


async def test_a_changed_rule_is_live_without_a_restart(
    gateway: Sidecar, one: Provider, tmp_path: Path
) -> None:
    live = gateway.service.live
    before = live.current
    routes = tmp_path / "rules" / "routes.yaml"
    routes.write_text(ROUTES.replace("one/general", "one/changed"))
    await eventually(lambda: live.current is not before)
    await post(gateway.url, asking("hi"))
    assert one.bodies[0]["model"] == "changed"
    routes.write_text("routes: [")
    await eventually(lambda: bool(live.problem))
    await post(gateway.url, asking("hi"))
    assert one.bodies[1]["model"] == "changed"


async def test_a_client_that_stops_reading_gives_its_place_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def flood(http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(http)
        while True:
            await response.write(chunk("x" * 100_000))

    monkeypatch.setattr("turnout_sidecar.gateway.CLIENT_TIMEOUT_S", 0.3)
    async with provider(flood) as it:
        rules = write_rules(tmp_path / "rules", ROUTES, upstreams(it.url))
        async with sidecar(rules) as gateway:
            port = int(gateway.url.rpartition(":")[2])
            _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            body = json.dumps(asking("hi", stream=True)).encode()
            head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
            head += f"content-length: {len(body)}"
            writer.write(head.encode() + b"\r\n\r\n" + body)
            async with asyncio.timeout(10):
                await it.gone.wait()
            writer.close()


async def test_a_body_that_does_not_come_is_not_waited_for(
    gateway: Sidecar, one: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnout_sidecar.intake.BODY_TIMEOUT_S", 0.2)
    port = int(gateway.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\n{"
    )
    async with asyncio.timeout(5):
        assert b" 408 " in await reader.readline()
    writer.close()
    assert one.bodies == []


async def test_expect_100_continue_is_answered(gateway: Sidecar, one: Provider) -> None:
    body = json.dumps(asking("hi")).encode()
    async with (
        aiohttp.ClientSession() as session,
        session.post(gateway.url + "/v1/chat/completions", data=body, expect100=True) as response,
    ):
        assert response.status == 200
    assert "expect" not in one.headers[0]
