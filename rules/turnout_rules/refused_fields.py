"""Fields that a known provider refuses: a table, each row with who says so. It changes nothing.

Here stands what providers answer with 400 or 422; what they only ignore stays in a request. Each
row was read in the provider's documents or SDK types, or reported with the error's words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec


class Refused(msgspec.Struct, frozen=True):
    """One field that is refused, and where that is written."""

    path: str
    """From the body on; `[]` stands for every entry: `messages[].content[].cache_control`."""
    source: str
    """Document or project, with its date, version or number."""
    becomes: str = ""
    """What the provider calls it; empty: the field is dropped."""
    keeps: tuple[str, ...] = ()
    """`path` is an object of which only these fields are accepted."""
    models: str = ""
    """RE2 pattern on the model's name; empty: all models."""
    thinks: bool = False
    """Only OpenAI's reasoning models refuse it."""
    roles: tuple[str, ...] = ()
    """Of messages: those that may not carry it; empty: all."""
    fits: tuple[bytes, ...] = ()
    """Values that are accepted, as they stand in JSON."""
    beside: str = ""
    """Accepted where this field of the body is there and neither null nor false."""
    endpoint: str = "chat"

    @property
    def key(self) -> str:
        """The field's own name."""
        return self.path.rpartition(".")[2]


def _rows(paths: str, source: str, **more: Any) -> Iterator[Refused]:
    for path in paths.split():
        yield Refused(path, source, **more)


_REASONING = "messages[].reasoning messages[].reasoning_content"
_CACHE_MARKS = (
    "messages[].cache_control messages[].content[].cache_control "
    "tools[].cache_control tools[].function.cache_control"
)
_DIALECTS = (
    "top_k min_p typical_p top_a repetition_penalty repeat_penalty min_tokens chat_template_kwargs "
    "provider models route transforms usage reasoning thinking enable_thinking thinking_budget "
    "cache_control safe_prompt prompt_mode"
)
_KIMI_THINKS = r"(?i)kimi-(?:k2\.[5-9]|k[3-9]|for)"

_OPENAI = (
    *_rows(_REASONING, "OpenAI chat reference, 2026: no field of an assistant message"),
    *_rows(_CACHE_MARKS, "LiteLLM, openai/chat/gpt_transformation.py, 2026"),
    *_rows("cache_control", "nadekobot#34, 2026-05"),
    *_rows("thinking enable_thinking thinking_budget", "llm_wiki#336, 2026-06"),
    *_rows("reasoning", "hello-halo#83, 2026-04; open-responses-server#41, 2025-06"),
    *_rows("presence_penalty frequency_penalty", "nextai-translator#1781, 2025-08", thinks=True),
    *_rows("stop", "smolagents#1671, 2025-08; litellm#15244, 2025-10", thinks=True),
    Refused(
        "parallel_tool_calls",
        "langchain#29704, 2025-02; fast-agent#279, 2025-07",
        models=r"(?i)(?:^|/)o[1-9]\b",
    ),
    Refused("parallel_tool_calls", "OpenAI chat reference, 2026", beside="tools"),
    Refused("stream_options", "OpenAI chat reference, 2026", beside="stream"),
    Refused("metadata", "qwen-code#243, 2025-08; langchaingo#1484, 2026-03", beside="store"),
    Refused(
        "service_tier",
        "OpenAI chat reference, 2026",
        fits=(b"null", b'"auto"', b'"default"', b'"flex"', b'"priority"', b'"scale"'),
    ),
)
_GROQ = (
    Refused(
        "messages[]",
        "jan#8136, 2026-05; gptel#774, 2025-04; llm_engineering#1130, 2026-01; llms#17, 2026-01",
        keeps=("role", "content", "tool_calls", "tool_call_id", "function_call"),
    ),
    *_rows(
        "messages[].content[].cache_control tools[].cache_control tools[].function.cache_control",
        "odysseus#40, 2026-05: objects are closed",
    ),
    *_rows(_DIALECTS, "claude-code-router#1204, 2026-02: the body is closed"),
    *_rows("store", "fanenr/chatbot#21, 2024-12"),
    *_rows("verbosity", "cherry-studio#11435, 2025"),
    *_rows("prompt_cache_key", "bifrost, supported-providers/groq.mdx, 2026"),
    *_rows("logprobs top_logprobs logit_bias", "Groq docs, OpenAI compatibility, 2026"),
    Refused("n", "Groq docs, OpenAI compatibility, 2026", fits=(b"null", b"1")),
    Refused(
        "service_tier",
        "Groq API reference, 2026",
        fits=(b"null", b'"auto"', b'"on_demand"', b'"flex"', b'"performance"'),
    ),
    Refused("random_seed", "Groq API reference, 2026", becomes="seed"),
)
_MISTRAL = (
    Refused(
        "messages[]",
        "litellm#30835, 2026-06; OpenMinis#87, 2026-07; crush#1590, 2025-12",
        roles=("assistant",),
        keeps=("role", "content", "tool_calls", "prefix"),
    ),
    Refused(
        "messages[]",
        "litellm#6696, 2024; mistral-go#2, 2024-04; mistralai_client_dart#44, 2024-05",
        roles=("user", "system", "developer"),
        keeps=("role", "content"),
    ),
    Refused(
        "messages[]",
        "Mistral client-python, toolmessage.md, 2026",
        roles=("tool",),
        keeps=("role", "content", "name", "tool_call_id"),
    ),
    *_rows(
        "messages[].content[].cache_control tools[].cache_control tools[].function.cache_control",
        "mistralai/client-python#91, 2024-05: objects are closed",
    ),
    *_rows("store", "openclaude#739, 2026-04"),
    *_rows("metadata", "OpenHands-CLI#83, 2025-11"),
    *_rows("functions function_call", "mistralai/cookbook#21, 2024-04"),
    *_rows(
        "stream_options service_tier user logprobs top_logprobs logit_bias modalities audio "
        "verbosity safety_identifier prompt_cache_retention "
        "thinking reasoning enable_thinking thinking_budget cache_control",
        "Mistral client-python, chatcompletionrequest.md, 2026: the body is closed",
    ),
    Refused("seed", "Mistral client-python, chatcompletionrequest.md", becomes="random_seed"),
)
_GEMINI = (
    *_rows("frequency_penalty presence_penalty", "page-assist#418, 2025-02; RPGBox#2, 2026-08"),
    *_rows("store metadata", "openhanako#394, 2026-04; ed-donner/agents#45, 2025-05"),
    *_rows(_REASONING, "jan#8136, 2026-05"),
    *_rows(_DIALECTS, "SkyrimNet-GamePlugin#77, 2025-08: unknown names are refused"),
    *_rows(_CACHE_MARKS, "SkyrimNet-GamePlugin#77, 2025-08: unknown names are refused"),
    *_rows(
        "logit_bias service_tier prompt_cache_key prompt_cache_retention safety_identifier "
        "verbosity prediction random_seed",
        "Gemini docs, OpenAI compatibility, 2026: not among its fields",
    ),
)
_XAI = (
    *_rows("presence_penalty frequency_penalty", "NativeTavern#83, 2026-09; open-webui#21266"),
    Refused("stop", "langchain#38335, 2026-06", models=r"(?i)grok-(?:3|4|code)"),
    Refused(
        "reasoning_effort",
        "hermes-agent#23088, 2026-05; litellm#16265, 2025-11",
        models=r"(?i)grok-(?:2|3$|3-(?:fast|beta|latest)|4$|4-|code)",
    ),
    Refused(
        "messages[].name",
        "LiteLLM, xai/chat/transformation.py, 2026",
        roles=("assistant", "tool", "system", "developer"),
    ),
    *_rows("tools[].function.strict", "LiteLLM, xai/chat/transformation.py, 2026"),
    *_rows("store", "pi, openai-completions.ts, 2026"),
    *_rows("presence_penalty frequency_penalty", "oh-my-pi#7454, 2026-08", endpoint="responses"),
    Refused("reasoning.summary", "oh-my-pi#7454, 2026-08", endpoint="responses"),
)
_MOONSHOT = (
    *_rows(
        "temperature", "litellm#29687, 2026-06; hermes-agent#9125, 2026-04", models=_KIMI_THINKS
    ),
    *_rows("top_p", "gemini-cli-pro#30, 2026-02", models=_KIMI_THINKS),
    *_rows(
        "presence_penalty frequency_penalty n",
        "Kimi platform docs, models overview, 2026",
        models=_KIMI_THINKS,
    ),
    *_rows("functions function_call", "LiteLLM, moonshot/chat/transformation.py, 2026"),
    Refused("messages[].reasoning", "n8n#29142, 2026-04", becomes="reasoning_content"),
)
_DEEPSEEK = (
    Refused("messages[].reasoning", "9router#773, 2026-04", becomes="reasoning_content"),
    Refused("stream_options", "DeepSeek API reference, 2026", beside="stream"),
)

REFUSED: Mapping[str, tuple[Refused, ...]] = {
    "openai": _OPENAI,
    "azure": _OPENAI,
    "anthropic": (
        Refused("n", "Anthropic docs, OpenAI SDK compatibility, 2026", fits=(b"null", b"1")),
    ),
    "groq": _GROQ,
    "mistral": _MISTRAL,
    "deepseek": _DEEPSEEK,
    "gemini": _GEMINI,
    "xai": _XAI,
    "moonshot": _MOONSHOT,
    "glm": tuple(_rows("tools[].function.strict", "openclaw, openai-completions-compat.ts, 2026")),
    "openrouter": (
        Refused(
            "store",
            "OpenRouter docs, Responses API errors, 2026",
            fits=(b"null", b"false"),
            endpoint="responses",
        ),
    ),
    "vllm": (Refused("stream_options", "vLLM, openai/protocol.py", beside="stream"),),
}
"""By provider. Ollama and llama.cpp ignore what they do not know: nothing of theirs stands here."""

TOOL_CHOICES: Mapping[str, Mapping[str, str]] = {
    "openai": {"any": "required"},
    "azure": {"any": "required"},
    "anthropic": {"any": "required", "allowed_tools": "mode"},
    "groq": {"any": "required", "allowed_tools": "mode"},
    "mistral": {"allowed_tools": "mode"},
    "gemini": {"any": "required", "allowed_tools": "mode"},
    "xai": {"any": "required", "allowed_tools": "mode"},
    "vllm": {"any": "required", "allowed_tools": "mode"},
    "llamacpp": {"any": "required", "allowed_tools": "mode", "function": "required"},
    "deepseek": {
        "any": "auto",
        "required": "auto",
        "function": "auto",
        "allowed_tools": "auto",
    },
    "moonshot": {
        "any": "auto",
        "required": "auto",
        "function": "auto",
        "allowed_tools": "auto",
    },
    "glm": {"any": "auto", "required": "auto", "function": "auto", "allowed_tools": "auto"},
}
"""Form of `tool_choice` to what a provider takes instead; `mode`: that of the allowed tools.

DeepSeek's and Moonshot's thinking models refuse a forced tool (DeepSeek-V3#1376, 2026-08;
llmgateway#2090, 2026-04; inspect_ai#5152, 2026-08); GLM documents `auto` alone (Z.ai API
reference, 2026); llama-server takes an object for `auto` (llama.cpp#26535, 2026-08); `any` is
Mistral's own word and `allowed_tools` OpenAI's (their API references, 2026).
"""
