"""What a client is told whose request is neither sent nor passed on. Both planes say the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from turnout_rules.convention import asks_turnout
from turnout_rules.decision import BLOCK, PASS, Decision
from turnout_rules.naming import printable, shown

if TYPE_CHECKING:
    from turnout_rules.request import Request


class Refusal(msgspec.Struct, frozen=True):
    """An HTTP status, a stable snake_case code, and words for people."""

    status: int
    code: str
    message: str


def refusal_of(request: Request, decision: Decision) -> Refusal | None:
    """None: the decision can be carried out, or the request passed on."""
    if decision.target == BLOCK:
        if decision.route is None:
            return Refusal(404, "route_not_found", decision.message)
        message = decision.message or f"Blocked by the rule {decision.route!r}."
        return Refusal(403, "route_blocked", message)
    if decision.target == PASS and asks_turnout(request):
        return not_served(request, decision.reason)
    return None


def not_served(request: Request, why: str) -> Refusal:
    """The model asked for exists nowhere that the request may go."""
    message = f"No route serves the model `{shown(request.model)}` here: {printable(why)}."
    return Refusal(404, "model_not_found", message)


def carried_out(request: Request, decision: Decision) -> Decision:
    """Observed requests stay as they are, but one for Turnout itself has nowhere else to go."""
    if decision.is_observed and asks_turnout(request):
        return msgspec.structs.replace(decision, is_observed=False)
    return decision
