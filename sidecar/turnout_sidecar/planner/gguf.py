"""The header of a GGUF file: what model it is and how its attention is shaped. Reads no tensor.

The format is llama.cpp's (ggml, docs/gguf.md): magic, version, counts, then typed key-value pairs.
Every length in the file is checked against a limit before it is believed.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_SCALARS = {
    **dict(enumerate("BbHhIif?")),
    **dict(enumerate("Qqd", 10)),
}
_STRING, _ARRAY = 8, 9
_MAX_PAIRS = 65_536
_MAX_STRING = 16 << 20
_MAX_ARRAY = 16 << 20
_KEPT_ARRAY = 4_096
"""Longer arrays (vocabularies) are skipped; only their length is kept."""


class GgufError(Exception):
    """No usable GGUF header; the message says why."""


def read_header(path: Path) -> dict[str, Any]:
    """Keys to values of the header; long arrays become their length. Raises GgufError, OSError."""
    with path.open("rb") as file:
        magic, version = file.read(4), _number(file, "I")
        if magic != _MAGIC:
            raise GgufError("it is no GGUF file")
        if version not in _VERSIONS:
            raise GgufError(f"GGUF version {version} is not known")
        _number(file, "Q")
        pairs = _number(file, "Q")
        if pairs > _MAX_PAIRS:
            raise GgufError(f"its header claims {pairs} entries")
        found: dict[str, Any] = {}
        for _ in range(pairs):
            key = _string(file)
            found[key] = _value(file, _number(file, "I"))
        return found


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _string(file)
    if kind != _ARRAY:
        return _number(file, _scalar(kind))
    inner, count = _number(file, "I"), _number(file, "Q")
    if count > _MAX_ARRAY:
        raise GgufError(f"its header claims an array of {count} values")
    if inner == _STRING:
        for _ in range(count):
            _skip(file, _length(file))
        return count
    form = _scalar(inner)
    if count > _KEPT_ARRAY:
        _skip(file, count * struct.calcsize("<" + form))
        return count
    return [_number(file, form) for _ in range(count)]


def _scalar(kind: int) -> str:
    if kind not in _SCALARS:
        raise GgufError(f"its header holds a value of the unknown type {kind}")
    return _SCALARS[kind]


def _number(file: BinaryIO, form: str) -> Any:
    size = struct.calcsize("<" + form)
    return struct.unpack("<" + form, _exactly(file, size))[0]


def _string(file: BinaryIO) -> str:
    return _exactly(file, _length(file)).decode("utf-8", "replace")


def _length(file: BinaryIO) -> int:
    length: int = _number(file, "Q")
    if length > _MAX_STRING:
        raise GgufError(f"its header claims a text of {length} bytes")
    return length


def _skip(file: BinaryIO, size: int) -> None:
    # Reading is as quick as seeking for the few bytes of a token, and notices a file cut short.
    _exactly(file, size)


def _exactly(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise GgufError("it ends in the middle of its header")
    return data
