"""What a route may say: the keys under `routes:`, how each is read, and the route it makes.

Only what can be judged inside one route is judged here; what needs the other routes or the
upstreams is `lint`'s.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from turnout_rules.decision import BLOCK, PASS
from turnout_rules.document import INVALID, Document
from turnout_rules.endpoints import ENDPOINTS
from turnout_rules.kinds import (
    Flag,
    Integer,
    JsonMap,
    Key,
    Number,
    Special,
    Table,
    Text,
    TextMap,
    Texts,
    mapping_schema,
    read_mapping,
)
from turnout_rules.languages import LANGUAGES
from turnout_rules.model import Match, Place, Route, Span, When
from turnout_rules.tool_kinds import TOOL_CAPABILITIES

CAPABILITIES = (
    *("tools", "image", "audio", "file", "json_schema", "stream", "reasoning", "logprobs"),
    *TOOL_CAPABILITIES,
)
TEXT_PARTS = ("human", "system", "tools", "all")
MAX_ENTRY_CHARS = 1_000

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_NAME_REMEDY = (
    "use up to 64 Latin letters, digits, - _ . (the name travels in headers and model names); "
    "other languages go into `description`"
)
_RESERVED = ("auto", PASS, BLOCK)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_UNSAFE_HEADERS = {
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "content-encoding",
    "te",
    "trailer",
    "upgrade",
    "keep-alive",
    "expect",
}
_CREDENTIAL_HEADERS = {"authorization", "api-key", "x-api-key", "cookie", "proxy-authorization"}
_SCALAR = {"type": ["string", "number", "boolean"]}
_ONE_OR_MORE = {"anyOf": [_SCALAR, {"type": "array", "items": _SCALAR}]}


@dataclass(frozen=True)
class RouteDraft:
    """A route with the places of its keys, for lint."""

    route: Route
    places: Mapping[str, Place]
    match_places: Mapping[str, Place]

    def place(self, key: str) -> Place:
        """Where the value of `key` stands, or the route itself."""
        return self.places.get(key, self.route.place)


# match


def _entry(doc: Document, node: Node, entry: str, what: str) -> bool:
    """One entry of `match`; records what is wrong with it."""
    if len(entry) > MAX_ENTRY_CHARS:
        doc.error(node, "bad-value", f"an entry of {what} is longer than {MAX_ENTRY_CHARS} chars")
        return False
    if entry.startswith(("re:", "prefix:")) and not entry.partition(":")[2].strip():
        doc.error(node, "empty-value", f"`{entry}` without anything after it")
        return False
    if _CONTROL.search(entry):
        remedy = "in double quotes \\b is a backspace: use single quotes, or none"
        doc.error(node, "control-character", "a control character in a match entry", remedy)
        return False
    return True


_ENTRIES = Texts(check=_entry)
_MATCH_KEYS = {
    "any": Key(_ENTRIES, "one of these entries must match"),
    "all": Key(_ENTRIES, "each of these entries must match"),
    "none": Key(_ENTRIES, "none of these entries may match"),
    "on": Key(
        Special(lambda doc, node, what: _text_part(doc, node, what), {"enum": list(TEXT_PARTS)}),
        "the text to look at: human (default), system, tools or all",
    ),
}


def _text_part(doc: Document, node: Node, what: str) -> Any:
    value = doc.text(node, what)
    if isinstance(value, str) and value not in TEXT_PARTS:
        return doc.unknown(node, f"value of {what}", value, TEXT_PARTS, "unknown-value")
    return value


def _read_match(doc: Document, node: Node, what: str) -> Any:
    if not isinstance(node, MappingNode):
        places = _entry_places(doc, node)
        entries = _ENTRIES.read(doc, node, what)
        if isinstance(node, SequenceNode) and not node.value:
            return doc.error(node, "empty-value", "`match` is an empty list", "remove it")
        return Match(any=entries, places=places)
    values, nodes = read_mapping(doc, node, what, _MATCH_KEYS)
    if not nodes.keys() - {"on"}:
        return doc.error(node, "empty-value", "`match` says nothing", "give it any, all or none")
    places = {}
    for part in ("any", "all", "none"):
        if part in nodes:
            places |= _entry_places(doc, nodes[part])
        if part != "any" and ".*" in values.get(part, ()):
            doc.error(nodes[part], "catch-all-misplaced", f"`.*` in `{part}` makes no sense")
    return Match(places=places, **values)


def _entry_places(doc: Document, node: Node) -> dict[str, Place]:
    items = node.value if isinstance(node, SequenceNode) else [node]
    return {item.value: doc.place(item) for item in items if isinstance(item, ScalarNode)}


# when


def _cidr(doc: Document, node: Node, value: str, what: str) -> bool:
    try:
        ipaddress.ip_network(value)
    except ValueError as error:
        remedy = "write an address or a network such as 10.0.0.0/8"
        doc.error(node, "bad-cidr", f"{what}: {error}", remedy)
        return False
    return True


def _glob(doc: Document, node: Node, value: str, what: str) -> bool:
    if not value.strip():
        doc.error(node, "empty-value", f"an entry of {what} is empty")
        return False
    if value.count("[") != value.count("]"):
        doc.error(node, "bad-glob", f"{what}: `{value}` has an open [", "close it with ]")
        return False
    return True


def _model_glob(doc: Document, node: Node, value: str, what: str) -> bool:
    return value.startswith("re:") or _glob(doc, node, value, what)


def _path_glob(doc: Document, node: Node, value: str, what: str) -> bool:
    if not value.startswith(("/", "*")):
        doc.warning(
            node, "bad-glob", f"{what}: a path starts with /", f"write `/{value}` or `*{value}`"
        )
    return _glob(doc, node, value, what)


_GLOBS = Texts(check=_glob)


def _read_headers_when(doc: Document, node: Node, what: str) -> Any:
    found = []
    for name, (key, value) in doc.fields(node, what).items():
        if not _HEADER_NAME.fullmatch(name):
            doc.error(key, "bad-header", f"`{name}` is no header name")
            continue
        found.append((name.lower(), _GLOBS.read(doc, value, f"`{name}` in {what}")))
    return tuple(found)


_MOST_TOKENS = 1_000_000_000
_SPAN_KEYS = {
    "min": Key(Integer(0, _MOST_TOKENS), "at least so many (estimated) tokens"),
    "max": Key(Integer(0, _MOST_TOKENS), "at most so many (estimated) tokens"),
}


def _read_span(doc: Document, node: Node, what: str) -> Any:
    if isinstance(node, ScalarNode):
        remedy = "write {min: …, max: …}, one of them or both"
        return doc.error(node, "wrong-type", f"{what} must be a range", remedy)
    values, nodes = read_mapping(doc, node, what, _SPAN_KEYS)
    if not nodes and isinstance(node, MappingNode):
        return doc.error(node, "empty-value", f"{what} has no bounds", "write min or max")
    span = Span(**values)
    if span.min is not None and span.max is not None and span.min > span.max:
        message = f"{what}: no number is at least {span.min:,} and at most {span.max:,}"
        return doc.error(node, "impossible-range", message, "swap min and max")
    return span


WHEN_KEYS: dict[str, Key] = {
    "endpoint": Key(Texts(choices=ENDPOINTS), "the kind of request (a list is alternatives)"),
    "model": Key(
        Texts(check=_model_glob),
        "glob on the model the client asked for, or one `re:` whose captures fill the target",
    ),
    "path": Key(Texts(check=_path_glob), "glob on the request's path"),
    "header": Key(
        Special(_read_headers_when, {"type": "object", "additionalProperties": _ONE_OR_MORE}),
        "header name to glob; all must hold",
    ),
    "client": Key(Texts(check=_cidr), "client address or network (CIDR)"),
    "has": Key(Texts(choices=CAPABILITIES), "what the request must use; all of them"),
    "lacks": Key(Texts(choices=CAPABILITIES), "what the request must not use; none of them"),
    "input_tokens": Key(
        Special(_read_span, mapping_schema(_SPAN_KEYS)), "estimated input size, {min, max}"
    ),
    "task": Key(
        _GLOBS, "metadata.task, or the kind of a tool's own request: title, summary, compaction, …"
    ),
    "language": Key(
        Texts(choices=LANGUAGES), "language of the human text, such as zh, ja, ko, en, ru"
    ),
}


def _read_when(doc: Document, node: Node, what: str) -> Any:
    if isinstance(node, MappingNode) and not node.value:
        return doc.error(node, "empty-value", f"{what} has no conditions", "remove it")
    return _WHEN.read(doc, node, what)


_WHEN = Table(WHEN_KEYS, When)


# target, set, headers


def _read_targets(doc: Document, node: Node, what: str) -> Any:
    if isinstance(node, SequenceNode):
        remedy = (
            "name one target and list the others in `fallback`, or give weights {a/b: 90, c/d: 10}"
        )
        return doc.error(node, "wrong-type", f"{what} cannot be a list", remedy)
    if isinstance(node, ScalarNode):
        value = doc.text(node, what)
        if not isinstance(value, str) or not _is_target(doc, node, value, what):
            return INVALID
        return ((value, 1),)
    pairs = []
    for name, (key, value_node) in doc.fields(node, what).items():
        weight = doc.integer(value_node, f"the weight of `{name}`", 0, 1_000_000)
        if _is_target(doc, key, name, what) and isinstance(weight, int):
            pairs.append((name, weight))
    if not pairs or sum(weight for _, weight in pairs) == 0:
        return doc.error(node, "zero-weights", f"{what}: the weights sum to 0", "raise one")
    return tuple(pairs)


def _is_target(doc: Document, node: Node, value: str, what: str) -> bool:
    if value in (PASS, BLOCK):
        return True
    upstream, slash, model = value.partition("/")
    if slash and upstream.strip() and model.strip() and not re.search(r"\s|,", value):
        return True
    remedy = "write `upstream/model`, or `pass`, or `block`"
    doc.error(node, "bad-target", f"{what}: `{value}` is no target", remedy)
    return False


def header_pair(doc: Document, key: Node, value_node: Node, name: str, value: str) -> bool:
    """Whether a header to put on a request is well formed and ours to put."""
    if not _HEADER_NAME.fullmatch(name):
        doc.error(key, "bad-header", f"`{name}` is no header name")
        return False
    if name.lower() in _UNSAFE_HEADERS or name.lower().startswith("x-turnout-"):
        doc.error(key, "bad-header", f"`{name}` belongs to the connection", "remove it")
        return False
    if not value.isprintable() or not value.isascii():
        doc.error(value_node, "bad-header", f"the value of `{name}` must be printable ASCII")
        return False
    if name.lower() in _CREDENTIAL_HEADERS:
        remedy = "use `api_key_env` of the upstream: rule files get shared"
        doc.warning(value_node, "key-in-rules", f"a credential in `{name}`", remedy)
    return True


_REFUSED_FIELDS = {
    "model": "the target names the model",
    "stream": "the client reads the answer the way it asked for it",
    "messages": "Turnout never rewrites what was said",
    "input": "Turnout never rewrites what was said",
}


def _name(doc: Document, node: Node, what: str) -> Any:
    value = Text(_NAME, _NAME_REMEDY).read(doc, node, what)
    if value in _RESERVED:
        return doc.error(node, "reserved-name", f"`{value}` has a meaning of its own", "rename it")
    return value


def _script(doc: Document, node: Node, what: str) -> Any:
    value = doc.text(node, what)
    if not isinstance(value, str):
        return INVALID
    if not value.endswith(".py") or value.startswith("/") or ".." in value.split("/"):
        remedy = "write a path inside the rules folder, such as scripts/pick.py"
        return doc.error(node, "bad-script", f"{what} cannot be `{value}`", remedy)
    return value


def _read_fallback(doc: Document, node: Node, what: str) -> Any:
    return Texts(check=_is_target).read(doc, node, what)


_TARGET_SCHEMA = {
    "anyOf": [
        {"type": "string", "pattern": "^(pass|block|[^/\\s,]+/[^\\s,]+)$"},
        {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}},
    ]
}
_MATCH_SCHEMA = {"anyOf": [*_ONE_OR_MORE["anyOf"], mapping_schema(_MATCH_KEYS)]}

ROUTE_KEYS: dict[str, Key] = {
    "name": Key(Special(_name, Text(_NAME).schema()), "the route's name, as headers show it", True),
    "match": Key(
        Special(_read_match, _MATCH_SCHEMA),
        "keywords, `prefix:…`, `re:…` or `.*` on the human text; a list: any of them",
    ),
    "when": Key(
        Special(_read_when, mapping_schema(WHEN_KEYS)),
        "conditions on the request itself; all must hold",
    ),
    "priority": Key(Integer(-1_000_000, 1_000_000), "higher first; ties go by file order"),
    "target": Key(
        Special(_read_targets, _TARGET_SCHEMA),
        "`upstream/model`, `pass`, `block`, or targets with weights",
    ),
    "script": Key(
        Special(_script, {"type": "string", "pattern": "\\.py$"}),
        "Python file with `choose(request)`; `target` counts when it returns None",
    ),
    "fallback": Key(
        Special(_read_fallback, _ONE_OR_MORE),
        "targets tried in order until there is content; behind `pass`: if the origin fails",
    ),
    "set": Key(JsonMap(_REFUSED_FIELDS), "body fields to write; null drops one"),
    "headers": Key(TextMap(check=header_pair, is_lower=True), "headers put on the request"),
    "timeout_ms": Key(Integer(1, 3_600_000), "longest wait for the target's first byte"),
    "examples": Key(Texts(), "texts of this intent; they train the semantic layer"),
    "description": Key(Text(), "what the route is for; model-based classifiers read it"),
    "threshold": Key(Number(0.0, 1.0), "semantic probability this route needs"),
    "message": Key(Text(), "what the client is told by `target: block`"),
    "observe": Key(Flag(), "decide, show and log, but change no request"),
}


def read_routes(doc: Document, node: Node, first_order: int) -> list[RouteDraft]:
    """The list under `routes:`; `first_order` is the number of routes in earlier files."""
    if not isinstance(node, SequenceNode):
        if not doc.is_null(node):
            doc.wrong_type(node, "`routes`", "a list (`- name: …`)")
        return []
    drafts: list[RouteDraft] = []
    for item in node.value:
        if draft := _read_route(doc, item, first_order + len(drafts)):
            drafts.append(draft)
    return drafts


def _read_route(doc: Document, node: Node, order: int) -> RouteDraft | None:
    values, nodes = read_mapping(doc, node, "a route", ROUTE_KEYS)
    if "name" not in values:
        return None
    name = values["name"]
    targets = values.pop("target", ())
    if "target" not in nodes and "script" not in nodes:
        remedy = "write `target: upstream/model`, `target: pass` or `target: block`"
        doc.error(node, "missing-key", f"route `{name}` has no target", remedy)
    if "message" in nodes and (BLOCK, 1) not in targets:
        doc.warning(nodes["message"], "unused-key", "`message` only counts with `target: block`")
    route = Route(targets=targets, place=doc.place(node), order=order, **values)
    places = {key: doc.place(value) for key, value in nodes.items()}
    return RouteDraft(route, places, route.match.places if route.match else {})
