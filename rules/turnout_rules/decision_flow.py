"""The whole decision about one request, the same for proxy and sidecar.

An earlier decision of its turn, the route that it names, the rules, what the classifier says, the
table's word on that; then it is remembered. Brings no clock, no classifier and no metrics of its
own: the planes pass theirs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from turnout_rules.decision import Decision, Verdict
from turnout_rules.loading import Rules
from turnout_rules.request import Request
from turnout_rules.turns import Turns

Classify = Callable[[Request], Awaitable[Verdict]]
"""Asks the semantic layer; says in `Verdict.reason` why there is no route, and never raises."""


async def decide(
    rules: Rules, request: Request, classify: Classify, *, turns: Turns | None, now: float
) -> Decision:
    """What `rules` decide; `turns` None: neither follow nor remember. `now`: seconds.

    `elapsed_us` is the caller's to fill in. Raises only what `classify` raises.
    """
    key = turns.key(request) if turns is not None else ""
    if turns is not None and (kept := turns.recall(key, request, now)) is not None:
        return kept
    decision = rules.table.decide(request)
    if decision.wants_classifier:
        verdict = await _verdict(rules, request, classify)
        decision = rules.table.settle(request, decision, verdict)
    if turns is not None:
        turns.remember(key, request, decision, now)
    return decision


async def _verdict(rules: Rules, request: Request, classify: Classify) -> Verdict | None:
    """None when nobody was asked."""
    if rules.settings.classifier.kind == "off" or not request.text.strip():
        return None
    verdict = await classify(request)
    if verdict.route is not None and rules.table.route(verdict.route) is None:
        reason = f"the classifier knows a route {verdict.route!r}, these rules do not"
        return Verdict(route=None, reason=reason)
    return verdict
