"""Server-sent events out of a stream of bytes, wherever it is cut. Pure and incremental.

More forgiving than the standard where servers are known to break it: an event counts as soon as its
first `data` line is a whole JSON value, so that a missing empty line joins nothing.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from sys import getsizeof
from typing import Any, NamedTuple

import msgspec

MAX_EVENT_BYTES = 4 * 1024 * 1024
"""A longer event is not read; images in pieces come near it."""
_decode = msgspec.json.Decoder().decode
_STARTS = (b"data:", b"event:", b"id:", b"retry:", b"error:", b":")


class Event(NamedTuple):
    """One event: its name (empty if none) and its data, decoded if it is JSON."""

    name: str
    data: bytes
    value: Any
    """The JSON value; None if the data is none."""


class TooLong(Exception):
    """An event is longer than `MAX_EVENT_BYTES`: what follows cannot be read either."""


def decoded(data: bytes) -> Any:
    """The JSON value of `data`, None if it is none."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def may_begin_events(head: bytes) -> bool:
    """Whether `head`, the first bytes of a body without a mark or white space, may be of events."""
    return any(head.startswith(start) or start.startswith(head) for start in _STARTS)


class Events:
    """The events of one stream. Comments, `id` and `retry` are read over."""

    __slots__ = (
        "_data",
        "_data_bytes",
        "_ends_in_cr",
        "_is_first",
        "_name",
        "_rest",
        "_rest_bytes",
    )

    def __init__(self) -> None:
        """Nothing has come."""
        self._rest: list[bytes] = []
        self._rest_bytes = 0
        self._ends_in_cr = False
        self._is_first = True
        self._name = ""
        self._data: list[bytes] = []
        self._data_bytes = 0

    @property
    def is_between(self) -> bool:
        """Whether what has come so far ends with the end of an event."""
        return not (self._rest_bytes or self._data or self._name or self._ends_in_cr)

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events that `chunk` completes; raises `TooLong`. To be read to its end."""
        if self._ends_in_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._ends_in_cr = False
        if not chunk:
            return
        self._ends_in_cr = chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        first, *lines = chunk.split(b"\n")
        self._rest.append(first)
        self._rest_bytes += len(first)
        for line in lines:
            whole = b"".join(self._rest)
            self._rest = [line]
            self._rest_bytes = len(line)
            yield from self._read(whole)
        if self._rest_bytes + self._data_bytes > MAX_EVENT_BYTES:
            raise TooLong

    def end(self) -> Iterator[Event]:
        """The event that stood without its empty line when the stream ended."""
        yield from self._read(b"".join(self._rest))
        yield from self._read(b"")

    def _read(self, line: bytes) -> Iterator[Event]:
        if self._is_first:
            self._is_first = False
            line = line.removeprefix(codecs.BOM_UTF8)
        if not line:
            if self._data:
                data = b"\n".join(self._data)
                yield Event(self._name, data, decoded(data))
            elif self._name:
                yield Event(self._name, b"", None)
            self._clear()
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"error":  # llama.cpp named its errors so before it sent them as data
            yield Event("error", value, decoded(value))
        elif field == b"data" and not self._data and (found := decoded(value)) is not None:
            yield Event(self._name, value, found)
            self._clear()
        elif field == b"data":
            self._data.append(value)
            self._data_bytes += getsizeof(value)  # short lines weigh more than they say

    def _clear(self) -> None:
        self._name = ""
        self._data = []
        self._data_bytes = 0
