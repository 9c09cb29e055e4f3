"""Custom tools as functions: free text as the one string argument, and back, whole or in pieces.

A custom tool's input travels as `{"input": "…"}`. Models do not always keep to that, so whatever
they send instead becomes the input as well as it can be understood.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any

import msgspec

ARGUMENT = "input"
_OPENING = ("{", f'"{ARGUMENT}"', ":", '"')
_MAX_OPENING_CHARS = 256
_SPACE = " \t\r\n"
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_HEX = frozenset(string.hexdigits)
_REPLACEMENT = "\ufffd"
_ESCAPE_CHARS = 6
"""Of `\\uXXXX`."""

_any = msgspec.json.Decoder()
_encode = msgspec.json.encode


def as_function(tool: dict[str, Any], name: str) -> dict[str, Any]:
    """A custom tool as a function called `name`.

    A grammar, which nobody enforces then, is told to the model.
    """
    parts = [tool.get("description") or "", _format_words(tool.get("format") or {})]
    argument = {"type": "string", "description": "The whole input of the tool, as plain text."}
    return {
        "name": name,
        "description": "\n\n".join(filter(None, parts)),
        "parameters": {
            "type": "object",
            "properties": {ARGUMENT: argument},
            "required": [ARGUMENT],
            "additionalProperties": False,
        },
    }


def _format_words(form: dict[str, Any]) -> str:
    if form.get("type") != "grammar":
        return ""
    grammar = form.get("grammar") or form  # chat puts it one level deeper
    syntax, definition = grammar["syntax"], grammar["definition"]
    what = "regular expression" if syntax == "regex" else f"{str(syntax).capitalize()} grammar"
    return f"`{ARGUMENT}` must be plain text that matches this {what}:\n{definition}"


def as_arguments(text: str) -> str:
    """The arguments of the function for a custom tool's `text`."""
    return _encode({ARGUMENT: text}).decode()


def as_input(arguments: str) -> str:
    """A custom tool's input out of the arguments that a model wrote."""
    try:
        value = _any.decode(arguments)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        reader = InputReader()
        text = reader.feed(arguments)
        return text if reader.has_begun else arguments
    if isinstance(value, dict):
        found = value.get(ARGUMENT)
        if found is None and len(value) == 1:
            found = next(iter(value.values()))
        return _text(found) if found is not None else arguments
    return value if isinstance(value, str) else arguments


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _encode(value).decode()


class InputReader:
    """Reads the input out of arguments that come in pieces of any size.

    It keeps at most an unfinished escape, or the few characters before the input begins. Arguments
    of another shape come out as they are.
    """

    __slots__ = ("_held", "_read")

    def __init__(self) -> None:
        """Nothing read yet."""
        self._held = ""
        self._read: Callable[[str], str] = self._opening

    @property
    def has_begun(self) -> bool:
        """Whether the arguments so far tell where the input begins."""
        return self._read != self._opening

    def feed(self, text: str) -> str:
        """What the next piece of the arguments adds to the input."""
        return self._read(text)

    def _opening(self, text: str) -> str:
        self._held += text
        at = 0
        for token in _OPENING:
            while at < len(self._held) and self._held[at] in _SPACE:
                at += 1
            rest = self._held[at : at + len(token)]
            if rest != token:
                if token.startswith(rest) and at + len(rest) < _MAX_OPENING_CHARS:
                    return ""
                return self._as_it_is()
            at += len(token)
        rest, self._held = self._held[at:], ""
        self._read = self._inside
        return self._inside(rest)

    def _as_it_is(self) -> str:
        self._read = _same
        held, self._held = self._held, ""
        return held

    def _inside(self, text: str) -> str:
        """Inside the string: unescape up to its closing quote."""
        text = self._held + text
        self._held = ""
        pieces: list[str] = []
        at = 0
        quote = text.find('"')
        while True:
            if -1 < quote < at:
                quote = text.find('"', at)
            end = quote if quote >= 0 else len(text)
            slash = text.find("\\", at, end)
            if slash < 0:
                pieces.append(text[at:end])
                if quote >= 0:
                    self._read = _nothing
                break
            pieces.append(text[at:slash])
            character, at = _unescaped(text, slash)
            if at < 0:
                self._held = text[slash:]
                break
            pieces.append(character)
        return "".join(pieces)


def _same(text: str) -> str:
    return text


def _nothing(text: str) -> str:
    del text
    return ""


def _unescaped(text: str, at: int) -> tuple[str, int]:
    """The character of the escape at `at` and where the text goes on; -1: more must come."""
    if at + 1 >= len(text):
        return "", -1
    kind = text[at + 1]
    if kind != "u":
        return _ESCAPES.get(kind, kind), at + 2
    code = _code(text, at)
    if code is None:
        return "", -1
    after = at + _ESCAPE_CHARS
    if not 0xD800 <= code < 0xE000:
        return (chr(code) if code >= 0 else _REPLACEMENT), after
    if code >= 0xDC00:
        return _REPLACEMENT, after
    following = text[after : after + 2]
    if not "\\u".startswith(following):
        return _REPLACEMENT, after
    low = _code(text, after)
    if low is None:
        return "", -1
    if not 0xDC00 <= low < 0xE000:
        return _REPLACEMENT, after
    return chr(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)), after + _ESCAPE_CHARS


def _code(text: str, at: int) -> int | None:
    """The number of a `\\uXXXX`; -1: no such number, None: it is not all there."""
    digits = text[at + 2 : at + _ESCAPE_CHARS]
    if len(digits) < 4:
        return None
    return int(digits, 16) if _HEX.issuperset(digits) else -1
