"""Finds the top-level fields of a JSON body and replaces some of them, byte for byte the rest.

A body is first decoded into its raw values; `locate` then walks the bytes and proves for every
value where it stands, which also finds duplicate keys. Nothing is ever serialised again but new
values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from turnout_rules.unreadable import Unreadable

_KEY = re.compile(rb'\s*[{,]\s*("[^"\\]*(?:\\.[^"\\]*)*")\s*:\s*', re.DOTALL)
_END = re.compile(rb"\s*\}\s*\Z")

Fields = dict[str, msgspec.Raw]
Span = tuple[int, int, int]
"""Where a field stands: its key's first byte, its value's first byte, the byte after its value."""


def locate(body: bytes, fields: Mapping[str, msgspec.Raw]) -> list[Span]:
    """(key, value start, value end) of each field, in order; `Unreadable` for duplicate keys.

    `fields` must be `body` decoded: the body is then known to be JSON. Each value found is compared
    with the decoded one (a memory compare), so the walk cannot go astray; decoders keep the last of
    two equal keys, so with duplicates a value differs or bytes are left at the end.
    """
    spans: list[Span] = []
    position = 0
    match_key = _KEY.match
    for raw in fields.values():
        found = match_key(body, position)
        if found is None:
            raise Unreadable("duplicate key in the body")
        start = found.end()
        if not body.startswith(raw, start):
            raise Unreadable("duplicate key in the body")
        position = start + len(raw)
        spans.append((found.start(1), start, position))
    closes_here = position == len(body) - 1  # one byte is left: the object's `}`
    if fields and not closes_here and _END.match(body, position) is None:
        raise Unreadable("duplicate key in the body")
    return spans


def splice(
    body: bytes,
    fields: Mapping[str, msgspec.Raw],
    changes: Mapping[str, bytes | None],
    spans: list[Span] | None = None,
) -> bytes:
    """`body` with top-level fields written (JSON bytes) or dropped (None), all else as it was.

    New fields are put at the front, so that long tails stay where caches know them.
    """
    if not changes:
        return body
    places = spans if spans is not None else locate(body, fields)
    kept = [
        (name, place)
        for name, place in zip(fields, places, strict=True)
        if not _drops(name, changes)
    ]
    new = [(name, value) for name, value in changes.items() if value is not None]
    added = [(name, value) for name, value in new if name not in fields]
    if len(kept) == len(places):
        return _replace(body, kept, changes, added)
    return _rebuild(body, places, kept, changes, added)


def splice_one(
    body: bytes, fields: Mapping[str, msgspec.Raw], name: str, value: bytes, spans: list[Span]
) -> bytes:
    """`splice` where just one field, which is there, gets a new value: the usual case, cheap."""
    for field, (_, start, end) in zip(fields, spans, strict=True):
        if field == name:
            view = memoryview(body)
            return b"".join((view[:start], value, view[end:]))
    raise KeyError(name)


def _drops(name: str, changes: Mapping[str, bytes | None]) -> bool:
    return name in changes and changes[name] is None


def _replace(
    body: bytes,
    kept: list[tuple[str, Span]],
    changes: Mapping[str, bytes | None],
    added: list[tuple[str, bytes]],
) -> bytes:
    # Views, because a slice of a large body would be copied once more.
    view = memoryview(body)
    position = body.index(b"{") + 1
    pieces: list[bytes | memoryview] = [view[:position]]
    if added:
        pieces.append(b",".join(_pair(name, value) for name, value in added))
        pieces.append(b"," if kept else b"")
    for name, (_, start, end) in kept:
        value = changes.get(name)
        if value is not None:
            pieces += (view[position:start], value)
            position = end
    pieces.append(view[position:])
    return b"".join(pieces)


def _rebuild(
    body: bytes,
    places: list[Span],
    kept: list[tuple[str, Span]],
    changes: Mapping[str, bytes | None],
    added: list[tuple[str, bytes]],
) -> bytes:
    """The case with dropped fields: kept `"key": value` pieces with the separators before them."""
    opening = body[: places[0][0]]
    pieces: list[bytes] = [opening]
    pieces.append(b",".join(_pair(name, value) for name, value in added))
    is_first = not added
    ends = dict(zip(places[1:], places, strict=False))
    for name, place in kept:
        key, start, end = place
        if not is_first:
            before = ends.get(place)
            pieces.append(body[before[2] : key] if before is not None else b",")
        value = changes.get(name)
        pieces.append(body[key:start])
        pieces.append(body[start:end] if value is None else value)
        is_first = False
    pieces.append(body[places[-1][2] :])
    return b"".join(pieces)


def _pair(name: str, value: bytes) -> bytes:
    return msgspec.json.encode(name) + b":" + value
