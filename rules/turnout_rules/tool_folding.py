"""Requests with custom tools, namespaces or `additional_tools` for targets of plain functions.

A namespace goes into the names of its functions, a custom tool becomes a function with one string
argument, tools declared in the conversation move to `tools`; the conversation's calls follow. What
was folded is turned back in the answer by `tool_unfolding`. Tools of other types stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from turnout_rules.model import Target
from turnout_rules.providers import abilities
from turnout_rules.tool_folding_chat import fold_chat
from turnout_rules.tool_inputs import as_arguments, as_function
from turnout_rules.tool_kinds import ADDITIONAL, CUSTOM, FOLDED, NAMESPACES, SEARCH
from turnout_rules.tool_names import Calls, Tool

if TYPE_CHECKING:
    from turnout_rules.request import Request

_FOLDABLE = {
    "responses": frozenset(FOLDED),
    "chat": frozenset({CUSTOM}),
}
_WORDS = (
    (ADDITIONAL, "additional_tools moved from input to tools"),
    (NAMESPACES, "namespaces folded"),
    (CUSTOM, "custom tools as functions"),
    (SEARCH, "tool search as a function"),
)
_DECLARING = {"additional_tools": ADDITIONAL, "tool_search_output": SEARCH}
"""Items that hold tools, and the capability that a target needs for them."""
_SEARCHER = Tool("search", "", "tool_search")
_KINDS = ("function", "custom")
# What every API's plain function has; `defer_loading`, `async` and their like need more.
_FUNCTION_KEYS = ("name", "description", "parameters", "strict")
_TEXT_PARTS = frozenset({"input_text", "output_text", "text"})

_Fields = dict[str, Any]
_raws = msgspec.json.Decoder(list[msgspec.Raw])
_any = msgspec.json.Decoder()
_encode = msgspec.json.encode


class _Kind(msgspec.Struct):
    type: str | None = None
    name: str | None = None
    namespace: str | None = None


_kind = msgspec.json.Decoder(_Kind)


class Folded(msgspec.Struct, frozen=True):
    """A request's fields for a target that knows fewer kinds of tools."""

    changes: dict[str, bytes | None]
    adjustments: tuple[str, ...]
    calls: Calls
    """What turns the answer's calls back."""


def foldable(request: Request) -> frozenset[str]:
    """The capabilities that a target need not have: `fold` does without them."""
    return _FOLDABLE.get(request.endpoint, frozenset())


def fold(request: Request, target: Target) -> Folded | None:
    """What to change for `target`; None if it knows every kind of tool that is used.

    A target of which nothing is known gets functions only: they are understood everywhere. Tools of
    a shape that cannot be read stay as they are.
    """
    wanted = request.needs & foldable(request)
    if not wanted:
        return None
    lacking = wanted - (abilities(target) or frozenset())
    if not lacking:
        return None
    try:
        if request.endpoint == "chat":
            changes, calls = fold_chat(request)
        else:
            changes, calls = _fold_responses(request, lacking)
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    words = tuple(words for name, words in _WORDS if name in lacking)
    return Folded(changes, words, calls)


def _fold_responses(
    request: Request, lacking: frozenset[str]
) -> tuple[dict[str, bytes | None], Calls]:
    offered = _offered(request)
    items = _items(request)
    later = [
        (_DECLARING[kind.type] in lacking, tool)
        for kind, raw in items
        if kind.type in _DECLARING
        for tool in _tools_of(raw)
    ]
    calls = Calls(
        [*_declared([*offered, *(tool for _, tool in later)]), *_called(items, lacking)],
        folds_namespaces=NAMESPACES in lacking,
        folds_custom=CUSTOM in lacking,
    )
    changes: dict[str, bytes | None] = {}
    every = [*offered, *(tool for is_moved, tool in later if is_moved)]
    tools = _distinct(_folded_tools(every, calls, lacking))
    if tools != offered:
        changes["tools"] = _encode(tools)
    folded = [_folded_item(kind, raw, calls, lacking) for kind, raw in items]
    if any(new != raw for new, (_, raw) in zip(folded, items, strict=True)):
        changes["input"] = b"[" + b",".join(filter(None, folded)) + b"]"
    if (choice := _choice(request, calls, lacking)) is not None:
        changes["tool_choice"] = choice
    return changes, calls


def _offered(request: Request) -> list[_Fields]:
    raw = request.fields.get("tools")
    return (_any.decode(raw) or []) if raw is not None else []


def _items(request: Request) -> list[tuple[_Kind, bytes]]:
    raw = request.fields.get("input")
    if raw is None or bytes(raw[:1] if isinstance(raw, bytes) else memoryview(raw)[:1]) != b"[":
        return []
    return [(_kind.decode(item), bytes(item)) for item in _raws.decode(raw)]


def _tools_of(raw: bytes) -> list[_Fields]:
    return list(_any.decode(raw).get("tools") or [])


def _declared(tools: Iterable[_Fields], namespace: str = "") -> Iterable[Tool]:
    for tool in tools:
        if tool.get("type") == "namespace":
            yield from _declared(tool["tools"], tool["name"])
        elif tool.get("type") in _KINDS:
            yield Tool(tool["type"], namespace, tool["name"])


def _called(items: Iterable[tuple[_Kind, bytes]], lacking: frozenset[str]) -> Iterable[Tool]:
    """Tools of the conversation, which may be offered no longer."""
    if SEARCH in lacking:
        yield _SEARCHER
    for kind, _ in items:
        if kind.type == "custom_tool_call" or (kind.type == "function_call" and kind.namespace):
            yield _tool_called(kind)


def _tool_called(kind: _Kind) -> Tool:
    is_custom = kind.type == "custom_tool_call"
    return Tool("custom" if is_custom else "function", kind.namespace or "", kind.name or "")


def _folded_tools(
    tools: Iterable[_Fields], calls: Calls, lacking: frozenset[str], namespace: str = ""
) -> Iterable[_Fields]:
    for tool in tools:
        kind = tool.get("type")
        if kind == "namespace" and NAMESPACES in lacking:
            about = str(tool.get("description") or "").strip()
            members = list(_folded_tools(tool["tools"], calls, lacking, tool["name"]))
            if members and about:
                # Once: repeated for every member it would cost tokens.
                first = members[0].get("description") or ""
                members[0]["description"] = f"{tool['name']}: {about}\n\n{first}".rstrip()
            yield from members
        elif kind == "namespace":
            members = list(_folded_tools(tool["tools"], calls, lacking, tool["name"]))
            yield {**tool, "tools": members}
        elif kind == "custom" and CUSTOM in lacking:
            name = calls.address(Tool("custom", namespace, tool["name"]))[1]
            yield {"type": "function", **as_function(tool, name), "strict": False}
        elif kind == "tool_search" and SEARCH in lacking:
            name = calls.address(_SEARCHER)[1]
            yield {"type": "function", **_searcher(tool), "name": name, "strict": False}
        elif kind in _KINDS and namespace and NAMESPACES in lacking:
            name = calls.address(Tool(kind, namespace, tool["name"]))[1]
            keys = _FUNCTION_KEYS if kind == "function" else ("name", "description", "format")
            yield {"type": kind, **{k: tool[k] for k in keys if k in tool}, "name": name}
        else:
            yield tool


def _distinct(tools: Iterable[_Fields]) -> list[_Fields]:
    """Of tools declared twice the later one, in the place of the first."""
    found: dict[object, _Fields] = {}
    for at, tool in enumerate(tools):
        name = tool.get("name")
        found[(tool.get("type") == "namespace", name) if name else at] = tool
    return list(found.values())


def _folded_item(kind: _Kind, raw: bytes, calls: Calls, lacking: frozenset[str]) -> bytes:
    """The item for the target; empty: it is left out."""
    if kind.type == ADDITIONAL and ADDITIONAL in lacking:
        return b""
    if kind.type == "tool_search_output" and SEARCH in lacking:
        return _encode(_search_output(_any.decode(raw), calls, lacking))
    if kind.type in _DECLARING:
        item = _any.decode(raw)
        return _encode({**item, "tools": list(_folded_tools(item["tools"], calls, lacking))})
    if kind.type == "tool_search_call" and SEARCH in lacking:
        return _encode(_search_call(_any.decode(raw), calls))
    if kind.type in ("custom_tool_call_output", "function_call_output") and CUSTOM in lacking:
        return _as_function_output(kind, raw)
    if kind.type == "custom_tool_call" or (kind.type == "function_call" and kind.namespace):
        return _encode(_folded_call(kind, _any.decode(raw), calls, lacking))
    return raw


def _folded_call(kind: _Kind, call: _Fields, calls: Calls, lacking: frozenset[str]) -> _Fields:
    namespace, name = calls.address(_tool_called(kind))
    if kind.type == "custom_tool_call" and CUSTOM in lacking:
        # The id is left out: providers take only ids with the prefix of the item's own type.
        folded = {"type": "function_call", "call_id": call["call_id"], "name": name}
        folded["arguments"] = as_arguments(call["input"])
    else:
        folded = {**call, "name": name}
        folded.pop("namespace", None)
    return {**folded, "namespace": namespace} if namespace else folded


def _as_function_output(kind: _Kind, raw: bytes) -> bytes:
    """A result as small servers take it: of a function, and one text where it is only text."""
    item = _any.decode(raw)
    output = item["output"]
    if isinstance(output, list) and all(part.get("type") in _TEXT_PARTS for part in output):
        output = _joined(part["text"] for part in output)
    elif kind.type == "function_call_output":
        return raw
    return _encode({"type": "function_call_output", "call_id": item["call_id"], "output": output})


def _searcher(tool: _Fields) -> _Fields:
    return {
        "description": tool.get("description") or "Searches for further tools.",
        "parameters": tool.get("parameters") or {"type": "object", "properties": {}},
    }


def _search_call(call: _Fields, calls: Calls) -> _Fields:
    name = calls.address(_SEARCHER)[1]
    arguments = _encode(call["arguments"]).decode()
    folded = {"type": "function_call", "call_id": call["call_id"], "name": name}
    return {**folded, "arguments": arguments}


def _search_output(item: _Fields, calls: Calls, lacking: frozenset[str]) -> _Fields:
    """What the search found, by name: the tools themselves move to `tools`."""
    names = [tool["name"] for tool in _folded_tools(item["tools"], calls, lacking)]
    found = f"These tools can be called now: {', '.join(names)}" if names else "No tools found."
    return {"type": "function_call_output", "call_id": item["call_id"], "output": found}


def _joined(texts: Iterable[str]) -> str:
    """Parts of text as one, each beginning on a line of its own."""
    whole = ""
    for text in texts:
        whole += text if not whole or whole.endswith("\n") else f"\n{text}"
    return whole


def _choice(request: Request, calls: Calls, lacking: frozenset[str]) -> bytes | None:
    raw = request.fields.get("tool_choice")
    choice = _any.decode(raw) if raw is not None else None
    if not isinstance(choice, dict):
        return None
    if choice.get("type") == "allowed_tools":
        tools = [one for tool in choice["tools"] for one in _chosen(tool, calls, lacking)]
        return _encode({**choice, "tools": tools})
    chosen = _chosen(choice, calls, lacking)
    # A whole namespace cannot be forced by the name of one function.
    return _encode(chosen[0] if len(chosen) == 1 else "required")


def _chosen(choice: _Fields, calls: Calls, lacking: frozenset[str]) -> list[_Fields]:
    """One entry of `tool_choice` in the target's names."""
    kind, name = choice.get("type"), choice.get("name")
    if kind == "tool_search" and SEARCH in lacking:
        return [{"type": "function", "name": calls.address(_SEARCHER)[1]}]
    if kind == "namespace" and NAMESPACES in lacking:
        tools = calls.in_namespace(name or "")
    elif kind in _KINDS and isinstance(name, str):
        tools = list(filter(None, [calls.find(kind, choice.get("namespace") or "", name)]))
    else:
        return [choice]
    folded = []
    for tool in tools:
        namespace, known_as = calls.address(tool)
        is_function = tool.kind == "function" or CUSTOM in lacking
        entry = {"type": "function" if is_function else "custom", "name": known_as}
        folded.append({**entry, "namespace": namespace} if namespace else entry)
    return folded or [choice]
