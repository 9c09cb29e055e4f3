"""An agent with custom tools, namespaces and `additional_tools` on a target of plain functions,
through the gateway: a task of several calls, streamed and not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from functions_only import FunctionsOnly
from proxy_kit import Upstream, upstream
from sidecar_kit import Sidecar, sidecar, write_rules
from tool_task import DONE, TEXT, run_chat_task, run_task, scripted

pytestmark = pytest.mark.usefixtures("own_folders")
ROUTES = """
routes:
  - {name: code, match: [debug], target: one/coder}
"""


@pytest.fixture
def one() -> Iterator[Upstream]:
    with upstream() as it:
        yield it


@pytest.fixture
async def gateway(one: Upstream, tmp_path: Path) -> AsyncIterator[Sidecar]:
    upstreams = f"upstreams:\n  one: {{base_url: {one.url}/v1, api_key_env: ONE_KEY}}\n"
    async with sidecar(write_rules(tmp_path / "rules", ROUTES, upstreams)) as it:
        yield it


def client(gateway: Sidecar) -> openai.OpenAI:
    return openai.OpenAI(base_url=gateway.url + "/v1", api_key="sk-mine", max_retries=0)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("model_name", ["turnout/auto", "one/coder"])
async def test_an_agents_task_is_finished(
    gateway: Sidecar, one: Upstream, stream: bool, model_name: str
) -> None:
    model = scripted(write_bytes=5)
    one.reply = model.reply
    with client(gateway) as c:
        calls, text = await asyncio.to_thread(run_task, c, model_name, "debug this", stream=stream)
    assert model.refusals == []
    assert (calls, text) == (DONE, "all done ü")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_chats_custom_tool_is_finished(
    gateway: Sidecar, one: Upstream, stream: bool
) -> None:
    model = FunctionsOnly(script=[("exec", json.dumps({"input": TEXT})), ("exec", '"two"')])
    one.reply = model.reply
    with client(gateway) as c:
        inputs = await asyncio.to_thread(run_chat_task, c, "turnout/auto", "debug", stream=stream)
    assert inputs[0] == TEXT
    assert model.refusals == []


async def test_what_was_changed_is_told(gateway: Sidecar, one: Upstream) -> None:
    one.reply = scripted().reply
    tool: Any = {"type": "custom", "name": "exec"}
    with client(gateway) as c:
        answer = await asyncio.to_thread(
            c.responses.with_raw_response.create, model="turnout/auto", input="debug", tools=[tool]
        )
    assert answer.headers["x-turnout-adjustments"] == "custom tools as functions"
    assert answer.http_response.json()["output"][0]["type"] == "custom_tool_call"
