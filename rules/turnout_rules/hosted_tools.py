"""Tools of the provider left out of a request, for targets that are told to do without them.

Only where they stand beside the client's own tools and nothing calls for them (`may_go_without`);
otherwise such a request is bound to its origin. Never done unless a model's `adjust` says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from turnout_rules.model import Target
from turnout_rules.splicing import splice
from turnout_rules.tool_kinds import ADDITIONAL, without_hosted

if TYPE_CHECKING:
    from turnout_rules.request import Request

_raws = msgspec.json.Decoder(list[msgspec.Raw])
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MARK = f'"{ADDITIONAL}"'.encode()


def leaves_hosted_out(target: Target) -> bool:
    """Whether `target` takes requests that offer hosted tools, and leaves these out."""
    return bool(target.model.adjust.get("hosted_tools") == "drop")


def drop_hosted(request: Request, wanted: Any, changes: dict[str, bytes | None]) -> list[str]:
    """Leave the provider's tools out of `tools` and `additional_tools`; their types, in words."""
    del wanted
    if not request.is_bound_by_offer:
        return []
    dropped: list[str] = []
    if raw := changes.get("tools") or request.fields.get("tools"):
        tools, kinds = without_hosted(request.endpoint, raw)
        if kinds:
            changes["tools"] = tools
            dropped += kinds
    items = changes.get("input") or request.fields.get("input")
    if items is not None and _MARK in bytes(items):
        offered = len(dropped)
        declaring = [_declaring_less(request, item, dropped) for item in _raws.decode(items)]
        if len(dropped) > offered:
            changes["input"] = b"[" + b",".join(declaring) + b"]"
    return [f"{kind} left out of tools" for kind in dict.fromkeys(dropped)]


def _declaring_less(request: Request, raw: msgspec.Raw, dropped: list[str]) -> bytes:
    """The item; without hosted tools, if it declares any."""
    item = _fields.decode(raw)
    if bytes(item.get("type", b"")) != _MARK or "tools" not in item:
        return bytes(raw)
    tools, kinds = without_hosted(request.endpoint, item["tools"])
    dropped += kinds
    return splice(bytes(raw), item, {"tools": tools}) if kinds else bytes(raw)
