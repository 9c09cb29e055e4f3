"""Fields that a known provider refuses are taken out on the way, each with a name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rules.bodies.making import managed, read, target
from turnout_rules.providers import provider_of
from turnout_rules.refused_fields import REFUSED, TOOL_CHOICES
from turnout_rules.rewriting import rewrite

HOSTS = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com/v1",
    "azure": "https://x.openai.azure.com/openai/v1",
    "groq": "https://api.groq.com/openai/v1",
    "mistral": "https://api.mistral.ai/v1",
    "deepseek": "https://api.deepseek.com",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/openai",
    "openrouter": "https://openrouter.ai/api/v1",
    "xai": "https://api.x.ai/v1",
    "moonshot": "https://api.moonshot.ai/v1",
    "glm": "https://api.z.ai/api/paas/v4",
    "ollama": "http://127.0.0.1:11434/v1",
}
MODELS = {
    "openai": "gpt-4o",
    "azure": "gpt-4o",
    "groq": "openai/gpt-oss-120b",
    "mistral": "mistral-large-latest",
    "deepseek": "deepseek-v4-pro",
    "xai": "grok-4.6",
    "moonshot": "kimi-k2.6",
    "glm": "glm-5",
}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object"}, "strict": True},
}
HISTORY: list[dict[str, Any]] = [
    {"role": "user", "name": "ann", "content": [{"type": "text", "text": "hi"}]},
    {"role": "assistant", "content": "ho", "reasoning_content": "hm", "refusal": None},
    {"role": "assistant", "content": "so", "reasoning": "why"},
    {"role": "user", "content": "and?"},
]
NAMED = {"type": "function", "function": {"name": "look"}}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}


def to(provider: str, model: str = "") -> Any:
    if provider in ("vllm", "llamacpp"):
        return managed(provider)
    return target(HOSTS[provider], model or MODELS.get(provider, "some-model"))


def moved(
    provider: str, model: str = "", endpoint: str = "chat", **fields: Any
) -> tuple[dict[str, Any], tuple[str, ...]]:
    body = {"model": "m", **fields}
    if endpoint == "chat":
        body.setdefault("messages", [{"role": "user", "content": "x"}])
    rewritten = rewrite(read(body, endpoint=endpoint), to(provider, model), None)
    return json.loads(rewritten.body), rewritten.adjustments


@pytest.mark.parametrize("provider", HOSTS)
def test_every_provider_is_told_by_its_address(provider: str) -> None:
    assert provider_of(to(provider).upstream).name == provider


def test_every_row_names_a_known_provider_and_a_source() -> None:
    known = {*HOSTS, "vllm", "llamacpp"}
    assert set(REFUSED) | set(TOOL_CHOICES) <= known
    for rows in REFUSED.values():
        for row in rows:
            assert row.source, row
            assert not (row.keeps and row.becomes), row


@pytest.mark.parametrize(
    ("provider", "model", "fields", "gone"),
    [
        ("groq", "", {"store": False, "verbosity": "low", "n": 2, "logprobs": True}, "all"),
        ("groq", "", {"service_tier": "priority", "top_k": 3, "thinking": {}}, "all"),
        ("groq", "", {"service_tier": "flex", "n": 1, "metadata": {"a": "b"}}, "none"),
        ("groq", "", {"stream": True, "stream_options": {"include_usage": True}}, "none"),
        ("mistral", "", {"store": True, "stream_options": {}, "service_tier": "auto"}, "all"),
        ("mistral", "", {"metadata": {"a": "b"}, "user": "u", "logprobs": True}, "all"),
        ("mistral", "", {"parallel_tool_calls": True, "presence_penalty": 1}, "none"),
        ("gemini", "", {"frequency_penalty": 0, "presence_penalty": 0, "store": False}, "all"),
        ("gemini", "", {"metadata": {}, "service_tier": "auto", "top_k": 1}, "all"),
        ("gemini", "", {"extra_body": {"google": {}}, "parallel_tool_calls": True}, "none"),
        ("xai", "", {"frequency_penalty": 0, "stop": ["x"], "store": False}, "all"),
        ("xai", "grok-4-1-fast", {"reasoning_effort": "low"}, "all"),
        ("xai", "grok-3-mini", {"reasoning_effort": "low"}, "none"),
        ("xai", "grok-4.6", {"reasoning_effort": "low"}, "none"),
        ("moonshot", "", {"temperature": 0.3, "top_p": 0.5, "n": 1}, "all"),
        ("moonshot", "moonshot-v1-8k", {"temperature": 0.3, "presence_penalty": 1}, "none"),
        ("openai", "", {"cache_control": {}, "thinking": {}, "reasoning": {}}, "all"),
        ("openai", "", {"metadata": {"task": "x"}}, "all"),
        ("openai", "", {"metadata": {"task": "x"}, "store": True}, "none"),
        ("openai", "", {"metadata": {"task": "x"}, "store": False}, ["metadata"]),
        ("openai", "", {"stream_options": {}, "parallel_tool_calls": False}, "all"),
        ("openai", "", {"stream_options": {}, "stream": True}, "none"),
        ("openai", "", {"parallel_tool_calls": False, "tools": [TOOL]}, "none"),
        ("openai", "", {"stop": "x", "presence_penalty": 1}, "none"),
        ("openai", "gpt-5", {"stop": "x", "presence_penalty": 1, "frequency_penalty": 1}, "all"),
        ("openai", "gpt-5-chat-latest", {"stop": "x", "presence_penalty": 1}, "none"),
        (
            "openai",
            "o3-mini",
            {"parallel_tool_calls": True, "tools": [TOOL]},
            ["parallel_tool_calls"],
        ),
        ("openai", "", {"service_tier": "standard_only"}, "all"),
        ("azure", "", {"metadata": {"task": "x"}, "cache_control": {}}, "all"),
        ("anthropic", "", {"n": 2}, "all"),
        ("anthropic", "", {"n": 1, "store": True, "metadata": {}, "seed": 1}, "none"),
        ("deepseek", "", {"stream_options": {}}, "all"),
        ("vllm", "", {"stream_options": {}}, "all"),
        ("openrouter", "", {"store": True, "metadata": {}, "reasoning": {}}, "none"),
        ("ollama", "", {"store": True, "metadata": {}, "n": 2}, "none"),
        ("llamacpp", "", {"store": True, "metadata": {}, "n": 1}, "none"),
    ],
)
def test_fields_of_the_body(
    provider: str, model: str, fields: dict[str, Any], gone: str | list[str]
) -> None:
    body, names = moved(provider, model, **fields)
    dropped = [*fields] if gone == "all" else [] if gone == "none" else [*gone]
    assert {k: v for k, v in body.items() if k in fields} == {
        k: v for k, v in fields.items() if k not in dropped
    }
    assert sorted(names) == sorted(f"{field} dropped" for field in dropped)


@pytest.mark.parametrize(
    ("provider", "kept", "names"),
    [
        (
            "groq",
            ["role", "content"],
            {"messages.reasoning dropped", "messages.reasoning_content dropped"}
            | {"messages.refusal dropped", "messages.name dropped"},
        ),
        (
            "mistral",
            ["role", "content"],
            {"messages.reasoning dropped", "messages.reasoning_content dropped"}
            | {"messages.refusal dropped", "messages.name dropped"},
        ),
        (
            "openai",
            ["role", "content", "name", "refusal"],
            {"messages.reasoning dropped", "messages.reasoning_content dropped"},
        ),
        (
            "gemini",
            ["role", "content", "name", "refusal"],
            {"messages.reasoning dropped", "messages.reasoning_content dropped"},
        ),
        (
            "deepseek",
            ["role", "content", "name", "refusal", "reasoning_content"],
            {"messages.reasoning renamed to reasoning_content"},
        ),
        (
            "moonshot",
            ["role", "content", "name", "refusal", "reasoning_content"],
            {"messages.reasoning renamed to reasoning_content"},
        ),
        ("openrouter", [*HISTORY[0], *HISTORY[1], *HISTORY[2]], set()),
        ("glm", [*HISTORY[0], *HISTORY[1], *HISTORY[2]], set()),
        ("ollama", [*HISTORY[0], *HISTORY[1], *HISTORY[2]], set()),
        ("vllm", [*HISTORY[0], *HISTORY[1], *HISTORY[2]], set()),
    ],
)
def test_reasoning_and_the_like_in_the_history(
    provider: str, kept: list[str], names: set[str]
) -> None:
    body, adjustments = moved(provider, messages=HISTORY)
    assert set(adjustments) == names
    assert {key for message in body["messages"] for key in message} == set(kept)
    assert [m["content"] for m in body["messages"]] == [m["content"] for m in HISTORY]


def test_a_renamed_thought_keeps_its_words() -> None:
    body, _ = moved("deepseek", messages=HISTORY)
    assert [m.get("reasoning_content") for m in body["messages"]] == [None, "hm", "why", None]


@pytest.mark.parametrize("provider", ["openai", "azure", "groq", "mistral", "gemini"])
def test_cache_marks_go(provider: str) -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    parts = [{"type": "text", "text": "x", **mark}, {"type": "text", "text": "y"}]
    body, names = moved(
        provider, messages=[{"role": "user", "content": parts}], tools=[{**TOOL, **mark}]
    )
    assert "cache_control" not in json.dumps(body)
    assert set(names) == {"messages.content.cache_control dropped", "tools.cache_control dropped"}


@pytest.mark.parametrize("provider", ["xai", "glm"])
def test_strict_goes(provider: str) -> None:
    body, names = moved(provider, tools=[TOOL])
    assert "strict" not in body["tools"][0]["function"]
    assert names == ("tools.function.strict dropped",)


@pytest.mark.parametrize("provider", ["openai", "groq", "mistral", "deepseek", "openrouter"])
def test_strict_stays(provider: str) -> None:
    assert moved(provider, tools=[TOOL])[0]["tools"] == [TOOL]


def test_a_tools_message_keeps_its_name_for_mistral() -> None:
    calls = [{"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    answer = {"role": "tool", "tool_call_id": "abcdefghi", "name": "f", "content": "1"}
    messages = [{"role": "assistant", "content": "", "tool_calls": calls}, answer]
    assert moved("mistral", messages=messages) == (
        {"model": "mistral-large-latest", "messages": messages},
        (),
    )


def test_xai_takes_a_name_of_the_user_alone() -> None:
    messages = [
        {"role": "user", "name": "ann", "content": "x"},
        {"role": "assistant", "name": "bot", "content": "y"},
    ]
    body, names = moved("xai", messages=messages)
    assert names == ("messages.name dropped",)
    assert ["name" in m for m in body["messages"]] == [True, False]


def test_a_seed_has_another_name_at_mistral() -> None:
    body, names = moved("mistral", seed=7)
    assert (body["random_seed"], "seed" in body) == (7, False)
    assert names == ("seed renamed to random_seed",)


@pytest.mark.parametrize("provider", ["groq", "deepseek", "mistral", "gemini", "xai", "moonshot"])
def test_a_developer_becomes_the_system(provider: str) -> None:
    messages = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": "x"}]
    body, names = moved(provider, messages=messages)
    assert body["messages"][0] == {"role": "system", "content": "be brief"}
    assert names == ("developer role mapped to system",)


@pytest.mark.parametrize(
    ("provider", "model", "choice", "becomes"),
    [
        ("openai", "", "any", "required"),
        ("openai", "", ALLOWED, ALLOWED),
        ("openai", "", NAMED, NAMED),
        ("groq", "", "any", "required"),
        ("groq", "", ALLOWED, "required"),
        ("groq", "", "required", "required"),
        ("mistral", "", "any", "any"),
        ("mistral", "", ALLOWED, "required"),
        ("gemini", "", ALLOWED, "required"),
        ("deepseek", "", "required", "auto"),
        ("deepseek", "", NAMED, "auto"),
        ("deepseek", "", "none", "none"),
        ("deepseek", "deepseek-chat", "required", "required"),
        ("moonshot", "", NAMED, "auto"),
        ("moonshot", "kimi-k3", NAMED, "required"),
        ("moonshot", "kimi-k3", "required", "required"),
        ("glm", "", "required", "auto"),
        ("llamacpp", "", NAMED, "required"),
        ("vllm", "", NAMED, NAMED),
        ("vllm", "", "any", "required"),
        ("openrouter", "", NAMED, NAMED),
    ],
)
def test_forms_of_tool_choice(provider: str, model: str, choice: Any, becomes: Any) -> None:
    body, names = moved(provider, model, tool_choice=choice)
    assert body["tool_choice"] == becomes
    form = choice if isinstance(choice, str) else choice["type"]
    is_same = choice == becomes
    assert names == (() if is_same else (f"tool_choice {form} mapped to {becomes}",))


def test_a_forced_tool_stays_where_thinking_is_off() -> None:
    body, _ = moved("deepseek", tool_choice="required", thinking={"type": "disabled"})
    assert body["tool_choice"] == "required"


def test_responses_have_rows_of_their_own() -> None:
    reasoning = {"effort": "low", "summary": "auto"}
    body, names = moved("xai", endpoint="responses", input="x", reasoning=reasoning, store=True)
    assert body["reasoning"] == {"effort": "low"}
    assert body["store"] is True
    assert names == ("reasoning.summary dropped",)
    assert "store" not in moved("openrouter", endpoint="responses", input="x", store=True)[0]
    assert moved("openrouter", endpoint="responses", input="x", store=False)[0]["store"] is False


def test_an_override_keeps_what_the_table_would_drop() -> None:
    keeping = target(
        HOSTS["groq"], model_adjust={"refused_fields": "keep", "tool_choice": {"auto": "none"}}
    )
    body = {"model": "m", "messages": HISTORY, "store": True, "tool_choice": "auto"}
    rewritten = rewrite(read(body), keeping, None)
    assert rewritten.adjustments == ("tool_choice auto mapped to none",)
    assert json.loads(rewritten.body)["messages"] == HISTORY


@pytest.mark.parametrize(
    "message",
    [
        b'{"role":"assistant","content":"x","reasoning":1,"reasoning":2}',
        b'{"role":"assistant","content":{"cache_control":1}}',
        b'{"role":"assistant","content":["cache_control",["cache_control"],null]}',
        b'{"role":"assistant","content":"\\"reasoning\\" \\"cache_control\\""}',
    ],
)
def test_what_has_another_shape_stays(message: bytes) -> None:
    messages = b"[" + message + b',{"role":"user","content":"x"}]'
    rewritten = rewrite(read(b'{"model":"m","messages":' + messages + b"}"), to("gemini"), None)
    assert messages in rewritten.body
    assert rewritten.adjustments == ()


def test_bytes_around_a_dropped_field_stay() -> None:
    body = (
        b'{"model":"m", "messages": [{"role" : "user","content":"\\u00e9 1"}, '
        b'{"role":"assistant", "reasoning_content":"r" , "content":"b"}]}'
    )
    rewritten = rewrite(read(body), to("openai"), None)
    assert rewritten.body == (
        b'{"model":"gpt-4o", "messages": [{"role" : "user","content":"\\u00e9 1"},'
        b'{"role":"assistant" , "content":"b"}]}'
    )


def test_ten_thousand_odd_keys_make_no_ten_thousand_names() -> None:
    odd = {f"odd{n}": n for n in range(10_000)}
    _, names = moved("groq", messages=[{"role": "user", "content": "x", **odd}])
    assert len(names) == 33
    assert names[-1] == "9968 more"
