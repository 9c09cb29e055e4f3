"""What a request is said to be: model, needs, bonds, size, keys."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest

from rules.bodies.making import chat, read, read_recorded, recorded
from rules.bodies.tools import claude_code, codex, dumps
from turnout_rules.reading import Reader, Unreadable
from turnout_rules.request import Request
from turnout_rules.settings import Reading

IMAGE = "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 400).decode()


def test_the_cheap_facts() -> None:
    body = chat("hi", stream=True, metadata={"task": "weekly"})
    request = read(body, host="api.openai.com", client="127.0.0.1")
    assert request.endpoint == "chat"
    assert request.model == "gpt-4o"
    assert request.stream is True
    assert request.task == "weekly"
    assert request.host == "api.openai.com"
    assert request.client == "127.0.0.1"


def test_a_compressed_body_is_kept_decoded() -> None:
    body = json.dumps(chat("hi")).encode()
    request = read(gzip.compress(body), headers={"content-encoding": "gzip"})
    assert request.body == body
    assert request.content_encoding == "gzip"


def test_azure_takes_the_model_of_the_path_where_the_body_has_none() -> None:
    path = "/openai/deployments/gpt-4o-mini/chat/completions?api-version=2024-02-01"
    assert read({"messages": []}, path=path).model == "gpt-4o-mini"
    assert read(chat("x"), path=path).model == "gpt-4o"


def test_other_paths_are_unreadable() -> None:
    with pytest.raises(Unreadable, match="not an endpoint"):
        read(chat("x"), path="/v1/models")


def test_metadata_of_any_shape_is_fine() -> None:
    for metadata in (None, 5, [], {"task": 5}, {"user_id": "x"}):
        assert read(chat("x", metadata=metadata)).task == ""


def test_showing_a_request_shows_none_of_its_words() -> None:
    request = read(chat("my secret"), headers={"authorization": "Bearer sk-1"})
    assert "secret" not in repr(request)
    assert "sk-1" not in repr(request)


def part(kind: str, **fields: Any) -> dict[str, Any]:
    return chat("x") | {"messages": [{"role": "user", "content": [{"type": kind, **fields}]}]}


SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}
FORMAT = {"format": {"type": "json_schema", "name": "x", "schema": {}}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
NEEDS: list[tuple[str, dict[str, Any], set[str]]] = [
    ("chat", chat(), set()),
    ("chat", chat(stream=True), {"stream"}),
    ("chat", chat(tools=[TOOL]), {"tools"}),
    ("chat", chat(tools=[]), set()),
    ("chat", chat(tools=None), set()),
    ("chat", chat(functions=[{"name": "f"}]), {"tools"}),
    ("chat", part("image_url", image_url={"url": IMAGE}), {"image"}),
    ("chat", part("input_audio", input_audio={"data": "", "format": "wav"}), {"audio"}),
    ("chat", part("file", file={"file_data": "x"}), {"file"}),
    ("chat", chat(modalities=["text", "audio"]), {"audio"}),
    ("chat", chat(response_format=SCHEMA), {"json_schema"}),
    ("chat", chat(response_format={"type": "json_object"}), set()),
    ("chat", chat(reasoning_effort="high"), {"reasoning"}),
    ("chat", chat(reasoning_effort="none"), set()),
    ("chat", chat(logprobs=True), {"logprobs"}),
    ("chat", chat(logprobs=False), set()),
    ("chat", chat('an "image_url" and {"type":"image_url"} in words'), set()),
    ("completions", {"model": "m", "prompt": "x", "logprobs": 5}, {"logprobs"}),
    ("responses", {"model": "m", "input": "x", "text": FORMAT}, {"json_schema"}),
    ("responses", {"model": "m", "input": "x", "reasoning": {"effort": "low"}}, {"reasoning"}),
    ("responses", {"model": "m", "input": "x", "reasoning": {"effort": None}}, set()),
    (
        "responses",
        {"model": "m", "input": [{"role": "user", "content": [{"type": "input_image"}]}]},
        {"image"},
    ),
    (
        "responses",
        {
            "model": "m",
            "input": [{"type": "function_call_output", "output": [{"type": "input_image"}]}],
        },
        {"image"},
    ),
    (
        "messages",
        {"model": "m", "messages": [], "thinking": {"type": "enabled", "budget_tokens": 1}},
        {"reasoning"},
    ),
    (
        "messages",
        {
            "model": "m",
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "content": [{"type": "image"}]}],
                }
            ],
        },
        {"image"},
    ),
    ("messages", {"model": "m", "messages": [], "output_config": FORMAT}, {"json_schema"}),
]


@pytest.mark.parametrize(("endpoint", "body", "needs"), NEEDS)
def test_needs(endpoint: str, body: dict[str, Any], needs: set[str]) -> None:
    request = read(body, endpoint=endpoint)
    assert request.needs == needs
    assert set(request.attachments) == needs & {"image", "audio", "file"}


def items(*values: dict[str, Any]) -> dict[str, Any]:
    return {"model": "m", "input": [{"role": "user", "content": "x"}, *values]}


def says(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": role, "content": list(parts)}]}


CALL = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}", "id": "fc_1"}
OUTPUT = {"type": "function_call_output", "call_id": "1", "output": "y"}
FREE: list[tuple[str, dict[str, Any]]] = [
    ("chat", chat(tools=[TOOL])),
    ("chat", chat(store=True)),
    ("responses", {"model": "m", "input": "x", "previous_response_id": None}),
    ("responses", {"model": "m", "input": "x", "include": ["reasoning.encrypted_content"]}),
    ("responses", items(CALL, OUTPUT)),
    ("responses", items({"type": "message", "role": "assistant", "id": "msg_1", "content": []})),
    ("messages", says("user", {"type": "text", "text": "x"})),
    (
        "messages",
        {**says("user"), "context_management": {"edits": [{"type": "clear_thinking_20251015"}]}},
    ),
    ("messages", {**says("user"), "tools": [{"name": "f", "input_schema": {"type": "object"}}]}),
    ("messages", {**says("user"), "tools": [{"type": "custom", "name": "f", "input_schema": {}}]}),
    ("messages", says("assistant", {"type": "thinking", "thinking": "x", "signature": ""})),
    ("messages", says("assistant", {"type": "tool_use", "input": {"type": "web_search"}})),
]


@pytest.mark.parametrize(("endpoint", "body"), FREE)
def test_an_ordinary_request_may_move(endpoint: str, body: dict[str, Any]) -> None:
    assert read(body, endpoint=endpoint).bound == ""


BOUND: list[tuple[str, dict[str, Any], str]] = [
    ("responses", {"model": "m", "input": "x", "previous_response_id": "r"}, "previous_response"),
    ("responses", {"model": "m", "input": "x", "conversation": "c"}, "conversation"),
    ("responses", {"model": "m", "input": "x", "conversation": {"id": "c"}}, "conversation"),
    ("responses", {"model": "m", "prompt": {"id": "p"}}, "prompt stored"),
    ("responses", {"model": "m", "input": "x", "background": True}, "background"),
    ("responses", items({"type": "item_reference", "id": "x"}), "reference"),
    ("responses", items({"type": "reasoning", "encrypted_content": "gAAA"}), "encrypted"),
    ("responses", items({"type": "reasoning", "id": "rs_1", "summary": []}), "stored reasoning"),
    ("responses", items({"type": "web_search_call", "id": "ws_1"}), "web_search_call"),
    ("responses", {"model": "m", "input": "x", "tools": [{"type": "web_search"}]}, "hosted"),
    ("responses", {"model": "m", "input": "x", "tools": [{"type": "mcp"}]}, "hosted"),
    ("responses", {"model": "m", "input": "x", "tools": [{"type": "brand_new"}]}, "brand_new"),
    ("chat", chat(tools=[TOOL, {"type": "web_search"}]), "web_search"),
    ("chat", chat(tools=[{"type": "objective"}]), "objective"),
    ("chat", chat(web_search_options={"x": 1}), "hosted"),
    ("chat", part("file", file={"file_id": "file-1"}), "file"),
    ("chat", part("brand_new"), "brand_new"),
    ("messages", says("assistant", {"type": "thinking", "signature": "Eo"}), "signed"),
    ("messages", says("assistant", {"type": "redacted_thinking", "data": "x"}), "signed"),
    ("messages", says("assistant", {"type": "server_tool_use"}), "server_tool_use"),
    ("messages", {**says("user"), "tools": [{"type": "web_search_20250305"}]}, "hosted"),
    ("messages", {**says("user"), "mcp_servers": [{"url": "x"}]}, "MCP"),
    ("messages", {**says("user"), "container": "c"}, "container"),
    (
        "messages",
        {**says("user"), "context_management": {"edits": [{"type": "compact_20260112"}]}},
        "context management",
    ),
    (
        "responses",
        {"model": "m", "input": "x", "context_management": [{"type": "compaction"}]},
        "context management",
    ),
]


@pytest.mark.parametrize(("endpoint", "body", "reason"), BOUND)
def test_what_binds_a_request_to_its_origin(
    endpoint: str, body: dict[str, Any], reason: str
) -> None:
    assert reason in read(body, endpoint=endpoint).bound


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "AWS4-HMAC-SHA256 Credential=x"},
        {"x-amz-date": "20260101"},
        {"signature": "sig1=:x:", "signature-input": "sig1=()"},
    ],
)
def test_a_signed_request_is_bound(headers: dict[str, str]) -> None:
    assert "signed" in read(chat("x"), headers=headers).bound


def test_signed_reasoning_is_found_in_a_long_agent_conversation() -> None:
    body = claude_code(300_000, loops=50)
    thinking = {"type": "thinking", "thinking": "hm", "signature": "EoIB"}
    body["messages"][41]["content"].insert(0, thinking)
    assert "signed" in read(dumps(body), endpoint="messages").bound


def test_tokens_are_estimated_without_base64() -> None:
    plain = read(chat("x" * 3_500)).input_tokens
    assert 1_000 <= plain <= 1_040
    assert read(part("image_url", image_url={"url": IMAGE})).input_tokens < 200


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({}, 0),
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 7, "max_tokens": 5}, 7),
        ({"max_tokens": "5"}, 0),
        ({"max_tokens": -1}, 0),
        ({"max_tokens": True}, 0),
    ],
)
def test_output_tokens_are_the_stated_limit(fields: dict[str, Any], tokens: int) -> None:
    assert read(chat(**fields)).output_tokens == tokens


def test_a_conversation_keeps_its_key_as_it_grows() -> None:
    keys = {
        read(dumps(claude_code(300_000, loops=n)), endpoint="messages").conversation
        for n in (0, 1, 5, 60)
    }
    assert len({k for k in keys if k}) == 1


def test_a_conversation_keeps_its_key_over_every_length() -> None:
    system = {"role": "system", "content": "be kind"}
    image = {"type": "image_url", "text": "no text"}
    first = {"role": "user", "content": [image, {"type": "text", "text": "draw \u00e9"}]}
    body: dict[str, Any] = {"model": "m", "messages": [system, first]}
    keys = {read(body).conversation}
    for _ in range(12):
        body["messages"] += [
            {"role": "assistant", "content": "so " * 2_000},
            {"role": "user", "content": "more"},
        ]
        keys.add(read(body).conversation)
    assert len(keys) == 1


def test_a_conversation_is_told_from_others() -> None:
    first = read(chat("one")).conversation
    assert read(chat("two")).conversation != first
    assert read(chat("one"), client="10.0.0.2").conversation != first
    system = {"role": "system", "content": "be kind"}
    body = {"model": "m", "messages": [system, {"role": "user", "content": "one"}]}
    assert read(body).conversation != first


def test_a_header_names_the_conversation() -> None:
    headers = {"x-turnout-conversation": "abc"}
    first = read(chat("one"), headers=headers)
    assert read(chat("two"), headers=headers).conversation == first.conversation
    reader = Reader(Reading(conversation_header="x-session"))
    mine = {"x-session": "abc"}
    assert (
        read(chat("one"), headers=mine, reader=reader).conversation
        == read(chat("two"), headers=mine, reader=reader).conversation
    )


@pytest.mark.parametrize("build", [claude_code, codex])
def test_a_tool_loop_is_one_turn(build: Any) -> None:
    path = "/v1/messages" if build is claude_code else "/v1/responses"
    turns = {read(dumps(build(20_000, loops=n)), path=path).turn for n in (0, 1, 2, 7)}
    assert len(turns) == 1


def test_moving_cache_markers_do_not_make_a_new_turn() -> None:
    body = claude_code(5_000, loops=1)
    marked = read(dumps(body), endpoint="messages").turn
    del body["messages"][0]["content"][1]["cache_control"]
    assert read(dumps(body), endpoint="messages").turn == marked


def test_the_same_words_said_again_are_a_new_turn() -> None:
    body = chat("go on")
    first = read(body).turn
    body["messages"] += [
        {"role": "assistant", "content": "done one"},
        {"role": "user", "content": "go on"},
    ]
    second = read(body).turn
    body["messages"] += [
        {"role": "assistant", "content": "done two"},
        {"role": "user", "content": "go on"},
    ]
    assert len({first, second, read(body).turn}) == 3


def test_a_retry_is_the_same_turn_and_another_model_is_not() -> None:
    assert read(chat("x")).turn == read(chat("x")).turn
    assert read(chat("x")).turn != read(chat("x", model="gpt-4o-mini")).turn
    assert read(chat("")).turn == ""


def test_a_request_is_made_from_a_text() -> None:
    for endpoint in ("chat", "completions", "responses", "messages", "embeddings"):
        request = Request.from_text("翻译 \ud800", model="m", endpoint=endpoint)
        assert request.text == "翻译 ?"
        assert request.endpoint == endpoint
        assert request.needs == frozenset()
        assert request.bound == ""
        assert request.turn
        assert read(request.body, path=request.path).text == request.text


def test_all_recorded_requests_are_read() -> None:
    untouched = 0
    for row in recorded():
        try:
            request = read_recorded(row)
        except Unreadable as unreadable:
            assert unreadable.reason == "not an endpoint that is routed"
            untouched += 1
            continue
        assert request.model
        assert isinstance(request.needs, frozenset)
        assert isinstance(request.bound, str)
        assert request.conversation
        assert "type" not in request.text_on("system")[:5]
    assert untouched == 46
