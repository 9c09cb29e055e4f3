"""Reads values out of YAML nodes: text, numbers, lists, mappings, each wrong one with its place.

One `Document` is one file being read. It collects problems and never raises; what could not be
read is `INVALID`, so that one pass finds every mistake.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable
from typing import Any, Final

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from turnout_rules.model import Place
from turnout_rules.problems import Problem, Severity


class _Invalid:
    """The value of something that could not be read; its problem is recorded already."""

    def __bool__(self) -> bool:
        return False


INVALID: Final = _Invalid()
MAX_PROBLEMS = 1_000
"""So many problems a file are kept; a file with more is the wrong file."""
MAX_JSON_DEPTH = 32

_TEXT_TAG = "tag:yaml.org,2002:str"
_DEFAULT_TAGS = {_TEXT_TAG, "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map"}
_NULLS = {"", "~", "null", "Null", "NULL"}
_TRUE = {"true", "yes", "on"}
_FALSE = {"false", "no", "off"}
_INTEGER = re.compile(r"[-+]?[0-9][0-9_]*\Z")
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")

type Fields = dict[str, tuple[Node, Node]]
"""Key to (the key's node, the value's node)."""


class Document:
    """One file being read: where problems go and how its nodes become values."""

    def __init__(self, file: str, problems: list[Problem]) -> None:
        """Add what is wrong in `file` to `problems`."""
        self.file = file
        self.problems = problems
        self._left = MAX_PROBLEMS

    # places and problems

    def place(self, node: Node) -> Place:
        """Where `node` starts."""
        mark = node.start_mark
        return Place(self.file, mark.line + 1, mark.column + 1)

    def error(self, node: Node, code: str, message: str, remedy: str = "") -> _Invalid:
        """Record an error at `node`; returns INVALID so that readers can return it."""
        self._add(self.place(node), "error", code, message, remedy)
        return INVALID

    def error_at(self, place: Place, code: str, message: str, remedy: str = "") -> None:
        """Record an error at a place noted before."""
        self._add(place, "error", code, message, remedy)

    def warning(self, node: Node, code: str, message: str, remedy: str = "") -> None:
        """Record something that works and is probably not meant."""
        self._add(self.place(node), "warning", code, message, remedy)

    def _add(self, place: Place, severity: Severity, code: str, message: str, remedy: str) -> None:
        self._left -= 1
        if self._left < 0:
            return
        if self._left == 0:
            message += " (further problems of this file are left out)"
        where = (place.file, place.line, place.column)
        self.problems.append(Problem(*where, severity, code, message, remedy))

    # mappings

    def fields(self, node: Node, what: str, known: Collection[str] | None = None) -> Fields:
        """The mapping's entries by key; duplicates and keys that are not `known` are errors.

        `<<: *anchor` merges another mapping in, as in other YAML files people keep.
        """
        if not isinstance(node, MappingNode):
            self.wrong_type(node, what, "a mapping (`key: value`)")
            return {}
        self._check_tag(node)
        found: Fields = {}
        merged: list[Node] = []
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                self.error(key, "wrong-type", f"a key of {what} must be a text")
            elif key.value == "<<" and not key.style:
                merged += value.value if isinstance(value, SequenceNode) else [value]
            elif key.value in found:
                first = found[key.value][0].start_mark.line + 1
                message = f"`{key.value}` stands twice in {what} (first in line {first})"
                self.error(key, "duplicate-key", message, "remove one")
            elif known is not None and key.value not in known:
                self.unknown(key, f"key in {what}", key.value, known)
            else:
                found[key.value] = (key, value)
        for other in merged:
            for name, pair in self.fields(other, what, known).items():
                found.setdefault(name, pair)
        return found

    def unknown(
        self, node: Node, kind: str, name: str, known: Iterable[str], code: str = "unknown-key"
    ) -> _Invalid:
        """Record that `name` is none of `known`, with the nearest of them as the remedy."""
        return self.error(node, code, f"unknown {kind}: `{name}`", self.did_you_mean(name, known))

    def did_you_mean(self, name: str, known: Iterable[str]) -> str:
        """`did you mean …?`, or the list of what there is."""
        names = sorted(known)
        if self._left < MAX_PROBLEMS - 50:  # a wrong file, not a typing mistake: stay fast
            return ""
        near = difflib.get_close_matches(name.lower(), names[:2_000], n=1, cutoff=0.6)
        if near:
            return f"did you mean `{near[0]}`?"
        if not names:
            return ""
        return "there is: " + ", ".join(names[:24]) + (", …" if len(names) > 24 else "")

    # scalars

    def is_null(self, node: Node) -> bool:
        """Whether nothing (or `null`) is written."""
        return isinstance(node, ScalarNode) and not node.style and node.value in _NULLS

    def text(self, node: Node, what: str) -> str | _Invalid:
        """A text as it is written, whatever YAML would make of it."""
        if not isinstance(node, ScalarNode):
            return self.wrong_type(node, what, "a text")
        if node.tag != _TEXT_TAG:
            self._check_tag(node)
            return INVALID
        value: str = node.value
        if not node.style and value in _NULLS:
            return self.error(node, "empty-value", f"{what} is empty", "write a value")
        return value

    def texts(self, node: Node, what: str) -> tuple[tuple[str, Node], ...]:
        """A list of texts, or one text alone, each with its node; wrong ones are left out."""
        if isinstance(node, SequenceNode):
            self._check_tag(node)
            items = node.value
        else:
            items = [node]
        found = []
        for item in items:
            value = self.text(item, f"an entry of {what}")
            if not isinstance(value, _Invalid):
                found.append((value, item))
        return tuple(found)

    def integer(self, node: Node, what: str, least: int, most: int) -> int | _Invalid:
        """A whole number within a range; `_` may group its digits."""
        value = self.text(node, what)
        if isinstance(value, _Invalid):
            return INVALID
        if not _INTEGER.match(value) or len(value) > 24:
            return self.error(node, "wrong-type", f"{what} must be a whole number, not `{value}`")
        return self._ranged(node, what, int(value), least, most)

    def number(self, node: Node, what: str, least: float, most: float) -> float | _Invalid:
        """A number within a range."""
        value = self.text(node, what)
        if isinstance(value, _Invalid):
            return INVALID
        if not _FLOAT.match(value) or len(value) > 40:
            return self.error(node, "wrong-type", f"{what} must be a number, not `{value}`")
        return self._ranged(node, what, float(value), least, most)

    def flag(self, node: Node, what: str) -> bool | _Invalid:
        """`true` or `false`; `yes`, `no`, `on`, `off` mean the same."""
        value = self.text(node, what)
        if isinstance(value, _Invalid):
            return INVALID
        if value.lower() in _TRUE:
            return True
        if value.lower() in _FALSE:
            return False
        return self.error(node, "wrong-type", f"{what} must be true or false, not `{value}`")

    def _ranged[T: (int, float)](
        self, node: Node, what: str, value: T, least: T, most: T
    ) -> T | _Invalid:
        if least <= value <= most:
            return value
        message = f"{what} must be between {least:,} and {most:,}, not {value:,}"
        return self.error(node, "out-of-range", message)

    # anything JSON can say

    def json(self, node: Node, what: str, depth: int = 0) -> Any:
        """A value for a request body: null, true, numbers, texts, lists and mappings."""
        if depth > MAX_JSON_DEPTH:
            return self.error(node, "too-deep", f"{what} is nested too deeply")
        if not self._check_tag(node):
            return INVALID
        if isinstance(node, SequenceNode):
            return [self.json(item, what, depth + 1) for item in node.value]
        if isinstance(node, MappingNode):
            pairs = self.fields(node, what)
            return {key: self.json(value, what, depth + 1) for key, (_, value) in pairs.items()}
        return self._json_scalar(node, what)

    def _json_scalar(self, node: Node, what: str) -> Any:
        value: str = node.value
        if isinstance(node, ScalarNode) and node.style:
            return value
        if value in _NULLS:
            return None
        if value in ("true", "True", "TRUE", "false", "False", "FALSE"):
            return value.lower() == "true"
        if _INTEGER.match(value) and len(value) <= 24:
            return int(value)
        if _FLOAT.match(value) and len(value) <= 40:
            return float(value)
        if value.lower() in (".inf", "-.inf", "+.inf", ".nan"):
            return self.error(node, "wrong-type", f"{what}: JSON has no `{value}`")
        if value.lower() in _TRUE | _FALSE:
            message = f"{what}: `{value}` is a text here"
            self.warning(node, "yaml-boolean", message, "write true or false, or quote the text")
        return value

    # types

    def wrong_type(self, node: Node, what: str, wanted: str) -> _Invalid:
        """Record that `what` is something else than `wanted`."""
        if self.is_null(node):
            return self.error(node, "empty-value", f"{what} is empty", f"it must be {wanted}")
        remedy = ""
        if isinstance(node, SequenceNode):
            has = "a list"
        elif isinstance(node, MappingNode):
            has = "a mapping"
            if wanted == "a text":
                remedy = "quote a text that holds a colon and a space, or ends with a colon"
        else:
            has = f"the text `{node.value[:40]}`"
        return self.error(node, "wrong-type", f"{what} must be {wanted}, not {has}", remedy)

    def _check_tag(self, node: Node) -> bool:
        if node.tag in _DEFAULT_TAGS:
            return True
        self.error(
            node, "yaml-tag", f"YAML tags are not used here: `{node.tag}`", "quote a text with !"
        )
        return False
