"""Whether a target can serve a request."""

from __future__ import annotations

from typing import Any

import pytest

from rules.bodies.making import chat, managed, read, target
from turnout_rules.capabilities import obstacle

TOOL = {"type": "function", "function": {"name": "f"}}
IMAGE = {
    "model": "m",
    "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
}
MESSAGES = {"model": "m", "messages": [], "max_tokens": 10}
SCHEMA = chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {}}})
RESPONSES = {"model": "m", "input": "x"}
OPENAI = target("https://api.openai.com/v1")
ANTHROPIC = target("https://api.anthropic.com/v1")
MISTRAL = target("https://api.mistral.ai/v1")

CASES: list[tuple[str, dict[str, Any], Any, str]] = [
    ("chat", chat(), OPENAI, ""),
    ("messages", MESSAGES, OPENAI, "no messages endpoint"),
    ("messages", MESSAGES, ANTHROPIC, ""),
    ("chat", chat(), ANTHROPIC, ""),
    ("responses", {"model": "m", "input": "x"}, ANTHROPIC, "no responses endpoint"),
    ("embeddings", {"model": "m", "input": "x"}, ANTHROPIC, "no embeddings endpoint"),
    ("messages", MESSAGES, managed("vllm"), ""),
    ("messages", MESSAGES, managed("llamacpp"), ""),
    ("messages", MESSAGES, managed("nanovllm"), "no messages endpoint"),
    ("chat", chat(tools=[TOOL]), managed("nanovllm"), "no tools"),
    ("chat", chat(tools=[TOOL]), managed("vllm"), ""),
    ("chat", IMAGE, managed("vllm"), "no image input"),
    ("chat", IMAGE, managed("vllm", model_supports=frozenset({"image"})), ""),
    ("chat", IMAGE, OPENAI, ""),
    ("chat", IMAGE, target(), ""),
    ("chat", IMAGE, target(supports=frozenset({"tools"})), "no image input"),
    ("chat", chat(stream=True), target(supports=frozenset({"tools"})), ""),
    ("chat", chat(reasoning_effort="low"), target(supports=frozenset({"tools"})), ""),
    ("chat", chat(logprobs=True), target("https://api.groq.com/openai/v1"), "no logprobs"),
    (
        "messages",
        MESSAGES,
        target(model_supports=frozenset({"chat", "tools"})),
        "no messages endpoint",
    ),
    ("chat", IMAGE, managed("vllm", model_supports=frozenset({"chat"})), "no image input"),
    # A stated list is the whole list, whether it names endpoints, capabilities, both or nothing.
    ("chat", chat(), target(supports=frozenset({"chat"})), ""),
    ("chat", chat(tools=[TOOL]), target(supports=frozenset({"chat"})), "no tools"),
    ("chat", chat(tools=[TOOL]), managed("vllm", model_supports=frozenset({"chat"})), "no tools"),
    ("chat", SCHEMA, managed("vllm", model_supports=frozenset({"chat"})), "no json_schema output"),
    (
        "chat",
        {**SCHEMA, "tools": [TOOL]},
        target("https://api.openai.com/v1", supports=frozenset({"chat"})),
        "no json_schema output, no tools",
    ),
    ("chat", chat(tools=[TOOL]), target(supports=frozenset({"chat", "tools"})), ""),
    ("chat", SCHEMA, target(supports=frozenset({"chat", "tools"})), "no json_schema output"),
    ("chat", SCHEMA, target(supports=frozenset({"chat", "json_schema"})), ""),
    ("responses", RESPONSES, target(supports=frozenset({"chat"})), "no responses endpoint"),
    ("responses", RESPONSES, target(supports=frozenset({"tools"})), ""),
    ("chat", chat(), target(supports=frozenset()), ""),
    ("chat", chat(tools=[TOOL]), target(supports=frozenset()), "no tools"),
    ("chat", chat(tools=[TOOL]), managed("vllm", model_supports=frozenset()), "no tools"),
    ("chat", chat(stream=True), target(supports=frozenset({"chat"})), ""),
    (
        "chat",
        IMAGE,
        target(model_supports=frozenset({"tools"}), supports=frozenset({"image"})),
        "no image input",
    ),
]


@pytest.mark.parametrize(("endpoint", "body", "to", "words"), CASES)
def test_obstacle(endpoint: str, body: dict[str, Any], to: Any, words: str) -> None:
    assert obstacle(read(body, endpoint=endpoint), to) == words


def test_the_answer_must_fit_the_window_too() -> None:
    body = chat("x" * 35_000, max_tokens=2_000)
    tokens = read(body).input_tokens + 2_000
    assert obstacle(read(body), target(model_context=8_192)) == f"context 8192 < {tokens} tokens"
    assert obstacle(read(body), target(model_context=tokens)) == ""
    assert obstacle(read(body), target()) == ""


def test_a_local_engine_is_held_to_its_max_model_len() -> None:
    long = chat("x" * 35_000)
    to = managed("vllm", model_context=32_000, model_max_model_len=4_096)
    assert obstacle(read(long), to).startswith("context 4096 <")


@pytest.mark.parametrize(
    ("call_id", "words"),
    [("a1B2c3D4e", ""), ("call_abc", "tool call ids of another provider")],
)
def test_mistral_takes_only_its_own_tool_call_ids(call_id: str, words: str) -> None:
    body = chat("x")
    body["messages"].append({"role": "tool", "tool_call_id": call_id, "content": "y"})
    assert obstacle(read(body), MISTRAL) == words
    assert obstacle(read(body), OPENAI) == ""
