"""Calls in an answer turned back into what the client declared: whole bodies and single events.

The counterpart of `tool_folding`, for the Responses API and Chat Completions. Everything that is
not such a call keeps its bytes.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from turnout_rules.tool_inputs import InputReader, as_input
from turnout_rules.tool_names import Calls, Tool

Fields = dict[str, msgspec.Raw]
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raws = msgspec.json.Decoder(list[msgspec.Raw])
_any = msgspec.json.Decoder()
_encode = msgspec.json.encode

_DELTA = "response.function_call_arguments.delta"
_DONE = "response.function_call_arguments.done"
_CUSTOM_EVENT = {
    _DELTA: "response.custom_tool_call_input.delta",
    _DONE: "response.custom_tool_call_input.done",
}
_NO_ARGUMENTS = msgspec.Raw(b'""')


class Unfolding(Protocol):
    """How one API's answers are turned back. One for each answer: it remembers open calls."""

    mark: bytes
    """What the bytes of every event with a call hold."""

    def body(self, fields: Fields) -> Fields | None:
        """A whole answer; None: nothing to turn back."""

    def event(self, fields: Fields) -> Fields | None:
        """The data of one event of a stream; None: it stays as it is."""


def unfolding(endpoint: str, calls: Calls) -> Unfolding:
    """The way back for answers of `endpoint`, `responses` or `chat`."""
    return ChatUnfolding(calls) if endpoint == "chat" else ResponsesUnfolding(calls)


class _OpenCall(msgspec.Struct):
    """A custom tool's call whose arguments are arriving."""

    tool: Tool
    item_id: str
    """As the client knows it."""
    reader: InputReader


class ResponsesUnfolding:
    """`function_call` items and their events."""

    mark = b"function_call"

    def __init__(self, calls: Calls) -> None:
        """No call is open."""
        self._calls = calls
        self._open: dict[object, _OpenCall] = {}

    def body(self, fields: Fields) -> Fields | None:
        """A response object: the items of its `output`."""
        if (raw := fields.get("output")) is None:
            return None
        items = _raws.decode(raw)
        changed = [self._item(item) for item in items]
        if not any(changed):
            return None
        output = [new or old for old, new in zip(items, changed, strict=True)]
        return {**fields, "output": _raw(output)}

    def event(self, fields: Fields) -> Fields | None:
        """Items that are added or done, pieces of arguments, and whole responses."""
        kind = _text(fields, "type")
        if kind in _CUSTOM_EVENT:
            return self._arguments(kind, fields)
        if "item" in fields:
            return self._item_event(kind, fields)
        if "response" in fields:
            response = self.body(_fields.decode(fields["response"]))
            return None if response is None else {**fields, "response": _raw(response)}
        return None

    def _item_event(self, kind: str, fields: Fields) -> Fields | None:
        if (item := self._item(fields["item"])) is None:
            return None
        if _text(item, "type") == "custom_tool_call":
            if kind.endswith(".added"):
                self._begin(fields, _fields.decode(fields["item"]))
            else:
                for key in _keys(fields, _fields.decode(fields["item"])):
                    self._open.pop(key, None)
        return {**fields, "item": _raw(item)}

    def _begin(self, fields: Fields, item: Fields) -> None:
        tool = self._tool(item)
        if tool is None:
            return
        call = _OpenCall(tool, _own_id(_text(item, "id"), "ctc_"), InputReader())
        for key in _keys(fields, item):
            self._open[key] = call

    def _arguments(self, kind: str, fields: Fields) -> Fields | None:
        found = (self._open.get(key) for key in _keys(fields, {}))
        call = next(filter(None, found), None)
        if call is None:
            return self._named(fields)
        if kind == _DELTA:
            key, value = "delta", call.reader.feed(_text(fields, "delta"))
        else:
            key, value = "input", as_input(_text(fields, "arguments"))
        changed = {
            (key if name in ("delta", "arguments") else name): raw
            for name, raw in fields.items()
            if name not in ("name", "namespace")
        }
        changed["type"] = _raw(_CUSTOM_EVENT[kind])
        changed[key] = _raw(value)
        if "item_id" in changed:
            changed["item_id"] = _raw(call.item_id)
        return changed

    def _named(self, fields: Fields) -> Fields | None:
        """Some servers repeat the function's name at the end of its arguments."""
        tool = self._tool(fields) if "name" in fields else None
        if tool is None or tool.kind != "function":
            return None
        return {**fields, "name": _raw(tool.name)}

    def _tool(self, item: Fields) -> Tool | None:
        return self._calls.original(_text(item, "namespace"), _text(item, "name"))

    def _item(self, raw: msgspec.Raw) -> Fields | None:
        item = _fields.decode(raw)
        if _text(item, "type") != "function_call" or (tool := self._tool(item)) is None:
            return None
        if tool.kind == "search":
            return _search_call(item)
        is_custom = tool.kind == "custom" and self._calls.folds_custom
        changed: Fields = {}
        for name, value in item.items():
            if name == "name":
                changed["name"] = _raw(tool.name)
                if tool.namespace:
                    changed["namespace"] = _raw(tool.namespace)
            elif name == "arguments" and is_custom:
                changed["input"] = _raw(as_input(_text(item, "arguments")))
            elif name != "namespace":
                changed[name] = value
        if is_custom:
            changed["type"] = _raw("custom_tool_call")
            changed.setdefault("input", _NO_ARGUMENTS)
            if "id" in changed:
                changed["id"] = _raw(_own_id(_text(item, "id"), "ctc_"))
        return changed


def _search_call(item: Fields) -> Fields:
    """A function's call as the search for tools that it is; its arguments are no text there."""
    changed = {k: v for k, v in item.items() if k not in ("type", "name", "namespace", "arguments")}
    changed["type"] = _raw("tool_search_call")
    changed["execution"] = _raw("client")
    try:
        arguments = _any.decode(_text(item, "arguments") or "{}")
    except msgspec.DecodeError:
        arguments = {}
    changed["arguments"] = _raw(arguments if isinstance(arguments, dict) else {})
    if "id" in item:
        changed["id"] = _raw(_own_id(_text(item, "id"), "tsc_"))
    return changed


class ChatUnfolding:
    """`tool_calls` of messages and deltas."""

    mark = b"tool_calls"

    def __init__(self, calls: Calls) -> None:
        """No call is open."""
        self._calls = calls
        self._open: dict[tuple[Any, Any], InputReader] = {}

    def body(self, fields: Fields) -> Fields | None:
        """A chat completion: the messages of its choices."""
        return self._choices(fields, "message", self._message_call)

    def event(self, fields: Fields) -> Fields | None:
        """A chunk: the deltas of its choices."""
        return self._choices(fields, "delta", self._delta_call)

    def _choices(self, fields: Fields, part: str, turn_back: Any) -> Fields | None:
        if "choices" not in fields:
            return None
        is_changed = False
        choices: list[Any] = []
        for choice in _any.decode(fields["choices"]):
            message = choice.get(part) or {}
            for at, call in enumerate(message.get("tool_calls") or ()):
                if (turned := turn_back(choice.get("index", 0), at, call)) is not None:
                    message["tool_calls"][at] = turned
                    is_changed = True
            choices.append(choice)
        return {**fields, "choices": _raw(choices)} if is_changed else None

    def _message_call(self, choice: Any, at: int, call: Any) -> dict[str, Any] | None:
        del choice, at
        function = call.get("function") or {}
        tool = self._calls.original("", function.get("name") or "")
        if tool is None:
            return None
        arguments = function.get("arguments") or ""
        return _as_custom(call, {"name": tool.name, "input": as_input(arguments)})

    def _delta_call(self, choice: Any, at: int, call: Any) -> dict[str, Any] | None:
        key = (choice, call.get("index", at))
        function = call.get("function") or {}
        custom: dict[str, Any] = {}
        if name := function.get("name"):
            tool = self._calls.original("", name)
            if tool is None:
                self._open.pop(key, None)
                return None
            if call.get("id") or key not in self._open:
                self._open[key] = InputReader()
            custom = {"name": tool.name, "input": ""}
        if (reader := self._open.get(key)) is None:
            return None
        if (arguments := function.get("arguments")) is not None:
            custom["input"] = reader.feed(arguments)
        return _as_custom(call, custom)


def _as_custom(call: dict[str, Any], custom: dict[str, Any]) -> dict[str, Any]:
    turned: dict[str, Any] = {}
    for name, value in call.items():
        if name == "function":
            turned["custom"] = custom
        else:
            turned[name] = "custom" if name == "type" else value
    return turned


def _keys(fields: Fields, item: Fields) -> list[object]:
    """What tells the events of one item from another's: servers give the one, the other or both."""
    item_id = _text(fields, "item_id") or _text(item, "id")
    keys: list[object] = [item_id] if item_id else []
    if "output_index" in fields:
        keys.append(bytes(fields["output_index"]))
    return keys


def _own_id(item_id: str, prefix: str) -> str:
    """OpenAI takes an item's id back only with the prefix of its type."""
    if not item_id or item_id.startswith(prefix):
        return item_id
    return prefix + item_id.removeprefix("fc_")


def _text(fields: Fields, name: str) -> str:
    raw = fields.get(name)
    value = _any.decode(raw) if raw is not None else ""
    return value if isinstance(value, str) else ""


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(_encode(value))
