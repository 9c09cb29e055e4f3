"""An agent with custom tools, namespaces and `additional_tools` on a target of plain functions,
through the proxy: a task of several calls, streamed and not."""

from __future__ import annotations

import json
import ssl
from typing import Any

import httpx2
import openai
import pytest
from aiohttp import web

from functions_only import FunctionsOnly
from proxy_kit import Seen
from tool_task import DONE, TEXT, run_chat_task, run_task, scripted

FOLDED = "additional_tools moved from input to tools, namespaces folded, custom tools as functions"


def http_client(setup: Any) -> httpx2.Client:
    context = ssl.create_default_context(cafile=str(setup.proxy.bundle))
    return httpx2.Client(proxy=setup.proxy.url, verify=context, trust_env=False, timeout=20.0)


def client(setup: Any) -> openai.OpenAI:
    return openai.OpenAI(
        api_key="sk-client",
        base_url=f"{setup.origin.url}/v1",
        http_client=http_client(setup),
        max_retries=0,
    )


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("write_bytes", [1, 7, 100_000])
def test_an_agents_task_is_finished(setup: Any, stream: bool, write_bytes: int) -> None:
    model = scripted(write_bytes=write_bytes)
    setup.other.reply = model.reply
    with client(setup) as c:
        calls, text = run_task(c, "gpt-6.2-sol", "debug this", stream=stream)
    assert model.refusals == []
    assert (calls, text) == (DONE, "all done ü")
    assert len(setup.other.seen) == len(DONE) + 1
    assert setup.other.last.headers["accept-encoding"] == "identity"
    assert not [seen for seen in setup.origin.seen if seen.method == "POST"]


@pytest.mark.parametrize("stream", [True, False])
def test_a_chats_custom_tool_is_finished(setup: Any, stream: bool) -> None:
    model = FunctionsOnly(script=[("exec", json.dumps({"input": TEXT})), ("exec", '"two"')])
    setup.other.reply = model.reply
    with client(setup) as c:
        assert run_chat_task(c, "gpt-5", "debug this", stream=stream)[0] == TEXT
    assert model.refusals == []


def declared(text: str, *tools: dict[str, Any], **more: Any) -> dict[str, Any]:
    first = {"type": "additional_tools", "role": "developer", "tools": list(tools)}
    return {"model": "m", "input": [first, {"role": "user", "content": text}], **more}


EXEC = {"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]}


def test_what_was_changed_is_told_and_errors_pass_as_they_came(setup: Any) -> None:
    async def refuse(request: web.Request, seen: Seen) -> web.StreamResponse:
        return web.json_response({"error": {"message": "function_call no"}}, status=400)

    setup.other.reply = refuse
    with http_client(setup) as c:
        answer = c.post(f"{setup.origin.url}/v1/responses", json=declared("debug", EXEC))
    assert answer.headers["x-turnout-adjustments"] == FOLDED
    assert answer.status_code == 400
    assert answer.json() == {"error": {"message": "function_call no"}}


def test_a_hosted_tool_declared_in_the_conversation_stays_with_its_origin(setup: Any) -> None:
    with http_client(setup) as c:
        body = declared("debug hosted", EXEC, {"type": "web_search"})
        answer = c.post(f"{setup.origin.url}/v1/responses", json=body)
    assert answer.headers["x-turnout-target"] == "pass"
    assert setup.other.seen == []
    assert setup.origin.last.json == body
    assert "bound to its origin: hosted tools (web_search)" in setup.proxy.log


def test_a_compressed_answer_is_left_as_it_came_and_said(setup: Any) -> None:
    async def compress(request: web.Request, seen: Seen) -> web.StreamResponse:
        response = web.json_response({"output": []})
        response.enable_compression(web.ContentCoding.gzip)
        return response

    setup.other.reply = compress
    with http_client(setup) as c:
        answer = c.post(f"{setup.origin.url}/v1/responses", json=declared("debug gzip", EXEC))
    assert answer.json() == {"output": []}
    assert "calls stay as they came" in setup.proxy.log
