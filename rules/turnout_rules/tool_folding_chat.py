"""Custom tools of Chat Completions as plain functions: tools, calls of the conversation, choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from turnout_rules.tool_inputs import as_arguments, as_function
from turnout_rules.tool_names import Calls, Tool

if TYPE_CHECKING:
    from turnout_rules.request import Request

_KINDS = ("function", "custom")

_Fields = dict[str, Any]
_list = msgspec.json.Decoder(list[dict[str, Any]])
_raws = msgspec.json.Decoder(list[msgspec.Raw])
_any = msgspec.json.Decoder()
_encode = msgspec.json.encode


class _Message(msgspec.Struct):
    tool_calls: msgspec.Raw = msgspec.Raw()


_message = msgspec.json.Decoder(_Message)


def fold_chat(request: Request) -> tuple[dict[str, bytes | None], Calls]:
    """The fields to change and the names in them; custom tools are all that chat has to fold.

    Raises what reading an odd shape raises: DecodeError, KeyError, TypeError, AttributeError.
    """
    offered = (_any.decode(request.fields["tools"]) or []) if "tools" in request.fields else []
    messages = [(_message.decode(m), bytes(m)) for m in _raws.decode(request.fields["messages"])]
    called = [call for head, _ in messages if _holds_custom(head) for call in _chat_calls(head)]
    tools = [
        Tool(entry["type"], "", entry[entry["type"]]["name"])
        for entry in (*offered, *called)
        if entry.get("type") in _KINDS
    ]
    calls = Calls(tools, folds_namespaces=False, folds_custom=True)
    changes: dict[str, bytes | None] = {}
    folded_tools = [_chat_tool(tool, calls) for tool in offered]
    if folded_tools != offered:
        changes["tools"] = _encode(folded_tools)
    if called:
        folded = [_chat_message(head, raw, calls) for head, raw in messages]
        changes["messages"] = b"[" + b",".join(folded) + b"]"
    raw = request.fields.get("tool_choice")
    choice = _any.decode(raw) if raw is not None else None
    if isinstance(choice, dict) and (folded_choice := _chat_choice(choice, calls)) != choice:
        changes["tool_choice"] = _encode(folded_choice)
    return changes, calls


def _holds_custom(head: _Message) -> bool:
    return len(head.tool_calls) > 0 and b'"custom"' in bytes(head.tool_calls)


def _chat_calls(head: _Message) -> list[_Fields]:
    return _list.decode(head.tool_calls)


def _chat_tool(tool: _Fields, calls: Calls) -> _Fields:
    if tool.get("type") != "custom":
        return tool
    name = calls.address(Tool("custom", "", tool["custom"]["name"]))[1]
    return {"type": "function", "function": as_function(tool["custom"], name)}


def _chat_message(head: _Message, raw: bytes, calls: Calls) -> bytes:
    if not _holds_custom(head):
        return raw
    folded = [_chat_call(call, calls) for call in _chat_calls(head)]
    return _encode({**_any.decode(raw), "tool_calls": folded})


def _chat_call(call: _Fields, calls: Calls) -> _Fields:
    if call.get("type") != "custom":
        return call
    custom = call["custom"]
    name = calls.address(Tool("custom", "", custom["name"]))[1]
    function = {"name": name, "arguments": as_arguments(custom["input"])}
    return {"id": call["id"], "type": "function", "function": function}


def _chat_choice(choice: _Fields, calls: Calls) -> _Fields:
    kind = choice.get("type")
    if kind == "allowed_tools":
        allowed = choice["allowed_tools"]
        tools = [_chat_choice(tool, calls) for tool in allowed["tools"]]
        return {**choice, "allowed_tools": {**allowed, "tools": tools}}
    if kind != "custom" or (tool := calls.find("custom", "", choice["custom"]["name"])) is None:
        return choice
    return {"type": "function", "function": {"name": calls.address(tool)[1]}}
