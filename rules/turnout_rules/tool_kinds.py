"""Which tools run at the client and which at the provider: what a request asks of a target, or why
it must stay with its origin.

A tool that the client runs needs a *capability* of the target, however its calls are spelled. A
tool that the provider runs, and every type not named here, binds the request to its origin.
"""

from __future__ import annotations

from typing import Any

import msgspec

CUSTOM = "custom_tools"
"""Tools whose input is free text instead of JSON (`custom`)."""
NAMESPACES = "tool_namespaces"
"""Tools in named groups (`namespace`), and calls that name the group."""
ADDITIONAL = "additional_tools"
"""Tools declared in the middle of the conversation."""
SEARCH = "tool_search"
"""Tools that the client finds when the model asks for them."""
CLIENT = "client_tools"
"""Tools of a type of their own that the client runs: shells, editors, computers."""
FOLDED = (CUSTOM, NAMESPACES, ADDITIONAL, SEARCH)
"""What a target of plain functions can do without."""
TOOL_CAPABILITIES = (*FOLDED, CLIENT)

_PLAIN = ""
# OpenAI: `ToolParam` of openai-python 3.63. There, web_search*, file_search, code_interpreter,
# image_generation, mcp and programmatic_tool_calling run at OpenAI.
_RESPONSES_TOOLS = {
    "function": _PLAIN,
    "custom": CUSTOM,
    "namespace": NAMESPACES,
    "local_shell": CLIENT,
    "shell": CLIENT,
    "apply_patch": CLIENT,
    "computer": CLIENT,
    "computer_use": CLIENT,
    "computer_use_preview": CLIENT,
    "tool_search": SEARCH,
}
_CHAT_TOOLS = {"function": _PLAIN, "custom": CUSTOM}
# Anthropic: `ToolUnionParam` of anthropic-sdk-python 2.17 without the date at the end. There,
# web_search, web_fetch, code_execution, tool_search_tool_*, advisor and mcp_toolset run at
# Anthropic; `custom` is the long name of a plain tool.
_MESSAGES_TOOLS = {
    "custom": _PLAIN,
    "function": _PLAIN,
    "bash": CLIENT,
    "text_editor": CLIENT,
    "computer": CLIENT,
    "memory": CLIENT,
    "computer_toolset": CLIENT,
    "browser_toolset": CLIENT,
}
_TOOLS = {"responses": _RESPONSES_TOOLS, "chat": _CHAT_TOOLS, "messages": _MESSAGES_TOOLS}
# OpenAI: `ResponseInputItemParam` of openai-python 3.63; calls to tools that the client runs, and
# what the client answers.
ITEM_NEEDS = {
    "additional_tools": ADDITIONAL,
    "custom_tool_call": CUSTOM,
    "custom_tool_call_output": CUSTOM,
    "local_shell_call": CLIENT,
    "local_shell_call_output": CLIENT,
    "shell_call": CLIENT,
    "shell_call_output": CLIENT,
    "apply_patch_call": CLIENT,
    "apply_patch_call_output": CLIENT,
    "computer_call": CLIENT,
    "computer_call_output": CLIENT,
    "tool_search_call": SEARCH,
    "tool_search_output": SEARCH,
}
_MAX_DEPTH = 4
_MAX_SHOWN = 40


class Environment(msgspec.Struct):
    """Where a `shell` runs."""

    type: str | None = None


class _Tool(msgspec.Struct):
    type: str | None = None
    execution: str | None = None
    environment: Environment | None = None
    tools: msgspec.Raw = msgspec.Raw()


class _ToolChange(msgspec.Struct):
    type: str | None = None
    definition: msgspec.Raw = msgspec.Raw()


class Offer(msgspec.Struct):
    """What a request offers in tools; filled in by `look_at_tools`."""

    needs: set[str] = set()
    """Capabilities."""
    declared: set[str] = set()
    """Those of them that tools declared in the conversation need."""
    own: int = 0
    """How many tools the client runs."""
    hosted: list[str] = []
    """Types of tools that the provider runs."""
    bond: str = ""
    """Of these one that nobody can leave out."""


_tools = msgspec.json.Decoder(list[_Tool])
_raws = msgspec.json.Decoder(list[msgspec.Raw])
_tool = msgspec.json.Decoder(_Tool)
_change = msgspec.json.Decoder(_ToolChange)


def look_at_tools(endpoint: str, raw: Any, offer: Offer, depth: int = 0) -> None:
    """Adds a JSON list of tools to `offer`.

    `raw` is JSON in bytes. Raises `msgspec.DecodeError` for what is no list of tools,
    `RecursionError` for namespaces that lie too deep in namespaces.
    """
    if depth > _MAX_DEPTH:
        raise RecursionError("namespaces lie too deep")
    for tool in _tools.decode(raw):
        if (need := _need(endpoint, tool)) is None:
            offer.hosted.append((tool.type or "")[:_MAX_SHOWN])
            if depth:
                offer.bond = offer.hosted[-1]
            continue
        if need:
            offer.needs.add(need)
        if need == NAMESPACES and len(tool.tools) > 0:
            look_at_tools(endpoint, tool.tools, offer, depth + 1)
        else:
            offer.own += 1


def look_at_declared(endpoint: str, raw: Any, offer: Offer) -> None:
    """The same for tools declared in the conversation."""
    declared = Offer()
    look_at_tools(endpoint, raw, declared)
    _declare(offer, declared)


def look_at_tool_change(raw: Any, offer: Offer) -> None:
    """The same for Anthropic's `tool_addition` and `tool_removal`; `raw` is their `tool`."""
    change = _change.decode(raw)
    declared = Offer()
    if change.type is not None and change.type.startswith("mcp"):
        declared.bond = change.type[:_MAX_SHOWN]
    if len(change.definition) > 0:
        look_at_tools("messages", b"[" + bytes(change.definition) + b"]", declared, depth=1)
    _declare(offer, declared)


def _declare(offer: Offer, declared: Offer) -> None:
    offer.declared |= declared.needs | {"tools", ADDITIONAL}
    offer.needs |= offer.declared
    offer.own += declared.own
    offer.hosted += declared.hosted
    offer.bond = offer.bond or declared.bond


def without_hosted(endpoint: str, raw: Any) -> tuple[bytes, list[str]]:
    """A JSON list of tools with only those that the client runs, and the types of the others."""
    kept: list[bytes] = []
    dropped: list[str] = []
    for one in _raws.decode(raw):
        tool = _tool.decode(one)
        if _need(endpoint, tool) is None:
            dropped.append((tool.type or "")[:_MAX_SHOWN])
        else:
            kept.append(bytes(one))
    return b"[" + b",".join(kept) + b"]", dropped


def runs_at_provider(kind: str, execution: str | None, environment: Environment | None) -> bool:
    """Whether a tool, or an item, of a type that has both forms is of the provider's."""
    if kind.startswith("tool_search"):
        return execution != "client"
    if kind in ("shell", "shell_call"):
        return environment is not None and (environment.type or "").startswith("container")
    return False


def _need(endpoint: str, tool: _Tool) -> str | None:
    """The capability that a tool needs, empty for a plain one; None: the provider runs it."""
    if tool.type is None:
        return _PLAIN
    if runs_at_provider(tool.type, tool.execution, tool.environment):
        return None
    return _TOOLS.get(endpoint, _CHAT_TOOLS).get(_undated(endpoint, tool.type))


def _undated(endpoint: str, kind: str) -> str:
    """`bash_20250124` is `bash`."""
    name, _, date = kind.rpartition("_")
    return name if endpoint == "messages" and len(date) == 8 and date.isdigit() else kind
