"""Whether a target can serve a request as it is, and if not, in a few words why.

`supports` of the model, else of the upstream, else the preset of its engine or provider. A stated
`supports` is the whole list: what it leaves out (tools, a JSON schema) the target cannot do, while
endpoints are only limited by those that are named. What is unknown is not held against a target.
`stream` and `reasoning` never stand in the way: every target streams, and an effort that a target
does not know is dropped or mapped. Nor do kinds of tools that can be folded into plain functions.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from turnout_rules.endpoints import ENDPOINTS, UNSIZED
from turnout_rules.model import Target
from turnout_rules.providers import Provider, abilities, endpoints_of, provider_of
from turnout_rules.tool_folding import foldable

if TYPE_CHECKING:
    from turnout_rules.request import Request

_OBSTACLES = {
    "tools": "no tools",
    "image": "no image input",
    "audio": "no audio input",
    "file": "no file input",
    "json_schema": "no json_schema output",
    "logprobs": "no logprobs",
    "custom_tools": "lacks custom tools",
    "tool_namespaces": "lacks tool namespaces",
    "additional_tools": "lacks additional_tools",
    "tool_search": "lacks tool search",
    "client_tools": "lacks client tools (a shell, editor or computer of a type of its own)",
}
_SOFT = frozenset({"stream", "reasoning"})
_ENDPOINT_NAMES = frozenset(ENDPOINTS)
_TOOL_CALL_ID = re.compile(rb'"tool_call_id"\s*:\s*"([^"]*)"')
_MISTRAL_ID = re.compile(rb"[a-zA-Z0-9]{9}\Z")


def obstacle(request: Request, target: Target) -> str:
    """Empty if `target` can serve `request`, else words such as "no image input"."""
    provider = provider_of(target.upstream)
    endpoints = endpoints_served(target)
    if endpoints is not None and request.endpoint not in endpoints:
        return f"no {request.endpoint} endpoint"
    able = abilities(target)
    if able is not None and (lacking := request.needs - able - _SOFT - foldable(request)):
        return ", ".join(_OBSTACLES.get(need, f"no {need}") for need in sorted(lacking))
    return _size_obstacle(request, target) or _id_obstacle(request, provider)


def endpoints_served(target: Target) -> frozenset[str] | None:
    """Endpoints that `supports` names, else the preset's; None: unknown, not checked."""
    supports = target.model.supports
    if supports is None:
        supports = target.upstream.supports
    stated = supports & _ENDPOINT_NAMES if supports is not None else None
    return stated or endpoints_of(target)


def _size_obstacle(request: Request, target: Target) -> str:
    if request.endpoint in UNSIZED:
        return ""
    window = target.model.context
    if target.upstream.is_managed and target.model.max_model_len is not None:
        window = min(window or target.model.max_model_len, target.model.max_model_len)
    if window is None:
        return ""
    needed = request.input_tokens + request.output_tokens
    return f"context {window} < {needed} tokens" if needed > window else ""


def _id_obstacle(request: Request, provider: Provider) -> str:
    """Mistral refuses tool call ids that are not its own nine letters and digits."""
    raw = request.fields.get("messages")
    if provider.name != "mistral" or request.endpoint != "chat" or raw is None:
        return ""
    ids = _TOOL_CALL_ID.findall(bytes(raw))
    return "tool call ids of another provider" if not all(map(_MISTRAL_ID.match, ids)) else ""
