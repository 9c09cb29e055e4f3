"""What breaks when a model changes, and what is done about it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rules.bodies.making import chat, managed, read, target
from turnout_rules.adjustments import ADJUSTMENTS
from turnout_rules.rewriting import rewrite

OPENAI = "https://api.openai.com/v1"
GPT5 = target(OPENAI, "gpt-5-mini")
GPT4O = target(OPENAI, "gpt-4o-mini")
VLLM = managed("vllm")
LLAMA = managed("llamacpp")
GROQ = target("https://api.groq.com/openai/v1")
UNKNOWN = target()

CASES: list[tuple[str, dict[str, Any], Any, dict[str, Any], tuple[str, ...]]] = [
    (
        "reasoning models refuse max_tokens",
        {"max_tokens": 9},
        GPT5,
        {"max_completion_tokens": 9},
        ("max_tokens renamed to max_completion_tokens",),
    ),
    ("other OpenAI models take it", {"max_tokens": 9}, GPT4O, {"max_tokens": 9}, ()),
    (
        "local servers ignore max_completion_tokens",
        {"max_completion_tokens": 9},
        LLAMA,
        {"max_tokens": 9},
        ("max_completion_tokens renamed to max_tokens",),
    ),
    (
        "with both, the right one stays",
        {"max_completion_tokens": 9, "max_tokens": 5},
        VLLM,
        {"max_tokens": 5},
        ("max_completion_tokens dropped",),
    ),
    (
        "reasoning models refuse temperature",
        {"temperature": 0.2, "top_p": 0.5},
        GPT5,
        {},
        ("temperature dropped", "top_p dropped"),
    ),
    ("but not the value 1", {"temperature": 1}, GPT5, {"temperature": 1}, ()),
    ("others take it", {"temperature": 0.2}, GPT4O, {"temperature": 0.2}, ()),
    (
        "token ids are another tokenizer's",
        {"logit_bias": {"1": 1}},
        UNKNOWN,
        {},
        ("logit_bias dropped",),
    ),
    (
        "llama.cpp knows no efforts",
        {"reasoning_effort": "high"},
        LLAMA,
        {},
        ("reasoning_effort dropped",),
    ),
    ("vLLM knows them", {"reasoning_effort": "high"}, VLLM, {"reasoning_effort": "high"}, ()),
    (
        "Groq knows three",
        {"reasoning_effort": "minimal"},
        GROQ,
        {"reasoning_effort": "low"},
        ("reasoning_effort minimal mapped to low",),
    ),
    (
        "a model that does not reason takes none",
        {"reasoning_effort": "low"},
        GPT4O,
        {},
        ("reasoning_effort dropped",),
    ),
    (
        "unknown keys are stripped for local targets",
        {"provider": {"order": []}, "seed": 1},
        LLAMA,
        {"seed": 1},
        ("provider stripped",),
    ),
    ("foreign keys are stripped for OpenAI", {"top_k": 5}, GPT4O, {}, ("top_k stripped",)),
    ("new keys go to OpenAI", {"brand_new": 5}, GPT4O, {"brand_new": 5}, ()),
    ("unknown hosts get everything", {"top_k": 5}, UNKNOWN, {"top_k": 5}, ()),
]


@pytest.mark.parametrize(("name", "fields", "to", "after", "names"), CASES)
def test_adjustment(
    name: str, fields: dict[str, Any], to: Any, after: dict[str, Any], names: tuple[str, ...]
) -> None:
    rewritten = rewrite(read(chat("x", **fields)), to, None)
    result = json.loads(rewritten.body)
    assert {k: v for k, v in result.items() if k not in ("model", "messages")} == after, name
    assert rewritten.adjustments == names


def test_logit_bias_stays_with_its_own_model() -> None:
    same = target(OPENAI, "gpt-4o")
    assert rewrite(read(chat("x", logit_bias={"1": 1})), same, None).adjustments == ()


def test_a_models_adjust_overrides_the_preset() -> None:
    fields = {"max_tokens": 9, "temperature": 0.1, "reasoning_effort": "xhigh"}
    keeping = target(
        OPENAI,
        "gpt-5",
        model_adjust={
            "max_tokens": "keep",
            "sampling": "keep",
            "reasoning_effort": {"xhigh": "high"},
        },
    )
    result = json.loads(rewrite(read(chat("x", **fields)), keeping, None).body)
    assert result["max_tokens"] == 9
    assert result["temperature"] == 0.1
    assert result["reasoning_effort"] == "high"


def test_an_override_switches_an_adjustment_on() -> None:
    to = target(model_adjust={"developer_role": "system", "unknown_keys": "strip"})
    body = {"model": "m", "messages": [{"role": "developer", "content": "x"}], "odd": 1}
    rewritten = rewrite(read(body), to, None)
    assert rewritten.adjustments == ("developer role mapped to system", "odd stripped")


def test_responses_effort_is_mapped_inside_its_object() -> None:
    body = {"model": "m", "input": "x", "reasoning": {"effort": "xhigh", "summary": "auto"}}
    rewritten = rewrite(read(body, endpoint="responses"), GROQ, None)
    assert json.loads(rewritten.body)["reasoning"] == {"effort": "high", "summary": "auto"}


def messages(*pairs: tuple[str, str]) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": r, "content": c} for r, c in pairs]}


def test_a_developer_message_becomes_the_system_message() -> None:
    body = (
        b'{"model":"m","messages":[{"role" : "developer","content":"a\\u00e9"}, {"role":"user"}]}'
    )
    rewritten = rewrite(read(body), VLLM, None)
    assert rewritten.body == (
        b'{"model":"other-model","messages":[{"role" : "system","content":"a\\u00e9"},'
        b'{"role":"user"}]}'
    )
    assert rewritten.adjustments == ("developer role mapped to system",)


def test_several_system_messages_become_one_at_the_front() -> None:
    body = messages(("system", "a"), ("user", "b"), ("developer", "c"), ("user", "d"))
    rewritten = rewrite(read(body), VLLM, None)
    assert json.loads(rewritten.body)["messages"] == [
        {"role": "system", "content": "a\n\nc"},
        {"role": "user", "content": "b"},
        {"role": "user", "content": "d"},
    ]
    assert rewritten.adjustments == ("system messages merged",)


def test_one_leading_system_message_is_left_as_it_is() -> None:
    body = messages(("system", "a"), ("user", 'the "developer" role'))
    assert rewrite(read(body), VLLM, None).adjustments == ()


def test_a_system_message_with_an_image_is_not_merged() -> None:
    body = messages(("system", "a"), ("user", "b"))
    body["messages"].append({"role": "system", "content": [{"type": "image_url"}]})
    result = json.loads(rewrite(read(body), VLLM, None).body)
    assert result["messages"] == body["messages"]


def test_developer_items_of_responses_join_the_instructions() -> None:
    body = {
        "model": "m",
        "instructions": "base",
        "input": [
            {
                "type": "message",
                "role": "developer",
                "content": [{"type": "input_text", "text": "rules"}],
            },
            {"role": "user", "content": "hi"},
        ],
    }
    result = json.loads(rewrite(read(body, endpoint="responses"), VLLM, None).body)
    assert result["instructions"] == "base\n\nrules"
    assert result["input"] == [{"role": "user", "content": "hi"}]


def test_the_documented_names_are_the_ones_there_are() -> None:
    assert set(ADJUSTMENTS) == {
        "max_tokens",
        "sampling",
        "reasoning_effort",
        "logit_bias",
        "developer_role",
        "unknown_keys",
        "hosted_tools",
        "tool_choice",
        "refused_fields",
    }
