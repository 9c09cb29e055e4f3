"""What engines and well-known providers serve and how they differ: the presets, as one table.

A preset counts where `upstreams.yaml` says nothing. An unknown host has no preset: nothing is
checked and nothing adjusted for it but what depends on the model alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import msgspec

from turnout_rules.endpoints import ENDPOINTS
from turnout_rules.model import Target, Upstream
from turnout_rules.refused_fields import TOOL_CHOICES
from turnout_rules.tool_kinds import ADDITIONAL, CUSTOM, NAMESPACES, SEARCH


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of target."""

    name: str
    endpoints: frozenset[str] | None = None
    """None: unknown, not checked."""
    supports: frozenset[str] | None = None
    """Capabilities; None: unknown, not checked."""
    counts: frozenset[str] = frozenset()
    """Endpoints whose input tokens it counts without answering."""
    adjust: Mapping[str, Any] = {}


def _provider(
    name: str, endpoints: str, supports: str = "", *, counts: str = "", **adjust: Any
) -> Provider:
    return Provider(
        name=name,
        endpoints=frozenset(endpoints.split()),
        supports=frozenset(supports.split()) if supports else None,
        counts=frozenset(counts.split()),
        adjust={**_tool_choice(name), **adjust},
    )


def _tool_choice(name: str) -> dict[str, Any]:
    return {"tool_choice": TOOL_CHOICES[name]} if name in TOOL_CHOICES else {}


_ENDPOINT_NAMES = frozenset(ENDPOINTS)
_ALL = "chat completions responses messages embeddings"
_TEXT_MODEL = "tools json_schema stream reasoning logprobs"
_TO_THREE_EFFORTS = {"none": None, "minimal": "low", "xhigh": "high", "max": "high"}

_LOCAL: dict[str, Any] = {
    "max_tokens": "max_tokens",
    "developer_role": "merge",
    "unknown_keys": "strip",
}
_BY_ENGINE = {
    "vllm": _provider(
        "vllm",
        f"{_ALL} rerank transcriptions translations",
        _TEXT_MODEL,
        **_LOCAL,
        reasoning_effort="keep",
    ),
    "llamacpp": _provider(
        "llamacpp",
        "chat completions responses messages",
        _TEXT_MODEL,
        **_LOCAL,
        reasoning_effort="drop",
    ),
    "nanovllm": _provider(
        "nanovllm", "chat completions", "stream", **_LOCAL, reasoning_effort="drop"
    ),
    "command": _provider(
        "command", " ".join(ENDPOINTS), _TEXT_MODEL, **_LOCAL, reasoning_effort="drop"
    ),
    "external": Provider(name="external", adjust={**_LOCAL, "reasoning_effort": "keep"}),
    "ray": Provider(name="ray", adjust={**_LOCAL, "reasoning_effort": "keep"}),
}
_OPENAI = _provider(
    "openai",
    "chat completions responses embeddings speech transcriptions translations images image_edits",
    "tools client_tools image audio file json_schema stream reasoning logprobs",
    counts="responses",
    unknown_keys="foreign",
)
_MOONSHOT = Provider(
    name="moonshot",
    adjust={**_tool_choice("moonshot"), "max_tokens": "max_tokens", "developer_role": "system"},
)
_GLM = Provider(
    name="glm",
    adjust={
        **_tool_choice("glm"),
        "max_tokens": "max_tokens",
        "reasoning_effort": "drop",
        "developer_role": "system",
    },
)
# Its error for other efforts names these; what it does not know as a role it leaves out.
_OLLAMA = Provider(
    name="ollama",
    adjust={
        "max_tokens": "max_tokens",
        "reasoning_effort": {"minimal": "low", "xhigh": "high", "max": "high"},
        "developer_role": "system",
    },
)
_OLLAMA_PORT = 11_434
_BY_HOST = {
    "api.openai.com": _OPENAI,
    "api.anthropic.com": _provider(
        "anthropic",
        "messages chat",
        "tools client_tools additional_tools image file stream reasoning json_schema",
        counts="messages",
        max_tokens="max_tokens",
        reasoning_effort="drop",
    ),
    "api.groq.com": _provider(
        "groq",
        "chat responses speech transcriptions translations",
        "tools image json_schema stream reasoning",
        reasoning_effort=_TO_THREE_EFFORTS,
        developer_role="system",
    ),
    "api.deepseek.com": _provider(
        "deepseek",
        "chat completions responses",
        "tools stream reasoning logprobs",
        max_tokens="max_tokens",
        reasoning_effort="drop",
        developer_role="system",
    ),
    "api.mistral.ai": _provider(
        "mistral",
        "chat embeddings transcriptions",
        "tools image audio file json_schema stream reasoning",
        max_tokens="max_tokens",
        reasoning_effort="drop",
        developer_role="system",
        unknown_keys="foreign",
    ),
    "openrouter.ai": _provider("openrouter", _ALL),
    "api.x.ai": Provider(name="xai", adjust={**_tool_choice("xai"), "developer_role": "system"}),
    "api.moonshot.ai": _MOONSHOT,
    "api.moonshot.cn": _MOONSHOT,
    "api.z.ai": _GLM,
    "open.bigmodel.cn": _GLM,
    "ollama.com": _OLLAMA,
    "generativelanguage.googleapis.com": _provider(
        "gemini",
        "chat embeddings images",
        "tools image audio file json_schema stream reasoning",
        reasoning_effort={"xhigh": "high", "max": "high"},
        developer_role="system",
    ),
}
_BY_FLAG = {
    "embeddings": ("--embeddings", "--embedding"),
    "rerank": ("--rerank", "--reranking"),
    "transcriptions": ("-mm", "--mmproj"),
}
_AZURE_ENDINGS = (
    ".openai.azure.com",
    ".services.ai.azure.com",
    ".cognitiveservices.azure.com",
)
_AZURE = msgspec.structs.replace(_OPENAI, name="azure", counts=frozenset())
_UNKNOWN = Provider(name="unknown")
# The first GPT that knows each kind: custom tools came with GPT-5, namespaces with tool search in
# 5.4 (OpenAI's guides), `additional_tools` with Codex' models of 5.6 (Codex' models.json).
_GPT_TOOLS = ((5, 0, CUSTOM), (5, 4, NAMESPACES), (5, 4, SEARCH), (5, 6, ADDITIONAL))
_GPT = re.compile(r"(?:^|/)gpt-(\d{1,2})(?:\.(\d{1,2}))?(?!\w)(?!.*chat)", re.IGNORECASE)
_REASONING_MODEL = re.compile(r"(?:^|/)(?:o[1-9]\b|gpt-5|codex)(?!.*chat)", re.IGNORECASE)


def provider_of(upstream: Upstream) -> Provider:
    """The preset for an upstream: by its engine, else by its host."""
    if upstream.engine is not None:
        return _BY_ENGINE[upstream.engine]
    return _by_base_url(upstream.base_url)


def abilities(target: Target) -> frozenset[str] | None:
    """The capabilities of a target, as stated or by its preset; None: unknown."""
    stated = target.model.supports
    if stated is None:
        stated = target.upstream.supports
    if stated is not None:
        return stated - _ENDPOINT_NAMES
    provider = provider_of(target.upstream)
    if provider.supports is not None and provider.name in ("openai", "azure"):
        return provider.supports | _tools_of_gpt(target.model.upstream_model)
    return provider.supports


@lru_cache(maxsize=1024)
def _tools_of_gpt(model: str) -> frozenset[str]:
    found = _GPT.search(model)
    if found is None:
        return frozenset()
    version = (int(found[1]), int(found[2] or 0))
    return frozenset(tool for *first, tool in _GPT_TOOLS if version >= tuple(first))


def endpoints_of(target: Target) -> frozenset[str] | None:
    """What the preset says that `target` serves; None: unknown, not checked.

    A llama.cpp server makes vectors and ranks only if it was started for them, and hears only
    with a projector (llama.cpp, tools/server/server-context.cpp, its 501 answers).
    """
    endpoints = provider_of(target.upstream).endpoints
    if target.upstream.engine != "llamacpp" or endpoints is None:
        return endpoints
    flags = {argument.partition("=")[0] for argument in target.model.args}
    return endpoints | {name for name, own in _BY_FLAG.items() if not flags.isdisjoint(own)}


@lru_cache(maxsize=256)
def _by_base_url(base_url: str) -> Provider:
    host = host_of(base_url)
    if is_azure(host):
        return _AZURE
    known = _BY_HOST.get(host)
    if known is None and _port_of(base_url) == _OLLAMA_PORT:
        return _OLLAMA
    return known or _UNKNOWN


def host_of(base_url: str) -> str:
    """The host name of a base URL, lower-case; empty if there is none."""
    try:
        return (urlsplit(base_url).hostname or "").lower()
    except ValueError:
        return ""


def _port_of(base_url: str) -> int | None:
    try:
        return urlsplit(base_url).port
    except ValueError:
        return None


_PORTS = {"http": 80, "https": 443}


def origin_of(url: str) -> str:
    """`scheme://host:port` of a URL, the port always written; empty if it is no http URL."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        return ""
    return f"{parts.scheme}://{(parts.hostname or '').lower()}:{port}" if parts.hostname else ""


def is_azure(host: str) -> bool:
    """Whether this host speaks Azure's dialect (model in the path, `api-key`)."""
    return host.endswith(_AZURE_ENDINGS)


@lru_cache(maxsize=1024)
def is_reasoning_model(model: str) -> bool:
    """Whether OpenAI's name for a model says that it is one of its reasoning models."""
    return _REASONING_MODEL.search(model) is not None
