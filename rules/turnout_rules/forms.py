"""Bodies of type `multipart/form-data`: which fields they have, and the same body with others.

Audio and image edits come so (RFC 7578). Files are never looked into; every byte that is not a
field's new value stays as it was. A form that is not plain (fields twice, encoded parts, bare line
feeds) is not read, so it passes untouched.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from turnout_rules.splicing import Fields
from turnout_rules.unreadable import Unreadable

MEDIA_TYPE = "multipart/form-data"
_MAX_PARTS = 128
_MAX_HEAD_BYTES = 4 * 1024
_MAX_VALUE_BYTES = 256 * 1024
_BOUNDARY = re.compile(r""";\s*boundary=(?:"([^"\\]{1,70})"|([^\s;"]{1,70}))""", re.IGNORECASE)
_DISPOSITION = re.compile(
    rb'^content-disposition:[ \t]*form-data\b[^\r\n]*?;[ \t]*name="([^"\\\r\n]*)"', re.I | re.M
)
_FILE = re.compile(rb"^content-disposition:[^\r\n]*;[ \t]*filename\*?=", re.I | re.M)
_ENCODED = re.compile(rb"^content-transfer-encoding:[ \t]*(?!7bit|8bit|binary)", re.I | re.M)
_FLAGS = {"true": b"true", "false": b"false"}


class Part(msgspec.Struct, frozen=True):
    """One part, from its delimiter's first dash to the line break before the next delimiter."""

    name: str
    start: int
    value_start: int
    end: int
    is_file: bool


class Form(msgspec.Struct, frozen=True):
    """The parts of a body, in order."""

    delimiter: bytes
    parts: tuple[Part, ...]

    def fields(self, body: bytes) -> Fields:
        """Its text fields as JSON values, `true` and `false` as such; `Unreadable` if one is not.

        Fields that are no UTF-8 or very long are left out.
        """
        found: Fields = {}
        for part in self.parts:
            if part.is_file or part.end - part.value_start > _MAX_VALUE_BYTES:
                continue
            try:
                text = body[part.value_start : part.end].decode()
            except UnicodeDecodeError:
                continue
            found[part.name] = msgspec.Raw(_FLAGS.get(text) or msgspec.json.encode(text))
        return found

    def changed(self, body: bytes, changes: Mapping[str, bytes | None]) -> bytes:
        """`body` with fields written (JSON values, as text) or dropped (None)."""
        out, position, written = [], 0, set()
        for part in self.parts:
            if part.name not in changes or part.is_file:
                continue
            written.add(part.name)
            value = changes[part.name]
            if value is None:
                out.append(body[position : part.start])
                position = part.end + len(b"\r\n")
                continue
            out += [body[position : part.value_start], _as_text(value)]
            position = part.end
        end = self.parts[-1].end + len(b"\r\n")
        out.append(body[position:end])
        for name, value in changes.items():
            if value is not None and name not in written:
                out.append(self._part(name, _as_text(value)))
        out.append(body[end:])
        return b"".join(out)

    def _part(self, name: str, value: bytes) -> bytes:
        quoted = name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
        head = f'Content-Disposition: form-data; name="{quoted}"'.encode()
        return b"\r\n".join((self.delimiter, head, b"", value, b""))


def read_form(body: bytes, content_type: str) -> Form:
    """The parts of `body`; `Unreadable` says why there are none."""
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise Unreadable("the form names no boundary")
    delimiter = b"--" + (found[1] or found[2]).encode()
    if not body.startswith(delimiter + b"\r\n"):
        raise Unreadable("the form does not begin with its boundary")
    parts: list[Part] = []
    position = 0
    while not body.startswith(b"--", after := position + len(delimiter)):
        if not body.startswith(b"\r\n", after) or len(parts) == _MAX_PARTS:
            raise Unreadable("the form has lines that are no parts, or too many of them")
        part = _read_part(body, position, after + 2, b"\r\n" + delimiter)
        if any(part.name == other.name for other in parts if not part.is_file):
            raise Unreadable(f"the form has `{part.name[:40]}` twice")
        parts.append(part)
        position = part.end + 2
    if not parts:
        raise Unreadable("the form is empty")
    return Form(delimiter, tuple(parts))


def _read_part(body: bytes, start: int, head_start: int, delimiter: bytes) -> Part:
    head_end = body.find(b"\r\n\r\n", head_start, head_start + _MAX_HEAD_BYTES)
    if head_end < 0:
        raise Unreadable("a part of the form has no end of its head")
    end = body.find(delimiter, head_end + 2)
    if end < head_end + 4:
        raise Unreadable("the form ends in the middle of a part")
    head = body[head_start:head_end]
    named = _DISPOSITION.search(head)
    if named is None or _ENCODED.search(head):
        raise Unreadable("a part of the form has no plain name, or an encoding of its own")
    name = named[1].decode("utf-8", "replace")
    return Part(name, start, head_end + 4, end, _FILE.search(head) is not None)


def _as_text(value: bytes) -> bytes:
    decoded = msgspec.json.decode(value)
    return decoded.encode() if isinstance(decoded, str) else value
