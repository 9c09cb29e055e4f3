"""What counts as an answer in each format, and what of status 200 is none.

Streams and bodies in the shapes that public bug reports of the named servers show.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout_rules.answers import MAX_PREAMBLE_BYTES, Answer
from turnout_rules.sse import MAX_EVENT_BYTES

CHAT_ROLE = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
MESSAGE_START = {
    "type": "message_start",
    "message": {"id": "m", "type": "message", "role": "assistant", "content": [], "usage": {}},
}
CREATED = {
    "type": "response.created",
    "sequence_number": 0,
    "response": {"id": "r", "status": "in_progress", "error": None, "output": []},
}
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


def sse(*events: Any, named: bool = False) -> bytes:
    parts = []
    for event in events:
        data = event if isinstance(event, str) else json.dumps(event)
        name = f"event: {event['type']}\n" if named else ""
        parts.append(f"{name}data: {data}\n\n")
    return "".join(parts).encode()


def delta(**said: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": said, "finish_reason": None}]}


def block(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": 0, "content_block": {"type": kind, **more}}


def item(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": "response.output_item.added", "item": {"type": kind, **more}}


def watched(endpoint: str, stream: bytes, content_type: str = "text/event-stream") -> Answer:
    answer = Answer(endpoint, content_type=content_type)
    answer.feed(stream)
    return answer


def ended(endpoint: str, stream: bytes, content_type: str = "text/event-stream") -> Answer:
    answer = watched(endpoint, stream, content_type)
    answer.end()
    return answer


PREAMBLES = {
    "nothing": ("chat", b""),
    "comments of OpenRouter": ("chat", b": OPENROUTER PROCESSING\n\n" * 5),
    "white space that keeps a body alive": ("chat", b"\n         \n\n"),
    "half a byte order mark": ("chat", b"\xef\xbb"),
    "a role": ("chat", sse(CHAT_ROLE)),
    "a role of vLLM": ("chat", sse(delta(role="assistant", content="", reasoning_content=None))),
    "the filter results of Azure": ("chat", sse({"choices": [], "prompt_filter_results": [{}]})),
    "an empty text": ("completions", sse({"choices": [{"text": "", "finish_reason": None}]})),
    "message_start": ("messages", sse(MESSAGE_START, {"type": "ping"}, named=True)),
    "a text block that is still empty": ("messages", sse(MESSAGE_START, block("text", text=""))),
    "a thinking block, still empty": ("messages", sse(block("thinking", thinking=""))),
    "response.created": ("responses", sse(CREATED, named=True)),
    "response.queued": ("responses", sse({"type": "response.queued", "response": {}})),
    "an empty message": ("responses", sse(CREATED, item("message", content=[]))),
    "reasoning, still empty": ("responses", sse(CREATED, item("reasoning", summary=[]))),
    "an empty part": (
        "responses",
        sse({"type": "response.content_part.added", "part": {"type": "output_text", "text": ""}}),
    ),
    "the rate limits of Codex": ("responses", sse({"type": "codex.rate_limits", "x": 1})),
}


@pytest.mark.parametrize(("endpoint", "stream"), PREAMBLES.values(), ids=PREAMBLES)
def test_a_preamble_is_held_and_its_end_is_nothing(endpoint: str, stream: bytes) -> None:
    assert not watched(endpoint, stream).is_decided
    answer = ended(endpoint, stream)
    assert answer.flaw is not None
    assert answer.flaw.kind == "empty"
    assert answer.is_cut


@pytest.mark.parametrize("comment", [b"", b": x\n\n", b"\n", b"event: ping\ndata: {}\n\n"])
def test_keep_alives_are_no_beginning(comment: bytes) -> None:
    assert not watched("messages", comment).has_begun
    ping = sse({"type": "ping"})
    assert not watched("messages", comment + ping).has_begun
    assert watched("messages", comment + sse(MESSAGE_START)).has_begun


CONTENTS = {
    "text": ("chat", delta(content="x")),
    "white space": ("chat", delta(content=" ")),
    "reasoning of DeepSeek": ("chat", delta(role="assistant", reasoning_content="x")),
    "reasoning of OpenRouter": ("chat", delta(content="", reasoning_details=[{"text": "x"}])),
    "a refusal": ("chat", delta(refusal="no")),
    "audio": ("chat", delta(audio={"id": "a", "data": "UklG"})),
    "a tool call without arguments yet": (
        "chat",
        delta(tool_calls=[{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}]),
    ),
    "an old function call": ("chat", delta(function_call={"name": "f", "arguments": ""})),
    "parts of Mistral": ("chat", delta(content=[{"type": "text", "text": "x"}])),
    "a key nobody knew": ("chat", delta(content="", holograms=["x"])),
    "a message where a delta is due": ("chat", {"choices": [{"message": {"content": "x"}}]}),
    "a completion's text": ("completions", {"choices": [{"text": "x"}]}),
    "a text delta": (
        "messages",
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x"}},
    ),
    "thinking": (
        "messages",
        {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "x"}},
    ),
    "a tool use": ("messages", block("tool_use", id="t", name="f", input={})),
    "a server's tool use": ("messages", block("server_tool_use", id="t", name="f", input={})),
    "redacted thinking": ("messages", block("redacted_thinking", data="x")),
    "an output delta": ("responses", {"type": "response.output_text.delta", "delta": "x"}),
    "a reasoning delta": ("responses", {"type": "response.reasoning_text.delta", "delta": "x"}),
    "a refusal delta": ("responses", {"type": "response.refusal.delta", "delta": "no"}),
    "a function call": ("responses", item("function_call", name="f", arguments="")),
    "a custom tool call": ("responses", item("custom_tool_call", name="f", input="")),
    "a web search": ("responses", item("web_search_call", status="in_progress")),
    "encrypted reasoning": ("responses", item("reasoning", summary=[], encrypted_content="g")),
    "text without deltas": ("responses", {"type": "response.output_text.done", "text": "x"}),
    "an image in pieces": ("responses", {"type": "response.image_generation_call.partial_image"}),
}


@pytest.mark.parametrize(("endpoint", "event"), CONTENTS.values(), ids=CONTENTS)
def test_content_is_let_go_at_once(endpoint: str, event: Any) -> None:
    stream = sse(CHAT_ROLE) + sse(event)
    answer = Answer(endpoint, content_type="text/event-stream")
    for n in range(len(stream) - 2):
        assert not answer.is_good
        answer.feed(stream[n : n + 1])
    answer.feed(stream[-2:])
    assert answer.is_good
    answer.end()
    assert answer.is_cut


FINISHED = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
LEGIT_EMPTY = {
    "finish_reason stop": ("chat", sse(CHAT_ROLE, FINISHED, "[DONE]")),
    "a content filter": (
        "chat",
        sse({"choices": [{"delta": {}, "finish_reason": "content_filter"}]}, "[DONE]"),
    ),
    "no reason, but tokens": (
        "chat",
        sse(CHAT_ROLE, {"choices": [], "usage": {"completion_tokens": 3}}, "[DONE]"),
    ),
    "max_tokens 0": ("completions", sse({"choices": [{"text": "", "finish_reason": "length"}]})),
    "end_turn": (
        "messages",
        sse(
            MESSAGE_START,
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
            {"type": "message_stop"},
        ),
    ),
    "a refusal": (
        "messages",
        sse(MESSAGE_START, {"type": "message_delta", "delta": {"stop_reason": "refusal"}}),
    ),
    "incomplete": (
        "responses",
        sse(CREATED, {"type": "response.incomplete", "response": {"status": "incomplete"}}),
    ),
    "completed with tokens": (
        "responses",
        sse(
            CREATED,
            {
                "type": "response.completed",
                "response": {"status": "completed", "output": [], "usage": {"output_tokens": 5}},
            },
        ),
    ),
}


@pytest.mark.parametrize(("endpoint", "stream"), LEGIT_EMPTY.values(), ids=LEGIT_EMPTY)
def test_an_answer_that_says_why_it_ends_is_one(endpoint: str, stream: bytes) -> None:
    answer = ended(endpoint, stream)
    assert answer.is_good
    assert answer.is_closed
    assert not answer.is_cut


CLOSED_EMPTY = {
    "a lone DONE of vLLM": ("chat", sse("[DONE]")),
    "a role and DONE": ("chat", sse(CHAT_ROLE, "[DONE]")),
    "no choices at all": ("chat", sse({"choices": None}, {"choices": []}, "[DONE]")),
    "message_start and message_stop": ("messages", sse(MESSAGE_START, {"type": "message_stop"})),
    "completed with nothing": (
        "responses",
        sse(CREATED, {"type": "response.completed", "response": {"status": "completed"}}),
    ),
}


@pytest.mark.parametrize(("endpoint", "stream"), CLOSED_EMPTY.values(), ids=CLOSED_EMPTY)
def test_a_closing_event_behind_nothing_is_nothing(endpoint: str, stream: bytes) -> None:
    answer = ended(endpoint, stream)
    assert answer.flaw is not None
    assert answer.flaw.kind == "empty"


ERRORS = {
    "Anthropic's overload": ("messages", sse(OVERLOADED, named=True)),
    "overload behind message_start": ("messages", sse(MESSAGE_START, OVERLOADED, named=True)),
    "data without an event line": ("messages", sse({"type": "ping"}, {"type": "ping"}, OVERLOADED)),
    "an error event that is no JSON": ("messages", b"event: error\ndata: overloaded\n\n"),
    "an error event without data": ("messages", b"event: error\n\n"),
    "vLLM": ("chat", sse({"error": {"message": "x", "code": 500}}, "[DONE]")),
    "vLLM behind a role": ("chat", sse(CHAT_ROLE, {"error": {"message": "x"}}, "[DONE]")),
    "an older vLLM": ("chat", sse({"object": "error", "message": "x", "code": 500})),
    "llama.cpp": ("chat", b'error: {"code":500,"message":"x","type":"server_error"}\n\n'),
    "Ollama": ("chat", sse({"error": "model runner has unexpectedly stopped"})),
    "OpenRouter": (
        "chat",
        sse({"error": {"code": 502}, "choices": [{"delta": {}, "finish_reason": "error"}]}),
    ),
    "OpenRouter in the choice": ("chat", sse({"choices": [{"error": {"code": 502}}]})),
    "OpenRouter's reason alone": ("chat", sse({"choices": [{"finish_reason": "error"}]})),
    "response.failed": (
        "responses",
        sse(CREATED, {"type": "response.failed", "response": {"error": {"code": "server_error"}}}),
    ),
    "an error event": ("responses", sse(CREATED, {"type": "error", "code": "x", "message": "y"})),
    "response.error": ("responses", sse({"type": "response.error", "message": "y"})),
    "an error object in a stream's place": ("chat", b'{"error":{"message":"no"}}'),
}


@pytest.mark.parametrize(("endpoint", "stream"), ERRORS.values(), ids=ERRORS)
def test_an_error_before_content_is_found(endpoint: str, stream: bytes) -> None:
    answer = ended(endpoint, stream)
    assert answer.flaw is not None
    assert answer.flaw.kind == "error"
    assert answer.flaw.error
    assert not answer.is_cut


BODIES: dict[str, tuple[str, Any, str]] = {
    "empty": ("chat", b"", "empty"),
    "white space": ("chat", b"\n\n  ", "empty"),
    "HTML": ("chat", b"<!DOCTYPE html><html>", "not_json"),
    "plain text": ("chat", b"upstream connect error", "not_json"),
    "a bare number": ("chat", b"5", "not_json"),
    "half an object": ("chat", b'{"choices": [', "not_json"),
    "an error": ("chat", {"error": {"message": "no"}}, "error"),
    "an error of OpenRouter beside no choices": (
        "chat",
        {"id": None, "choices": None, "error": {"code": 429, "message": "no"}},
        "error",
    ),
    "an error in Google's list": ("chat", [{"error": {"code": 503}}], "error"),
    "no choices, no tokens of Gemini": (
        "chat",
        {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 0}},
        "empty",
    ),
    "base_resp of MiniMax": (
        "chat",
        {"choices": None, "base_resp": {"status_code": 1004, "status_msg": "login fail"}},
        "empty",
    ),
    "an envelope of Zhipu": ("chat", {"code": 500, "msg": "no", "success": False}, "empty"),
    "an empty object": ("completions", {}, "empty"),
    "a message's error": ("messages", OVERLOADED, "error"),
    "a message without anything": ("messages", {"type": "message", "content": []}, "empty"),
    "a failed response": (
        "responses",
        {"status": "failed", "error": {"code": "server_error"}, "output": []},
        "error",
    ),
    "a completed response without anything": (
        "responses",
        {"status": "completed", "error": None, "output": []},
        "empty",
    ),
    "no vectors": ("embeddings", {"object": "list", "data": []}, "empty"),
}


@pytest.mark.parametrize(("endpoint", "body", "kind"), BODIES.values(), ids=BODIES)
def test_a_body_that_is_no_answer(endpoint: str, body: Any, kind: str) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = ended(endpoint, raw, "application/json")
    assert answer.flaw is not None
    assert answer.flaw.kind == kind


def test_html_is_known_by_its_first_byte() -> None:
    assert watched("chat", b"\r\n<", "text/html").is_decided


GOOD_BODIES: dict[str, tuple[str, Any]] = {
    "an empty string": ("chat", {"choices": [{"message": {"role": "assistant", "content": ""}}]}),
    "null and a reason": (
        "chat",
        {
            "choices": [{"message": None, "finish_reason": "stop"}],
            "usage": {"completion_tokens": 0},
        },
    ),
    "thought without a choice": ("chat", {"choices": None, "usage": {"completion_tokens": 32}}),
    "an error that is null": ("chat", {"error": None, "choices": [{"message": {"content": "x"}}]}),
    "an empty completion": ("completions", {"choices": [{"text": "", "finish_reason": "length"}]}),
    "end_turn": ("messages", {"type": "message", "content": [], "stop_reason": "end_turn"}),
    "a queued response": ("responses", {"status": "queued", "error": None, "output": []}),
    "an incomplete response": ("responses", {"status": "incomplete", "error": None, "output": []}),
    "vectors": ("embeddings", {"data": [{"embedding": [0.1]}]}),
}


@pytest.mark.parametrize(("endpoint", "body"), GOOD_BODIES.values(), ids=GOOD_BODIES)
def test_a_body_that_is_one(endpoint: str, body: Any) -> None:
    raw = json.dumps(body).encode()
    for content_type in ("application/json", "", "text/event-stream"):
        answer = ended(endpoint, raw, content_type)
        assert answer.is_good
        assert not answer.is_cut


def test_a_stream_is_known_without_its_content_type() -> None:
    answer = Answer("chat", content_type="text/plain")
    for byte in sse(CHAT_ROLE, delta(content="x"), "[DONE]"):
        answer.feed(bytes([byte]))
    assert answer.is_stream
    assert answer.is_good
    assert answer.is_closed


def test_errors_behind_content_close_the_stream() -> None:
    for event in ({"error": {"code": 502}, "choices": [{"finish_reason": "error"}]}, OVERLOADED):
        answer = ended("chat", sse(delta(content="x"), event))
        assert answer.is_good
        assert answer.flaw is None
        assert not answer.is_cut


def test_half_an_event_at_the_end_is_a_cut() -> None:
    assert ended("chat", sse(delta(content="x")) + b'data: {"choices":[{"del').is_cut


def test_a_done_without_its_line_break_closes() -> None:
    assert not ended("chat", sse(delta(content="x")) + b"data: [DONE]").is_cut


def test_a_stream_in_no_format_we_know_misses_nothing_at_its_end() -> None:
    assert not ended("chat", b"data: 0\n\ndata: 1\n\n").is_cut


def test_the_streams_count_of_events_is_followed() -> None:
    events = [
        {"type": "response.output_text.delta", "delta": "x", "sequence_number": n} for n in (4, 5)
    ]
    assert ended("responses", sse(CREATED, *events)).sequence_number == 6
    assert ended("chat", sse(delta(content="x"))).sequence_number == 0


def test_more_than_is_ever_held_back_counts_as_an_answer() -> None:
    body = watched("chat", b'{"x": "' + b"y" * MAX_PREAMBLE_BYTES, "application/json")
    assert body.is_good
    event = watched("responses", b'data: {"x": "' + b"y" * (MAX_EVENT_BYTES + 1))
    assert event.is_good
    event.end()
    assert not event.is_cut


@pytest.mark.parametrize("space", ["", " ", "  "])
def test_what_closes_is_found_among_content_that_is_read_over(space: str) -> None:
    content = b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":null}]}\n\n'
    finish = b'data: {"choices":[{"delta":{},"finish_reason":%s"stop"}]}\n\n' % space.encode()
    closing = {
        "chat": finish,
        "completions": finish,
        "messages": sse({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
        "responses": sse({"type": "response.incomplete", "response": {}}),
    }
    for endpoint, last in closing.items():
        answer = watched(endpoint, sse(CONTENT_OF[endpoint]))
        for _ in range(3):
            answer.feed(content if endpoint == "chat" else sse(CONTENT_OF[endpoint]))
        assert not answer.is_closed
        answer.feed(last)
        assert answer.is_closed


CONTENT_OF: dict[str, Any] = {
    "chat": delta(content="x"),
    "completions": {"choices": [{"text": "x"}]},
    "messages": block("tool_use", id="t"),
    "responses": {"type": "response.output_text.delta", "delta": "x", "sequence_number": 7},
}


def test_the_count_is_right_after_content_that_was_read_over() -> None:
    answer = Answer("responses", content_type="text/event-stream")
    for number in range(5):
        answer.feed(sse({**CONTENT_OF["responses"], "sequence_number": number}))
    answer.feed(b": keep-alive\n\n")
    answer.end()
    assert answer.is_cut
    assert answer.sequence_number == 5


KEYS = st.sampled_from(
    [
        "type",
        "status",
        "error",
        "object",
        "response",
        "choices",
        "delta",
        "message",
        "text",
        "finish_reason",
        "usage",
        "item",
        "part",
        "content",
        "content_block",
        "output",
        "completion_tokens",
        "sequence_number",
        "tool_calls",
        "data",
    ]
)
WORDS = st.sampled_from(
    [
        "error",
        "ping",
        "response.failed",
        "response.completed",
        "response.output_item.added",
        "message_start",
        "content_block_start",
        "message_delta",
        "failed",
        "queued",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.just(""),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(
    st.sampled_from(["chat", "completions", "messages", "responses", "embeddings"]),
    st.lists(VALUES, max_size=3),
)
def test_whatever_json_comes_is_weighed_without_an_exception(
    endpoint: str, values: list[Any]
) -> None:
    answer = ended(endpoint, sse(*values))
    assert answer.is_good != (answer.flaw is not None)
    for value in values:
        body = ended(endpoint, json.dumps(value).encode(), "application/json")
        assert body.is_good != (body.flaw is not None)


def test_deep_json_is_weighed_without_an_exception() -> None:
    deep = '{"content":' * 400 + "1" + "}" * 400
    assert watched("chat", sse('{"choices":[{"delta":' + deep + "}]}")).is_good
