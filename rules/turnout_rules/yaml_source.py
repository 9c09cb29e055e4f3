"""A rule file's bytes become YAML nodes that know their places; syntax errors become plain words.

Plain scalars stay the text that is written (`on`, `no`, `12` are keywords like any other): what a
value means is decided by the key it stands under. Nothing here builds Python objects from tags,
and nothing grows beyond the file: aliases are counted before anyone follows them.
"""

from __future__ import annotations

import re

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from turnout_rules.problems import Problem, Severity

MAX_FILE_BYTES = 16 * 1024 * 1024
MAX_EXPANDED_NODES = 500_000
"""Nodes a file with aliases may come to, each alias counted in full."""

_PLAIN_TAGS: dict[type[Node], str] = {
    ScalarNode: "tag:yaml.org,2002:str",
    SequenceNode: "tag:yaml.org,2002:seq",
    MappingNode: "tag:yaml.org,2002:map",
}
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]")
_BACKSLASH = "write patterns in single quotes or without quotes: inside double quotes \\ escapes"
_EXPLAINED = (
    # (part of the parser's words, what to say, remedy)
    (
        "found character '\\t'",
        "a tab stands where YAML wants spaces",
        "indent with spaces only",
    ),
    ("found unknown escape", "unknown escape in a double-quoted text", _BACKSLASH),
    (
        "undefined alias",
        "a text that starts with * is a YAML alias, and no such anchor is defined",
        'quote it: "*word"',
    ),
    (
        "while scanning an alias",
        "a text that starts with * is a YAML alias",
        'quote it: "*word"',
    ),
    ("while scanning an anchor", "a text that starts with & is a YAML anchor", "quote it"),
    ("while scanning a tag", "a text that starts with ! is a YAML tag", "quote it"),
    ("undefined tag handle", "a text that starts with ! is a YAML tag", "quote it"),
    (
        "found character that cannot start any token",
        "a text cannot start with this character (@, ` and % are reserved in YAML)",
        "quote it",
    ),
    ("maximum nesting depth", "nested too deeply", "a rule file needs a handful of levels"),
    (
        "mapping values are not allowed",
        "a second `key: value` where a value is expected",
        "check the indentation, and quote a text that holds a colon and a space",
    ),
    (
        "could not find expected ':'",
        "this line is no `key: value`",
        "check the colon after the key, the space after it, and open quotes above",
    ),
    (
        "did not find expected ',' or ']'",
        "this [list] is not closed, or a comma is missing",
        "close it with ], and quote a text that holds , [ ] { } or starts with a quote",
    ),
    (
        "did not find expected ',' or '}'",
        "this {mapping} is not closed, or a comma is missing",
        "close it with }",
    ),
    (
        "unexpected end of stream",
        "the file ends inside a quoted text",
        "close the quote",
    ),
    (
        "did not find expected '-' indicator",
        "this line does not fit the list above it",
        "start it with `- ` in the same column, or indent it below the last item",
    ),
    (
        "did not find expected key",
        "this line does not fit the mapping above it",
        "check the indentation and the quotes of the lines above",
    ),
    (
        "expected a single document",
        "a second document starts here (`---`)",
        "put it into a file of its own",
    ),
)


class _Loader(getattr(yaml, "CBaseLoader", yaml.BaseLoader)):  # type: ignore[misc]
    """libyaml's composer where there is one. Nothing is resolved: a plain scalar is its text."""

    def descend_resolver(self, *_: object) -> None:
        """Nothing to do, a hundred thousand times a file."""

    def ascend_resolver(self) -> None:
        """Nothing to do."""

    def resolve(self, kind: type[Node], _value: object, _implicit: object) -> str:
        """The plain tag of the kind of node."""
        return _PLAIN_TAGS[kind]


def parse(file: str, data: bytes, problems: list[Problem]) -> MappingNode | None:
    """The file's top mapping; None, with the reason in `problems`, if there is none to read."""
    text = _decoded(file, data, problems)
    if text is None:
        return None
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        problems.append(_explained(file, text, error))
        return None
    except yaml.YAMLError as error:
        problems.append(_whole(file, "yaml-syntax", f"cannot be read as YAML: {error}"))
        return None
    except RecursionError:
        problems.append(_whole(file, "yaml-syntax", "nested too deeply"))
        return None
    if root is None:
        remedy = "write `routes:` into it or delete it"
        severity: Severity = "error" if not text.strip() else "warning"
        message = "the file is empty" if severity == "error" else "the file holds comments only"
        problems.append(Problem(file, 1, 1, severity, "empty-file", message, remedy))
        return None
    if "&" in text and "*" in text and not _is_bounded(root):
        message = f"aliases make this file more than {MAX_EXPANDED_NODES:,} values, or endless"
        problems.append(_whole(file, "alias-bomb", message, "write the values out"))
        return None
    if not isinstance(root, MappingNode):
        problems.append(_not_a_mapping(file, root))
        return None
    return root


def _decoded(file: str, data: bytes, problems: list[Problem]) -> str | None:
    if len(data) > MAX_FILE_BYTES:
        message = f"{len(data):,} bytes are more than the {MAX_FILE_BYTES:,} a rule file may have"
        problems.append(_whole(file, "file-too-large", message, "split it"))
        return None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
        what = f"byte 0x{data[error.start]:02x} is not UTF-8"
        remedy = "save the file as UTF-8"
        problems.append(Problem(file, line, column, "error", "not-utf8", what, remedy))
        return None
    if found := _CONTROL.search(text):
        line = text.count("\n", 0, found.start()) + 1
        column = found.start() - (text.rfind("\n", 0, found.start()) + 1) + 1
        what = f"control character U+{ord(found[0]):04X} in the file"
        remedy = "remove it: rule files are plain text"
        problems.append(Problem(file, line, column, "error", "control-character", what, remedy))
        return None
    return text


def _explained(file: str, text: str, error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark else (-1, -1)
    said = " ".join(str(error).split())
    unknown = (f"not YAML: {error.problem or said}", "see the place and the line above")
    known = ((message, remedy) for part, message, remedy in _EXPLAINED if part in said)
    message, remedy = next(known, unknown)
    lines = text.splitlines()
    if "\t" in _indent(lines, line):
        message, remedy = _EXPLAINED[0][1:]
    if error.context_mark and mark and error.context_mark.line != mark.line:
        message += f" (it began in line {error.context_mark.line + 1})"
    return Problem(file, line + 1, column + 1, "error", "yaml-syntax", message, remedy)


def _indent(lines: list[str], line: int) -> str:
    if not 0 <= line < len(lines):
        return ""
    return lines[line][: len(lines[line]) - len(lines[line].lstrip())]


def _is_bounded(root: Node) -> bool:
    """Whether the tree, aliases expanded, is finite and within `MAX_EXPANDED_NODES`.

    Sizes are computed once a node, so a bomb costs what its few lines cost.
    """
    sizes: dict[int, int] = {}
    stack: list[tuple[Node, bool]] = [(root, False)]
    open_nodes: set[int] = set()
    while stack:
        node, is_done = stack.pop()
        if id(node) in sizes:
            continue
        children = _children(node)
        if is_done:
            open_nodes.discard(id(node))
            size = 1 + sum(sizes.get(id(child), 1) for child in children)
            if size > MAX_EXPANDED_NODES:
                return False
            sizes[id(node)] = size
            continue
        open_nodes.add(id(node))
        stack.append((node, True))
        for child in children:
            if id(child) in open_nodes:
                return False
            stack.append((child, False))
    return True


def _children(node: Node) -> list[Node]:
    if isinstance(node, SequenceNode):
        return list(node.value)
    if isinstance(node, MappingNode):
        return [part for pair in node.value for part in pair]
    return []


def _not_a_mapping(file: str, root: Node) -> Problem:
    mark = root.start_mark
    has = "a list" if isinstance(root, SequenceNode) else f"the text {_short(root)}"
    message = f"a rule file is a mapping with `routes:`, `upstreams:` …, this one is {has}"
    remedy = "put `routes:` above the list" if isinstance(root, SequenceNode) else "see the docs"
    return Problem(file, mark.line + 1, mark.column + 1, "error", "wrong-type", message, remedy)


def _short(root: Node) -> str:
    value = root.value if isinstance(root, ScalarNode) else ""
    return f"`{value[:37]}…`" if len(value) > 40 else f"`{value}`"


def _whole(file: str, code: str, message: str, remedy: str = "") -> Problem:
    return Problem(file, 1, 1, "error", code, message, remedy)
