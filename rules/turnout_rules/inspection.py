"""What a request needs from a target, and what binds it to its origin; both only when asked for.

A linear look over the raw bytes tells whether anything unusual is there at all; only then is the
body taken apart. When in doubt a request is bound: staying with its origin never breaks it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import re2

from turnout_rules.foreign_types import unusual_type
from turnout_rules.humantext import CONVERSATION_FIELD
from turnout_rules.tool_kinds import (
    ADDITIONAL,
    CUSTOM,
    ITEM_NEEDS,
    NAMESPACES,
    Environment,
    Offer,
    look_at_declared,
    look_at_tool_change,
    look_at_tools,
    runs_at_provider,
)

if TYPE_CHECKING:
    from turnout_rules.request import Request

_BYTES_PER_TOKEN = 3.5

_SCHEMA_TYPES = ("object", "string", "array", "number", "integer", "boolean", "null")
_PLAIN_TYPES = (
    *("text", "input_text", "output_text", "summary_text", "refusal", "message"),
    *("tool_use", "tool_result", "function", "function_call", "function_call_output", "ephemeral"),
)
_MEDIA = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "input_audio": "audio",
    "audio": "audio",
    "file": "file",
    "input_file": "file",
    "document": "file",
    "video_url": "image",
    "input_video": "image",
}
_HARMLESS_PARTS = frozenset({*_PLAIN_TYPES, *_MEDIA, "thinking"})
_ITEMS = frozenset({"message", "function_call", "function_call_output", "reasoning", *ITEM_NEEDS})
_TOOL_CHANGES = frozenset({"tool_addition", "tool_removal"})

_BINDING_KEYS = (
    "encrypted_content",
    "signature",
    "thought_signature",
    "reasoning_details",
    "file_id",
)
_look_at_messages = unusual_type(
    (*_PLAIN_TYPES, *_SCHEMA_TYPES), (*_BINDING_KEYS, "audio", "namespace")
)
_look_at_tools = unusual_type((*_SCHEMA_TYPES, "function", "ephemeral"))
# A value, not a property of that name in the schema of a tool.
_file_id = re2.compile(rb'"file_id"\s*:\s*"')
_base64 = re2.compile(rb"[A-Za-z0-9+/=_-]{256,}")

_NOTHING = msgspec.Raw()


class _Part(msgspec.Struct):
    type: str | None = None
    content: msgspec.Raw = _NOTHING
    signature: msgspec.Raw = _NOTHING
    tool: msgspec.Raw = _NOTHING


class _Item(msgspec.Struct):
    role: str | None = None
    type: str | None = None
    id: msgspec.Raw = _NOTHING
    content: msgspec.Raw = _NOTHING
    output: msgspec.Raw = _NOTHING
    audio: msgspec.Raw = _NOTHING
    encrypted_content: msgspec.Raw = _NOTHING
    reasoning_details: msgspec.Raw = _NOTHING
    namespace: msgspec.Raw = _NOTHING
    tools: msgspec.Raw = _NOTHING
    tool_calls: msgspec.Raw = _NOTHING
    execution: str | None = None
    environment: Environment | None = None


class _Typed(msgspec.Struct):
    type: str | None = None


class Findings(msgspec.Struct, frozen=True):
    """What the messages, or the tools, hold besides text and plain functions."""

    needs: frozenset[str] = frozenset()
    """Capabilities, media among them."""
    declared: frozenset[str] = frozenset()
    """Those of them that tools declared in the conversation need."""
    bond: str = ""
    hosted: str = ""
    """The type of a tool that the provider runs, if one is offered."""
    own: int = 0
    """How many tools are offered that the client runs."""


_NO_FINDINGS = Findings()
_items = msgspec.json.Decoder(list[_Item])
_parts = msgspec.json.Decoder(list[_Part])
_calls = msgspec.json.Decoder(list[_Typed])
_any = msgspec.json.Decoder()


def find_in_messages(request: Request) -> Findings:
    """Media and bonds in the conversation's messages or items."""
    name = CONVERSATION_FIELD.get(request.endpoint)
    raw = request.fields.get(name) if name else None
    if raw is None or not _is_list(raw) or _look_at_messages.search(bytes(raw)) is None:
        return _NO_FINDINGS
    try:
        return _take_apart(request.endpoint, raw)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return Findings(bond="messages of an unknown shape")


def find_in_tools(request: Request) -> Findings:
    """What the tools offered need besides plain functions, and whether one runs at the origin."""
    raw = request.fields.get("tools")
    if raw is None or not _holds(raw) or _look_at_tools.search(bytes(raw)) is None:
        return _NO_FINDINGS
    offer = Offer()
    try:
        look_at_tools(request.endpoint, raw, offer)
    except (msgspec.DecodeError, RecursionError):
        return Findings(bond="tools of an unknown shape")
    return _found(offer)


def _found(offer: Offer, bond: str = "") -> Findings:
    hosted = offer.hosted[0] if offer.hosted else ""
    if offer.bond and not bond:
        bond = f"hosted tools ({offer.bond})"
    return Findings(frozenset(offer.needs), frozenset(offer.declared), bond, hosted, offer.own)


def _take_apart(endpoint: str, raw: msgspec.Raw) -> Findings:
    offer = Offer()
    data = bytes(raw)
    if b'"thought_signature"' in data:
        return Findings(bond="signed reasoning")
    for item in _items.decode(data):
        if bond := _bond_of_item(endpoint, item, offer):
            return _found(offer, bond)
        for value in (item.content, item.output):
            if bond := _look_into_parts(value, offer):
                return _found(offer, bond)
    if offer.needs and _file_id.search(data) is not None:
        return _found(offer, "a file stored at the origin")
    return _found(offer)


def _bond_of_item(endpoint: str, item: _Item, offer: Offer) -> str:
    if _holds(item.encrypted_content):
        return "encrypted reasoning"
    if _holds(item.reasoning_details):
        return "signed reasoning"
    if _holds(item.audio):
        return "audio stored at the origin"
    if item.type == "item_reference":
        return "a reference to a stored item"
    if item.type == "reasoning" and _holds(item.id) and not _holds(item.content):
        return "a reference to stored reasoning"
    if _is_list(item.tool_calls) and any(
        c.type == "custom" for c in _calls.decode(item.tool_calls)
    ):
        offer.needs.add(CUSTOM)
    if item.type is None:
        return ""
    is_hosted = runs_at_provider(item.type, item.execution, item.environment)
    if item.type not in _ITEMS or is_hosted:
        return f"an item of type {item.type[:40]}"
    if need := ITEM_NEEDS.get(item.type):
        offer.needs.add(need)
    if item.type == "function_call" and _holds(item.namespace):
        offer.needs.add(NAMESPACES)
    if _holds(item.tools):
        look = look_at_declared if item.type == ADDITIONAL else look_at_tools
        look(endpoint, item.tools, offer)
    return ""


def _look_into_parts(raw: msgspec.Raw, offer: Offer, depth: int = 0) -> str:
    if not _is_list(raw) or depth > 3:
        return ""
    for part in _parts.decode(raw):
        kind = part.type
        if kind is None:
            continue
        if kind == "redacted_thinking" or (kind == "thinking" and _holds(part.signature)):
            return "signed thinking"
        if kind in _MEDIA:
            offer.needs.add(_MEDIA[kind])
        elif kind in _TOOL_CHANGES:
            look_at_tool_change(part.tool, offer)
        elif kind not in _HARMLESS_PARTS and kind != "reasoning_text":
            return f"a part of type {kind[:40]}"
        if kind == "tool_result" and (bond := _look_into_parts(part.content, offer, depth + 1)):
            return bond
    return ""


def _is_list(raw: msgspec.Raw) -> bool:
    return len(raw) > 0 and memoryview(raw)[0] == 0x5B


def _holds(raw: msgspec.Raw) -> bool:
    """Whether a value is there and is not null or empty."""
    size = len(raw)
    return size > 0 and (size > 4 or bytes(raw) not in (b"null", b'""', b"[]", b"{}", b"false"))


_NEEDING_FIELDS = frozenset(
    {"tools", "functions", "response_format", "text", "output_config", "output_format"}
    | {"reasoning_effort", "reasoning", "thinking", "logprobs", "top_logprobs", "include"}
    | {"modalities"}
)


def find_needs(request: Request) -> frozenset[str]:
    """The capabilities asked for: what `when: {has: …}` and `supports` speak of."""
    return request.findings.needs | request.field_needs


def find_field_needs(request: Request) -> frozenset[str]:
    """Those that the request's own fields and declared tools ask for, whatever else was said."""
    needs = {"stream"} if request.stream else set[str]()
    needs |= request.findings.declared
    if _NEEDING_FIELDS.isdisjoint(request.fields):
        return frozenset(needs)
    needs |= request.tool_findings.needs
    if _holds_field(request, "tools") or _holds_field(request, "functions"):
        needs.add("tools")
    if _wants_schema(request):
        needs.add("json_schema")
    if _wants_reasoning(request):
        needs.add("reasoning")
    if _wants_logprobs(request):
        needs.add("logprobs")
    if "audio" in _list_of(_small(request, "modalities")):
        needs.add("audio")
    return frozenset(needs)


def _holds_field(request: Request, name: str) -> bool:
    raw = request.fields.get(name)
    return raw is not None and _holds(raw)


def _small(request: Request, name: str) -> Any:
    """A small field's value; None if it is absent or cannot be read."""
    raw = request.fields.get(name)
    if raw is None:
        return None
    try:
        return _any.decode(raw)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None


def _list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict_of(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _wants_schema(request: Request) -> bool:
    if _dict_of(_small(request, "response_format")).get("type") == "json_schema":
        return True
    for name in ("text", "output_config"):
        form = _dict_of(_dict_of(_small(request, name)).get("format"))
        if form.get("type") == "json_schema":
            return True
    return _dict_of(_small(request, "output_format")).get("type") == "json_schema"


def _wants_reasoning(request: Request) -> bool:
    effort = _small(request, "reasoning_effort")
    if isinstance(effort, str) and effort != "none":
        return True
    reasoning = _dict_of(_small(request, "reasoning"))
    if reasoning.get("effort", "none") not in (None, "none") or reasoning.get("max_tokens"):
        return True
    return _dict_of(_small(request, "thinking")).get("type") in ("enabled", "adaptive")


def _wants_logprobs(request: Request) -> bool:
    if request.endpoint == "responses":
        include = _list_of(_small(request, "include"))
        return bool(_small(request, "top_logprobs")) or "message.output_text.logprobs" in include
    value = _small(request, "logprobs")
    return value is not None and value is not False


_BINDING_FIELDS = {
    "previous_response_id": "previous_response_id",
    "conversation": "a stored conversation",
    "background": "a background response is fetched from its origin",
    "mcp_servers": "hosted tools (MCP servers)",
    "container": "a container of the origin",
    "web_search_options": "hosted tools (web search)",
    "plugins": "hosted tools (plugins)",
    "preset": "a preset stored at the origin",
}
_SIGNED = frozenset(("signature", "signature-input", "x-amz-content-sha256", "x-amz-date"))


def find_bond(request: Request) -> str:
    """Why only the origin can serve this, offered hosted tools apart; empty: it may move."""
    if not _BINDING_FIELDS.keys().isdisjoint(request.fields):
        for name, reason in _BINDING_FIELDS.items():
            if _holds_field(request, name):
                return reason
    headers = request.headers
    is_signed = not _SIGNED.isdisjoint(headers)
    if is_signed or headers.get("authorization", "").startswith("AWS4-"):
        return "the request is signed"
    if request.endpoint == "responses":
        raw = request.fields.get("prompt")
        if raw is not None and _holds(raw):
            return "a prompt stored at the origin"
    if "context_management" in request.fields and _compacts(request):
        return "context management of the origin"
    return request.tool_findings.bond or request.findings.bond


def find_offer(request: Request) -> str:
    """The type of a tool that the provider would run, if one is offered; empty: none is."""
    return request.tool_findings.hosted or request.findings.hosted


def may_go_without(request: Request) -> bool:
    """Whether hosted tools only stand beside the client's own, and none of them must be called."""
    if not request.tool_findings.own + request.findings.own:
        return False
    choice = _small(request, "tool_choice")
    return not isinstance(choice, dict) or choice.get("type") in ("auto", "none")


def _compacts(request: Request) -> bool:
    """Whether the origin would summarise; Claude Code's usual `clear_…` edits can be left out."""
    value = _small(request, "context_management")
    edits = _list_of(value.get("edits") if isinstance(value, dict) else value)
    kinds = [_dict_of(edit).get("type") for edit in edits]
    return value is not None and not all(str(kind).startswith("clear_") for kind in kinds)


def estimate_input_tokens(request: Request) -> int:
    """Bytes / 3.5; base64 data of images, audio and files does not count."""
    size = len(request.body)
    if not request.findings.needs.isdisjoint(_MEDIA.values()):
        size -= sum(len(run) for run in _base64.findall(request.body))
    return int(size / _BYTES_PER_TOKEN) + 1


def read_output_tokens(request: Request) -> int:
    """The limit on the answer, 0 if none is stated."""
    for name in ("max_completion_tokens", "max_output_tokens", "max_tokens"):
        value = _small(request, name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0
