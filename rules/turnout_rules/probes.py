"""Routing tests as data: `probes.yaml` says which request must end at which route.

Run by `turnout test` and before every reload, in memory and in milliseconds. No classifier is
asked: a probe that expects the semantic layer passes when no rule takes the request.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec
from yaml.nodes import MappingNode, Node, SequenceNode

from turnout_rules.decision import Decision
from turnout_rules.document import INVALID, Document
from turnout_rules.kinds import Choice, Key, Special, Text, TextMap, Texts, read_mapping
from turnout_rules.model import Place
from turnout_rules.problems import Problem
from turnout_rules.reading import Reader
from turnout_rules.unreadable import Unreadable

if TYPE_CHECKING:
    from turnout_rules.settings import Reading
    from turnout_rules.table import Table

LAYERS = ("rule", "semantic", "default", "pass")


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """One request and what must become of it; expectations left empty are not looked at."""

    text: str = ""
    body: bytes = b""
    """A whole request body as JSON; `path` says to which endpoint."""
    path: str = "/v1/chat/completions"
    model: str = ""
    headers: dict[str, str] = {}
    route: str = ""
    target: str = ""
    layer: str = ""
    tags: tuple[str, ...] = ()
    place: Place = Place()

    @property
    def label(self) -> str:
        """A short name for reports."""
        said = self.text or self.body.decode("utf-8", "replace")
        return said if len(said) <= 60 else said[:59] + "…"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a probe's request came to."""

    probe: Probe
    decision: Decision | None = None
    wrong: tuple[tuple[str, str, str], ...] = ()
    """(what, expected, found) for each expectation that is not met."""

    @property
    def is_met(self) -> bool:
        """Whether all expectations hold."""
        return not self.wrong


def _read_body(doc: Document, node: Node, what: str) -> Any:
    if isinstance(node, MappingNode):
        value = doc.json(node, what)
        return INVALID if value is INVALID else msgspec.json.encode(_without_invalid(value))
    text = doc.text(node, what)
    if not isinstance(text, str):
        return INVALID
    try:
        msgspec.json.decode(text.encode())
    except (msgspec.MsgspecError, RecursionError) as error:
        return doc.error(node, "bad-value", f"{what} is no JSON: {error}")
    return text.encode()


def _without_invalid(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_invalid(v) for k, v in value.items() if v is not INVALID}
    if isinstance(value, list):
        return [_without_invalid(v) for v in value if v is not INVALID]
    return value


PROBE_KEYS: dict[str, Key] = {
    "text": Key(Text(), "what the person wrote"),
    "body": Key(
        Special(_read_body, {"type": ["object", "string"]}), "a whole request body instead of text"
    ),
    "path": Key(Text(), "the body's path; /v1/chat/completions if nothing is said"),
    "model": Key(Text(), "the model the client asks for, with `text`"),
    "headers": Key(TextMap(is_lower=True), "request headers"),
    "route": Key(Text(), "the route that must win; `pass` for none"),
    "target": Key(Text(), "the target that must be chosen"),
    "layer": Key(Choice(LAYERS), "rule, semantic (no rule takes it), default or pass"),
    "tags": Key(Texts(), "names to select probes by"),
}


def read_probes(doc: Document, node: Node) -> list[Probe]:
    """The list under `probes:`."""
    if not isinstance(node, SequenceNode):
        if not doc.is_null(node):
            doc.wrong_type(node, "`probes`", "a list (`- {text: …, route: …}`)")
        return []
    probes = []
    for item in node.value:
        values, nodes = read_mapping(doc, item, "a probe", PROBE_KEYS)
        if not isinstance(item, MappingNode):
            continue
        if ("text" in nodes) == ("body" in nodes):
            doc.error(item, "bad-probe", "a probe needs a `text` or a `body`, one of the two")
        if not {"route", "target", "layer"} & nodes.keys():
            doc.error(
                item, "bad-probe", "a probe expects nothing", "add `route`, `target` or `layer`"
            )
        if values.get("route") == "pass":
            values |= {"route": "", "target": values.get("target", "pass")}
        probes.append(Probe(place=doc.place(item), **values))
    return probes


def run_probes(table: Table, reading: Reading, probes: tuple[Probe, ...]) -> list[Outcome]:
    """Decide every probe's request on `table`, as the proxy would."""
    reader = Reader(reading)
    return [_run(table, reader, probe) for probe in probes]


def _run(table: Table, reader: Reader, probe: Probe) -> Outcome:
    body = probe.body or msgspec.json.encode(
        {"model": probe.model or "any", "messages": [{"role": "user", "content": probe.text}]}
    )
    try:
        request = reader.read(method="POST", path=probe.path, headers=probe.headers, body=body)
    except Unreadable as error:
        wrong = (("request", "readable", f"passes untouched: {error}"),)
        return Outcome(probe=probe, wrong=() if probe.target == "pass" else wrong)
    decision = table.decide(request)
    return Outcome(probe=probe, decision=decision, wrong=tuple(differences(probe, decision)))


def differences(probe: Probe, decision: Decision) -> list[tuple[str, str, str]]:
    """(what, expected, found) for each expectation of `probe` that `decision` does not meet."""
    wrong = []
    if probe.layer == "semantic" and decision.wants_classifier:
        return []  # which route a classifier names is not a rule's to promise
    if probe.route and decision.route != probe.route:
        wrong.append(("route", probe.route, decision.route or "none"))
    if probe.target and decision.target != probe.target:
        wrong.append(("target", probe.target, decision.target))
    if probe.layer and decision.layer != probe.layer:
        wrong.append(("layer", probe.layer, decision.layer))
    return wrong


def problem_of(outcome: Outcome) -> Problem:
    """A failed probe as a problem at its place."""
    probe = outcome.probe
    said = ", ".join(
        f"{what} is {found}, not {expected}" for what, expected, found in outcome.wrong
    )
    why = f" ({outcome.decision.reason})" if outcome.decision and outcome.decision.reason else ""
    file = str(PurePosixPath(probe.place.file))
    return Problem(
        file,
        probe.place.line,
        probe.place.column,
        "error",
        "probe-failed",
        f"probe “{probe.label}”: {said}{why}",
        "change the rules or the probe",
    )
