"""What the addon remembers of one flow between its hooks. Dies with the flow."""

from __future__ import annotations

from dataclasses import dataclass

from mitmproxy import http
from mitmproxy.proxy import mode_specs

from turnout_addon.hosts import Origin
from turnout_addon.routing import Routing
from turnout_addon.streaming import Ending, Tee
from turnout_rules.decision import Decision
from turnout_rules.endpoints import classify, counted_path
from turnout_rules.tool_names import Calls


@dataclass(slots=True)
class Passage:
    """One request on its way through. Hooks fill it in, in this order."""

    routing: Routing
    """The rules in force when the request came; a reload does not touch it."""
    origin: Origin
    """The server the client addressed."""
    is_reverse: bool
    endpoint: str
    """The routed endpoint's name; empty: passes unread."""
    is_count: bool = False
    """Only the input tokens of such a request are to be counted."""
    decision: Decision | None = None
    is_question: bool = False
    """It asks the proxy itself where a text would go; it is answered here and never sent on."""
    is_for_gateway: bool = False
    crosses: bool = False
    """Another host than the one addressed answers."""
    is_answered: bool = False
    """The proxy itself answered; nothing was sent."""
    tee: Tee | None = None
    calls: Calls | None = None
    """Tools under other names than the client's: the answer is turned back."""
    ending: Ending | None = None

    @property
    def original(self) -> str:
        """The host the client addressed, for people."""
        return self.origin.host_header


def enter(routing: Routing, flow: http.HTTPFlow) -> Passage | None:
    """The passage of a request that has just begun; None: its host is none of our business."""
    request = flow.request
    counted = counted_path(request.path)
    endpoint = classify("POST", counted or request.path)
    name = endpoint.name if endpoint else ""
    is_count = bool(counted and name)
    if isinstance(flow.client_conn.proxy_mode, mode_specs.ReverseMode):
        speaks_anthropic = "anthropic-version" in request.headers
        origin = routing.origin_of(request.path, speaks_anthropic=speaks_anthropic)
        return Passage(routing, origin, True, name, is_count=is_count)
    if routing.intercept.covers(request.host, request.port):
        origin = Origin(request.scheme, request.host, request.port)
        if name in routing.unread and "x-turnout-route" not in request.headers:
            name, is_count = "", False
        return Passage(routing, origin, False, name, is_count=is_count)
    return None
