"""What an upstream and its models may say: the keys under `upstreams:` and how each is read."""

from __future__ import annotations

import ipaddress
import re
from typing import Any, get_args
from urllib.parse import urlsplit

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from turnout_rules.adjustments import ADJUSTMENTS, MAPPED
from turnout_rules.document import INVALID, Document
from turnout_rules.endpoints import ENDPOINTS
from turnout_rules.kinds import (
    Choice,
    Flag,
    Integer,
    Key,
    Number,
    Special,
    Table,
    Text,
    TextMap,
    Texts,
    mapping_schema,
    read_mapping,
)
from turnout_rules.model import EngineName, Model, Price, Upstream
from turnout_rules.schema import CAPABILITIES, header_pair
from turnout_rules.variables import has_broken_reference, has_reference, is_secret

ENGINES: tuple[str, ...] = get_args(EngineName)
_MANAGED = ("vllm", "llamacpp", "nanovllm", "command")
_UPSTREAM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_RESERVED = ("turnout", "pass", "block")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_ENV_REMEDY = (
    "write the NAME of an environment variable, such as OPENAI_API_KEY; keys stay out of rule files"
)
_CPU_SET = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")


def _supports(doc: Document, node: Node, what: str) -> Any:
    return frozenset(Texts(choices=CAPABILITIES + ENDPOINTS).read(doc, node, what))


def _env_pair(doc: Document, key: Node, value_node: Node, name: str, value: str) -> bool:
    if not _ENV_NAME.fullmatch(name):
        doc.error(key, "bad-value", f"`{name}` is no environment variable's name")
        return False
    if has_broken_reference(value):
        remedy = "write ${NAME} or ${NAME:-text}, and $${ where no variable is meant"
        doc.error(value_node, "bad-value", f"`{name}`: `${{` begins no variable's name", remedy)
        return False
    if value and is_secret(name) and not has_reference(value):
        message = f"`{name}`: a credential written into the rules"
        doc.warning(value_node, "key-in-rules", message, f"export it, and write ${{{name}}} here")
    return True


def _base_url(doc: Document, node: Node, what: str) -> Any:
    value = doc.text(node, what)
    if not isinstance(value, str):
        return INVALID
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return doc.error(node, "bad-url", f"{what}: {error}")
    if parts.scheme not in ("http", "https") or not host:
        remedy = "write the whole base, such as https://api.openai.com/v1"
        return doc.error(node, "bad-url", f"{what} cannot be `{value}`", remedy)
    if parts.username or parts.password:
        remedy = "use `api_key_env`"
        return doc.error(node, "key-in-rules", f"{what} holds credentials", remedy)
    if parts.fragment or re.search(r"\s", value):
        return doc.error(node, "bad-url", f"{what} cannot hold spaces or a #fragment")
    if parts.path.endswith(("/chat/completions", "/responses", "/messages", "/completions")):
        remedy = "leave the endpoint out: the request brings its own"
        return doc.error(node, "bad-url", f"{what} names an endpoint", remedy)
    return value.rstrip("/")


def _adjust(doc: Document, node: Node, what: str) -> Any:
    found = {}
    for name, (key, value_node) in doc.fields(node, what).items():
        choices = ADJUSTMENTS.get(name)
        if choices is None:
            doc.unknown(key, "adjustment", name, ADJUSTMENTS)
            continue
        value = doc.json(value_node, f"`{name}` in {what}")
        if value in choices or (name in MAPPED and isinstance(value, dict)):
            found[name] = value
        elif value is not INVALID:
            doc.unknown(value_node, f"value of `{name}`", str(value), choices, "unknown-value")
    return found


_ADJUST_SCHEMA = {
    "type": "object",
    "properties": {
        name: {"anyOf": [{"enum": list(choices)}, {"type": "object"}]}
        if name in MAPPED
        else {"enum": list(choices)}
        for name, choices in ADJUSTMENTS.items()
    },
    "additionalProperties": False,
}


def _dollars(about: str) -> Key:
    return Key(Number(0.0, 100_000.0), about)


_PRICE_KEYS = {
    "input": _dollars("US dollars per million input tokens"),
    "output": _dollars("US dollars per million output tokens"),
}
_TOKENS = Integer(1, 1_000_000_000)
_SUPPORTS = Key(
    Special(_supports, Texts(choices=CAPABILITIES + ENDPOINTS).schema()),
    "capabilities and endpoints it serves; without it, the preset of the engine or provider",
)

MODEL_KEYS: dict[str, Key] = {
    "model": Key(Text(), "the name the upstream knows it by; without it, the name here"),
    "context": Key(_TOKENS, "context window in tokens; larger requests go elsewhere"),
    "supports": _SUPPORTS,
    "price": Key(Table(_PRICE_KEYS, Price), "US dollars per million tokens, for the metrics"),
    "adjust": Key(
        Special(_adjust, _ADJUST_SCHEMA), "overrides of the body adjustments, by adjustment name"
    ),
    "model_path": Key(Text(), "managed engines: folder or file, or a fetched model's name"),
    "quantization": Key(Text(), "vLLM: gptq, awq, fp8, …"),
    "max_num_seqs": Key(Integer(1, 4_096), "requests in flight at once; default 2"),
    "gpu_memory_utilization": Key(Number(0.01, 1.0), "vLLM: share of the card's memory"),
    "kv_cache_dtype": Key(Text(), "auto, fp8, q8_0, …"),
    "max_model_len": Key(_TOKENS, "context the engine is started with"),
    "cpu_set": Key(Text(_CPU_SET, "write a CPU list such as 2-7"), "CPUs of the engine"),
    "env": Key(
        TextMap(check=_env_pair),
        "environment variables of the engine; ${NAME} is one of the sidecar's",
    ),
    "ttl_s": Key(Number(0.0, 31_536_000.0), "idle seconds until it stops; 0: never"),
    "preload": Key(Flag(), "start with the sidecar"),
    "pin": Key(Flag(), "never stop it to make room"),
    "queue": Key(Integer(0, 1_000_000), "waiting requests allowed"),
    "start_timeout_s": Key(Number(1.0, 86_400.0), "seconds without progress of a start"),
    "sleep": Key(Flag(), "vLLM: sleep and wake instead of stop and start"),
    "command": Key(Texts(), "engine: command: argument list with {port} and {model_path}"),
    "python": Key(Text(), "interpreter of the environment that has the engine"),
    "args": Key(Texts(), "further engine arguments, passed through"),
}


def _read_models(doc: Document, node: Node, what: str) -> Any:
    if isinstance(node, SequenceNode):
        names = doc.texts(node, what)
        return {name: Model(name=name, place=doc.place(item)) for name, item in names}
    models = {}
    for name, (key, value) in doc.fields(node, what).items():
        if not name.strip() or re.search(r"\s|,", name):
            doc.error(key, "bad-value", f"`{name}` is no model name", "no spaces, no commas")
            continue
        models[name] = _read_model(doc, key, value, name)
    return models


def _read_model(doc: Document, key: Node, node: Node, name: str) -> Model:
    place = doc.place(key)
    if doc.is_null(node):
        return Model(name=name, place=place)
    if isinstance(node, ScalarNode):
        value = doc.text(node, f"model `{name}`")
        return Model(name=name, model=value if isinstance(value, str) else "", place=place)
    values = read_mapping(doc, node, f"model `{name}`", MODEL_KEYS).values
    return Model(name=name, place=place, **values)


_MODELS_SCHEMA = {
    "anyOf": [
        {"type": "array", "items": {"type": ["string", "number"]}},
        {
            "type": "object",
            "additionalProperties": {
                "anyOf": [{"type": ["string", "number", "null"]}, mapping_schema(MODEL_KEYS)]
            },
        },
    ]
}

UPSTREAM_KEYS: dict[str, Key] = {
    "base_url": Key(
        Special(_base_url, {"type": "string", "pattern": "^https?://"}),
        "OpenAI-compatible base, such as https://api.openai.com/v1",
    ),
    "engine": Key(Choice(ENGINES), "an engine that Turnout runs, or external/ray at base_url"),
    "api_key_env": Key(Text(_ENV_NAME, _ENV_REMEDY), "environment variable that holds the key"),
    "api_key_file": Key(Text(), "file that holds the key"),
    "auth_header": Key(
        Text(re.compile(r"[A-Za-z0-9-]+"), "write a header name such as api-key"),
        "header that carries the key; without it `authorization: Bearer …`",
    ),
    "headers": Key(TextMap(check=header_pair, is_lower=True), "headers put on every request"),
    "max_concurrency": Key(Integer(1, 1_000_000), "requests in flight at once"),
    "cooldown_s": Key(Number(0.0, 86_400.0), "rest after repeated failures"),
    "models": Key(
        Special(_read_models, _MODELS_SCHEMA), "models by name; without it any model name goes"
    ),
    "supports": _SUPPORTS,
}
_KEY_MISTAKES = ("api_key", "key", "token", "apikey", "secret")


def read_upstreams(doc: Document, node: Node) -> list[Upstream]:
    """The mapping under `upstreams:`; duplicates over files are the caller's to find."""
    if doc.is_null(node):
        return []
    found = []
    for name, (key, value) in doc.fields(node, "`upstreams`").items():
        if not _UPSTREAM_NAME.fullmatch(name) or name in _RESERVED:
            remedy = "use Latin letters, digits, - _ . and no reserved word"
            doc.error(key, "bad-value", f"`{name}` is no upstream name", remedy)
            continue
        found.append(_read_upstream(doc, key, value, name))
    return found


def _read_upstream(doc: Document, key: Node, node: Node, name: str) -> Upstream:
    what = f"upstream `{name}`"
    if isinstance(node, MappingNode):
        for wrong, value in node.value:
            if isinstance(wrong, ScalarNode) and wrong.value in _KEY_MISTAKES:
                doc.error(value, "key-in-rules", f"a key written into {what}", _ENV_REMEDY)
    values, nodes = read_mapping(doc, node, what, UPSTREAM_KEYS)
    upstream = Upstream(name=name, place=doc.place(key), **values)
    if isinstance(node, MappingNode):
        _check_engine(doc, key, nodes, upstream)
        _check_key(doc, nodes, upstream)
    return upstream


def _check_engine(doc: Document, key: Node, nodes: dict[str, Node], upstream: Upstream) -> None:
    what = f"upstream `{upstream.name}`"
    if upstream.is_managed and "base_url" in nodes:
        remedy = "remove one of the two, or write `engine: external`"
        message = f"{what}: Turnout runs `{upstream.engine}` itself and chooses its address"
        doc.error(nodes["base_url"], "engine-and-url", message, remedy)
    elif upstream.is_managed and not upstream.models:
        message = f"{what} has no models to run"
        doc.error(key, "missing-key", message, "list them under `models:`")
    elif not upstream.is_managed and not {"base_url", "engine"} & nodes.keys():
        remedy = f"write `base_url: https://…`, or `engine:` with one of {', '.join(_MANAGED)}"
        doc.error(key, "missing-key", f"{what} says neither where nor what it is", remedy)
    elif not upstream.is_managed and "base_url" not in nodes and upstream.engine:
        remedy = "write `base_url: http://…`"
        message = f"{what}: someone else runs an `{upstream.engine}` upstream, at an address"
        doc.error(key, "missing-key", message, remedy)
    for model in upstream.models.values():
        _check_model(doc, upstream, model)


def _check_model(doc: Document, upstream: Upstream, model: Model) -> None:
    what = f"model `{upstream.name}/{model.name}`"
    if upstream.engine == "command" and not model.command:
        message = f"{what} has no `command` to run"
        doc.error_at(model.place, "missing-key", message, "write the argument list")
    elif upstream.engine == "command" and not any("{port}" in part for part in model.command):
        message = f"the `command` of {what} holds no {{port}}"
        remedy = "put {port} where the program takes the port it is to listen on"
        doc.error_at(model.place, "missing-port", message, remedy)
    elif upstream.is_managed and upstream.engine != "command" and not model.model_path:
        message = f"{what} has no `model_path`"
        doc.error_at(model.place, "missing-key", message, "name the model's file or folder")


def _check_key(doc: Document, nodes: dict[str, Node], upstream: Upstream) -> None:
    if upstream.api_key_env and upstream.api_key_file:
        message = f"upstream `{upstream.name}` takes its key from two places"
        doc.error(nodes["api_key_file"], "two-keys", message, "keep one")
    has_key = upstream.api_key_env or upstream.api_key_file
    if has_key and upstream.base_url.startswith("http://") and not _is_loopback(upstream.base_url):
        message = f"the key of `{upstream.name}` would travel unencrypted to {upstream.base_url}"
        doc.warning(nodes["base_url"], "key-over-http", message, "use https://")


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
