"""All conditions of all routes, each with a number, found in one pass over a request.

Conditions on texts (keywords, prefixes, patterns) and on the request's own fields (model, path,
headers, task, endpoint) are alike here: `find` answers the set of numbers that hold. Routes that
say the same thing share a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from turnout_rules.keywords import Keyword, Keywords, read_keyword
from turnout_rules.model import TextPart
from turnout_rules.normalise import normalise
from turnout_rules.patterns import (
    Patterns,
    Prefixes,
    check_pattern,
    glob_pattern,
    is_plain,
    normalise_pattern,
)

if TYPE_CHECKING:
    from turnout_rules.request import Request

EVERYTHING = ".*"


class _PartScan(msgspec.Struct, frozen=True):
    keywords: Keywords
    patterns: Patterns
    prefixes: Prefixes

    def find(self, text: str, found: set[int]) -> None:
        self.keywords.find(text, found)
        self.patterns.find(text, found)
        self.prefixes.find(text, found)


class _FieldScan(msgspec.Struct, frozen=True):
    exact: dict[str, int]
    globs: Patterns | None

    def find(self, value: str, found: set[int]) -> None:
        number = self.exact.get(value.lower())
        if number is not None:
            found.add(number)
        if self.globs is not None:
            self.globs.find(value, found)


class Scanner:
    """What `Conditions.scanner` builds; immutable."""

    __slots__ = ("_fields", "_headers", "_human", "_others")

    def __init__(self, parts: dict[TextPart, _PartScan], fields: dict[str, _FieldScan]) -> None:
        """Split by where the value comes from, so that `find` asks only for what is used."""
        self._human = parts.get("human")
        self._others = tuple((p, s) for p, s in parts.items() if p != "human")
        self._headers = tuple((n[7:], s) for n, s in fields.items() if n.startswith("header:"))
        self._fields = tuple((n, s) for n, s in fields.items() if not n.startswith("header:"))

    def find(self, request: Request) -> set[int]:
        """The numbers of all conditions that hold for `request`."""
        found: set[int] = set()
        if self._human is not None:
            self._human.find(normalise(request.text), found)
        for part, scan in self._others:
            scan.find(normalise(request.text_on(part)), found)
        self._find_in_fields(request, found)
        return found

    def find_beside_words(self, request: Request) -> set[int]:
        """Those that look neither at what was said nor at what may be said later in a turn."""
        found: set[int] = set()
        for part, scan in self._others:
            for fixed in ("system", "tools") if part == "all" else (part,):
                scan.find(normalise(request.text_on(fixed)), found)
        self._find_in_fields(request, found)
        return found

    def _find_in_fields(self, request: Request, found: set[int]) -> None:
        for name, field in self._fields:
            if value := _field(request, name):
                field.find(value, found)
        if self._headers:
            headers: Mapping[str, str] = request.headers
            for name, field in self._headers:
                if (header := headers.get(name)) is not None:
                    field.find(header, found)


def _field(request: Request, name: str) -> str:
    if name == "path":
        return request.path.partition("?")[0]
    value: str = getattr(request, name)
    return value


class Conditions:
    """Collects conditions while a table is built and hands out their numbers."""

    def __init__(self) -> None:
        """No conditions yet."""
        self._count = 0
        self._keywords: dict[TextPart, dict[Keyword, int]] = {}
        self._patterns: dict[TextPart, dict[str, int]] = {}
        self._prefixes: dict[TextPart, dict[str, int]] = {}
        self._exact: dict[str, dict[str, int]] = {}
        self._globs: dict[str, dict[str, int]] = {}

    def _intern[K](self, known: dict[K, int], key: K) -> int:
        number = known.get(key)
        if number is None:
            number = known[key] = self._count
            self._count += 1
        return number

    def text(self, part: TextPart, entry: str) -> int:
        """The number of an entry of `match`; raises ValueError with what is wrong with it."""
        if entry.startswith("re:"):
            pattern = normalise_pattern(entry[3:].strip())
            patterns = self._patterns.setdefault(part, {})
            if pattern not in patterns:
                check_pattern(pattern)
            return self._intern(patterns, pattern)
        if entry.startswith("prefix:"):
            prefix = normalise(entry[7:])
            if not prefix:
                raise ValueError("nothing is left of the prefix to look for")
            return self._intern(self._prefixes.setdefault(part, {}), prefix)
        keyword = read_keyword(entry)
        if not keyword.words:
            raise ValueError("nothing is left of the keyword to look for")
        return self._intern(self._keywords.setdefault(part, {}), keyword)

    def field(self, name: str, glob: str) -> int:
        """The number of a glob (or `re:`) on a field; `header:x-name` for a header."""
        if not glob.startswith("re:") and is_plain(glob):
            return self._intern(self._exact.setdefault(name, {}), glob.lower())
        pattern = glob[3:].strip() if glob.startswith("re:") else glob_pattern(glob)
        check_pattern(pattern)
        return self._intern(self._globs.setdefault(name, {}), pattern)

    def scanner(self) -> Scanner:
        """The scanner over everything collected."""
        parts: dict[TextPart, _PartScan] = {
            part: _PartScan(
                Keywords(self._keywords.get(part, {}).items()),
                Patterns(self._patterns.get(part, {}).items()),
                Prefixes(self._prefixes.get(part, {}).items()),
            )
            for part in {**self._keywords, **self._patterns, **self._prefixes}
        }
        fields = {
            name: _FieldScan(
                self._exact.get(name, {}),
                Patterns(self._globs[name].items()) if name in self._globs else None,
            )
            for name in {**self._exact, **self._globs}
        }
        return Scanner(parts, fields)
