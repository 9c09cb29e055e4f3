"""The texts that `on: system`, `on: tools` and `on: all` look at; built only for rules that ask.

`tools` is what the tools offered are called and described as, `all` is every text of the request.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from turnout_rules.humantext import CONVERSATION_FIELD, PROMPT_FIELD, cap

if TYPE_CHECKING:
    from turnout_rules.request import Request

_SYSTEM_ROLES = ("system", "developer")
BILLING_HEADER = "x-anthropic-billing-header"
"""Claude Code's first system block begins so; it changes with every request and says nothing."""


def other_texts(request: Request) -> dict[str, str]:
    """`system`, `tools` and `all`, each capped. What cannot be read is left out."""
    limit = request.reading.max_text_chars
    system = list(_system_texts(request))
    tools = list(_tool_texts(_value(request, "tools")))
    tools += _tool_texts(_value(request, "functions"))
    for item in _messages(request):
        tools += _tool_texts(item.get("tools"))
    spoken = list(_spoken_texts(request))
    parts = {"system": system, "tools": tools, "all": [*system, *spoken, *tools]}
    return {name: cap("\n".join(filter(None, lines)), limit) for name, lines in parts.items()}


def _value(request: Request, name: str) -> Any:
    raw = request.fields.get(name)
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None


def _messages(request: Request) -> list[dict[str, Any]]:
    name = CONVERSATION_FIELD.get(request.endpoint)
    value = _value(request, name) if name else None
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _system_texts(request: Request) -> Iterator[str]:
    for name in ("system", "instructions"):
        for text in _strings(_value(request, name)):
            if not text.startswith(BILLING_HEADER):
                yield text
    for message in _messages(request):
        if message.get("role") in _SYSTEM_ROLES:
            yield from _strings(message.get("content"))


def _spoken_texts(request: Request) -> Iterator[str]:
    if name := PROMPT_FIELD.get(request.endpoint):
        yield from _strings(_value(request, name))
        return
    messages = _messages(request)
    if not messages:
        yield request.text
    for message in messages:
        if message.get("role") not in _SYSTEM_ROLES:
            yield from _strings(message.get("content"))
            yield from _strings(message.get("output"))


def _strings(value: Any, depth: int = 0) -> Iterator[str]:
    """Text of a content value: a string, parts with `text`, tool results that nest content."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and depth < 4:
        for item in value:
            if isinstance(item, dict):
                yield from _strings(item.get("text"), depth + 1)
                yield from _strings(item.get("content"), depth + 1)
            else:
                yield from _strings(item, depth + 1)


def _tool_texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Names and descriptions of tools, and of those in their namespaces."""
    for tool in value if isinstance(value, list) and depth < 4 else ():
        if not isinstance(tool, dict):
            continue
        inner = tool.get("function") or tool.get("custom")
        named = inner if isinstance(inner, dict) else tool
        for key in ("name", "description"):
            if isinstance(named.get(key), str):
                yield named[key]
        yield from _tool_texts(tool.get("tools"), depth + 1)
