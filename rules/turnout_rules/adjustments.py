"""The fields that break when a request changes its model, and what is done about each.

Every adjustment has a name, a preset per kind of target, an override (`adjust:` of a model), and
shows in the decision. Nothing that is not named here is ever changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from turnout_rules.hosted_tools import drop_hosted
from turnout_rules.model import Target
from turnout_rules.providers import is_reasoning_model, provider_of
from turnout_rules.refusing import adjust_tool_choice, drop_refused, refused_by, tool_choices
from turnout_rules.roles import adjust_roles

if TYPE_CHECKING:
    from turnout_rules.request import Request

ADJUSTMENTS: dict[str, tuple[str, ...]] = {
    "max_tokens": ("max_tokens", "max_completion_tokens", "keep"),
    "sampling": ("drop", "keep"),
    "reasoning_effort": ("drop", "keep"),
    "logit_bias": ("drop", "keep"),
    "developer_role": ("merge", "system", "keep"),
    "unknown_keys": ("strip", "foreign", "keep"),
    "hosted_tools": ("drop", "keep"),
    "tool_choice": ("drop", "keep"),
    "refused_fields": ("drop", "keep"),
}
"""Names and values of `adjust:`; those in `MAPPED` also take a mapping of their values."""
MAPPED = frozenset({"reasoning_effort", "tool_choice"})
_MOST_NAMES = 32
"""A body of ten thousand odd keys makes no header of as many names."""

Changes = dict[str, bytes | None]

_any = msgspec.json.Decoder()
_encode = msgspec.json.encode

_SAMPLING = (
    *("top_k", "min_p", "typical_p", "top_a", "repetition_penalty", "repeat_penalty"),
    *("mirostat", "chat_template_kwargs", "min_tokens", "ignore_eos", "guided_json"),
    *("guided_regex", "guided_choice", "guided_grammar", "structured_outputs", "grammar"),
    *("cache_prompt", "id_slot", "continue_final_message", "add_generation_prompt"),
)
_COMMON = (
    *("model", "stream", "stream_options", "temperature", "top_p", "n", "seed", "stop", "user"),
    *("metadata", "store", "service_tier", "logprobs", "top_logprobs", "logit_bias"),
    *("frequency_penalty", "presence_penalty", "safety_identifier", "prompt_cache_key"),
    *("prompt_cache_retention", "max_tokens"),
)
# Of endpoints that are not here every engine has keys of its own: nothing is stripped.
_KNOWN_KEYS: dict[str, frozenset[str]] = {
    "chat": frozenset(
        (
            *(*_COMMON, *_SAMPLING, "messages", "tools", "tool_choice", "parallel_tool_calls"),
            *("functions", "function_call", "response_format", "max_completion_tokens"),
            *("modalities", "audio", "prediction", "reasoning_effort", "verbosity"),
        )
    ),
    "completions": frozenset((*_COMMON, *_SAMPLING, "prompt", "suffix", "echo", "best_of")),
    "responses": frozenset(
        (
            *(*_COMMON, *_SAMPLING, "input", "instructions", "include", "reasoning", "text"),
            *("tools", "tool_choice", "parallel_tool_calls", "max_output_tokens", "truncation"),
            *("max_tool_calls", "background", "previous_response_id", "conversation", "prompt"),
        )
    ),
    "messages": frozenset(
        (
            *("model", "messages", "max_tokens", "system", "stream", "stop_sequences"),
            *("temperature", "top_p", "top_k", "tools", "tool_choice", "metadata", "thinking"),
            *("output_config", "output_format", "service_tier", "chat_template_kwargs"),
        )
    ),
    "embeddings": frozenset(("model", "input", "encoding_format", "dimensions", "user")),
}
_FOREIGN_KEYS = frozenset(
    (
        *(*_SAMPLING, "provider", "models", "route", "transforms", "usage", "reasoning_format"),
        *("include_reasoning", "plugins", "search_settings", "extra_body", "options", "keep_alive"),
        *("safe_prompt", "random_seed", "prompt_mode", "safety_settings", "google"),
    )
)
"""Keys of other providers' dialects, which OpenAI answers with 400."""


def adjust(request: Request, target: Target, before: Changes) -> tuple[Changes, tuple[str, ...]]:
    """The changes to the body for `target` besides `model`, and their names for the decision.

    `before`: fields that have been changed already; what is returned holds them, too.
    """
    provider = provider_of(target.upstream)
    wanted = {**provider.adjust, **_by_model(request, target, provider.name)}
    wanted.update(target.model.adjust)
    changes = dict(before)
    names: list[str] = []
    for name, step in _STEPS:
        if name in wanted and wanted[name] not in ("keep", False, None):
            names += step(request, wanted[name], changes)
    if wanted.get("refused_fields") != "keep":
        model = target.model.upstream_model
        rows = refused_by(provider.name, model, request.endpoint)
        names += drop_refused(request, rows, changes)
    if len(names) > _MOST_NAMES:
        names[_MOST_NAMES:] = [f"{len(names) - _MOST_NAMES} more"]
    return changes, tuple(names)


def _by_model(request: Request, target: Target, provider: str) -> Mapping[str, Any]:
    """What follows from the models' names rather than from the kind of target."""
    wanted: dict[str, Any] = {}
    model = target.model.upstream_model
    if model != request.model:
        wanted["logit_bias"] = "drop"
    if provider in ("openai", "azure"):
        if is_reasoning_model(model):
            wanted |= {"max_tokens": "max_completion_tokens", "sampling": "drop"}
        elif provider == "openai":
            wanted["reasoning_effort"] = "drop"
    if (choices := tool_choices(request, provider, model)) is not None:
        wanted["tool_choice"] = choices
    return wanted


def _max_tokens(request: Request, wanted: Any, changes: Changes) -> list[str]:
    other = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}.get(
        wanted
    )
    if other is None or request.endpoint != "chat" or other not in request.fields:
        return []
    changes[other] = None
    if wanted in request.fields and bytes(request.fields[wanted]) != b"null":
        return [f"{other} dropped"]
    changes[wanted] = bytes(request.fields[other])
    return [f"{other} renamed to {wanted}"]


def _sampling(request: Request, wanted: Any, changes: Changes) -> list[str]:
    del wanted
    dropped = []
    for name in ("temperature", "top_p"):
        raw = request.fields.get(name)
        if raw is not None and bytes(raw) not in (b"1", b"1.0", b"null"):
            changes[name] = None
            dropped.append(f"{name} dropped")
    return dropped


def _reasoning_effort(request: Request, wanted: Any, changes: Changes) -> list[str]:
    name = "reasoning" if request.endpoint == "responses" else "reasoning_effort"
    raw = request.fields.get(name)
    if raw is None or bytes(raw) == b"null":
        return []
    if wanted == "drop" or not isinstance(wanted, Mapping):
        changes[name] = None
        return [f"{name} dropped"]
    value = _any.decode(raw)
    effort = value.get("effort") if isinstance(value, dict) else value
    if not isinstance(effort, str) or effort not in wanted:
        return []
    mapped = wanted[effort]
    if mapped is None:
        changes[name] = None
        return [f"{name} dropped"]
    changes[name] = _encode({**value, "effort": mapped} if isinstance(value, dict) else mapped)
    return [f"{name} {effort} mapped to {mapped}"]


def _logit_bias(request: Request, wanted: Any, changes: Changes) -> list[str]:
    del wanted
    if "logit_bias" not in request.fields:
        return []
    changes["logit_bias"] = None
    return ["logit_bias dropped"]


def _unknown_keys(request: Request, wanted: Any, changes: Changes) -> list[str]:
    if wanted == "foreign":
        unknown = [key for key in request.fields if key in _FOREIGN_KEYS]
    elif (known := _KNOWN_KEYS.get(request.endpoint)) is None:
        return []
    else:
        unknown = [key for key in request.fields if key not in known]
    changes.update(dict.fromkeys(unknown))
    return [f"{key[:40]} stripped" for key in unknown]


_STEPS = (
    ("hosted_tools", drop_hosted),
    ("max_tokens", _max_tokens),
    ("sampling", _sampling),
    ("reasoning_effort", _reasoning_effort),
    ("logit_bias", _logit_bias),
    ("developer_role", adjust_roles),
    ("unknown_keys", _unknown_keys),
    ("tool_choice", adjust_tool_choice),
)
