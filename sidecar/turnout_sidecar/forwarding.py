"""One attempt at one target: lease, rewrite, send, and look at the answer up to its content.

An answer that is worth passing on comes back as an `Exchange`, open and unread but for what it
began with; everything else is raised as `Failed`. It never retries and never touches the client.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import types
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
from multidict import CIMultiDict
from yarl import URL

from turnout_rules.answers import Answer
from turnout_rules.credentials import Keyring, MissingKey
from turnout_rules.decision import PASS
from turnout_rules.model import Route, Target
from turnout_rules.request import Request
from turnout_rules.rewriting import rewrite
from turnout_rules.tool_answers import call_turner
from turnout_rules.tool_names import Calls
from turnout_sidecar.backends import Refused
from turnout_sidecar.exchanging import Exchange, Failed, broken, late
from turnout_sidecar.failures import Failure, judge_answer
from turnout_sidecar.leasing import Leased, Lessor
from turnout_sidecar.passing import Passed

log = logging.getLogger(__name__)
CONNECT_TIMEOUT_S = 10.0
MAX_ERROR_BYTES = 1024 * 1024
ERROR_BODY_TIMEOUT_S = 10.0
_ORIGIN_FAILS = frozenset((429, *range(500, 600)))
_OF_CONNECTION = frozenset(
    [
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ]
)
_DROPPED = _OF_CONNECTION | {"content-encoding"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """What to carry to whom. `deadline_s` counts from the attempt's start to its first byte.

    The first byte is one of an event or a body: comments and white space say nothing.
    """

    request: Request
    headers: Iterable[tuple[str, str]]
    target: Target
    route: Route | None
    keyring: Keyring
    priority: str
    client: str
    room_timeout_s: float
    deadline_s: float | None
    first_byte_s: float
    on_wait: Callable[[Any], None] | None = None
    origin: Passed | None = None
    """Carry this instead, as it is, to its own server;"""
    origin_proxy: str = ""
    """through the company proxy, if there is one;"""
    origin_trust: ssl.SSLContext | None = None
    """trusting this, if it is more than the public roots."""


@dataclass(frozen=True, slots=True)
class _Parcel:
    """What is sent, ready to go."""

    url: str
    body: bytes = field(repr=False)
    headers: CIMultiDict[str] = field(repr=False)
    adjustments: tuple[str, ...] = ()
    calls: Calls | None = None
    """Tools under other names than the client's."""
    way: dict[str, Any] = field(default_factory=dict)
    """How to connect, if not as usual."""
    on_piece: Callable[[], None] = lambda: None
    """Wants to hear of each piece of the answer."""


@dataclass(slots=True)
class _Trace:
    """Whether the connection of one send had been used before."""

    is_reused: bool = field(default=False)


class Forwarder:
    """Sends errands. One client session for all upstreams; `close` ends it."""

    def __init__(self, lessor: Lessor) -> None:
        """Must be made inside the event loop."""
        self._lessor = lessor
        trace = aiohttp.TraceConfig()
        trace.on_connection_reuseconn.append(_note_reuse)
        # Proxy variables of the environment would lead back into our own proxy; cookies would
        # carry one client's session to the next.
        self._session = aiohttp.ClientSession(
            trust_env=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=30),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
            trace_configs=[trace],
            skip_auto_headers=("user-agent", "accept", "accept-encoding"),
            read_bufsize=64 * 1024,
        )

    async def close(self) -> None:
        """Close all upstream connections."""
        await self._session.close()

    async def open(self, errand: Errand) -> Exchange:
        """Carry `errand` out until the answer brings something; raises `Failed`."""
        stack = AsyncExitStack()
        try:
            async with asyncio.timeout(errand.deadline_s):
                exchange = await self._open(errand, stack)
            await exchange.hold_preamble()
            return exchange
        except TimeoutError:
            await stack.aclose()
            raise Failed(late(errand.target, errand.deadline_s or 0.0)) from None
        except BaseException:
            await stack.aclose()
            raise

    async def _open(self, errand: Errand, stack: AsyncExitStack) -> Exchange:
        parcel = _passed(errand) if errand.origin else await self._pack(errand, stack)
        try:
            async with asyncio.timeout(errand.first_byte_s):
                response = await self._send(parcel, errand, stack)
                if response.status < 200:
                    raise Failed(_switched(errand.target))
                exchange = _exchange(errand, response, parcel, stack)
                exchange.on_piece = parcel.on_piece
                if response.status >= 300:
                    exchange.held += await _judged_error(response, errand.target)
                await exchange.begin()
        except TimeoutError:
            raise Failed(late(errand.target, errand.first_byte_s)) from None
        return exchange

    async def _pack(self, errand: Errand, stack: AsyncExitStack) -> _Parcel:
        """The request rewritten for its target, with the target's own key, once there is room."""
        try:
            headers = errand.keyring.outgoing(errand.headers, errand.target, errand.route)
        except MissingKey as error:
            raise Failed(_keyless(errand.target, str(error))) from error
        lease = await self._lease(errand, stack)
        target = _at(errand.target, lease)
        rewritten = rewrite(errand.request, target, errand.route)
        url = _origin(target) + rewritten.path
        return _Parcel(
            url,
            rewritten.body,
            _clean(headers, _DROPPED),
            rewritten.adjustments,
            rewritten.calls,
            on_piece=lease.on_piece,
        )

    async def _lease(self, errand: Errand, stack: AsyncExitStack) -> Leased:
        lease = self._lessor.lease(
            errand.target,
            priority=errand.priority,
            client=errand.client,
            timeout_s=errand.room_timeout_s,
            on_wait=errand.on_wait,
        )
        try:
            return await stack.enter_async_context(lease)
        except Refused as refused:
            raise Failed(_refusal(refused)) from refused

    async def _send(
        self, parcel: _Parcel, errand: Errand, stack: AsyncExitStack
    ) -> aiohttp.ClientResponse:
        idle = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=errand.first_byte_s
        )
        for is_last in (False, True):
            trace = _Trace()
            try:
                response = await self._session.post(
                    URL(parcel.url, encoded=True),
                    data=parcel.body,
                    headers=parcel.headers,
                    allow_redirects=False,
                    timeout=idle,
                    trace_request_ctx=trace,
                    **parcel.way,
                )
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                raise Failed(_unreachable(errand.target, error)) from error
            except aiohttp.SocketTimeoutError:
                raise TimeoutError from None
            except (aiohttp.ClientError, OSError, ValueError) as error:
                # A kept connection that the server had just closed says nothing about the target.
                if trace.is_reused and not is_last:
                    continue
                raise Failed(broken(errand.target, error)) from error
            stack.callback(_let_go, response)
            return response
        raise AssertionError("unreachable")


def _exchange(
    errand: Errand,
    response: aiohttp.ClientResponse,
    parcel: _Parcel,
    stack: AsyncExitStack,
) -> Exchange:
    content_type, endpoint = response.headers.get("content-type", ""), errand.request.endpoint
    turner = None
    if parcel.calls is not None:
        turner = call_turner(parcel.calls, endpoint, response.status, content_type)
    return Exchange(
        target=errand.target,
        status=response.status,
        headers=response.headers,
        answer=Answer(endpoint, content_type=content_type),
        turner=turner,
        adjustments=parcel.adjustments,
        idle_s=errand.first_byte_s,
        _response=response,
        _stack=stack,
        content_length=_plain_length(response) if turner is None else None,
    )


async def _judged_error(response: aiohttp.ClientResponse, target: Target) -> bytes:
    """The body of an error answer that is the client's to see; raises `Failed` for others."""
    body = await _error_body(response)
    content_type = response.headers.get("content-type", "")
    after = response.headers.get("retry-after")
    if target.name == PASS and response.status not in _ORIGIN_FAILS:
        return body  # a request that passes gets what its origin says
    failure = judge_answer(target.name, response.status, body, content_type, after)
    if failure is not None:
        raise Failed(failure)
    return body


async def _error_body(response: aiohttp.ClientResponse) -> bytes:
    """At most `MAX_ERROR_BYTES` of an error answer, decoded; what arrived, if it breaks off."""
    body = bytearray()
    with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
        async with asyncio.timeout(ERROR_BODY_TIMEOUT_S):
            while len(body) < MAX_ERROR_BYTES and (piece := await response.content.readany()):
                body += piece
    return bytes(body[:MAX_ERROR_BYTES])


def _let_go(response: aiohttp.ClientResponse) -> None:
    """Back to the pool when wholly read, else closed, which tells the upstream to stop."""
    if response.content.at_eof():
        response.release()
    else:
        response.close()


def _plain_length(response: aiohttp.ClientResponse) -> int | None:
    """The body's length if it will be passed on as it came (aiohttp decodes encoded ones)."""
    if "content-encoding" in response.headers or response.status >= 300:
        return None
    return response.content_length


def _at(target: Target, lease: Leased) -> Target:
    """`target` where the lease says it answers."""
    upstream, model = target.upstream, target.model
    if lease.base_url and lease.base_url != upstream.base_url:
        upstream = msgspec.structs.replace(upstream, base_url=lease.base_url)
    if lease.model and lease.model != model.upstream_model:
        model = msgspec.structs.replace(model, model=lease.model)
    return Target(target.name, upstream, model)


def _origin(target: Target) -> str:
    parts = urlsplit(target.upstream.base_url)
    return f"{parts.scheme}://{parts.netloc}"


def _passed(errand: Errand) -> _Parcel:
    """The request as its client sent it, to the server that the client addressed."""
    origin = errand.origin
    assert origin is not None
    way: dict[str, Any] = {}
    if errand.origin_proxy:
        way["proxy"] = errand.origin_proxy
    if errand.origin_trust is not None:
        way["ssl"] = errand.origin_trust
    return _Parcel(origin.url, origin.body, _clean(origin.headers, _OF_CONNECTION), way=way)


def _clean(headers: Iterable[tuple[str, str]], dropped: frozenset[str]) -> CIMultiDict[str]:
    """Without what belongs to a connection or to us; answers are asked for unencoded."""
    kept = [
        (name, value)
        for name, value in headers
        if name.lower() not in dropped and not name.lower().startswith("x-turnout-")
    ]
    outgoing = CIMultiDict(kept)
    outgoing["accept-encoding"] = "identity"
    outgoing.setdefault("content-type", "application/json")
    return outgoing


async def _note_reuse(
    session: aiohttp.ClientSession,
    context: types.SimpleNamespace,
    params: aiohttp.TraceConnectionReuseconnParams,
) -> None:
    context.trace_request_ctx.is_reused = True


def _unreachable(target: Target, error: Exception) -> Failure:
    return Failure(
        kind="connect",
        status=502,
        code="upstream_unreachable",
        message=f"{target.name} cannot be reached ({type(error).__name__})",
    )


def _switched(target: Target) -> Failure:
    return Failure(
        kind="broken",
        status=502,
        code="upstream_broken",
        message=f"{target.name} changed the protocol (101), which nobody asked for",
    )


def _keyless(target: Target, message: str) -> Failure:
    return Failure(
        kind="no_key",
        status=403,
        code="missing_key",
        message=message or f"{target.name} has no key; the client's own is never sent there",
        is_targets_fault=False,
    )


def _refusal(refused: Refused) -> Failure:
    return Failure(
        kind=str(refused.code),
        status=refused.status,
        code=refused.code,
        message=refused.message,
        is_targets_fault=False,
        retry_after_s=refused.retry_after_s,
        queue_position=refused.queue_position,
    )
