"""Answers `POST /route` on the proxy's own ports, with the sidecar or without it.

The words of such a request are for Turnout alone: whatever is wrong with it, it is answered here
and never sent on.
"""

from __future__ import annotations

import asyncio
import logging
import traceback

from mitmproxy import http

from turnout_addon import display
from turnout_addon.applying import answer
from turnout_addon.bodies import announced_length
from turnout_addon.deciding import Decider
from turnout_addon.guard import foreign_page
from turnout_addon.plans import RETRY_AFTER_S, Answer, refusal
from turnout_addon.routing import Routing
from turnout_rules.questions import (
    BadQuestion,
    asked,
    read_question,
    semantic_answer,
    whole_answer,
)

logger = logging.getLogger(__name__)


def obstacle(request: http.Request, routing: Routing) -> Answer | None:
    """Why a question is refused before its body has come."""
    if reason := foreign_page(request.headers):
        return refusal("", 403, reason, code="destination_refused")
    if request.method != "POST":
        message = f"{request.method[:40]} is not offered here: POST the text"
        return refusal("", 405, message, code="method_not_allowed")
    return _too_large(announced_length(request), routing)


async def respond(flow: http.HTTPFlow, routing: Routing, decider: Decider | None) -> http.Response:
    """The answer to a question that has arrived whole; never raises."""
    try:
        return await _respond(flow, routing, decider)
    except (Exception, asyncio.CancelledError) as error:
        # A cancellation that leaves a hook makes mitmproxy hang the flow for ever. The message of
        # the exception may hold words of the question; its place does not.
        where = "".join(traceback.format_tb(error.__traceback__))
        logger.error("turnout: %s while answering /route, at\n%s", type(error).__name__, where)
        message = "The question could not be answered; the proxy's log says where it failed."
        return answer(refusal("", 500, message, code="internal_error"))


async def _respond(flow: http.HTTPFlow, routing: Routing, decider: Decider | None) -> http.Response:
    body = flow.request.raw_content or b""
    if decider is None:
        message = "The proxy is starting."
        return answer(refusal("", 503, message, code="starting", retry_after_s=RETRY_AFTER_S))
    if too_large := _too_large(len(body), routing):
        return answer(too_large)
    peer = flow.client_conn.peername
    try:
        question = read_question(body)
        request = asked(question, routing.reader, peer[0] if peer else "")
    except BadQuestion as error:
        return answer(refusal("", 400, str(error), code=error.code))
    if question.only == "semantic":
        attachments = question.attachments or request.attachments
        verdict = await decider.classify(routing, request, attachments)
        return _json(semantic_answer(verdict, routing.table))
    decision = await decider.decide_question(routing, request)
    note = "answered, nothing was sent"
    display.show(flow, decision, original="a question", note=note, is_refused=False)
    logger.info("turnout: %s", flow.comment)
    return _json(whole_answer(decision, request, routing.table))


def _too_large(size: int, routing: Routing) -> Answer | None:
    settings = routing.settings
    limit = min(settings.proxy.max_body_bytes, settings.reading.max_decoded_bytes)
    if size <= limit:
        return None
    return refusal("", 413, f"the body is larger than {limit} bytes", code="body_too_large")


def _json(body: bytes) -> http.Response:
    return http.Response.make(200, body, {"content-type": "application/json"})
