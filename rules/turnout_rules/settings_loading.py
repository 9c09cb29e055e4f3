"""`turnout.yaml` becomes `Settings`; the older `config.yaml` keys are read beside ours.

`router:` and the flat keys are other names of our settings. `inference:` describes one engine and
becomes an upstream, named after its `backend`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import msgspec
from yaml.nodes import MappingNode, Node

from turnout_rules.document import INVALID, Document
from turnout_rules.kinds import (
    AFTER_RESTART,
    AT_ENGINE_START,
    Choice,
    Flag,
    Integer,
    Key,
    Number,
    Special,
    Text,
    Texts,
    read_mapping,
)
from turnout_rules.model import EngineName, Model, Upstream
from turnout_rules.settings import (
    Classifier,
    ClassifierKind,
    Engines,
    Proxy,
    Reading,
    Settings,
    Sidecar,
)
from turnout_rules.upstream_schema import MODEL_KEYS, UPSTREAM_KEYS

_PORT = Integer(0, 65_535)
_MILLISECONDS = Integer(1, 3_600_000)
_BYTES = Integer(1_024, 1 << 44)
_SECONDS = Number(0.0, 31_536_000.0)


def _kind(doc: Document, node: Node, what: str) -> Any:
    names = get_args(ClassifierKind)
    return Choice(names, {"false": "off", "no": "off", "none": "off"}).read(doc, node, what)


def _is_host_glob(doc: Document, node: Node, value: str, what: str) -> bool:
    rest = value.removeprefix("*.")
    if rest and "/" not in rest and "*" not in rest and ":" not in rest and not rest.isspace():
        return True
    remedy = "write api.example.com or *.example.com"
    doc.error(node, "bad-host", f"{what}: `{value}` is no host name", remedy)
    return False


PROXY_KEYS: dict[str, Key] = {
    "listen_host": Key(
        Text(), "address to listen on; other than loopback needs `auth`", takes_effect=AFTER_RESTART
    ),
    "port": Key(_PORT, "HTTPS_PROXY listener; 0: any free port", takes_effect=AFTER_RESTART),
    "base_url_port": Key(
        _PORT, "listener for tools with a base-URL setting", takes_effect=AFTER_RESTART
    ),
    "web_port": Key(_PORT, "mitmweb's port", takes_effect=AFTER_RESTART),
    "auth": Key(UPSTREAM_KEYS["api_key_env"].kind, "environment variable with user:password"),
    "intercept": Key(Texts(check=_is_host_glob), "hosts whose TLS is opened; *. takes subdomains"),
    "origin": Key(UPSTREAM_KEYS["base_url"].kind, "where OpenAI requests to base_url_port go"),
    "anthropic_origin": Key(UPSTREAM_KEYS["base_url"].kind, "the same for Anthropic requests"),
    "max_body_bytes": Key(_BYTES, "larger request bodies are answered 413, at the gateway too"),
    "upstream_proxy": Key(
        UPSTREAM_KEYS["base_url"].kind,
        "a company proxy, http://host:port",
        takes_effect=AFTER_RESTART,
    ),
    "upstream_ca": Key(
        Text(), "PEM file trusted besides the public roots", takes_effect=AFTER_RESTART
    ),
    "keep_flows": Key(Integer(1, 10_000_000), "mitmweb keeps at most so many flows"),
    "keep_flow_bytes": Key(_BYTES, "and at most so many bytes of bodies"),
}
READING_KEYS: dict[str, Key] = {
    "max_text_chars": Key(Integer(64, 10_000_000), "characters of human text that are matched"),
    "max_decoded_bytes": Key(_BYTES, "bodies that decode to more pass untouched (gateway: 413)"),
    "wrappers_cut": Key(Texts(), "further tags whose content tools add"),
    "wrappers_open": Key(Texts(), "further tags that hold the person's words"),
    "conversation": Key(Flag(), "keep a conversation with the model of its first turn"),
    "conversation_header": Key(Text(), "header that names the conversation"),
    "turn_ttl_s": Key(_SECONDS, "a turn's decision is remembered so long"),
    "max_turns": Key(Integer(1, 100_000_000), "and at most so many are"),
    "script_budget_ms": Key(Number(0.01, 1_000.0), "a script that takes longer has overrun"),
}
SIDECAR_KEYS: dict[str, Key] = {
    "listen_host": Key(Text(), "address to listen on", takes_effect=AFTER_RESTART),
    "port": Key(_PORT, "the gateway's port; 0: any free port", takes_effect=AFTER_RESTART),
    "socket": Key(Text(), "Unix socket path", takes_effect=AFTER_RESTART),
    "default_timeout_ms": Key(_MILLISECONDS, "the proxy waits so long for a classification"),
    "router_timeout_ms": Key(_MILLISECONDS, "a request waits so long for room at an engine"),
    "first_byte_timeout_ms": Key(Integer(1, 86_400_000), "longest wait for a first byte"),
    "queue_length": Key(Integer(0, 1_000_000), "waiting requests per engine"),
    "keepalive_s": Key(Number(0.1, 3_600.0), "waiting streams get a comment so often"),
    "loading_note": Key(Flag(), "waiting chat streams are told that the model is loading"),
    "cooldown_s": Key(_SECONDS, "a failing target rests so long"),
    "data_dir": Key(Text(), "batches, files, logs", takes_effect=AFTER_RESTART),
    "decision_log": Key(Text(), "JSONL file (in data_dir) of texts and decisions; off without it"),
}
CLASSIFIER_KEYS: dict[str, Key] = {
    "kind": Key(
        Special(_kind, {"enum": [*get_args(ClassifierKind), False]}),
        "embedded, systemone, chat or off",
    ),
    "threshold": Key(Number(0.0, 1.0), "probability a route needs; without it, from examples"),
    "url": Key(Text(), "systemone, chat: base URL, or a target's name"),
    "model": Key(Text(), "systemone, chat: model name"),
    "api_key_env": UPSTREAM_KEYS["api_key_env"],
    "timeout_ms": Key(_MILLISECONDS, "longest classification"),
    "max_text_chars": Key(Integer(16, 100_000), "characters that are classified"),
    "cache_entries": Key(Integer(0, 10_000_000), "remembered classifications"),
    "threads": Key(Integer(1, 256), "CPU threads"),
}
ENGINE_KEYS: dict[str, Key] = {
    "router_cores": Key(
        Integer(0, 1_024), "CPU cores that engines never get", takes_effect=AT_ENGINE_START
    ),
    "ttl_s": Key(_SECONDS, "idle seconds until an engine stops; 0: never"),
    "stall_timeout_s": Key(Number(1.0, 86_400.0), "a start without progress so long is stuck"),
    "stop_timeout_s": Key(Number(0.1, 3_600.0), "patience before an engine is killed"),
    "max_ram_percent": Key(Number(1.0, 100.0), "above it nothing new is admitted"),
    "max_swap_in_mb_s": Key(Number(0.0, 1_000_000.0), "above it nothing new is admitted"),
    "ram_budget_bytes": Key(_BYTES, "memory for engines on the CPU together"),
    "vram_budget_bytes": Key(_BYTES, "GPU memory for engines together"),
    "log_bytes": Key(_BYTES, "an engine's log is rotated at this size"),
}
SECTIONS: dict[str, tuple[dict[str, Key], type[msgspec.Struct]]] = {
    "proxy": (PROXY_KEYS, Proxy),
    "reading": (READING_KEYS, Reading),
    "sidecar": (SIDECAR_KEYS, Sidecar),
    "classifier": (CLASSIFIER_KEYS, Classifier),
    "engines": (ENGINE_KEYS, Engines),
}
_USE_CLASSIFIER = Key(Flag(), "false: classifier off (older name of classifier.kind)")
FLAT_KEYS: dict[str, tuple[Key, str, str]] = {
    # older flat name: (key, section, setting)
    "default_timeout_ms": (SIDECAR_KEYS["default_timeout_ms"], "sidecar", "default_timeout_ms"),
    "router_timeout_ms": (SIDECAR_KEYS["router_timeout_ms"], "sidecar", "router_timeout_ms"),
    "use_local_classifier": (_USE_CLASSIFIER, "classifier", "kind"),
}
ROUTER_KEYS: dict[str, Key] = {"port": PROXY_KEYS["port"]} | {
    name: key for name, (key, _, _) in FLAT_KEYS.items()
}
_BACKENDS = ("vllm", "llamacpp", "nanovllm", "external")
_ENGINE_SETTINGS = {
    name: MODEL_KEYS[name]
    for name in (
        "model_path",
        "quantization",
        "max_num_seqs",
        "gpu_memory_utilization",
        "kv_cache_dtype",
        "max_model_len",
        "context",
    )
}
INFERENCE_KEYS: dict[str, Key] = {
    "backend": Key(Choice(_BACKENDS, {"llama.cpp": "llamacpp", "nano-vllm": "nanovllm"}), "engine"),
    "vllm_url": Key(UPSTREAM_KEYS["base_url"].kind, "where a running engine answers"),
    "url": Key(UPSTREAM_KEYS["base_url"].kind, "the same"),
    "api_key_env": UPSTREAM_KEYS["api_key_env"],
    **_ENGINE_SETTINGS,
}
SETTINGS_TOP_KEYS = (*SECTIONS, "observe", "router", "inference", *FLAT_KEYS)


@dataclass
class SettingsDraft:
    """Settings while files are being read: values by section, and what `inference:` describes."""

    values: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {name: {} for name in SECTIONS}
    )
    observe: bool = False
    inference: Upstream | None = None
    seen: dict[str, str] = field(default_factory=dict)
    """`section.setting` to the file that set it."""

    def settings(self) -> Settings:
        """The finished settings."""
        made = {name: struct(**self.values[name]) for name, (_, struct) in SECTIONS.items()}
        return Settings(**made, observe=self.observe)  # type: ignore[arg-type]

    def read(self, doc: Document, name: str, node: Node) -> None:
        """Read one top-level key of `SETTINGS_TOP_KEYS`."""
        if doc.is_null(node):
            return
        if name in SECTIONS:
            self._section(doc, name, node)
        elif name == "observe":
            value = doc.flag(node, "`observe`")
            if isinstance(value, bool):
                self.observe = value
        elif name == "inference":
            self.inference = _read_inference(doc, node)
        elif name == "router":
            values, nodes = read_mapping(doc, node, "`router`", ROUTER_KEYS)
            for key, value in values.items():
                section, setting = ("proxy", "port") if key == "port" else FLAT_KEYS[key][1:]
                self._put(doc, nodes[key], section, setting, value)
        else:
            key_row, section, setting = FLAT_KEYS[name]
            value = key_row.kind.read(doc, node, f"`{name}`")
            if value is not INVALID:
                self._put(doc, node, section, setting, value)

    def _section(self, doc: Document, name: str, node: Node) -> None:
        values, nodes = read_mapping(doc, node, f"`{name}`", SECTIONS[name][0])
        for key, value in values.items():
            self._put(doc, nodes[key], name, key, value)
        host = values.get("listen_host")
        if name == "proxy" and host and not _is_loopback_host(host) and "auth" not in values:
            message = f"`listen_host: {host}` opens the proxy to other machines"
            remedy = "name an environment variable with user:password in `auth`"
            doc.error(nodes["listen_host"], "open-proxy", message, remedy)

    def _put(self, doc: Document, node: Node, section: str, setting: str, value: Any) -> None:
        if isinstance(value, bool) and setting == "kind":
            value = "embedded" if value else "off"
        full = f"{section}.{setting}"
        if full in self.seen:
            message = f"`{full}` is set twice (also in {self.seen[full]})"
            doc.error(node, "duplicate-setting", message, "remove one")
        self.seen[full] = f"{doc.file}:{node.start_mark.line + 1}"
        self.values[section][setting] = value


def _is_loopback_host(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _read_inference(doc: Document, node: Node) -> Upstream | None:
    values, nodes = read_mapping(doc, node, "`inference`", INFERENCE_KEYS)
    if not isinstance(node, MappingNode):
        return None
    name = values.pop("backend", "vllm")
    url = values.pop("vllm_url", "") or values.pop("url", "")
    values.pop("url", None)
    key_env = values.pop("api_key_env", "")
    place = doc.place(node)
    if url:
        # Someone runs that engine already: its own settings are theirs, its limit is ours too.
        if "model_path" in values:
            message = f"`inference` names an engine that runs at {url}: `model_path` is not used"
            remedy = "remove the URL to have Turnout run the model itself"
            doc.warning(nodes["model_path"], "inference-url-wins", message, remedy)
        limit = values.get("max_num_seqs")
        return Upstream(
            name=name,
            base_url=url,
            engine="external",
            api_key_env=key_env,
            max_concurrency=limit,
            place=place,
        )
    if "model_path" not in values:
        remedy = "write `vllm_url` (an engine that runs) or `model_path` (one to run)"
        doc.error(node, "missing-key", "`inference` says neither where nor what", remedy)
        return None
    model = Model(name=Path(values["model_path"]).name or "model", place=place, **values)
    engine: EngineName = name if name != "external" else "vllm"
    return Upstream(name=name, engine=engine, models={model.name: model}, place=place)


def load_settings(folder: Path) -> Settings:
    """The settings of a rules folder alone; raises RulesError if its files cannot be used."""
    from turnout_rules.loading import read_folder  # it builds on this module

    return read_folder(folder).checked().settings
