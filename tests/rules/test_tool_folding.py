"""Requests for targets that know plain functions only, and names that lead back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.bodies.making import chat, managed, read, target
from turnout_rules.rewriting import Rewrite, rewrite
from turnout_rules.tool_inputs import InputReader, as_arguments, as_input
from turnout_rules.tool_names import MAX_NAME_CHARS, Calls, Tool

VLLM = managed("vllm", model_adjust={"developer_role": "keep", "unknown_keys": "keep"})
EXEC = {
    "type": "custom",
    "name": "exec",
    "description": "Runs code.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: /x+/"},
}
SLEEP = {
    "type": "function",
    "name": "sleep",
    "description": "Waits.",
    "strict": False,
    "defer_loading": True,
    "parameters": {"type": "object", "properties": {"ms": {"type": "number"}}},
}
PLAIN = {"type": "function", "name": "plain", "parameters": {}, "output_schema": {}}
SHAPE: dict[str, Any] = {
    "model": "gpt-6.2-sol",
    "stream": True,
    "input": [
        {
            "type": "additional_tools",
            "role": "developer",
            "tools": [
                {
                    "type": "namespace",
                    "name": "functions",
                    "tools": [{"type": "custom", "name": "exec"}],
                }
            ],
        },
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "please translate good morning"}],
        },
    ],
}
"""As Codex 0.171 sends it, all text left out."""


def fold(body: dict[str, Any], to: Any = VLLM, endpoint: str = "responses") -> tuple[Any, Rewrite]:
    rewritten = rewrite(read(body, endpoint=endpoint), to, None)
    return json.loads(rewritten.body), rewritten


def group(name: str, *tools: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "namespace", "name": name, "tools": list(tools), **more}


def test_codexs_request_becomes_one_of_plain_functions() -> None:
    after, rewritten = fold(SHAPE)
    (tool,) = after["tools"]
    assert tool.keys() == {"type", "name", "description", "parameters", "strict"}
    assert (tool["type"], tool["name"]) == ("function", "functions__exec")
    assert tool["parameters"]["required"] == ["input"]
    assert after["input"] == SHAPE["input"][1:]
    assert rewritten.adjustments == (
        "additional_tools moved from input to tools",
        "namespaces folded",
        "custom tools as functions",
    )


def test_a_target_that_knows_every_kind_gets_the_bytes_as_they_came() -> None:
    able = frozenset({"tools", "custom_tools", "tool_namespaces", "additional_tools"})
    for to in (target("https://api.openai.com/v1", "gpt-6.2"), target(supports=able)):
        request = read(SHAPE, endpoint="responses")
        rewritten = rewrite(request, to, None)
        wanted = json.dumps({**SHAPE, "model": to.model.name}).encode()
        assert rewritten.body == wanted
        assert rewritten.calls is None
        assert rewritten.adjustments == ()


def test_only_what_the_target_lacks_is_folded() -> None:
    body = {**SHAPE, "tools": [group("g", EXEC, SLEEP), PLAIN]}
    to = target(supports=frozenset({"tools", "tool_namespaces", "additional_tools"}))
    after, rewritten = fold(body, to)
    assert rewritten.adjustments == ("custom tools as functions",)
    kept = after["tools"][0]
    assert (kept["type"], kept["name"]) == ("namespace", "g")
    assert [(t["type"], t["name"]) for t in kept["tools"]] == [
        ("function", "exec"),
        ("function", "sleep"),
    ]
    assert after["tools"][1] == PLAIN
    assert after["input"][0]["tools"][0]["tools"][0]["type"] == "function"
    assert rewritten.calls is not None
    assert rewritten.calls.original("g", "exec") == Tool("custom", "g", "exec")

    to = target(supports=frozenset({"tools", "custom_tools"}))
    after, rewritten = fold(body, to)
    assert rewritten.adjustments == (
        "additional_tools moved from input to tools",
        "namespaces folded",
    )
    assert [(t["type"], t["name"]) for t in after["tools"]] == [
        ("custom", "g__exec"),
        ("function", "g__sleep"),
        ("function", "plain"),
        ("custom", "functions__exec"),
    ]
    assert after["tools"][0]["format"] == EXEC["format"]


def test_the_grammar_is_told_to_the_model() -> None:
    after, _ = fold({"model": "m", "input": "x", "tools": [EXEC]})
    assert after["tools"][0]["description"] == (
        "Runs code.\n\n`input` must be plain text that matches this Lark grammar:\nstart: /x+/"
    )
    regex = {**EXEC, "description": None, "format": {**EXEC["format"], "syntax": "regex"}}
    after, _ = fold({"model": "m", "input": "x", "tools": [regex]})
    assert after["tools"][0]["description"].endswith("this regular expression:\nstart: /x+/")


def test_a_namespaces_description_is_kept_once() -> None:
    grouped = group("clock", SLEEP, {**SLEEP, "name": "now"}, description="Time.")
    after, _ = fold({"model": "m", "input": "x", "tools": [grouped]})
    assert [t["description"] for t in after["tools"]] == ["clock: Time.\n\nWaits.", "Waits."]
    assert "defer_loading" not in after["tools"][0]


def test_tools_declared_again_replace_the_earlier_ones() -> None:
    body = json.loads(json.dumps(SHAPE))
    again = group("functions", {**EXEC, "description": "Newer."}, SLEEP)
    body["input"].append({"type": "additional_tools", "role": "developer", "tools": [again]})
    after, _ = fold(body)
    assert [t["name"] for t in after["tools"]] == ["functions__exec", "functions__sleep"]
    assert after["tools"][0]["description"].startswith("Newer.")


def test_the_conversation_follows_its_tools() -> None:
    call = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "1", "name": "exec"}
    output = {"type": "custom_tool_call_output", "id": "ctco_1", "call_id": "1"}
    slept = {"type": "function_call", "id": "fc_2", "call_id": "2", "name": "sleep"}
    image = {"type": "input_image", "image_url": "data:x"}
    body = {
        **SHAPE,
        "input": [
            *SHAPE["input"],
            {**call, "namespace": "functions", "input": 'say "ü"\n'},
            {**output, "output": [{"type": "input_text", "text": t} for t in ("a", "b\n", "c")]},
            {**slept, "namespace": "clock", "arguments": '{"ms": 1}'},
            {**call, "input": "no namespace"},
            {**output, "output": [{"type": "input_text", "text": "see"}, image]},
            {**output, "output": "plain"},
        ],
    }
    after, _ = fold(body, target())
    assert after["input"][1:] == [
        {
            "type": "function_call",
            "call_id": "1",
            "name": "functions__exec",
            "arguments": '{"input":"say \\"ü\\"\\n"}',
        },
        {"type": "function_call_output", "call_id": "1", "output": "a\nb\nc"},
        {**slept, "name": "clock__sleep", "arguments": '{"ms": 1}'},
        {
            "type": "function_call",
            "call_id": "1",
            "name": "exec",
            "arguments": '{"input":"no namespace"}',
        },
        {
            "type": "function_call_output",
            "call_id": "1",
            "output": [{"type": "input_text", "text": "see"}, image],
        },
        {"type": "function_call_output", "call_id": "1", "output": "plain"},
    ]


@pytest.mark.parametrize(
    ("choice", "folded"),
    [
        ("auto", "auto"),
        ({"type": "custom", "name": "exec"}, {"type": "function", "name": "g__exec"}),
        ({"type": "function", "name": "sleep"}, {"type": "function", "name": "g__sleep"}),
        ({"type": "function", "name": "plain"}, {"type": "function", "name": "plain"}),
        ({"type": "namespace", "name": "g"}, "required"),
        (
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [
                    {"type": "namespace", "name": "g"},
                    {"type": "function", "name": "plain"},
                ],
            },
            {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [
                    {"type": "function", "name": "g__exec"},
                    {"type": "function", "name": "g__sleep"},
                    {"type": "function", "name": "plain"},
                ],
            },
        ),
    ],
)
def test_tool_choice_names_the_folded_tools(choice: Any, folded: Any) -> None:
    tools = [group("g", EXEC, SLEEP), PLAIN]
    after, _ = fold({"model": "m", "input": "x", "tools": tools, "tool_choice": choice})
    assert after["tool_choice"] == folded


def test_local_engines_get_roles_and_tools_adjusted_together() -> None:
    said = {"type": "message", "role": "developer", "content": "Be brief."}
    body = {**SHAPE, "input": [*SHAPE["input"], said]}
    after, rewritten = fold(body, managed("vllm"))
    assert after["instructions"] == "Be brief."
    assert after["input"] == SHAPE["input"][1:]
    assert after["tools"][0]["name"] == "functions__exec"
    assert rewritten.adjustments[-1] == "system messages merged"


def test_chat_has_custom_tools_too() -> None:
    custom = {"name": "sql", "description": "Query.", "format": {"type": "text"}}
    grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: X"}}
    body = chat(
        tools=[
            {"type": "custom", "custom": custom},
            {"type": "custom", "custom": {**custom, "name": "strict", "format": grammar}},
            {"type": "function", "function": {"name": "f"}},
        ],
        tool_choice={"type": "custom", "custom": {"name": "sql"}},
    )
    made = {"id": "1", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}
    plain = {"id": "2", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    body["messages"] += [
        {"role": "assistant", "content": None, "tool_calls": [made, plain]},
        {"role": "tool", "tool_call_id": "1", "content": "1"},
    ]
    after, rewritten = fold(body, target(), "chat")
    assert rewritten.adjustments == ("custom tools as functions",)
    assert [t["function"]["name"] for t in after["tools"]] == ["sql", "strict", "f"]
    assert "start: X" in after["tools"][1]["function"]["description"]
    assert after["tools"][2] == body["tools"][2]
    assert after["tool_choice"] == {"type": "function", "function": {"name": "sql"}}
    calls = after["messages"][1]["tool_calls"]
    assert calls[0]["function"] == {"name": "sql", "arguments": '{"input":"select 1"}'}
    assert calls[1] == plain
    assert after["messages"][2] == body["messages"][2]


@pytest.mark.parametrize(
    "tools",
    [
        [{"type": "custom"}],
        [{"type": "namespace", "name": "g", "tools": [{"type": "custom"}]}],
        [{"type": "namespace", "tools": []}, EXEC],
        [{"type": "custom", "name": 5}],
        [{"type": "custom", "name": "x", "format": "grammar"}],
        [{"type": "custom", "name": "x", "format": {"type": "grammar"}}],
    ],
)
def test_tools_of_an_odd_shape_stay_as_they_are(tools: list[Any]) -> None:
    after, rewritten = fold({"model": "m", "input": "x", "tools": tools})
    assert after["tools"] == tools
    assert rewritten.calls is None


SEARCH = {
    "type": "tool_search",
    "execution": "client",
    "description": "Finds tools.",
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
}


def test_a_search_for_tools_by_the_client_is_a_function_too() -> None:
    found = [group("weather", {**SLEEP, "name": "get"}, description="Weather.")]
    head = {"call_id": "1", "execution": "client", "status": "completed"}
    body = {
        "model": "m",
        "tools": [PLAIN, SEARCH],
        "tool_choice": {"type": "tool_search"},
        "input": [
            {"role": "user", "content": "x"},
            {"type": "tool_search_call", "id": "tsc_1", **head, "arguments": {"query": "rain"}},
            {"type": "tool_search_output", "id": "tso_1", **head, "tools": found},
            {"type": "tool_search_output", **head, "tools": []},
            {"type": "function_call", "call_id": "2", "name": "get", "namespace": "weather"},
        ],
    }
    after, rewritten = fold(body)
    assert rewritten.adjustments == ("namespaces folded", "tool search as a function")
    assert [t["name"] for t in after["tools"]] == ["plain", "tool_search", "weather__get"]
    assert after["tools"][1] == {
        "type": "function",
        "name": "tool_search",
        "description": "Finds tools.",
        "parameters": SEARCH["parameters"],
        "strict": False,
    }
    assert after["tool_choice"] == {"type": "function", "name": "tool_search"}
    call, output, nothing, got = after["input"][1:]
    assert call == {
        "type": "function_call",
        "call_id": "1",
        "name": "tool_search",
        "arguments": '{"query":"rain"}',
    }
    assert output["output"] == "These tools can be called now: weather__get"
    assert nothing["output"] == "No tools found."
    assert got == {"type": "function_call", "call_id": "2", "name": "weather__get"}


def test_what_a_search_found_is_folded_in_place_where_the_target_knows_searches() -> None:
    item = {"type": "tool_search_output", "execution": "client", "tools": [group("g", EXEC)]}
    body = {"model": "m", "input": [{"role": "user", "content": "x"}, item], "tools": [SEARCH]}
    after, _ = fold(body, target(supports=frozenset({"tools", "tool_search"})))
    assert after["tools"] == [SEARCH]
    (tool,) = after["input"][1]["tools"]
    assert (tool["type"], tool["name"]) == ("function", "g__exec")


def test_parts_of_a_functions_result_become_one_text_too() -> None:
    parts = [{"type": "input_text", "text": t} for t in ("a", "b")]
    image = {"type": "input_image", "image_url": "data:x"}
    output = {"type": "function_call_output", "call_id": "1", "output": parts}
    seen = {**output, "output": [*parts, image]}
    after, _ = fold({**SHAPE, "input": [*SHAPE["input"], output, seen]}, target())
    assert after["input"][1:] == [{**output, "output": "a\nb"}, seen]


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=80)
plain_names = st.sampled_from(["a", "b", "a__b", "a__a", "exec", "x" * 64])
tools_drawn = st.lists(
    st.builds(
        Tool,
        st.sampled_from(["function", "custom"]),
        st.sampled_from(["", "a", "b", "a__b", "n" * 40]) | names,
        plain_names | names,
    ),
    max_size=12,
)


@given(tools_drawn, st.booleans(), st.booleans())
def test_every_tool_has_a_name_of_its_own_that_leads_back(
    tools: list[Tool], folds_namespaces: bool, folds_custom: bool
) -> None:
    calls = Calls(tools, folds_namespaces=folds_namespaces, folds_custom=folds_custom)
    addresses = {tool: calls.address(tool) for tool in tools}
    assert len(set(addresses.values())) == len(set(tools))
    again = Calls(tools, folds_namespaces=folds_namespaces, folds_custom=folds_custom)
    for tool, (namespace, name) in addresses.items():
        assert again.address(tool) == (namespace, name)
        back = calls.original(namespace, name)
        if tool.kind == "function" and (namespace, name) == (tool.namespace, tool.name):
            assert back is None  # needs no turning back
        else:
            assert len(name) <= MAX_NAME_CHARS
            assert name.isascii()
            assert back in (tool, None)
            assert back is tool or not folds_custom or tool.kind == "function"
        if folds_namespaces:
            assert namespace == ""


def test_the_same_tools_keep_their_names_when_others_join() -> None:
    first = [Tool("custom", "functions", "exec"), Tool("function", "n" * 40, "m" * 40)]
    alone = Calls(first, folds_namespaces=True, folds_custom=True)
    more = [Tool("function", "", "plain"), *first, Tool("custom", "g", "exec")]
    joined = Calls(more, folds_namespaces=True, folds_custom=True)
    assert [alone.address(t) for t in first] == [joined.address(t) for t in first]
    assert alone.address(first[0]) == ("", "functions__exec")
    assert len(alone.address(first[1])[1]) == MAX_NAME_CHARS


def test_a_model_may_call_a_tool_as_its_prompt_speaks_of_it() -> None:
    tools = [Tool("custom", "functions", "exec"), Tool("function", "a", "wait")]
    calls = Calls([*tools, Tool("function", "", "wait")], folds_namespaces=True, folds_custom=True)
    assert calls.original("", "exec") == tools[0]
    assert calls.original("", "functions.exec") == tools[0]
    assert calls.original("", "wait") is None
    assert calls.original("", "a.wait") == tools[1]


@given(st.text())
def test_an_input_survives_its_way_through_arguments(text: str) -> None:
    assert as_input(as_arguments(text)) == text


@given(st.text(), st.booleans(), st.integers(1, 5))
def test_an_input_is_read_from_pieces_of_any_size(text: str, is_ascii: bool, size: int) -> None:
    arguments = json.dumps({"input": text}, ensure_ascii=is_ascii)
    reader = InputReader()
    pieces = [arguments[at : at + size] for at in range(0, len(arguments), size)]
    assert "".join(map(reader.feed, pieces)) == text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"input":"x"}', "x"),
        (' { "input" : "x\\n\\u00fc\\ud83d\\ude42" } ', "x\nü🙂"),
        ('{"code":"x"}', "x"),
        ('{"input":{"a":1}}', '{"a":1}'),
        ('"x"', "x"),
        ("plain text", "plain text"),
        ('{"input":"cut of', "cut of"),
        ('{"input":"lone \\ud83d"}', "lone \ufffd"),
        ('{"inp', '{"inp'),
        ("", ""),
        ('{"a":1,"b":2}', '{"a":1,"b":2}'),
    ],
)
def test_what_models_write_instead_becomes_the_input(arguments: str, text: str) -> None:
    assert as_input(arguments) == text


@pytest.mark.parametrize("text", ["plain text", '{"a":1,"b":2}', '{"input":5}', " " * 300 + "x"])
def test_arguments_of_another_shape_come_out_as_they_are(text: str) -> None:
    reader = InputReader()
    assert "".join(reader.feed(c) for c in text) == text
