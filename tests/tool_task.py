"""A small agent that talks as Codex does: tools declared in the conversation, in namespaces, with
free text; it runs what the model calls and sends the results back."""

from __future__ import annotations

import json
from typing import Any

import openai

from functions_only import FunctionsOnly

TEXT = 'echo "ü 🙂" > file\n\tand \\more'
SCRIPT = [
    ("exec", json.dumps({"input": TEXT}, ensure_ascii=False)),
    ("sleep", '{"ms": 1}'),
    ("exec", json.dumps({"input": "second"})),
    ("plain", '{"a": 1}'),
]
"""What the model calls."""
DONE = [
    ("custom_tool_call", "functions", "exec", TEXT),
    ("function_call", "clock", "sleep", '{"ms": 1}'),
    ("custom_tool_call", "functions", "exec", "second"),
    ("function_call", None, "plain", '{"a": 1}'),
]
"""What the client sees of it."""
_GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /[\\s\\S]+/"}
_EXEC = {"type": "custom", "name": "exec", "description": "Runs.", "format": _GRAMMAR}
_SCHEMA = {"type": "object", "properties": {"ms": {"type": "number"}}}
_SLEEP = {"type": "function", "name": "sleep", "strict": False, "parameters": _SCHEMA}
_PLAIN = {"type": "function", "name": "plain", "strict": False, "parameters": {"type": "object"}}
_GROUPS = [
    {"type": "namespace", "name": "functions", "description": "", "tools": [_EXEC]},
    {"type": "namespace", "name": "clock", "description": "Time.", "tools": [_SLEEP]},
]


def scripted(**more: Any) -> FunctionsOnly:
    """The upstream for `run_task` and `run_chat_task`."""
    return FunctionsOnly(script=SCRIPT, text="all done ü", **more)


def run_task(
    client: openai.OpenAI, model: str, words: str, *, stream: bool
) -> tuple[list[Any], str]:
    """The calls that the client got, and the model's last words."""
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": words}]}
    items: list[Any] = [
        {"type": "additional_tools", "role": "developer", "tools": _GROUPS},
        said,
    ]
    calls = []
    for _ in range(10):
        output, text = _ask(client, model, items, stream=stream)
        if text:
            return calls, text
        for item in output:
            is_custom = item["type"] == "custom_tool_call"
            text = item["input"] if is_custom else item["arguments"]
            calls.append((item["type"], item.get("namespace"), item["name"], text))
            items.append({k: v for k, v in item.items() if v is not None})
            part = {"type": "input_text", "text": "ok"}
            items.append(
                {
                    "type": f"{item['type']}_output",
                    "call_id": item["call_id"],
                    "output": [part] if is_custom else "ok",
                }
            )
    raise AssertionError(f"never done: {calls}")


def _ask(
    client: openai.OpenAI, model: str, items: list[Any], *, stream: bool
) -> tuple[list[dict[str, Any]], str]:
    asked: Any = {"model": model, "input": items, "tools": [_PLAIN], "store": False}
    if not stream:
        whole = client.responses.create(**asked)
        return _calls(whole), whole.output_text
    done: list[dict[str, Any]] = []
    pieces: dict[str, str] = {}
    numbers = []
    final = None
    for event in client.responses.create(**asked, stream=True):
        numbers.append(event.sequence_number)
        if event.type == "response.custom_tool_call_input.delta":
            pieces[event.item_id] = pieces.get(event.item_id, "") + event.delta
        elif event.type == "response.output_item.done":
            done.append(event.item.model_dump())
        elif event.type == "response.completed":
            final = event.response
    assert final is not None
    assert numbers == list(range(len(numbers)))
    calls = _calls(final)
    assert [item for item in done if item["type"].endswith("_call")] == calls
    for item in calls:
        if item["type"] == "custom_tool_call":
            assert pieces[item["id"]] == item["input"]
    return calls, final.output_text


def _calls(response: Any) -> list[dict[str, Any]]:
    return [item.model_dump() for item in response.output if item.type.endswith("_call")]


def run_chat_task(client: openai.OpenAI, model: str, words: str, *, stream: bool) -> list[str]:
    """A chat with a custom tool; the inputs that the client got."""
    custom = {"name": "exec", "description": "Runs.", "format": {"type": "text"}}
    asked: Any = {"model": model, "tools": [{"type": "custom", "custom": custom}]}
    messages: list[Any] = [{"role": "user", "content": words}]
    inputs: list[str] = []
    for _ in range(10):
        call = _chat_call(client, {**asked, "messages": messages}, stream=stream)
        if call is None:
            return inputs
        assert (call["type"], call["custom"]["name"]) == ("custom", "exec")
        inputs.append(call["custom"]["input"])
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": "ok"})
    raise AssertionError(f"never done: {inputs}")


def _chat_call(client: openai.OpenAI, asked: Any, *, stream: bool) -> dict[str, Any] | None:
    if not stream:
        made = client.chat.completions.create(**asked).choices[0].message.tool_calls
        return made[0].model_dump() if made else None
    call: dict[str, Any] = {}
    for chunk in client.chat.completions.create(**asked, stream=True):
        for choice in chunk.model_dump()["choices"]:
            for piece in choice["delta"]["tool_calls"] or []:
                if piece.get("id"):
                    call = {"id": piece["id"], "type": piece["type"], "custom": piece["custom"]}
                else:
                    call["custom"]["input"] += piece["custom"]["input"]
    return call or None
