"""A decision taken apart: every entry that hit, which route won, and why each other one lost.

The decision is `Table.decide`'s own, made from the same findings; nothing is decided here. What its
target needs changed in the body is told with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from turnout_rules.convention import named_route
from turnout_rules.decision import BLOCK, PASS, Decision, Hit
from turnout_rules.matching import Row
from turnout_rules.reasons import entry_words
from turnout_rules.rewriting import rewrite

if TYPE_CHECKING:
    from turnout_rules.request import Request
    from turnout_rules.table import Table


class Loser(msgspec.Struct, frozen=True):
    """A route that was hit and did not win."""

    route: str
    reason: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What `turnout explain`, `/route` and mitmweb's command show."""

    decision: Decision
    hits: tuple[Hit, ...]
    losers: tuple[Loser, ...]
    side_request: str = ""
    """The tool's kind of request that it was recognised as, in words."""

    def __str__(self) -> str:
        """A few lines for people."""
        decision = self.decision
        where = f"{decision.route} → {decision.target}" if decision.route else decision.target
        lines = [f"{where}  [{decision.layer}]", f"  because   {decision.reason}"]
        if self.side_request:
            lines.append(f"  task      {decision.task}: {self.side_request}")
        elif decision.task:
            lines.append(f"  task      {decision.task}")
        if decision.fallback:
            lines.append(f"  then      {', '.join(decision.fallback)}")
        if decision.adjustments:
            lines.append(f"  changed   {', '.join(decision.adjustments)}")
        if decision.is_observed:
            lines.append("  observed  the request itself is not changed")
        if decision.wants_classifier:
            lines.append(
                "  note      the classifier, where it runs, is asked first (--semantic asks it)"
            )
        lines += [f"  hit       {hit.route}: {entry_words(hit.pattern)}" for hit in self.hits]
        lines += [f"  lost      {loser.route}: {loser.reason}" for loser in self.losers]
        return "\n".join(lines)


def explain(table: Table, request: Request) -> Explanation:
    """Everything there is to say about how `table` decides `request`."""
    found = table.rows.scanner.find(request)
    decision = table.decide(request)
    skipped = dict(entry.partition(": ")[::2] for entry in decision.skipped)
    winner = table.route(decision.route) if decision.route else None
    by_name = named_route(request, ()) is not None
    matching = {row.order for row in table.rows.matching(found, request)}
    losers = []
    for row in table.rows.all:
        is_touched = row.order in matching or bool(row.written(found))
        if row.route is winner or not is_touched:
            continue
        losers.append(Loser(row.route.name, _why_lost(row, found, request, skipped, by_name)))
    if decision.target not in (PASS, BLOCK):
        rewritten = rewrite(request, table.resolve(decision.target), winner)
        decision = msgspec.structs.replace(decision, adjustments=rewritten.adjustments)
    kind = request.side_task
    return Explanation(
        decision=decision,
        hits=table.rows.hits(found),
        losers=tuple(losers),
        side_request=f"a tool's own request ({kind})" if kind else "",
    )


def _why_lost(
    row: Row, found: set[int], request: Request, skipped: dict[str, str], by_name: bool
) -> str:
    if (reason := skipped.get(row.route.name)) is not None:
        return reason
    if failure := row.failure(found, request):
        return failure
    if by_name:
        return "the request names another route"
    if row.route.is_catch_all:
        return "the catch-all comes last"
    return f"priority {row.route.priority}, the winner comes first"
