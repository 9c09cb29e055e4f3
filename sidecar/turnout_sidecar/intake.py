"""Reading a client's request and deciding where it goes, up to the point where something is sent.

Everything that makes a request impossible is raised as `Refusal`, which knows its status and words.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from typing import cast, get_args
from urllib.parse import unquote

from aiohttp import web

from turnout_rules.decision import PASS, Decision, Layer
from turnout_rules.endpoints import Endpoint
from turnout_rules.naming import printable
from turnout_rules.reading import Unreadable
from turnout_rules.refusals import carried_out, not_served, refusal_of
from turnout_rules.request import Request
from turnout_rules.table import Table, UnknownTarget
from turnout_rules.unreadable import TooLarge
from turnout_sidecar.bad_requests import BrokenBody
from turnout_sidecar.deciding import Decider
from turnout_sidecar.dispatching import Journey
from turnout_sidecar.failures import Failure
from turnout_sidecar.live_rules import LiveRules, Snapshot
from turnout_sidecar.passing import PREFIX, ForeignOrigin, Passed, passed

BODY_TIMEOUT_S = 60.0
PRIORITIES = ("interactive", "batch")
_CLIENT_SALT = secrets.token_bytes(16)


class Refusal(Exception):
    """The request is answered here, with `failure`."""

    def __init__(self, failure: Failure, route: str | None = None) -> None:
        """`route` names the rule that refused."""
        super().__init__(failure.message)
        self.failure = failure
        self.route = route


def refusal(status: int, code: str, message: str, route: str | None = None) -> Refusal:
    """A `Refusal` made from its parts."""
    return Refusal(
        Failure(kind=code, status=status, code=code, message=message, is_targets_fault=False), route
    )


async def read_body(http: web.Request, limit: int) -> bytes:
    """The body as sent, at most `limit` bytes, in time; raises `Refusal`."""
    if (http.content_length or 0) > limit:
        raise refusal(413, "body_too_large", f"the body is larger than {limit} bytes")
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while piece := await http.content.readany():
                body += piece
                if len(body) > limit:
                    raise refusal(413, "body_too_large", f"the body is larger than {limit} bytes")
    except TimeoutError:
        message = f"the body did not arrive within {BODY_TIMEOUT_S:g} s"
        raise refusal(408, "body_timeout", message) from None
    except BrokenBody:
        raise refusal(400, "no_http", "the body's chunks or trailers are not valid HTTP") from None
    return bytes(body)


class Intake:
    """Turns HTTP requests into journeys."""

    def __init__(self, live: LiveRules, decider: Decider) -> None:
        """Uses the rules in force at each request's arrival."""
        self._live = live
        self._decider = decider

    async def accept(self, http: web.Request, endpoint: Endpoint) -> Journey:
        """Read, decide, check; raises `Refusal`."""
        snapshot = self._live.current
        body = await read_body(http, snapshot.settings.proxy.max_body_bytes)
        return await self.plan(
            snapshot,
            method=http.method,
            path=http.raw_path,
            headers=[(name, value) for name, value in http.headers.items()],
            body=body,
            peer=http.remote or "",
        )

    async def read_to_count(self, http: web.Request, path: str) -> Request:
        """A request whose tokens are to be counted, as if sent to `path`; raises `Refusal`."""
        snapshot = self._live.current
        body = await read_body(http, snapshot.settings.reading.max_decoded_bytes)
        headers = {name.lower(): value for name, value in http.headers.items()}
        return _read(snapshot, http.method, path, headers, body, http.remote or "")

    async def plan(
        self,
        snapshot: Snapshot,
        *,
        method: str,
        path: str,
        headers: list[tuple[str, str]],
        body: bytes,
        peer: str = "",
    ) -> Journey:
        """The journey of a request that has arrived whole; raises `Refusal`."""
        named = {name.lower(): value for name, value in headers}
        request = _read(snapshot, method, path, named, body, peer)
        origin = _origin(headers, body, snapshot)
        decision = await self._decide(request, snapshot, named)
        priority = named.get("x-turnout-priority", "interactive").strip().lower()
        return Journey(
            request=request,
            headers=headers,
            decision=_carried_out(request, decision, has_origin=origin is not None),
            snapshot=snapshot,
            priority=priority if priority in PRIORITIES else "interactive",
            client=_client_key(named, peer),
            origin=origin,
        )

    async def _decide(
        self, request: Request, snapshot: Snapshot, headers: dict[str, str]
    ) -> Decision:
        table = snapshot.table
        if targets := _names(headers.get("x-turnout-targets", "")):
            return _decided_before(table, targets, headers)
        if (named := _named_target(table, request.model)) is not None:
            return named
        return await self._decider.decide(request, snapshot, source="gateway", is_sticky=True)


def _read(
    snapshot: Snapshot, method: str, path: str, headers: dict[str, str], body: bytes, peer: str
) -> Request:
    """`headers` have lower-case names."""
    try:
        return snapshot.reader.read(
            method=method,
            path=path,
            headers=headers,
            body=body,
            host=headers.get("host", ""),
            client=peer,
        )
    except TooLarge as error:
        raise refusal(413, "body_too_large", f"the {error}") from None
    except Unreadable as error:
        raise refusal(400, "unreadable_request", f"the request cannot be read: {error}") from None


def _decided_before(table: Table, targets: tuple[str, ...], headers: dict[str, str]) -> Decision:
    """What the proxy decided and asks us to carry out."""
    layer = headers.get("x-turnout-layer", "rule")
    route = _route_name(table, headers.get("x-turnout-route", ""))
    return Decision(
        route=route,
        target=targets[0],
        fallback=targets[1:],
        layer=cast(Layer, layer) if layer in get_args(Layer) else "rule",
        reason="decided by the proxy",
    )


def _named_target(table: Table, model: str) -> Decision | None:
    """The client named a target as its model: nothing is left to decide."""
    if "/" not in model or model.startswith("turnout/"):
        return None
    try:
        table.resolve(model)
    except UnknownTarget:
        return None
    return Decision(route=None, target=model, layer="rule", reason="the client named the target")


def _origin(headers: list[tuple[str, str]], body: bytes, snapshot: Snapshot) -> Passed | None:
    try:
        return passed(headers, body, snapshot.settings.proxy)
    except ForeignOrigin:
        message = "the gateway passes requests only to hosts of proxy.intercept"
        raise refusal(403, "foreign_origin", message) from None


def _carried_out(request: Request, decision: Decision, *, has_origin: bool) -> Decision:
    """`decision`, if it names a target to send to; raises `Refusal` when it does not."""
    decision = carried_out(request, decision)
    refused = refusal_of(request, decision)
    is_passed_here = has_origin and bool(decision.fallback)
    if refused is None and decision.is_observed:
        refused = not_served(request, "its route is only observed")
    elif refused is None and decision.target == PASS and not is_passed_here:
        refused = not_served(request, decision.reason)
    if refused is not None:
        raise refusal(refused.status, refused.code, refused.message, decision.route)
    return decision


def _names(value: str) -> tuple[str, ...]:
    return tuple(unquote(name.strip()) for name in value.split(",") if name.strip())


def _route_name(table: Table, value: str) -> str | None:
    """Header values may be percent-encoded, since names may be in any script."""
    for name in (value, unquote(value)):
        if name and table.route(name) is not None:
            return name
    return printable(unquote(value)) or None


def _client_key(headers: dict[str, str], peer: str) -> str:
    """Who asks, for fairness between clients; keyed, so that no log can show a credential."""
    names = ("authorization", "x-api-key", f"{PREFIX}authorization", f"{PREFIX}x-api-key")
    credential = next((headers[name] for name in names if headers.get(name)), "")
    identity = f"{peer}\n{credential}".encode("utf-8", "surrogateescape")
    return hmac.new(_CLIENT_SALT, identity, hashlib.sha256).hexdigest()[:16]
