"""One answer watched as it comes: has it brought anything, is it an error, did it end as it should.

Fed with the bytes as they arrive, cut anywhere; keeps none but an unfinished line and, of a plain
JSON answer, as much as may be held back. It changes nothing and waits for nothing.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from turnout_rules.bringing import body_brings, brings
from turnout_rules.endpoints import UNSIZED
from turnout_rules.sse import Event, Events, TooLong, decoded, may_begin_events

MAX_PREAMBLE_BYTES = 1024 * 1024
"""What comes before the content is held back up to here: a `response.created` of Codex repeats its
instructions and tools, some 100 KB."""
_KEEP_ALIVE = frozenset({"ping", "keepalive", "keep-alive", "heartbeat"})
_BLANK = b" \t\r\n"
_DONE = b"[DONE]"
_ENDS = (b"\n\n", b"\r\n\r\n")
_MARKS = (
    *(b"error", _DONE, b"stop_reason", b"message_stop", b"response.completed"),
    *(b"response.incomplete", b"response.cancelled", b"response.failed"),
)
"""Bytes without which no event closes a stream, but for a `finish_reason`."""


class Flaw(msgspec.Struct, frozen=True):
    """Why an answer of status 200 is none."""

    kind: Literal["empty", "error", "not_json"]
    error: Any = None
    """With `error`: what the upstream said, an object or a string."""


class Answer:
    """What is known of an answer of `endpoint` so far. `flaw` or `is_good` once it is decided."""

    __slots__ = (
        "_body",
        "_endpoint",
        "_events",
        "_head",
        "_is_ending",
        "_is_given_up",
        "_skimmed",
        "_unread",
        "flaw",
        "has_begun",
        "is_closed",
        "is_good",
        "is_odd",
        "is_stream",
        "sequence_number",
    )

    def __init__(self, endpoint: str, *, content_type: str = "") -> None:
        """Nothing has come. `content_type` as the answer's header says it."""
        self._endpoint = endpoint
        self._head = b""
        self._events: Events | None = None
        self._body: bytearray | None = None
        self._is_ending = False
        self._skimmed = b""
        self._unread = b""
        self._is_given_up = False
        self.is_stream = "event-stream" in content_type.lower()
        """Whether it is a stream of events: by its header, then by its first bytes."""
        self.has_begun = False
        """Whether anything but white space and comments has come."""
        self.is_good = False
        """It has content, or is a whole answer without."""
        self.flaw: Flaw | None = None
        """Found before any content had come."""
        self.is_closed = False
        """Its closing event has come, or an error. Known for sure at the end."""
        self.is_odd = False
        """It speaks no format we know: nothing is missed at its end."""
        self.sequence_number = 0
        """Of the next event, where the stream counts its events. Right at the end."""

    @property
    def is_decided(self) -> bool:
        """Whether more bytes are not needed to tell an answer from none."""
        return self.is_good or self.flaw is not None

    @property
    def is_cut(self) -> bool:
        """Of an answer that has ended: whether the stream lacks its closing event."""
        return self.is_stream and not self.is_closed and not self.is_odd

    def feed(self, chunk: bytes) -> None:
        """Look at the next bytes: until there is content at once, behind it when there is time."""
        if self.is_closed or self._is_given_up:
            return
        if self._unread:
            chunk, self._unread = self._unread + chunk, b""
        if self._events is not None:
            if self.is_good and self._events.is_between and _is_mere_content(chunk):
                self._skimmed = chunk if b"sequence_number" in chunk else self._skimmed
            else:
                self._look_at(self._events, chunk)
        elif self._body is not None:
            self._body += chunk
            if len(self._body) > MAX_PREAMBLE_BYTES:
                self._give_up()
        else:
            self._begin(self._head + chunk, is_whole=False)

    def end(self) -> None:
        """No more bytes will come; decides."""
        if self._events is None and self._body is None and not self._is_given_up:
            self._begin(self._head, is_whole=True)
        if self._events is not None and not self.is_closed and not self._is_given_up:
            self._is_ending = True
            self._take(Events().feed(self._skimmed))
            self._look_at(self._events, self._unread)
            self._take(self._events.end())
        if self._body is not None and not self.is_decided:
            self._judge(bytes(self._body))
        if not self.is_decided:
            self.flaw = Flaw("not_json" if self.is_odd else "empty")

    def _begin(self, head: bytes, *, is_whole: bool) -> None:
        """By its first bytes it is JSON, a stream of events, or neither."""
        self._head = head
        start = head.removeprefix(codecs.BOM_UTF8).lstrip(_BLANK)
        if not start or start == codecs.BOM_UTF8[: len(start)]:
            return
        if start[:1] in b"{[":
            self.has_begun, self.is_stream = True, False
            self._body = bytearray()
        elif self.is_stream or may_begin_events(start[:6]):
            if len(start) < 6 and not self.is_stream and not is_whole:
                return
            self.is_stream = True
            self._events = Events()
            # Streams of sounds and transcripts have no closing event that all engines send.
            self.is_odd = self._endpoint in UNSIZED
        else:
            self.has_begun = self.is_odd = self._is_given_up = True
            # Sounds are bytes, and transcripts may be asked for as plain text.
            self.is_good = self._endpoint in UNSIZED
            self.flaw = None if self.is_good else Flaw("not_json")
            return
        self._head = b""
        self.feed(start)

    def _look_at(self, events: Events, chunk: bytes) -> None:
        was_decided = self.is_decided
        try:
            while chunk and not self.is_decided:
                event, chunk = _first_event(chunk)
                self._take(events.feed(event))
            if was_decided:
                self._take(events.feed(chunk))
            else:
                self._unread = chunk  # a burst: its first token does not wait for its last
        except TooLong:
            self._give_up()

    def _give_up(self) -> None:
        """Too long to be judged: nobody sends so much to say nothing."""
        self._body = None
        self.is_good = self.flaw is None
        self.is_odd = self._is_given_up = True

    def _take(self, found: Iterable[Event]) -> None:
        for event in found:
            if not self.is_closed and not _keeps_alive(event):
                self.has_begun = True
                self._weigh(event)

    def _weigh(self, event: Event) -> None:
        if event.data.strip() == _DONE:
            self.is_closed = True
            if not self.is_decided:
                self.flaw = Flaw("empty")
            return
        if event.data and not isinstance(event.value, dict) and event.name != "error":
            self.is_odd = self.is_odd or not self._is_ending
            return
        if isinstance(event.value, dict):
            number = event.value.get("sequence_number")
            if isinstance(number, int):
                self.sequence_number = max(self.sequence_number, number + 1)
        bringing = brings(self._endpoint, event.name, event.value)
        self.is_closed = bringing.is_end or bringing.error is not None
        if self.is_decided:
            return
        if bringing.error is not None:
            self.flaw = Flaw("error", bringing.error)
        elif bringing.has_content or bringing.is_answer:
            self.is_good = True
        elif bringing.is_end:
            self.flaw = Flaw("empty")

    def _judge(self, body: bytes) -> None:
        """A whole JSON answer."""
        value = decoded(body)
        if isinstance(value, list) and value:
            value = value[0]  # Google wraps its errors so
        if not isinstance(value, dict):
            self.flaw = Flaw("not_json")
            return
        bringing = body_brings(self._endpoint, value)
        if bringing.error is not None:
            self.flaw = Flaw("error", bringing.error)
        elif bringing.is_answer:
            self.is_good = True
        else:
            self.flaw = Flaw("empty")


def _first_event(chunk: bytes) -> tuple[bytes, bytes]:
    """`chunk` cut behind its first empty line."""
    for end in _ENDS:
        head, found, rest = chunk.partition(end)
        if found:
            return head + found, rest
    return chunk, b""


def _is_mere_content(chunk: bytes) -> bool:
    """Whether whole events can be read over: none of them can close the stream."""
    if not chunk.endswith(_ENDS):
        return False
    for mark in _MARKS:  # a loop: half the price of any(), on every chunk of every stream
        if mark in chunk:
            return False
    reasons = chunk.count(b"finish_reason")
    open_ones = chunk.count(b'finish_reason":null') + chunk.count(b'finish_reason": null')
    return reasons == open_ones


def _keeps_alive(event: Event) -> bool:
    kind = event.value.get("type") if isinstance(event.value, dict) else ""
    return event.name in _KEEP_ALIVE or (isinstance(kind, str) and kind in _KEEP_ALIVE)
