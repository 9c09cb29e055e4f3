"""A request's body and path for another target: a pure splice, with every change named.

The model is replaced, the target's adjustments and the route's `set` fields are made, all other
bytes stay. It sends nothing and touches no headers.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import msgspec

from turnout_rules.adjustments import adjust
from turnout_rules.model import Route, Target
from turnout_rules.providers import host_of, is_azure, origin_of
from turnout_rules.splicing import splice, splice_one
from turnout_rules.tool_folding import fold
from turnout_rules.tool_names import Calls

if TYPE_CHECKING:
    from turnout_rules.request import Request

# The default of Azure's deployment paths when neither side names a version.
_AZURE_API_VERSION = "2024-10-21"
# Query fields that are no credentials and mean the same everywhere; others stay with their host.
_PORTABLE_QUERY = frozenset({"beta"})


class Rewrite(msgspec.Struct, frozen=True):
    """What goes to the target."""

    body: bytes
    """Without content-encoding."""
    path: str
    adjustments: tuple[str, ...] = ()
    calls: Calls | None = None
    """Tools under other names than the client's: the answer must be turned back (`answer`)."""


def rewrite(request: Request, target: Target, route: Route | None) -> Rewrite:
    """The body and path for `target`, as `route` wants them."""
    folded = fold(request, target)
    changes, names = adjust(request, target, folded.changes if folded is not None else {})
    calls = None
    if folded is not None:
        names, calls = (*folded.adjustments, *names), folded.calls
    if route is not None and route.set:
        changes |= _set_fields(route)
        names = (*names, *_names_of_set(request, route))
    # A route may drop what its target drops as well; long keys look alike when they are cut.
    names = tuple(dict.fromkeys(names))
    model = msgspec.json.encode(target.model.upstream_model)
    if request.form is not None:
        body = request.form.changed(request.body, changes | {"model": model})
        return Rewrite(body, target_path(request, target), names)
    if not changes and "model" in request.fields:
        body = splice_one(request.body, request.fields, "model", model, request.spans)
        return Rewrite(body, target_path(request, target), names, calls)
    changes["model"] = model
    present = {
        name: value
        for name, value in changes.items()
        if value is not None or name in request.fields
    }
    body = splice(request.body, request.fields, present, request.spans)
    return Rewrite(body, target_path(request, target), names, calls)


def _set_fields(route: Route) -> dict[str, bytes | None]:
    return {
        name: None if value is None else msgspec.json.encode(value)
        for name, value in route.set.items()
        if name != "model"
    }


def _names_of_set(request: Request, route: Route) -> Iterable[str]:
    for name, value in route.set.items():
        if name == "model":
            continue
        if value is not None:
            yield f"{name} set"
        elif name in request.fields:
            yield f"{name} dropped"


def target_path(request: Request, target: Target) -> str:
    """The base URL's path joined with the endpoint's suffix, and what may stay of the query."""
    base_url = target.upstream.base_url or "http://localhost/v1"
    path, origin, query = _base(base_url, target.model.upstream_model, request.suffix)
    query = _query(request, origin, query, wants_version="/deployments/" in path)
    return path + (f"?{query}" if query else "")


@lru_cache(maxsize=1_024)
def _base(base_url: str, upstream_model: str, suffix: str) -> tuple[str, str, str]:
    """Of a target: path with `suffix`, origin, the base URL's own query."""
    base = urlsplit(base_url)
    host = host_of(base_url)
    model = quote(upstream_model, safe="")
    path = base.path.rstrip("/").replace("{model}", model).replace("%7Bmodel%7D", model)
    if host == "api.anthropic.com" and not path:
        path = "/v1"
    if is_azure(host):
        path = _azure_path(path, model, suffix)
    return path + suffix, origin_of(base_url), base.query


def _azure_path(path: str, model: str, suffix: str) -> str:
    """Azure's two dialects: `/openai/v1` takes any model, `/openai/deployments/{name}` is one."""
    if "/deployments/" in path or path.endswith("/v1"):
        return path
    if suffix == "/responses":
        return "/openai/v1"
    return f"/openai/deployments/{model}"


def _query(request: Request, origin: str, base_query: str, *, wants_version: bool) -> str:
    asked = request.path.partition("?")[2]
    if not asked and not base_query and not wants_version:
        return ""
    if asked and not base_query and request.origin == origin:
        return asked
    fields = dict(parse_qsl(base_query, keep_blank_values=True))
    for name, value in parse_qsl(asked, keep_blank_values=True):
        if name in _PORTABLE_QUERY or (name == "api-version" and wants_version):
            fields.setdefault(name, value)
    if wants_version:
        fields.setdefault("api-version", _AZURE_API_VERSION)
    return urlencode(fields)
