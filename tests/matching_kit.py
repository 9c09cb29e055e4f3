"""Small tables and requests for the tests of matching and deciding."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from turnout_rules.model import Match, Model, Route, Upstream, When
from turnout_rules.reading import Reader
from turnout_rules.request import Request
from turnout_rules.settings import Reading
from turnout_rules.table import Script, Table, build_table

UPSTREAMS = {
    "api": Upstream(name="api", base_url="https://api.example.com/v1"),
    "text": Upstream(
        name="text",
        base_url="https://text.example.com/v1",
        models={
            "small": Model(name="small", context=100, supports=frozenset({"logprobs"})),
            "plain": Model(name="plain", supports=frozenset({"tools"})),
        },
    ),
    "local": Upstream(
        name="local", engine="llamacpp", models={"tiny": Model(name="tiny", model_path="x")}
    ),
}


def route(name: str, *entries: str, **fields: Any) -> Route:
    """A route on keywords with one target, `api/<name>` unless told otherwise."""
    if entries:
        fields.setdefault("match", Match(any=entries))
    target = fields.pop("target", f"api/{name}")
    fields.setdefault("targets", ((target, 1),) if target else ())
    return Route(name=name, **fields)


def table(*routes: Route, scripts: Mapping[str, Script] | None = None, **options: Any) -> Table:
    """A table of `routes`, in file order."""
    numbered = [Route(**{**_fields(r), "order": n}) for n, r in enumerate(routes)]
    return build_table(numbered, UPSTREAMS, scripts=scripts, **options)


def when_route(name: str, *, priority: int = 0, **conditions: Any) -> Route:
    """A route on `when` alone."""
    return route(name, when=When(**conditions), priority=priority)


def ask(text: str = "hello", **fields: Any) -> Request:
    """A chat request read from real bytes; `path`, `headers` and `client` go beside the body."""
    path = fields.pop("path", "/v1/chat/completions")
    headers = fields.pop("headers", {})
    client = fields.pop("client", "127.0.0.1")
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": text}], **fields}
    raw = json.dumps({key: value for key, value in body.items() if value is not None}).encode()
    return Reader(Reading()).read(
        method="POST", path=path, headers=headers, body=raw, client=client
    )


def embeddings(text: str) -> Request:
    """An embeddings request."""
    return ask(path="/v1/embeddings", messages=None, input=text)


def winner(found: Table, request: Request | str) -> str | None:
    """The route that decides."""
    asked = ask(request) if isinstance(request, str) else request
    return found.decide(asked).route


def _fields(found: Route) -> dict[str, Any]:
    return {name: getattr(found, name) for name in found.__struct_fields__}
