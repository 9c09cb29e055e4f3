"""Turns the calls of an answer back while its bytes pass through: streams event by event.

Any chunks go in, bytes for the client come out at once; of a stream no more than one unfinished
event is held, of a whole body all of it up to a limit. What cannot be read stays as it came.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from turnout_rules.tool_names import Calls
from turnout_rules.tool_unfolding import Fields, Unfolding, unfolding

MAX_BYTES = 32 * 1024 * 1024
"""Of one event, or of a body that is no stream; larger ones stay as they came."""
_EVENT_END = re.compile(rb"\n\r?\n|\r\r\n?")
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)?")
_END_CHARS = 3

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode = msgspec.json.encode
_Turn = Callable[[Fields], Fields | None]


class CallTurner:
    """The bytes of one answer on their way to the client."""

    __slots__ = ("_held", "_is_stream", "_is_too_long", "_unfolding")

    def __init__(self, unfolding: Unfolding, *, is_stream: bool) -> None:
        """Nothing has come yet."""
        self._unfolding = unfolding
        self._is_stream = is_stream
        self._is_too_long = False
        self._held = bytearray()

    def feed(self, chunk: bytes) -> bytes:
        """What may go on to the client now."""
        searched = max(0, len(self._held) - _END_CHARS)
        self._held += chunk
        out = self._events(searched) if self._is_stream else b""
        if self._is_too_long or len(self._held) > MAX_BYTES:
            self._is_too_long = True
            out += bytes(self._held)
            self._held.clear()
        return out

    def end(self) -> bytes:
        """The rest, when the answer is over."""
        rest = bytes(self._held)
        self._held.clear()
        if self._is_stream or self._is_too_long:
            return rest
        return _turned(rest, self._unfolding.body) or rest

    def _events(self, searched: int) -> bytes:
        out = bytearray()
        begin = 0
        while (found := _EVENT_END.search(self._held, max(searched, begin))) is not None:
            event = bytes(self._held[begin : found.end()])
            out += event if self._is_too_long else self._event(event)
            self._is_too_long = False
            begin = found.end()
        del self._held[:begin]
        return bytes(out)

    def _event(self, event: bytes) -> bytes:
        if self._unfolding.mark not in event:
            return event
        lines = [line for line in _LINE.findall(event) if line]
        data = [_value(line) for line in lines if line.startswith(b"data:")]
        changed = _turned(b"\n".join(data), self._unfolding.event)
        return event if changed is None else _with_data(lines, changed)


def call_turner(
    calls: Calls, endpoint: str, status: int, content_type: str, encoding: str = ""
) -> CallTurner | None:
    """How an answer with this head is turned back; None: there are no calls in it.

    Errors hold none, and what is compressed cannot be read here.
    """
    kind = content_type.partition(";")[0].strip().lower()
    is_stream = kind == "text/event-stream"
    if status >= 300 or not (is_stream or kind == "application/json"):
        return None
    if encoding.strip().lower() not in ("", "identity"):
        return None
    return CallTurner(unfolding(endpoint, calls), is_stream=is_stream)


def _turned(data: bytes, turn_back: _Turn) -> bytes | None:
    try:
        changed = turn_back(_fields.decode(data))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    except (AttributeError, TypeError, KeyError):
        return None  # JSON of another shape than the API's
    return None if changed is None else _encode(changed)


def _value(line: bytes) -> bytes:
    return line.removeprefix(b"data:").removeprefix(b" ").rstrip(b"\r\n")


def _with_data(lines: list[bytes], data: bytes) -> bytes:
    """The event with other data, on one line; its type follows, where the event names one."""
    kind = _fields.decode(data).get("type")
    out: list[bytes] = []
    is_put = False
    for line in lines:
        ending = line[len(line.rstrip(b"\r\n")) :]
        if line.startswith(b"event:") and kind is not None:
            out.append(b"event: " + msgspec.json.decode(kind, type=str).encode() + ending)
        elif not line.startswith(b"data:"):
            out.append(line)
        elif not is_put:
            out.append(b"data: " + data + ending)
            is_put = True
    return b"".join(out)
