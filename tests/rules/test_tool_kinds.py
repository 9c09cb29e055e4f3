"""Who runs a tool: what the client runs is a capability of the target, the rest binds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from matching_kit import route, table
from rules.bodies.making import chat, managed, read, target
from turnout_rules.capabilities import obstacle
from turnout_rules.model import Match, Model, Route, Upstream, When
from turnout_rules.providers import abilities
from turnout_rules.rewriting import rewrite
from turnout_rules.settings import Reading
from turnout_rules.table import build_table
from turnout_rules.tool_kinds import TOOL_CAPABILITIES
from turnout_rules.turns import Turns

OPENAI = "https://api.openai.com/v1"
CLIENT = "lacks client tools"


def tools(*tools: dict[str, Any]) -> dict[str, Any]:
    return {"model": "m", "input": "x", "tools": list(tools)}


def items(*items: dict[str, Any]) -> dict[str, Any]:
    return {"model": "m", "input": [{"role": "user", "content": "x"}, *items]}


def declaring(*tools: dict[str, Any]) -> dict[str, Any]:
    return items({"type": "additional_tools", "role": "developer", "tools": list(tools)})


CUSTOM = {"type": "custom", "name": "exec"}
GROUP = {"type": "namespace", "name": "functions", "tools": [CUSTOM]}
CALL = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}

NEEDS: list[tuple[str, dict[str, Any], set[str]]] = [
    ("responses", tools(CUSTOM), {"tools", "custom_tools"}),
    ("responses", tools(GROUP), {"tools", "custom_tools", "tool_namespaces"}),
    (
        "responses",
        declaring(GROUP),
        {"tools", "additional_tools", "custom_tools", "tool_namespaces"},
    ),
    ("responses", declaring({"type": "function", "name": "f"}), {"tools", "additional_tools"}),
    ("responses", items({**CALL, "namespace": "clock"}), {"tool_namespaces"}),
    ("responses", items({**CALL, "namespace": None}), set()),
    ("responses", items({"type": "custom_tool_call_output", "output": "y"}), {"custom_tools"}),
    ("responses", tools({"type": "local_shell"}), {"tools", "client_tools"}),
    ("responses", tools({"type": "shell"}), {"tools", "client_tools"}),
    ("responses", tools({"type": "apply_patch"}), {"tools", "client_tools"}),
    ("responses", tools({"type": "computer_use_preview"}), {"tools", "client_tools"}),
    (
        "responses",
        tools({"type": "shell", "environment": {"type": "local"}}),
        {"tools", "client_tools"},
    ),
    ("responses", tools({"type": "tool_search", "execution": "client"}), {"tools", "tool_search"}),
    ("responses", items({"type": "local_shell_call", "action": {}}), {"client_tools"}),
    ("responses", items({"type": "tool_search_call", "execution": "client"}), {"tool_search"}),
    ("chat", chat(tools=[{"type": "custom", "custom": {"name": "x"}}]), {"tools", "custom_tools"}),
    (
        "messages",
        {"model": "m", "messages": [], "tools": [{"type": "bash_20250124"}]},
        {"tools", "client_tools"},
    ),
    (
        "messages",
        {
            "model": "m",
            "messages": [],
            "tools": [{"type": "text_editor_20250728"}, {"type": "memory_20250818"}],
        },
        {"tools", "client_tools"},
    ),
    (
        "messages",
        {"model": "m", "messages": [], "tools": [{"type": "computer_toolset_20260801"}]},
        {"tools", "client_tools"},
    ),
]


@pytest.mark.parametrize(("endpoint", "body", "needs"), NEEDS)
def test_what_the_client_runs_is_needed_and_binds_nobody(
    endpoint: str, body: dict[str, Any], needs: set[str]
) -> None:
    request = read(body, endpoint=endpoint)
    assert request.bound == ""
    assert request.needs == needs


def test_calls_of_custom_tools_in_a_chat_are_seen() -> None:
    body = chat("x")
    body["messages"].append(
        {"role": "assistant", "tool_calls": [{"id": "1", "type": "custom", "custom": {}}]}
    )
    assert read(body).needs == {"custom_tools"}


BOUND: list[tuple[str, dict[str, Any], str]] = [
    ("responses", tools({"type": "tool_search"}), "hosted tools (tool_search)"),
    (
        "responses",
        tools({"type": "shell", "environment": {"type": "container_auto"}}),
        "hosted tools (shell)",
    ),
    ("responses", tools(CUSTOM, {"type": "web_search"}), "hosted tools (web_search)"),
    ("responses", tools({"type": "programmatic_tool_calling"}), "hosted tools (programmatic"),
    ("responses", declaring(CUSTOM, {"type": "mcp"}), "hosted tools (mcp)"),
    (
        "responses",
        declaring({**GROUP, "tools": [{"type": "code_interpreter"}]}),
        "hosted tools (code_interpreter)",
    ),
    ("responses", items({"type": "tool_search_call", "execution": "server"}), "tool_search_call"),
    (
        "responses",
        items({"type": "shell_call", "environment": {"type": "container_reference"}}),
        "shell_call",
    ),
    (
        "responses",
        items({"type": "computer_call_output", "output": {"file_id": "file-1"}}),
        "a file stored at the origin",
    ),
    (
        "messages",
        {"model": "m", "messages": [], "tools": [{"type": "code_execution_20260521"}]},
        "hosted",
    ),
    (
        "messages",
        {"model": "m", "messages": [], "tools": [{"type": "tool_search_tool_bm25"}]},
        "hosted",
    ),
    (
        "messages",
        {"model": "m", "messages": [], "tools": [{"type": "bash"}, {"type": "advisor_20260301"}]},
        "adv",
    ),
]


@pytest.mark.parametrize(("endpoint", "body", "reason"), BOUND)
def test_what_the_provider_runs_binds(endpoint: str, body: dict[str, Any], reason: str) -> None:
    assert reason in read(body, endpoint=endpoint).bound


def changing(**tool: Any) -> dict[str, Any]:
    part = {"type": "tool_addition", "tool": tool}
    return {"model": "m", "max_tokens": 5, "messages": [{"role": "system", "content": [part]}]}


def test_tools_added_in_an_anthropic_conversation_bind_as_those_at_its_head() -> None:
    known = read(changing(type="tool_reference", name="f"), endpoint="messages")
    assert (known.bound, known.needs) == ("", {"additional_tools", "tools"})
    assert obstacle(known, managed("vllm")) == "lacks additional_tools"
    assert obstacle(known, target("https://api.anthropic.com/v1")) == ""
    inline = changing(type="tool_definition", definition={"type": "web_search_20250305"})
    for body in (inline, changing(type="mcp_toolset_reference")):
        assert "hosted" in read(body, endpoint="messages").bound
        assert not read(body, endpoint="messages").is_bound_by_offer


def test_a_property_called_file_id_binds_nobody() -> None:
    schema = {"type": "object", "properties": {"file_id": {"type": "string"}}}
    body = declaring({"type": "function", "name": "f", "parameters": schema})
    body["input"][0]["content"] = [{"type": "input_image", "image_url": "data:x"}]
    assert read(body, endpoint="responses").bound == ""


OBSTACLES: list[tuple[str, dict[str, Any], Any, str]] = [
    ("responses", tools(CUSTOM), managed("vllm"), ""),
    ("responses", declaring(GROUP), managed("llamacpp"), ""),
    (
        "responses",
        declaring(GROUP),
        managed("vllm", model_supports=frozenset({"image"})),
        "no tools",
    ),
    ("responses", tools({"type": "local_shell"}), managed("vllm"), CLIENT),
    ("responses", tools({"type": "local_shell"}), target(OPENAI), ""),
    ("responses", tools({"type": "local_shell"}), target(), ""),
    ("responses", tools({"type": "shell"}), target(supports=frozenset({"tools"})), CLIENT),
    (
        "responses",
        tools({"type": "shell"}),
        target(supports=frozenset({"tools", "client_tools"})),
        "",
    ),
    (
        "messages",
        {"model": "m", "messages": [], "tools": [{"type": "bash_20250124"}]},
        managed("vllm"),
        CLIENT,
    ),
    (
        "messages",
        {"model": "m", "messages": [], "tools": [{"type": "bash_20250124"}]},
        target("https://api.anthropic.com"),
        "",
    ),
]


@pytest.mark.parametrize(("endpoint", "body", "to", "words"), OBSTACLES)
def test_what_a_target_lacks(endpoint: str, body: dict[str, Any], to: Any, words: str) -> None:
    found = obstacle(read(body, endpoint=endpoint), to)
    assert found.startswith(words) if words else found == ""


@pytest.mark.parametrize(
    ("model", "known"),
    [
        ("gpt-4o", set()),
        ("gpt-5", {"custom_tools"}),
        ("gpt-5-mini-2025-08-07", {"custom_tools"}),
        ("gpt-5-chat-latest", set()),
        ("gpt-5.4", {"custom_tools", "tool_namespaces"}),
        ("gpt-5.6-sol", {"custom_tools", "tool_namespaces", "additional_tools"}),
        ("gpt-6.2-sol", {"custom_tools", "tool_namespaces", "additional_tools"}),
        ("gpt-50x", set()),
        ("my-deployment", set()),
    ],
)
def test_openais_models_know_the_tools_of_their_time(model: str, known: set[str]) -> None:
    able = abilities(target(OPENAI, model)) or frozenset()
    assert able & {"custom_tools", "tool_namespaces", "additional_tools"} == known
    assert "client_tools" in able


def test_rules_can_ask_for_the_kinds_of_tools() -> None:
    found = table(
        route("custom", when=When(has=("custom_tools",)), priority=5),
        route("shells", when=When(has=("client_tools",)), priority=4),
        route("rest", ".*"),
    )
    assert found.decide(read(declaring(GROUP), endpoint="responses")).route == "custom"
    assert found.decide(read(tools({"type": "shell"}), endpoint="responses")).route == "shells"
    assert found.decide(read(items(CALL), endpoint="responses")).route == "rest"


def test_the_decision_tells_a_bond_from_a_lack() -> None:
    found = table(route("only", "x", target="text/plain"))
    bound = found.decide(read(tools({"type": "web_search"}), endpoint="responses"))
    assert bound.skipped == ("only: bound to its origin: hosted tools (web_search)",)
    lacking = found.decide(read(tools({"type": "local_shell"}), endpoint="responses"))
    assert lacking.skipped[0].startswith("only: text/plain: lacks client tools")
    folded = found.explain(read(declaring(GROUP), endpoint="responses"))
    assert folded.decision.target == "text/plain"
    assert (
        "changed   additional_tools moved from input to tools, namespaces folded, "
        "custom tools as functions"
    ) in str(folded)


def test_on_tools_sees_declared_and_grouped_tools() -> None:
    request = read(declaring(GROUP, {"type": "function", "name": "f"}), endpoint="responses")
    assert request.text_on("tools").split("\n") == ["functions", "exec", "f"]
    assert (
        read(chat(tools=[{"type": "custom", "custom": {"name": "own"}}])).text_on("tools") == "own"
    )


SEARCH = {"type": "web_search", "external_web_access": True}
PLAIN = {"type": "function", "name": "f", "parameters": {}}
LESS = target(supports=frozenset({"tools"}), model_adjust={"hosted_tools": "drop"})
FULL = target(
    supports=frozenset({"tools", *TOOL_CAPABILITIES}), model_adjust={"hosted_tools": "drop"}
)


def test_a_model_may_be_told_to_go_without_hosted_tools() -> None:
    body = {**declaring(GROUP, SEARCH), "tools": [PLAIN, SEARCH, {"type": "brand_new"}]}
    request = read(body, endpoint="responses")
    assert request.bound == "hosted tools (web_search)"
    assert request.is_bound_by_offer
    rewritten = rewrite(request, LESS, None)
    after = json.loads(rewritten.body)
    assert [tool["name"] for tool in after["tools"]] == ["f", "functions__exec"]
    assert rewritten.adjustments[-2:] == (
        "web_search left out of tools",
        "brand_new left out of tools",
    )
    kept = json.loads(rewrite(request, FULL, None).body)
    assert kept["tools"] == [PLAIN]
    assert kept["input"][1]["tools"] == [GROUP]
    assert json.loads(rewrite(request, target(), None).body)["tools"][1] == SEARCH


@pytest.mark.parametrize(
    "body",
    [
        tools(SEARCH),
        {**tools(PLAIN, GROUP, SEARCH), "tool_choice": {"type": "web_search"}},
        {**tools(GROUP, SEARCH), "previous_response_id": "resp_1"},
        tools(PLAIN, {**GROUP, "tools": [CUSTOM, SEARCH]}),
        {**items({"type": "web_search_call", "id": "ws_1"}), "tools": [GROUP, SEARCH]},
    ],
)
def test_only_what_is_merely_offered_is_left_out(body: dict[str, Any]) -> None:
    request = read(body, endpoint="responses")
    assert request.bound
    assert not request.is_bound_by_offer


def test_the_first_target_that_may_go_without_hosted_tools_is_taken() -> None:
    less = Model(name="less", supports=frozenset({"tools"}), adjust={"hosted_tools": "drop"})
    upstreams = {
        "text": Upstream(
            name="text", base_url="https://x", models={"less": less, "plain": Model(name="plain")}
        )
    }
    only = Route(
        name="only",
        match=Match(any=("x",)),
        targets=(("text/plain", 1),),
        fallback=("text/less",),
    )
    found = build_table([only], upstreams)
    request = read(tools(PLAIN, SEARCH), endpoint="responses")
    assert found.decide(request).target == "text/less"
    assert "bound to its origin: hosted tools (web_search)" in found.decide(request).reason
    hard = read(tools(SEARCH), endpoint="responses")
    assert found.decide(hard).skipped == ("only: bound to its origin: hosted tools (web_search)",)


def test_a_loop_of_custom_calls_follows_its_turn_and_rules_see_what_is_declared() -> None:
    first = declaring(GROUP)
    call = {"type": "custom_tool_call", "call_id": "1", "name": "exec", "input": "x"}
    output = {"type": "custom_tool_call_output", "call_id": "1", "output": "y"}
    later = {**first, "input": [*first["input"], call, output]}
    rules = table(
        route("custom", when=When(has=("custom_tools",)), priority=5), route("rest", ".*")
    )
    turns = Turns(rules, Reading())
    begun, looped, undeclared = (
        read(body, endpoint="responses") for body in (first, later, items())
    )
    assert turns.key(begun) == turns.key(looped) != ""
    assert turns.key(undeclared) != turns.key(begun)
    assert begun.field_needs == looped.field_needs == {"tools", *TOOL_CAPABILITIES[:3]}
    blind = Turns(table(route("rest", ".*")), Reading())
    plain = read(declaring(PLAIN), endpoint="responses")
    assert blind.key(plain) == blind.key(begun)
