"""`re:` and `prefix:` entries of all routes: one RE2 set, and prefixes looked up by length.

RE2 does not backtrack, so neither a hostile pattern nor a hostile text can stall anybody. Patterns
are matched without regard to case on normalised text; their literal letters get the same treatment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import re2

from turnout_rules.normalise import normalise
from turnout_rules.writing import is_mark

# The set's automaton grows as texts are seen and starts afresh when it reaches its limit; nothing
# is reserved. Sets that do not compile in the first get the next. One pattern alone gets RE2's own
# default, so that no single one (`\p{L}{900}`) makes a set that takes seconds to build.
_ONE_PATTERN_BYTES = 8 << 20
_SET_BYTES = (64 << 20, 512 << 20)
_QUANTIFIERS = frozenset("*+?{")

# What RE2 has not, in the words of somebody who knows other engines: (written, what it is, remedy).
_LACKS = (
    (r"\(\?[=!]", "look-ahead, `{}`", "use `none:` for what must not follow, or match it outright"),
    (r"\(\?<[=!]", "look-behind, `{}`", "use `\\b`, or `none:` for what must not come before"),
    (r"\(\?>", "atomic groups, `{}`", "write a plain group: RE2 never backtracks"),
    (r"(?<!\\)(?:\\\\)*(\\[1-9]|\\k<|\(\?P=)", "back-references, `{}`", "write what it repeats"),
    (r"[*+?}]\+", "possessive quantifiers, `{}`", "drop the second +: RE2 never backtracks"),
    (r"\\u[0-9a-fA-F]{4}", "`{}`", "write the character itself, or \\x{{4E2D}}"),
    (r"\\Z", "`{}`", "write \\z or $"),
    (r"\(\?[a-zA-Z]*x", "verbose flag, `{}`", "write the pattern without spaces"),
    (r"\(\?\(", "conditionals, `{}`", "write two patterns"),
)


def _options(*, is_case_sensitive: bool = False, max_memory: int = _ONE_PATTERN_BYTES) -> Any:
    options = re2.Options()
    options.max_mem = max_memory
    options.log_errors = False
    options.case_sensitive = is_case_sensitive
    return options


_CHECKING = _options()


def check_pattern(pattern: str) -> None:
    """Raises ValueError saying in plain words what is wrong with `pattern`.

    Keeps nothing: `re2.compile` would remember patterns that only the set needs.
    """
    alone = re2.Set.SearchSet(_CHECKING)
    try:
        alone.Add(pattern)
        alone.Compile()
    except (re2.error, UnicodeEncodeError):
        compile_pattern(pattern)


def compile_pattern(pattern: str, *, is_case_sensitive: bool = False) -> Any:
    """A compiled RE2 pattern; raises ValueError saying in plain words what is wrong with it."""
    try:
        return re2.compile(pattern, _options(is_case_sensitive=is_case_sensitive))
    except (re2.error, UnicodeEncodeError) as error:
        raise ValueError(_explain_error(pattern, error)) from error


def complaint(pattern: str) -> str:
    """What is wrong with a `re:` pattern (without the `re:`), in plain words; empty: nothing."""
    try:
        check_pattern(normalise_pattern(pattern))
    except ValueError as error:
        return str(error)
    return ""


def _explain_error(pattern: str, error: Exception) -> str:
    for written, what, remedy in _LACKS:
        if found := re.search(written, pattern):
            # Python's re judges the pattern here only to quote the construct, never a text.
            return f"RE2 has no {what.format(found[found.lastindex or 0])}; {remedy.format()}"
    said = error.args[0] if error.args else str(error)
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    if "invalid repetition size" in text:
        return f"{text}; RE2 repeats at most 1,000 times"
    if "pattern too large" in text:
        return "the pattern is too large for RE2; make it shorter or repeat less"
    return text


def normalise_pattern(pattern: str) -> str:
    """`pattern` with its literal characters in the form that normalised texts have.

    Escapes, classes' brackets and group heads stay as they are. ASCII needs nothing (the case is
    ignored anyway) but for runs of white space: texts have single spaces only.
    """
    if pattern.isascii() and "  " not in pattern and not re.search(r"[\t\r\n]", pattern):
        return pattern
    out: list[str] = []
    at = 0
    while at < len(pattern):
        end, piece = _piece(pattern, at)
        if not (piece == " " and out and out[-1] == " "):
            out.append(piece)
        at = end
    return "".join(out)


def _piece(pattern: str, at: int) -> tuple[int, str]:
    """The next piece of `pattern` from `at` as (its end, what to write for it)."""
    if pattern[at] == "\\":
        end = _escape_end(pattern, at)
        return end, pattern[at:end]
    if pattern[at] == "[":
        return _class(pattern, at)
    if head := re.compile(r"\((?:\?(?:P?<\w*>|[a-zA-Z-]*[:)]))?").match(pattern, at):
        return head.end(), head[0]
    if pattern[at].isspace():
        return at + 1, " "
    end = at + 1
    while end < len(pattern) and not pattern[end].isascii() and is_mark(pattern[end]):
        end += 1
    cluster = pattern[at:end]
    if cluster.isascii():
        return end, cluster
    form = normalise(cluster)
    if form == cluster:
        return end, cluster
    form = re2.escape(form)
    is_repeated = end < len(pattern) and pattern[end] in _QUANTIFIERS
    return end, f"(?:{form})" if is_repeated and form else form


def _escape_end(pattern: str, at: int) -> int:
    found = re.compile(r"\\(?:Q.*?(?:\\E|$)|[pPx]\{[^}]*\}|x..|.|$)", re.DOTALL).match(pattern, at)
    return found.end() if found else at + 1


def _class(pattern: str, at: int) -> tuple[int, str]:
    """A character class: single characters are folded where their form is one character too."""
    end = at + 1
    out = ["["]
    if pattern[end : end + 1] == "^":
        out.append("^")
        end += 1
    is_first = True
    while end < len(pattern) and (is_first or pattern[end] != "]"):
        is_first = False
        if pattern[end] == "\\":
            stop = _escape_end(pattern, end)
            out.append(pattern[end:stop])
        elif named := re.compile(r"\[:\^?\w+:\]").match(pattern, end):
            stop = named.end()
            out.append(named[0])
        else:
            stop = end + 1
            out.append(_class_char(pattern[end]))
        end = stop
    return end + 1, "".join(out) + pattern[end : end + 1]


def _class_char(char: str) -> str:
    if char.isascii():
        return char
    form = normalise(char)
    if len(form) != 1:
        return char
    return f"\\{form}" if form in "[]^-\\" else form


class Patterns:
    """Compiled patterns on one RE2 set. Give it (pattern, number) pairs, each of which compiles."""

    __slots__ = ("_match", "_numbers")

    def __init__(
        self, patterns: Iterable[tuple[str, int]], *, is_case_sensitive: bool = False
    ) -> None:
        """Build the set; raises ValueError where even the largest memory limit does not do."""
        pairs = list(patterns)
        self._numbers = [number for _, number in pairs]
        # None without patterns: RE2 can neither compile nor ask an empty set.
        self._match: Any = None
        if pairs:
            self._match = _compile_set([p for p, _ in pairs], is_case_sensitive).Match

    def find(self, text: str, found: set[int]) -> None:
        """Add the numbers of all patterns that match somewhere in `text` to `found`."""
        if self._match is None:
            return
        hits = self._match(text.encode("utf-8", "replace"))
        if hits:
            numbers = self._numbers
            for hit in hits:
                found.add(numbers[hit])


def _compile_set(patterns: list[str], is_case_sensitive: bool) -> Any:
    for limit in _SET_BYTES:
        options = _options(is_case_sensitive=is_case_sensitive, max_memory=limit)
        options.never_capture = True
        found = re2.Set.SearchSet(options)
        try:
            for pattern in patterns:
                found.Add(pattern)
            found.Compile()
        except re2.error:
            continue
        return found
    raise ValueError("the patterns together are too large for RE2; use fewer or simpler ones")


class Prefixes:
    """`prefix:` entries by length: one look-up for each length that occurs."""

    __slots__ = ("_by_length",)

    def __init__(self, prefixes: Iterable[tuple[str, int]]) -> None:
        """Group the prefixes by their length."""
        by_length: dict[int, dict[str, int]] = {}
        for prefix, number in prefixes:
            by_length.setdefault(len(prefix), {})[prefix] = number
        self._by_length = tuple(sorted(by_length.items()))

    def find(self, text: str, found: set[int]) -> None:
        """Add the numbers of all prefixes that `text` starts with to `found`."""
        for length, numbers in self._by_length:
            if length > len(text):
                return
            number = numbers.get(text[:length])
            if number is not None:
                found.add(number)


# What makes brackets a choice of characters: `!`, ranges, digits alone, or a lone bracket (the
# shell's way to quote one). Model names end in `[1m]`, `[thinking]`: such brackets are the name's.
_CHOICE = re.compile(r"\[(\[|\]|!\]?[^\]]+|\d{2,}|(?:\w-\w)+[._-]*)\]")
_BRACKETS = re.compile(r"\[[^\[\]]+\]")


def _choices(glob: str) -> Iterator[re.Match[str]]:
    """The brackets of a glob that are a choice; one with a range that runs backwards is none."""
    for found in _CHOICE.finditer(glob):
        ranges = re.findall(r"(\w)-(\w)", found[1]) if found[1][0] != "!" else []
        if all(first <= last for first, last in ranges):
            yield found


@cache
def glob_pattern(glob: str) -> str:
    """The RE2 pattern of a glob over a whole string, or of its very text.

    `*` is any text, `?` one character, `[0-9]`, `[34]`, `[!a]` a choice of characters; other
    brackets stand for themselves, and `[[]` always is a bracket.
    """
    out = []
    at = 0
    for choice in _choices(glob):
        out += [_wild(glob[at : choice.start()]), _choice(choice[1])]
        at = choice.end()
    wild = "".join((*out, _wild(glob[at:])))
    return f"(?s)^(?:{wild}|{re2.escape(glob)})$" if at else f"(?s)^(?:{wild})$"


def _wild(piece: str) -> str:
    return "".join({"*": ".*", "?": "."}.get(char) or re2.escape(char) for char in piece)


def _choice(inside: str) -> str:
    quoted = re.sub(r"([\\\[\]^])", r"\\\1", inside.removeprefix("!"))
    return f"[^{quoted}]" if inside[0] == "!" else f"[{quoted}]"


def is_plain(glob: str) -> bool:
    """Whether a glob has no wildcard: it means exactly what it says."""
    return "*" not in glob and "?" not in glob and next(_choices(glob), None) is None


def literal_brackets(glob: str) -> str:
    """The first brackets that stand for themselves, where a shell would choose by them; or ""."""
    choices = {found.span() for found in _choices(glob)}
    covered = {at for start, end in choices for at in range(start, end)}
    found = (match for match in _BRACKETS.finditer(glob) if match.start() not in covered)
    first = next(found, None)
    return first[0] if first else ""


def misses_itself(pattern: str) -> str:
    """The class for which a `re:` pattern that is written like a plain name misses that name.

    Empty: it is no such pattern. Looks at names such as `claude-opus-5[1m]`, where the class is
    meant to be part of the name.
    """
    name = pattern.strip().removeprefix("^").removesuffix("$")
    brackets = literal_brackets(name)
    if not brackets or any(char in name for char in "*+?(){}|\\"):
        return ""
    return "" if compile_pattern(pattern).search(name) else brackets
