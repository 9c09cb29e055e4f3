"""Carries out on flows what was decided about their requests, and shows it.

The hooks' hands: changes requests, sets responses, comments and marks, counts. Decides nothing and
waits for nothing.
"""

from __future__ import annotations

import logging
import weakref

from mitmproxy import http

from turnout_addon import answering, applying, display, plans
from turnout_addon.bodies import bound_body, stream_unread
from turnout_addon.hosts import Origin
from turnout_addon.metrics import Metrics
from turnout_addon.passage import Passage
from turnout_addon.routing import Routing
from turnout_rules.decision import Decision

logger = logging.getLogger(__name__)


class Carrier:
    """Owns the passages: what is remembered of each flow between its hooks."""

    def __init__(self, metrics: Metrics) -> None:
        """No flow yet."""
        self._metrics = metrics
        self.passages: weakref.WeakKeyDictionary[http.HTTPFlow, Passage] = (
            weakref.WeakKeyDictionary()
        )

    def take_question(
        self, flow: http.HTTPFlow, passage: Passage | None, routing: Routing, gateway: Origin
    ) -> None:
        """`POST /route`: from here on the text can only be answered, or reach our own gateway."""
        self.passages[flow] = passage = Passage(routing, gateway, False, "", is_question=True)
        # A flow that somebody replays goes where its request says.
        applying.redirect(flow, gateway, company_proxy="")
        if refusal := answering.obstacle(flow.request, routing):
            self.answer(flow, passage, refusal)

    def prepare(self, flow: http.HTTPFlow, passage: Passage) -> None:
        """Before the body comes: the reverse listener's origin, upgrades, bodies left unread."""
        request, settings = flow.request, passage.routing.settings
        if passage.is_reverse:
            applying.redirect(flow, passage.origin, company_proxy=settings.proxy.upstream_proxy)
        if not passage.endpoint:
            request.stream = stream_unread(request)
        elif request.headers.get("upgrade", "").lower() == "websocket":
            message = "WebSocket is not routed; send the request by HTTPS."
            refusal = plans.refusal(passage.endpoint, 426, message, code="upgrade_refused")
            self.answer(flow, passage, refusal)
        elif request.method != "POST":
            passage.endpoint = ""

    def bound(self, flow: http.HTTPFlow, passage: Passage | None, limit: int) -> None:
        """Refuse a body that is larger than `limit` bytes, whenever that shows."""
        message = f"The body is larger than {limit} bytes (proxy.max_body_bytes)."
        endpoint = passage.endpoint if passage else ""

        def refuse() -> None:
            refusal = plans.refusal(endpoint, 413, message, code="body_too_large")
            self.answer(flow, passage, refusal)

        bound_body(flow, limit, refuse)

    def carry_out(self, flow: http.HTTPFlow, passage: Passage, plan: plans.Plan) -> None:
        """Change the flow as planned, and tell of it."""
        if isinstance(plan, plans.Send):
            passage.decision = plan.decision
            passage.is_for_gateway = plan.is_for_gateway
            passage.calls = plan.calls
            passage.crosses = plan.crosses
            company_proxy = passage.routing.settings.proxy.upstream_proxy
            applying.apply(flow, plan, company_proxy=company_proxy)
        elif isinstance(plan, plans.Count):
            flow.response = applying.json_answer(200, plan.body)
            passage.is_answered = True
        elif isinstance(plan, plans.Answer):
            self.answer(flow, passage, plan)
        if passage.decision is not None:
            self._decided(flow, passage, passage.decision)

    def answer(self, flow: http.HTTPFlow, passage: Passage | None, refusal: plans.Answer) -> None:
        """Send nothing on: the client gets this."""
        flow.response = applying.answer(refusal)
        flow.marked = display.REFUSED_MARKER
        self._metrics.refused.labels(refusal.code).inc()
        if passage is not None:
            passage.is_answered = True
            if passage.decision is None:
                flow.comment = f"refused · {refusal.code}"

    def _decided(self, flow: http.HTTPFlow, passage: Passage, decision: Decision) -> None:
        passage.decision = decision
        note = f"answered {flow.response.status_code}" if flow.response else ""
        is_refused = passage.is_answered
        display.show(flow, decision, original=passage.original, note=note, is_refused=is_refused)
        logger.info("turnout: %s", flow.comment)
        self._metrics.decided(decision)
