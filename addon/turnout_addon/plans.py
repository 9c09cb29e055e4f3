"""What will be done with a request, worked out completely before anything is changed.

Pure: takes a decision and the request's parts, returns a plan. The only way a client's credentials
can stay on a request is that the request goes to the very server the client addressed.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

import msgspec

from turnout_addon.hosts import Origin
from turnout_addon.routing import Routing
from turnout_rules.counting import estimated_count
from turnout_rules.credentials import MissingKey
from turnout_rules.decision import BLOCK, PASS, Decision
from turnout_rules.endpoints import SUFFIX_OF
from turnout_rules.errors import error_body
from turnout_rules.model import Route, Target
from turnout_rules.providers import provider_of
from turnout_rules.refusals import refusal_of
from turnout_rules.request import Request
from turnout_rules.rewriting import rewrite
from turnout_rules.targets import UnknownTarget
from turnout_rules.tool_names import Calls

Fields = tuple[tuple[str, str], ...]
RETRY_AFTER_S = 2

# What describes the old connection, or with it the old body; wrong for the new ones.
_OF_CONNECTION = frozenset(
    {"host", "connection", "keep-alive", "proxy-connection", "te", "trailer", "upgrade", "expect"}
    | {"content-length", "transfer-encoding", "proxy-authorization", "http2-settings"}
)
_STALE = _OF_CONNECTION | {"digest", "content-digest", "repr-digest", "content-md5"}
# Gateway: the words of the client that the gateway understands or that describe the body.
_FOR_GATEWAY = frozenset(
    {"accept", "content-type", "content-encoding", "user-agent"}
    | {"anthropic-version", "anthropic-beta", "x-turnout-priority", "x-turnout-conversation"}
)


class Leave(msgspec.Struct, frozen=True):
    """Send the request as it came; to `origin` if it came by the reverse listener."""

    origin: Origin | None


class Send(msgspec.Struct, frozen=True):
    """Send this instead. `fields` are all headers, `Host` and `content-length` among them."""

    origin: Origin
    path: str
    fields: Fields
    body: bytes
    decision: Decision
    is_for_gateway: bool = False
    crosses: bool = True
    """The target is another server than the one addressed."""
    calls: Calls | None = None
    """Tools under other names than the client's: the answer must be turned back."""


class Count(msgspec.Struct, frozen=True):
    """Send nothing; the client gets this estimate of its tokens."""

    body: bytes


class Answer(msgspec.Struct, frozen=True):
    """Send nothing; the client gets this."""

    status: int
    code: str
    body: bytes
    retry_after_s: int | None = None


Plan = Leave | Send | Count | Answer


class Received(msgspec.Struct, frozen=True):
    """A request as it arrived, beside what `Reader` made of it."""

    origin: Origin
    """The server the client addressed."""
    is_reverse: bool
    path: str
    fields: Fields
    raw_body: bytes


def plan(
    routing: Routing,
    received: Received,
    request: Request,
    decision: Decision,
    gateway: Origin,
    token: str = "",
) -> Plan:
    """Choose and fill in the plan; raises nothing that a rule file or a client can cause.

    `token`: what the gateway demands where it listens off loopback.
    """
    if decision.is_observed:
        return Leave(received.origin if received.is_reverse else None)
    if refused := refusal_of(request, decision):
        status, code, message = refused.status, refused.code, refused.message
        return refusal(request.endpoint, status, message, code=code, route=decision.route)
    if decision.target == PASS and not decision.via_sidecar:
        return Leave(received.origin if received.is_reverse else None)
    if decision.via_sidecar:
        return _to_gateway(received, request, decision, gateway, token)
    try:
        return _direct(routing, received, request, decision)
    except MissingKey as error:
        return refusal(request.endpoint, 401, str(error), code="missing_key", route=decision.route)
    except UnknownTarget as error:
        return refusal(
            request.endpoint, 500, str(error), code="unknown_target", route=decision.route
        )


def plan_count(
    routing: Routing, received: Received, request: Request, decision: Decision, gateway: Origin
) -> Plan:
    """For a request that only counts tokens: ask the conversation's target, or estimate.

    `request` reads as the one to be counted. Where the conversation passes, so does this.
    """
    if decision.is_observed or decision.target in (PASS, BLOCK):
        direct = msgspec.structs.replace(decision, via_sidecar=False)
        return plan(routing, received, request, direct, gateway)
    target = routing.table.resolve(decision.target)
    if request.endpoint not in provider_of(target.upstream).counts:
        return Count(estimated_count(request))
    request.count_tokens_only()
    # Counting takes none of the fields that a route may set for the answer.
    direct = msgspec.structs.replace(decision, route=None, via_sidecar=False)
    found = plan(routing, received, request, direct, gateway)
    if not isinstance(found, Send):
        return found
    return msgspec.structs.replace(
        found, decision=msgspec.structs.replace(found.decision, route=decision.route)
    )


def refusal(
    endpoint: str,
    status: int,
    message: str,
    *,
    code: str,
    route: str | None = None,
    retry_after_s: int | None = None,
) -> Answer:
    """An answer in the format of the client's API."""
    body = error_body(endpoint, status, message, code=code, route=route)
    return Answer(status, code, body, retry_after_s)


def _to_gateway(
    received: Received, request: Request, decision: Decision, gateway: Origin, token: str
) -> Send:
    """The body as it came; the gateway only carries the decision out."""
    fields = [field for field in received.fields if field[0].lower() in _FOR_GATEWAY]
    targets = ", ".join((decision.target, *decision.fallback))
    fields += [
        ("x-turnout-route", decision.route or ""),
        ("x-turnout-targets", targets),
        ("x-turnout-layer", decision.layer),
    ]
    if decision.target == PASS:
        fields += _for_its_origin(received)
    if token:
        fields.append(("x-turnout-token", token))
    query = urlsplit(received.path).query
    path = f"{gateway.path}/v1{SUFFIX_OF[request.endpoint]}" + (f"?{query}" if query else "")
    fields = _framed(fields, gateway, received.raw_body)
    return Send(gateway, path, tuple(fields), received.raw_body, decision, is_for_gateway=True)


def _for_its_origin(received: Received) -> list[tuple[str, str]]:
    """What the gateway needs to pass the request itself, under names that it sends to no target."""
    url = f"{received.origin.scheme}://{received.origin.host_header}{received.path}"
    own = [
        (f"x-turnout-pass-{name}", value)
        for name, value in received.fields
        if name.lower() not in _OF_CONNECTION and not _is_ours(name)
    ]
    return [("x-turnout-pass-to", url), *own]


def _direct(routing: Routing, received: Received, request: Request, decision: Decision) -> Send:
    """Rewritten for the target and sent to it, with its key."""
    target = routing.table.resolve(decision.target)
    route = routing.table.route(decision.route) if decision.route else None
    rewritten = rewrite(request, target, route)
    origin = routing.bases.get(target.upstream.base_url)
    if origin is None:
        raise UnknownTarget(f"target {target.name!r} has no base_url to send to")
    crosses = origin.server != received.origin.server
    if not crosses and not _has_own_key(target):
        outgoing = _kept(received.fields, target, route)
    else:
        outgoing = routing.keyring.outgoing(received.fields, target, route)
    dropped = _STALE | {"content-encoding"}
    fields = [f for f in outgoing if f[0].lower() not in dropped and not _is_ours(f[0])]
    if rewritten.calls is not None:
        # What is compressed cannot be turned back as it passes.
        fields = [f for f in fields if f[0].lower() != "accept-encoding"]
        fields.append(("accept-encoding", "identity"))
    fields = _framed(fields, origin, rewritten.body)
    decision = msgspec.structs.replace(decision, adjustments=rewritten.adjustments)
    body, path, calls = rewritten.body, rewritten.path, rewritten.calls
    return Send(origin, path, tuple(fields), body, decision, crosses=crosses, calls=calls)


def _kept(fields: Fields, target: Target, route: Route | None) -> list[tuple[str, str]]:
    """The client's own headers: the request stays with the server it was meant for."""
    extra = {**target.upstream.headers, **(route.headers if route else {})}
    replaced = {name.lower() for name in extra}
    return [f for f in fields if f[0].lower() not in replaced] + list(extra.items())


def _has_own_key(target: Target) -> bool:
    return bool(target.upstream.api_key_env or target.upstream.api_key_file)


def _is_ours(name: str) -> bool:
    return name.lower().startswith("x-turnout-")


def _framed(
    fields: Iterable[tuple[str, str]], origin: Origin, body: bytes
) -> list[tuple[str, str]]:
    """Put the new connection's headers round the rest."""
    return [("Host", origin.host_header), *fields, ("content-length", str(len(body)))]
