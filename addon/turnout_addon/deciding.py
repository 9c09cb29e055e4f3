"""From a complete request to its plan: read, decide, ask the sidecar within its deadline, plan.

Changes no flow. The only waits are for the sidecar, and each has a deadline.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Sequence

import msgspec
from mitmproxy import http

from turnout_addon import plans
from turnout_addon.display import passes
from turnout_addon.guard import is_loopback_host
from turnout_addon.hosts import Origin
from turnout_addon.passage import Passage
from turnout_addon.routing import Routing, passed
from turnout_addon.sidecar_client import SidecarClient, is_answering
from turnout_rules.decision import PASS, Decision, Verdict
from turnout_rules.decision_flow import Classify
from turnout_rules.decision_log import DecisionLog
from turnout_rules.endpoints import counted_path
from turnout_rules.refusals import carried_out
from turnout_rules.request import Request
from turnout_rules.unreadable import Unreadable

logger = logging.getLogger(__name__)


class Decider:
    """Knows the neighbours: the sidecar's classifier and its gateway."""

    def __init__(
        self,
        sidecar: SidecarClient,
        gateway: Origin,
        token: str = "",
        *,
        decisions: DecisionLog | None = None,
    ) -> None:
        """Nothing is asked yet. `token`: the gateway's, where it demands one."""
        self._sidecar = sidecar
        self._decisions = decisions or DecisionLog(None)
        self.gateway = gateway
        self._token = token
        # Only close() adds to it; kept so that the task is not lost.
        self._closing: set[asyncio.Task[None]] = set()

    async def plan(self, flow: http.HTTPFlow, passage: Passage) -> plans.Plan:
        """The plan; `passage.decision` is set as soon as there is one."""
        started = time.perf_counter()
        routing = passage.routing
        received = _received(flow, passage)
        path = counted_path(received.path) if passage.is_count else received.path
        try:
            request = _read(routing, received, flow, path)
        except Unreadable as error:
            if passage.is_count:
                return plans.Leave(received.origin if received.is_reverse else None)
            passage.decision = _timed(passed(str(error)), started)
            return plans.Leave(received.origin if received.is_reverse else None)
        decision = await routing.decide(request, self._classifier(routing))
        decision = _timed(carried_out(request, decision), started)
        if passage.is_count:
            return self._count(passage, received, request, decision)
        passage.decision = decision
        if not decision.is_remembered:
            self._decisions.record(request.text, decision, version=routing.version, source="proxy")
        if decision.via_sidecar and not decision.is_observed:
            return await self._by_gateway(routing, received, request, decision)
        return plans.plan(routing, received, request, decision, self.gateway, self._token)

    async def decide_question(self, routing: Routing, request: Request) -> Decision:
        """The decision about a request that is only asked about: nothing remembers it."""
        started = time.perf_counter()
        classify = self._classifier(routing)
        decision = await routing.decide(request, classify, is_sticky=False)
        decision = _timed(decision, started)
        self._decisions.record(request.text, decision, version=routing.version, source="route_api")
        return decision

    async def classify(
        self, routing: Routing, request: Request, attachments: Sequence[str]
    ) -> Verdict:
        """The classifier's verdict, or one that says why there is none."""
        timeout_ms = routing.settings.sidecar.default_timeout_ms
        return await self._sidecar.classify(request.text, attachments, timeout_ms=timeout_ms)

    def close(self) -> None:
        """Let go of the sidecar's connections."""
        task = asyncio.get_running_loop().create_task(self._sidecar.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _classifier(self, routing: Routing) -> Classify:
        async def classify(request: Request) -> Verdict:
            return await self.classify(routing, request, request.attachments)

        return classify

    def _count(
        self,
        passage: Passage,
        received: plans.Received,
        request: Request,
        decision: Decision,
    ) -> plans.Plan:
        """One that passes is not shown: it stays to the byte what it was, its answer too."""
        if not passes(decision):
            passage.decision = decision
        return plans.plan_count(passage.routing, received, request, decision, self.gateway)

    async def _by_gateway(
        self,
        routing: Routing,
        received: plans.Received,
        request: Request,
        decision: Decision,
    ) -> plans.Plan:
        """The gateway, if it is there; else direct where that is possible, else a clear refusal."""
        is_pass = decision.target == PASS
        # The client's own key stays on this machine, but for the way to its origin.
        may_go = not is_pass or is_loopback_host(self.gateway.host)
        if may_go and await is_answering(self.gateway):
            return plans.plan(routing, received, request, decision, self.gateway, self._token)
        if is_pass or not routing.table.resolve(decision.target).upstream.is_managed:
            reason = f"{decision.reason}; sidecar away, sent without fallback"
            direct = msgspec.structs.replace(decision, via_sidecar=False, reason=reason)
            return plans.plan(routing, received, request, direct, self.gateway)
        return plans.refusal(
            request.endpoint,
            503,
            f"{decision.target} is served by Turnout's sidecar, which does not answer now.",
            code="sidecar_unavailable",
            route=decision.route,
            retry_after_s=plans.RETRY_AFTER_S,
        )


def policy(passage: Passage, error: BaseException) -> plans.Plan:
    """After an exception: open where the client's own destination can serve, else closed."""
    where = "".join(traceback.format_tb(error.__traceback__))
    # The message of the exception may hold words of the request; its place does not.
    logger.error("turnout: %s while deciding, at\n%s", type(error).__name__, where)
    decision = passage.decision
    if decision is None or passes(decision):
        reason = f"{type(error).__name__} while deciding"
        passage.decision = decision or passed(reason)
        return plans.Leave(passage.origin if passage.is_reverse else None)
    message = f"The request could not be prepared for {decision.target}."
    return plans.refusal(
        passage.endpoint, 500, message, code="internal_error", route=decision.route
    )


def _received(flow: http.HTTPFlow, passage: Passage) -> plans.Received:
    fields = tuple(
        (name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape"))
        for name, value in flow.request.data.headers.fields
    )
    return plans.Received(
        origin=passage.origin,
        is_reverse=passage.is_reverse,
        path=flow.request.path,
        fields=fields,
        raw_body=flow.request.raw_content or b"",
    )


def _read(routing: Routing, received: plans.Received, flow: http.HTTPFlow, path: str) -> Request:
    peer = flow.client_conn.peername
    return routing.reader.read(
        method=flow.request.method,
        path=path,
        headers={name.lower(): value for name, value in received.fields},
        body=received.raw_body,
        host=received.origin.host,
        origin=received.origin.written,
        client=peer[0] if peer else "",
    )


def _timed(decision: Decision, started: float) -> Decision:
    return msgspec.structs.replace(decision, elapsed_us=(time.perf_counter() - started) * 1e6)
