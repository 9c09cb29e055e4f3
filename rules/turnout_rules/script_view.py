"""The request as a route's script sees it: read-only, without credentials, and every look noted.

What a script looked at tells which later requests of a turn may follow its choice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import msgspec

_SECRET_HEADERS = re.compile(r"auth|cookie|key|token|secret|signature|credential", re.IGNORECASE)
_ATTACHMENTS = frozenset({"image", "audio", "file"})
_ONE_HEADER = "header:"


class Request(Protocol):
    """What a script's view reads; `turnout_rules.request.Request` is one."""

    endpoint: str
    path: str
    host: str
    client: str
    body: bytes
    model: str
    stream: bool
    text: str
    task: str
    script_reads: set[str]

    @property
    def headers(self) -> Mapping[str, str]:
        """Lower-case names."""

    @property
    def needs(self) -> frozenset[str]:
        """Capabilities."""

    @property
    def input_tokens(self) -> int:
        """Estimated."""

    @property
    def output_tokens(self) -> int:
        """Asked for."""

    @property
    def conversation(self) -> str:
        """Stable key."""

    def text_on(self, part: Any) -> str:
        """The text of one part."""


class _Function(msgspec.Struct):
    name: str = ""


class _Tool(msgspec.Struct):
    name: str = ""
    type: str = ""
    function: _Function | None = None


class _Tools(msgspec.Struct):
    tools: list[_Tool] = []


class _Headers(Mapping[str, str]):
    """Headers without credentials; notes which are looked at."""

    __slots__ = ("_kept", "_reads")

    def __init__(self, headers: Mapping[str, str], reads: set[str]) -> None:
        self._kept = _shown(headers)
        self._reads = reads

    def __getitem__(self, name: str) -> str:
        self._reads.add(f"{_ONE_HEADER}{name}")
        return self._kept[name]

    def __iter__(self) -> Iterator[str]:
        self._reads.add("headers")
        return iter(self._kept)

    def __len__(self) -> int:
        self._reads.add("headers")
        return len(self._kept)

    def __repr__(self) -> str:
        self._reads.add("headers")
        return repr(self._kept)


class RequestView:
    """The read-only request a script sees: no credentials, nothing to change."""

    __slots__ = ("_request",)

    def __init__(self, request: Request) -> None:
        """Wrap `request`; every property is read when it is asked for."""
        object.__setattr__(self, "_request", request)

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse: scripts choose, they change nothing."""
        raise AttributeError("a script's request is read-only")

    @property
    def text(self) -> str:
        """What the person wrote."""
        self._inner.script_reads.add("text")
        return self._inner.text

    @property
    def system(self) -> str:
        """The system prompt's text."""
        self._inner.script_reads.add("system")
        return self._inner.text_on("system")

    @property
    def model(self) -> str:
        """The model the client asked for."""
        return self._inner.model

    @property
    def endpoint(self) -> str:
        """`chat`, `completions`, `responses`, `messages` or `embeddings`."""
        return self._inner.endpoint

    @property
    def path(self) -> str:
        """The request's path."""
        self._inner.script_reads.add("path")
        return self._inner.path

    @property
    def host(self) -> str:
        """The host the client meant."""
        return self._inner.host

    @property
    def client(self) -> str:
        """The client's address."""
        return self._inner.client

    @property
    def task(self) -> str:
        """`metadata.task`, or the kind of side request that a tool sent (`title`, `summary` …)."""
        return self._inner.task

    @property
    def stream(self) -> bool:
        """Whether the client wants a stream."""
        self._inner.script_reads.add("stream")
        return self._inner.stream

    @property
    def conversation(self) -> str:
        """A stable key of the conversation."""
        return self._inner.conversation

    @property
    def needs(self) -> frozenset[str]:
        """What the request uses: tools, image, json_schema …"""
        self._inner.script_reads.add("needs")
        return self._inner.needs

    @property
    def input_tokens(self) -> int:
        """Estimated input size."""
        return self._inner.input_tokens

    @property
    def output_tokens(self) -> int:
        """Output tokens asked for, 0: not said."""
        self._inner.script_reads.add("output_tokens")
        return self._inner.output_tokens

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers by lower-case name, without any that carry credentials."""
        return _Headers(self._inner.headers, self._inner.script_reads)

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of the tools the request offers."""
        self._inner.script_reads.add("tools")
        return _tool_names(self._inner)

    @property
    def _inner(self) -> Request:
        request: Request = object.__getattribute__(self, "_request")
        return request


def fact(request: Request, name: str) -> object:
    """What a script that asked for `name` got to see, less what a turn is meant to change."""
    if name.startswith(_ONE_HEADER):
        return _shown(request.headers).get(name.removeprefix(_ONE_HEADER))
    if name == "headers":
        return sorted(_shown(request.headers).items())
    if name == "system":
        return request.text_on("system")
    if name == "tools":
        return _tool_names(request)
    if name == "needs":
        return sorted(request.needs - _ATTACHMENTS)
    return getattr(request, name)


def _shown(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if not _SECRET_HEADERS.search(name)}


def _tool_names(request: Request) -> tuple[str, ...]:
    try:
        found = msgspec.json.decode(request.body, type=_Tools).tools
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return ()
    return tuple((t.function.name if t.function else t.name) or t.type for t in found)
