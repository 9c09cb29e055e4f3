"""The OpenAI- and Anthropic-compatible gateway: a request in, one target's answer out.

Reads, decides and dispatches by the rooms' names, streams the answer through as it comes, and stops
its source when the client leaves. It never buffers content and never retries after any has gone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from aiohttp import web

from turnout_rules.answer_headers import is_bound_to_origin
from turnout_rules.counting import COUNT_HEADER, estimated_count
from turnout_rules.decision import PASS
from turnout_rules.endpoints import classify, counted_path
from turnout_rules.errors import error_body
from turnout_rules.naming import printable
from turnout_sidecar.dispatching import Dispatcher, Journey, Undeliverable
from turnout_sidecar.exchanging import Exchange, Failed
from turnout_sidecar.failures import Failure, sse_error
from turnout_sidecar.intake import Intake, Refusal
from turnout_sidecar.keepalive import WaitingClient
from turnout_sidecar.metrics import Metrics, target_label

log = logging.getLogger(__name__)
_OF_CONNECTION = frozenset(
    [
        "connection",
        "content-encoding",
        "content-length",
        "keep-alive",
        "proxy-connection",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ]
)
_OF_ANOTHER_HOST = frozenset(["date", "server"])
"""Besides those that are bound to their origin."""
_MAX_HEADER_CHARS = 2_000
CLIENT_TIMEOUT_S = 120.0
"""A client that takes nothing for so long gives its place at the target up."""


class Gateway:
    """The handler of every path that is a routed endpoint."""

    def __init__(self, intake: Intake, dispatcher: Dispatcher, metrics: Metrics) -> None:
        """Stateless but for what it is given."""
        self._intake = intake
        self._dispatcher = dispatcher
        self._metrics = metrics

    async def handle(self, http: web.Request) -> web.StreamResponse:
        """Answer one request."""
        started = time.perf_counter()
        if "websocket" in http.headers.get("upgrade", "").lower():
            return upgrade_required(http)
        endpoint = classify(http.method, http.raw_path)
        if endpoint is None:
            counted = counted_path(http.raw_path)
            is_count = classify(http.method, counted) is not None
            return await self._estimate(http, counted) if is_count else not_found(http)
        try:
            journey = await self._intake.accept(http, endpoint)
        except Refusal as refused:
            self._count(endpoint.name, "", refused.failure.status)
            return _answer(endpoint.name, refused.failure, refused.route, {})
        return await self._serve(http, journey, started)

    async def _estimate(self, http: web.Request, counted: str) -> web.StreamResponse:
        """Count by size: no engine is started, and no key used, for a number."""
        try:
            request = await self._intake.read_to_count(http, counted)
        except Refusal as refused:
            endpoint = "messages" if "/messages" in counted else "responses"
            return _answer(endpoint, refused.failure, refused.route, {})
        return web.Response(
            body=estimated_count(request),
            content_type="application/json",
            headers={COUNT_HEADER: "estimate"},
        )

    async def _serve(
        self, http: web.Request, journey: Journey, started: float
    ) -> web.StreamResponse:
        """Wait for the first target that answers, then pass its answer on."""
        request = journey.request
        sidecar = journey.snapshot.settings.sidecar
        client = WaitingClient(
            http,
            endpoint=request.endpoint,
            is_stream=request.stream,
            interval_s=sidecar.keepalive_s,
            headers=_decision_headers(journey),
            wants_note=sidecar.loading_note,
        )
        journey.on_wait = lambda waiting: _note(client, waiting)
        waiting = self._metrics.requests_waiting.labels(journey.priority)
        try:
            with waiting.track_inprogress():
                exchange = await client.until(self._dispatcher.dispatch(journey))
        except Undeliverable as undeliverable:
            self._metrics.keepalives.inc(client.comments)
            return await self._fail(journey, client, undeliverable.failure)
        self._metrics.keepalives.inc(client.comments)
        label = target_label(exchange.target)
        self._metrics.first_byte_seconds.labels(label).observe(time.perf_counter() - started)
        try:
            with self._metrics.requests_running.track_inprogress():
                return await self._pass_on(http, journey, client, exchange)
        finally:
            await exchange.close()
            self._served(journey, exchange, time.perf_counter() - started)

    def _served(self, journey: Journey, exchange: Exchange, elapsed_s: float) -> None:
        endpoint, label = journey.request.endpoint, target_label(exchange.target)
        self._metrics.request_seconds.labels(label).observe(elapsed_s)
        self._count(endpoint, label, exchange.status)
        log.info(
            "%s route=%s target=%s layer=%s status=%d %.3f s",
            endpoint,
            journey.decision.route,
            printable(exchange.target.name),
            journey.decision.layer,
            exchange.status,
            elapsed_s,
        )

    async def _pass_on(
        self, http: web.Request, journey: Journey, client: WaitingClient, exchange: Exchange
    ) -> web.StreamResponse:
        response = client.response
        if response is None:
            response = _response(journey, exchange)
            await response.prepare(http)
        elif exchange.status >= 300 or "event-stream" not in exchange.content_type:
            failure = await _swallowed(exchange)
            await response.write(sse_error(journey.request.endpoint, failure, _route(journey)))
            return response
        else:
            await response.write(f": served by {printable(exchange.target.name)}\n\n".encode())
        try:
            async for chunk in exchange.chunks():
                async with asyncio.timeout(CLIENT_TIMEOUT_S):
                    await response.write(chunk)
        except TimeoutError:
            log.warning("%s: the client stopped reading", printable(exchange.target.name))
            _abort(http)
            return response
        except Failed as failed:
            log.warning("%s; the client was told", printable(failed.failure.message))
            await _break_off(http, response, journey, exchange, failed.failure)
            return response
        await response.write_eof()
        return response

    async def _fail(
        self, journey: Journey, client: WaitingClient, failure: Failure
    ) -> web.StreamResponse:
        endpoint, route = journey.request.endpoint, _route(journey)
        self._count(endpoint, "", failure.status)
        log.info(
            "%s route=%s not served: %s (%s)", endpoint, route, failure.code, _attempts(journey)
        )
        if client.response is not None:
            await client.response.write(sse_error(endpoint, failure, route))
            await client.response.write_eof()
            return client.response
        return _answer(endpoint, failure, route, _decision_headers(journey, is_final=True))

    def _count(self, endpoint: str, label: str, status: int) -> None:
        self._metrics.requests.labels(endpoint, label, str(status)).inc()


def upgrade_required(http: web.Request) -> web.Response:
    """426: clients that try a WebSocket first fall back to plain HTTPS."""
    message = "WebSocket is not offered here; use plain HTTP"
    failure = Failure(kind="upgrade", status=426, code="upgrade_required", message=message)
    endpoint = classify("POST", http.raw_path)
    name = endpoint.name if endpoint else "chat"
    return _answer(name, failure, None, {"upgrade": "HTTP/1.1"})


def not_found(http: web.Request) -> web.Response:
    """404 in the API's format for a path that is nothing here."""
    is_anthropic = "anthropic-version" in http.headers or "/messages" in http.path
    message = f"{http.method} {http.path[:200]} is not served by this gateway"
    failure = Failure(kind="unknown", status=404, code="unknown_endpoint", message=message)
    return _answer("messages" if is_anthropic else "chat", failure, None, {})


def _answer(
    endpoint: str, failure: Failure, route: str | None, headers: dict[str, str]
) -> web.Response:
    """An error answer."""
    response = web.Response(status=failure.status, body=failure.payload(endpoint, route))
    response.headers.update(headers)
    response.headers["content-type"] = (
        failure.content_type if failure.body is not None else "application/json"
    )
    if failure.retry_after_s is not None:
        response.headers["retry-after"] = str(max(1, round(failure.retry_after_s)))
    if failure.queue_position is not None:
        response.headers["x-turnout-queue-position"] = str(failure.queue_position)
    return response


def _response(journey: Journey, exchange: Exchange) -> web.StreamResponse:
    """The head of an answer that is passed on."""
    response = web.StreamResponse(status=exchange.status)
    is_own = exchange.target.name == PASS
    dropped = _OF_CONNECTION if is_own else _OF_CONNECTION | _OF_ANOTHER_HOST
    for name, value in exchange.headers.items():
        low = name.lower()
        if low in dropped or low.startswith("x-turnout-"):
            continue
        if is_own or not is_bound_to_origin(low):
            response.headers.add(name, value)
    if exchange.content_length is not None:
        response.content_length = exchange.content_length
    response.headers.update(_decision_headers(journey, is_final=True))
    response.headers["x-turnout-target"] = printable(exchange.target.name)
    if exchange.adjustments:
        response.headers["x-turnout-adjustments"] = printable(", ".join(exchange.adjustments))
    return response


async def _break_off(
    http: web.Request,
    response: web.StreamResponse,
    journey: Journey,
    exchange: Exchange,
    failure: Failure,
) -> None:
    """Tell the client that an answer it has begun to read will not be whole."""
    if "event-stream" in exchange.content_type:
        number = exchange.answer.sequence_number
        event = sse_error(journey.request.endpoint, failure, _route(journey), number)
        await response.write(event)
        await response.write_eof()
    else:
        _abort(http)


def _abort(http: web.Request) -> None:
    """Cut the connection, so that nobody takes what was sent for the whole answer."""
    if http.transport is not None:
        http.transport.abort()


async def _swallowed(exchange: Exchange) -> Failure:
    """The failure that an answer without a stream is, once the client's stream has begun."""
    body = bytearray()
    async for chunk in exchange.chunks():
        body += chunk
        if len(body) > 64 * 1024:
            break
    return Failure(
        kind=str(exchange.status),
        status=exchange.status if exchange.status >= 400 else 502,
        code="upstream_error",
        message=f"{exchange.target.name} answered {exchange.status} without a stream",
        body=bytes(body),
    )


def _decision_headers(journey: Journey, *, is_final: bool = False) -> dict[str, str]:
    decision = journey.decision
    headers = {
        "x-turnout-target": printable(decision.target),
        "x-turnout-layer": decision.layer,
        "x-turnout-decision-us": str(round(decision.elapsed_us)),
    }
    if decision.route:
        headers["x-turnout-route"] = printable(decision.route)
    if is_final and len(journey.attempts) > 1:
        headers["x-turnout-attempts"] = _attempts(journey)
    return headers


def _attempts(journey: Journey) -> str:
    return printable(", ".join(journey.attempts))[:_MAX_HEADER_CHARS]


def _route(journey: Journey) -> str | None:
    return journey.decision.route


def _note(client: WaitingClient, waiting: Any) -> None:
    client.note = str(getattr(waiting, "message", "") or "waiting for the model")


def plain_error(status: int, code: str, message: str) -> web.Response:
    """An OpenAI-format error of our own endpoints."""
    return web.Response(
        status=status,
        body=error_body("chat", status, message, code=code),
        content_type="application/json",
    )
