"""The values a rules folder is made of, after loading: routes, upstreams, models. No behaviour."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

EngineName = Literal["vllm", "llamacpp", "nanovllm", "command", "external", "ray"]
TextPart = Literal["human", "system", "tools", "all"]
Capability = Literal[
    "tools", "image", "audio", "file", "json_schema", "stream", "reasoning", "logprobs"
]


class Place(msgspec.Struct, frozen=True):
    """Where a value stands in a rule file; lines and columns count from 1."""

    file: str = ""
    line: int = 0
    column: int = 0


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """`match:` as written. A plain list is `any`. Entries are keyword, `prefix:`, `re:` or `.*`."""

    any: tuple[str, ...] = ()
    all: tuple[str, ...] = ()
    none: tuple[str, ...] = ()
    on: TextPart = "human"
    places: dict[str, Place] = {}
    """Entry text to place, for messages."""

    @property
    def is_catch_all(self) -> bool:
        """Whether this matches every text by itself."""
        return ".*" in self.any and not self.all and not self.none


class Span(msgspec.Struct, frozen=True):
    """An inclusive range; None is open."""

    min: int | None = None
    max: int | None = None


class When(msgspec.Struct, frozen=True, kw_only=True):
    """`when:`: all given keys must hold; lists are alternatives (`has`/`lacks`: all of them)."""

    endpoint: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    """Globs on the request's model name, or one `re:` whose captures fill the target."""
    path: tuple[str, ...] = ()
    header: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(lower-case name, globs)"""
    client: tuple[str, ...] = ()
    """CIDRs."""
    has: tuple[Capability, ...] = ()
    lacks: tuple[Capability, ...] = ()
    input_tokens: Span | None = None
    task: tuple[str, ...] = ()
    language: tuple[str, ...] = ()


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """A named row of the table."""

    name: str
    match: Match | None = None
    when: When | None = None
    priority: int = 0
    targets: tuple[tuple[str, int], ...] = ()
    """(target, weight) pairs; one pair for a plain target. A target may hold `{1}` captures."""
    script: str = ""
    """`scripts/pick.py`: `choose(request)` names the target; `targets` counts if it does not."""
    fallback: tuple[str, ...] = ()
    set: dict[str, Any] = {}
    """Body fields written at the top level; None drops one."""
    headers: dict[str, str] = {}
    """Request headers put on the way to the target."""
    timeout_ms: int | None = None
    examples: tuple[str, ...] = ()
    description: str = ""
    threshold: float | None = None
    """Per-route semantic threshold; None: the global one."""
    message: str = ""
    observe: bool = False
    place: Place = Place()
    order: int = 0
    """Position in file order over all files, for ties of priority."""

    @property
    def is_catch_all(self) -> bool:
        """Whether the route takes whatever reaches it (`match: [.*]`, no `when`)."""
        return self.match is not None and self.match.is_catch_all and self.when is None

    @property
    def is_semantic(self) -> bool:
        """Whether the semantic layer may choose the route.

        It may if the route has examples. A description alone teaches only a route that has no
        rule: beside a rule it is a remark for people.
        """
        return bool(self.examples) or bool(
            self.description.strip()
            and self.match is None
            and self.when is None
            and not self.script
        )


class Price(msgspec.Struct, frozen=True):
    """US dollars per million tokens."""

    input: float = 0.0
    output: float = 0.0


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """One model of an upstream. Fields below `price` only matter to managed engines."""

    name: str
    model: str = ""
    """The name the upstream knows it by; empty: the same as `name`."""
    context: int | None = None
    """Context window in tokens; None: unknown, not checked."""
    supports: frozenset[str] | None = None
    """Capabilities and endpoints; None: the upstream's preset."""
    price: Price | None = None
    adjust: dict[str, Any] = {}
    """Overrides of the field adjustments for this target, by adjustment name."""
    model_path: str = ""
    quantization: str = ""
    max_num_seqs: int = 2
    gpu_memory_utilization: float | None = None
    kv_cache_dtype: str = ""
    max_model_len: int | None = None
    cpu_set: str = ""
    """CPU list such as `2-7`; empty: all but the router's cores."""
    env: dict[str, str] = {}
    ttl_s: float | None = None
    """Idle seconds after the last request's end until the engine stops; 0: never; None: default."""
    preload: bool = False
    pin: bool = False
    """Never evicted."""
    queue: int | None = None
    """Waiting requests allowed; None: default."""
    start_timeout_s: float | None = None
    """Seconds without any progress of a start before it counts as stalled; None: default."""
    sleep: bool = False
    """vLLM: sleep and wake instead of stop and start (opens its development endpoints)."""
    command: tuple[str, ...] = ()
    """`engine: command`: argument list with `{port}`, `{model_path}`."""
    python: str = ""
    """Interpreter of the environment that has the engine (nano-vllm, vLLM in its own venv)."""
    args: tuple[str, ...] = ()
    """Extra engine arguments, passed through."""
    place: Place = Place()

    @property
    def upstream_model(self) -> str:
        """The model name to send."""
        return self.model or self.name


class Upstream(msgspec.Struct, frozen=True, kw_only=True):
    """A named base URL or local engine with its models, credentials and limits."""

    name: str
    base_url: str = ""
    """OpenAI-compatible base, e.g. `https://api.openai.com/v1`; empty for managed engines."""
    engine: EngineName | None = None
    """None or `external`/`ray`: someone else runs it at `base_url`."""
    api_key_env: str = ""
    api_key_file: str = ""
    auth_header: str = ""
    """Header that carries the key; empty: `authorization: Bearer`; else e.g. `api-key`."""
    headers: dict[str, str] = {}
    max_concurrency: int | None = None
    cooldown_s: float | None = None
    models: dict[str, Model] = {}
    supports: frozenset[str] | None = None
    place: Place = Place()

    @property
    def is_managed(self) -> bool:
        """Whether the sidecar starts and stops this upstream's engines."""
        return self.engine in ("vllm", "llamacpp", "nanovllm", "command")

    @property
    def is_open(self) -> bool:
        """Whether any model name goes (no `models:` listed)."""
        return not self.models


class Target(msgspec.Struct, frozen=True):
    """A target resolved against the upstreams: `name` is `upstream/model`."""

    name: str
    upstream: Upstream
    model: Model
