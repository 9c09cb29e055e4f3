"""Decides recorded requests without sending them: what would go where, and what would change.

Pure: takes lines and a table, gives values. The classifier is not asked, so what no rule decides
takes the default route here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import msgspec

from turnout_rules.decision import PASS, Decision
from turnout_rules.providers import origin_of
from turnout_rules.reading import Reader, Unreadable
from turnout_rules.refusals import carried_out, refusal_of
from turnout_rules.rewriting import rewrite

if TYPE_CHECKING:
    from turnout_rules.request import Request
    from turnout_rules.table import Table

Outcome = Literal["moved", "pinned", "passed", "blocked", "observed", "failed"]
OUTCOMES: tuple[Outcome, ...] = ("moved", "pinned", "passed", "blocked", "observed", "failed")
NOT_ROUTED = "(other)"
"""The endpoint column of requests to endpoints that are never read."""


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded request and what would become of it."""

    line: int
    method: str = ""
    uri: str = ""
    endpoint: str = NOT_ROUTED
    model: str = ""
    outcome: Outcome
    why: str = ""
    """For all but `moved`: why it stays."""
    decision: Decision | None = None
    path: str = ""
    """The rewritten path."""
    changed: tuple[str, ...] = ()
    """Top-level fields that differ between the bodies, by a JSON diff."""
    adjustments: tuple[str, ...] = ()


class _Recorded(msgspec.Struct):
    uri: str
    method: str = "POST"
    headers: dict[str, str] = {}
    body: str | dict[str, Any] | None = None


_recorded = msgspec.json.Decoder(_Recorded)


def replay(lines: Iterable[bytes], table: Table, reader: Reader) -> Iterator[Replayed]:
    """One `Replayed` for each line that is not blank; a broken line is `failed` with its reason."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            recorded = _recorded.decode(line)
            body = _body_of(recorded)
            host = urlsplit(recorded.uri).netloc
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            yield Replayed(line=number, outcome="failed", why=f"not a recorded request: {error}")
            continue
        yield _replay_one(number, recorded, host, body, table, reader)


def _body_of(recorded: _Recorded) -> bytes:
    body = recorded.body
    if isinstance(body, dict):
        return msgspec.json.encode(body)
    return (body or "").encode()


def _replay_one(
    number: int, recorded: _Recorded, host: str, body: bytes, table: Table, reader: Reader
) -> Replayed:
    parts = urlsplit(recorded.uri)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    # The recording holds the body as text: whatever encoded it once is undone already.
    headers = {k.lower(): v for k, v in recorded.headers.items()}
    headers.pop("content-encoding", None)
    seen: dict[str, Any] = {"line": number, "method": recorded.method, "uri": recorded.uri}
    try:
        request = reader.read(
            method=recorded.method,
            path=path,
            headers=headers,
            body=body,
            host=host,
            origin=origin_of(recorded.uri),
        )
    except Unreadable as unreadable:
        return Replayed(**seen, outcome="passed", why=unreadable.reason)
    decision = table.decide(request)
    if decision.wants_classifier:
        decision = table.settle(request, decision, None)
    return _outcome(seen, request, decision, table)


def _outcome(
    seen: Mapping[str, Any], request: Request, decision: Decision, table: Table
) -> Replayed:
    decision = carried_out(request, decision)
    facts: dict[str, Any] = {
        **seen,
        "endpoint": request.endpoint,
        "model": request.model,
        "decision": decision,
    }
    if decision.is_observed:
        return Replayed(**facts, outcome="observed", why=f"observed: {decision.target}")
    if (refused := refusal_of(request, decision)) is not None:
        return Replayed(**facts, outcome="blocked", why=refused.message)
    if decision.target == PASS:
        if request.bound:
            return Replayed(**facts, outcome="pinned", why=request.bound)
        why = "; ".join((decision.reason, *decision.skipped))
        return Replayed(**facts, outcome="passed", why=why)
    route = table.route(decision.route) if decision.route is not None else None
    rewritten = rewrite(request, table.resolve(decision.target), route)
    return Replayed(
        **facts,
        outcome="moved",
        path=rewritten.path,
        changed=changed_fields(request.body, rewritten.body),
        adjustments=rewritten.adjustments,
    )


def changed_fields(before: bytes, after: bytes) -> tuple[str, ...]:
    """Names of top-level fields that differ, appeared (`+name`) or went (`-name`)."""
    # Numbers as text: Python refuses to convert integers of thousands of digits.
    old, new = json.loads(before, parse_int=str), json.loads(after, parse_int=str)
    changed = [name for name in old if name in new and old[name] != new[name]]
    added = [f"+{name}" for name in new if name not in old]
    dropped = [f"-{name}" for name in old if name not in new]
    return (*changed, *added, *dropped)


class Totals(msgspec.Struct):
    """Counts for one endpoint."""

    requests: int = 0
    outcomes: dict[str, int] = {}
    reasons: dict[str, dict[str, int]] = {}
    """Outcome to why to count, for what stays."""


def total(replayed: Iterable[Replayed]) -> dict[str, Totals]:
    """Counts by endpoint, in order of appearance."""
    totals: dict[str, Totals] = {}
    for one in replayed:
        entry = totals.setdefault(one.endpoint, Totals())
        entry.requests += 1
        entry.outcomes[one.outcome] = entry.outcomes.get(one.outcome, 0) + 1
        if one.why:
            reasons = entry.reasons.setdefault(one.outcome, {})
            reasons[one.why] = reasons.get(one.why, 0) + 1
    return totals
