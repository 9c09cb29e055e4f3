"""`turnout.yaml`: ports, intercept list, timeouts, classifier. Routing lives in the route files.

The keys of the older `config.yaml` (`router:`, `inference:`) are accepted beside ours.
"""

from __future__ import annotations

from typing import Literal

import msgspec

ClassifierKind = Literal["embedded", "systemone", "chat", "off"]

DEFAULT_INTERCEPT = (
    "api.openai.com",
    "api.anthropic.com",
    "api.groq.com",
    "api.deepseek.com",
    "api.mistral.ai",
    "openrouter.ai",
    "generativelanguage.googleapis.com",
    "chatgpt.com",
    "*.openai.azure.com",
)


class Proxy(msgspec.Struct, frozen=True, kw_only=True):
    """The mitmproxy plane."""

    listen_host: str = "127.0.0.1"
    port: int = 8080
    """`HTTPS_PROXY` listener; 0: any free port."""
    base_url_port: int = 8082
    """Reverse listener for tools with a base-URL setting; 0: any free port."""
    web_port: int = 8081
    auth: str = ""
    """Environment variable with `user:password`; demanded for a non-loopback `listen_host`."""
    intercept: tuple[str, ...] = DEFAULT_INTERCEPT
    """Hosts whose TLS is opened; `*.` at the start takes subdomains. All else is tunnelled."""
    origin: str = "https://api.openai.com"
    """Where the reverse listener's passed OpenAI-format requests go."""
    anthropic_origin: str = "https://api.anthropic.com"
    max_body_bytes: int = 64 * 1024 * 1024
    upstream_proxy: str = ""
    """A company proxy, `http://host:port`."""
    upstream_ca: str = ""
    """PEM file trusted for upstream certificates besides the public roots."""
    keep_flows: int = 2_000
    """mitmweb keeps at most so many flows,"""
    keep_flow_bytes: int = 256 * 1024 * 1024
    """and at most so many bytes of bodies."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and habits of reading request bodies."""

    max_text_chars: int = 4_096
    max_decoded_bytes: int = 64 * 1024 * 1024
    wrappers_cut: tuple[str, ...] = ()
    """Further wrapper tags whose content tools add: cut."""
    wrappers_open: tuple[str, ...] = ()
    """Further wrapper tags that hold the person's words: opened."""
    conversation: bool = False
    """Keep a whole conversation with the model that its first turn chose."""
    conversation_header: str = "x-turnout-conversation"
    turn_ttl_s: float = 3_600.0
    max_turns: int = 10_000
    script_budget_ms: float = 2.0
    """A route's script that takes longer has overrun; one that overruns often is switched off."""


class Sidecar(msgspec.Struct, frozen=True, kw_only=True):
    """The sidecar's listeners and how long the proxy waits for it."""

    listen_host: str = "127.0.0.1"
    port: int = 8083
    socket: str = ""
    """Unix socket path; empty: `sidecar.sock` in the runtime folder."""
    default_timeout_ms: int = 500
    """The proxy waits so long for a classification, then the default route decides."""
    router_timeout_ms: int = 5_000
    """A request waits so long for room at a local engine that is ready; a start may take longer."""
    first_byte_timeout_ms: int = 300_000
    """The longest wait for a target's first byte."""
    queue_length: int = 32
    keepalive_s: float = 15.0
    loading_note: bool = False
    """Waiting chat streams get a note that the model is loading."""
    cooldown_s: float = 30.0
    """A target that keeps failing rests so long before one request probes it."""
    data_dir: str = ""
    """Batches, files, logs; empty: the user's data folder."""
    decision_log: str = ""
    """Opt-in JSONL file of texts and decisions, relative to `data_dir`; empty: none is written."""


class Classifier(msgspec.Struct, frozen=True, kw_only=True):
    """The semantic layer."""

    kind: ClassifierKind = "embedded"
    threshold: float | None = None
    """Global threshold on the calibrated probability; None: derived from the examples."""
    url: str = ""
    """`systemone` and `chat`: base URL, or a target name (`chat`)."""
    model: str = ""
    api_key_env: str = ""
    timeout_ms: int = 400
    max_text_chars: int = 500
    cache_entries: int = 4_096
    threads: int = 1


class Engines(msgspec.Struct, frozen=True, kw_only=True):
    """What protects the machine."""

    router_cores: int = 2
    """CPU cores that engines never get (fewer on machines with less than four)."""
    ttl_s: float = 600.0
    stall_timeout_s: float = 120.0
    """A start without progress (log, memory, CPU) for so long is stuck."""
    stop_timeout_s: float = 10.0
    max_ram_percent: float = 90.0
    """Above this share of used RAM nothing new is admitted or started."""
    max_swap_in_mb_s: float = 50.0
    ram_budget_bytes: int | None = None
    """Memory that engines on the CPU may use together; None: what is free."""
    vram_budget_bytes: int | None = None
    log_bytes: int = 8 * 1024 * 1024


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All of `turnout.yaml`."""

    proxy: Proxy = Proxy()
    reading: Reading = Reading()
    sidecar: Sidecar = Sidecar()
    classifier: Classifier = Classifier()
    engines: Engines = Engines()
    observe: bool = False
    """Decide, show and log, but change no request."""
