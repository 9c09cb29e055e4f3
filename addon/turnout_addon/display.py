"""What a person sees of a decision: mitmweb's comment and marker, and the client's headers.

Never shows a key, and no text of a request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mitmproxy import http

from turnout_rules.answer_headers import is_bound_to_origin
from turnout_rules.counting import COUNT_HEADER
from turnout_rules.decision import BLOCK, PASS, Decision
from turnout_rules.naming import printable

if TYPE_CHECKING:
    from turnout_addon.passage import Passage

MARKERS = {
    "rule": ":green_circle:",
    "semantic": ":crystal_ball:",
    "default": ":white_circle:",
    "pass": ":arrow_right:",
}
BLOCKED_MARKER = ":no_entry:"
REFUSED_MARKER = ":warning:"
ROUTE_HEADER = "x-turnout-route"
TARGET_HEADER = "x-turnout-target"
LAYER_HEADER = "x-turnout-layer"


def show(
    flow: http.HTTPFlow, decision: Decision, *, original: str, note: str, is_refused: bool
) -> None:
    """Put the decision where mitmweb's lists, filters and saved flows find it."""
    flow.comment = comment(decision, original=original, note=note)
    flow.marked = marker(decision, is_refused=is_refused)
    flow.metadata["turnout"] = metadata(decision, original=original)


def comment(decision: Decision, *, original: str, note: str = "") -> str:
    """One line for mitmweb's column: `route → target · layer · µs · task · was host · why`."""
    parts = [
        f"{decision.route or '-'} → {decision.target}",
        decision.layer + (" (observed, not changed)" if decision.is_observed else ""),
        duration(decision.elapsed_us),
        f"task {decision.task}" if decision.task else "",
        f"was {original}",
        decision.reason,
    ]
    parts += [f"skipped {skipped}" for skipped in decision.skipped]
    if decision.adjustments:
        parts.append(f"changed {', '.join(decision.adjustments)}")
    # Names and models of clients stand in it, and the log takes it as it is.
    return printable(" · ".join(part for part in [*parts, note] if part))


def duration(elapsed_us: float) -> str:
    """Microseconds as people read them."""
    return f"{elapsed_us:.0f} µs" if elapsed_us < 10_000 else f"{elapsed_us / 1000:.0f} ms"


def marker(decision: Decision, *, is_refused: bool) -> str:
    """The emoji of the decision's layer, or of its refusal."""
    if decision.target == BLOCK:
        return BLOCKED_MARKER
    return REFUSED_MARKER if is_refused else MARKERS[decision.layer]


def metadata(decision: Decision, *, original: str) -> dict[str, str | float | list[str] | bool]:
    """The decision as plain values: saved with the flow, found by mitmweb's `~meta`."""
    return {
        "route": decision.route or "",
        "target": decision.target,
        "layer": decision.layer,
        "reason": decision.reason,
        "task": decision.task,
        "elapsed_us": round(decision.elapsed_us, 1),
        "original": original,
        "skipped": list(decision.skipped),
        "adjustments": list(decision.adjustments),
        "is_observed": decision.is_observed,
    }


def put_headers(headers: http.Headers, decision: Decision, *, keep_target: bool) -> None:
    """Tell the client where its request went; `keep_target`: the gateway knows best."""
    fields = [(ROUTE_HEADER, decision.route or ""), (LAYER_HEADER, decision.layer)]
    if not (keep_target and TARGET_HEADER in headers):
        fields.append((TARGET_HEADER, decision.target))
    if decision.adjustments and not keep_target:
        fields.append(("x-turnout-adjustments", ", ".join(decision.adjustments)))
    if decision.is_observed:
        fields.append(("x-turnout-observed", "true"))
    fields.append(("x-turnout-decision-us", f"{decision.elapsed_us:.0f}"))
    for name, value in fields:
        headers.set_all(name, [printable(value)])


def put_count(headers: http.Headers, *, is_estimate: bool) -> None:
    """Tell the client who counted its tokens."""
    headers[COUNT_HEADER] = "estimate" if is_estimate else "target"


def outcome(flow: http.HTTPFlow, passage: Passage, response: http.Response) -> list[str]:
    """What only the end tells: who served, whether the stream was cut or broke off."""
    notes = []
    served = response.headers.get(TARGET_HEADER, "")
    if passage.is_for_gateway and passage.decision and served != passage.decision.target:
        attempts = response.headers.get("x-turnout-attempts", "")
        notes.append(f"served by {served}" + (f" after {attempts}" if attempts else ""))
    if passage.tee is not None and passage.tee.is_cut:
        notes.append(f"only the first {passage.tee.kept_bytes} bytes are kept")
    if passage.ending is not None and passage.ending.is_told:
        notes.append("ended too early, the client was told")
    if flow.error is not None:
        notes.append("broken off")
    return notes


def strip_headers(headers: http.Headers, *, crosses: bool) -> None:
    """Drop what only Turnout may say, and of another host's answer what acts on the one addressed.

    From an upstream that is not Turnout.
    """
    for name in {name.lower() for name in headers}:
        if name.startswith("x-turnout-") or (crosses and is_bound_to_origin(name)):
            del headers[name]


def passes(decision: Decision) -> bool:
    """Whether the request goes where the client sent it, as the client sent it."""
    return decision.target == PASS or decision.is_observed
