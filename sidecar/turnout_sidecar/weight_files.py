"""Whether a file of weights is whole: its beginning is read, and its length compared with it.

GGUF is llama.cpp's (ggml, docs/gguf.md), safetensors is Hugging Face's (safetensors, README). Reads
no weights. Knows nothing of engines.
"""

from __future__ import annotations

import json
import math
import mmap
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

_BLOCKS: Mapping[int, tuple[int, int]] = {
    0: (1, 4),
    1: (1, 2),
    2: (32, 18),
    3: (32, 20),
    6: (32, 22),
    7: (32, 24),
    8: (32, 34),
    9: (32, 36),
    10: (256, 84),
    11: (256, 110),
    12: (256, 144),
    13: (256, 176),
    14: (256, 210),
    15: (256, 292),
    16: (256, 66),
    17: (256, 74),
    18: (256, 98),
    19: (256, 50),
    20: (32, 18),
    21: (256, 110),
    22: (256, 82),
    23: (256, 136),
    24: (1, 1),
    25: (1, 2),
    26: (1, 4),
    27: (1, 8),
    28: (1, 8),
    29: (256, 56),
    30: (1, 2),
    34: (256, 54),
    35: (256, 66),
    39: (32, 17),
}
"""Tensor type to (weights a block, bytes a block): `GGML_QUANT_SIZES` of llama.cpp's gguf-py."""
_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY, _UINT32 = 8, 9, 4
_MOST_TENSORS = 1 << 20
_MOST_HEADER_BYTES = 100 << 20
"""Longer safetensors headers are refused by the library itself."""
_STRANGERS = (
    (b"version https://git-lfs", "is a Git LFS pointer, not the file itself: run `git lfs pull`"),
    (b"<!DOCTYPE", "is a web page: the download was refused"),
    (b"<html", "is a web page: the download was refused"),
    (b"<?xml", "is an XML answer: the download was refused"),
    (b'{"', "is a JSON text: the download was refused"),
    (b"Entry not found", "is an error text: the download was refused"),
    (b"PK\x03\x04", "is a zip or pickle archive"),
    (b"FUGG", "was written for big-endian machines"),
    (b"tjgg", "is of a format older than GGUF; convert it"),
    (b"fmgg", "is of a format older than GGUF; convert it"),
    (b"lmgg", "is of a format older than GGUF; convert it"),
)


class BrokenFile(Exception):
    """The file is no whole file of weights; the message goes after its name."""


class GgufSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What of a GGUF file decides whether it can be started as a model."""

    texts: dict[str, str]
    """Its `general.…` entries that are texts."""
    tensors: int


def look_at_gguf(path: Path) -> GgufSummary:
    """Raises `BrokenFile` or OSError."""
    _check_beginning(path, b"GGUF", "no GGUF file")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            return _Gguf(data).summary()
        except (struct.error, IndexError):
            raise BrokenFile("is cut short: it ends in the middle of its header") from None


def look_at_safetensors(path: Path) -> None:
    """Raises `BrokenFile` or OSError."""
    size = path.stat().st_size
    _check_beginning(path, b"", "")
    with path.open("rb") as file:
        beginning = file.read(8)
        length = int.from_bytes(beginning, "little")
        if len(beginning) < 8 or not 2 <= length <= _MOST_HEADER_BYTES:
            raise BrokenFile("is no safetensors file")
        header = file.read(length)
    if len(header) < length:
        raise BrokenFile("is cut short: it ends in the middle of its header")
    try:
        tensors = json.loads(header)
        ends = [t["data_offsets"][1] for name, t in tensors.items() if name != "__metadata__"]
        whole = 8 + length + max(ends, default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        raise BrokenFile("is no safetensors file") from None
    if size < whole:
        raise BrokenFile(_cut_short(size, whole))


def check_not_a_stranger(path: Path) -> None:
    """Raises `BrokenFile` for what is plainly something else (or nothing), whatever it is for."""
    _check_beginning(path, b"", "")


def _check_beginning(path: Path, magic: bytes, otherwise: str) -> None:
    with path.open("rb") as file:
        found = file.read(32)
    if not found:
        raise BrokenFile("is empty")
    for beginning, what in _STRANGERS:
        if found.startswith(beginning):
            raise BrokenFile(what)
    if not found.startswith(magic):
        raise BrokenFile(f"is {otherwise}")


def _cut_short(size: int, whole: int) -> str:
    return f"is cut short: {size:,} of {whole:,} bytes are here; fetch it again"


class _Gguf:
    """A walk through one file's header."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 4

    def summary(self) -> GgufSummary:
        """All of the header, and whether what it promises is there."""
        version = self._number("<I")
        if version not in (2, 3):
            raise BrokenFile(f"is GGUF of the unknown version {version}")
        tensors, pairs = self._number("<Q"), self._number("<Q")
        if tensors > _MOST_TENSORS:
            raise BrokenFile(f"has a broken header ({tensors} tensors)")
        texts: dict[str, str] = {}
        alignment = 32
        for _ in range(pairs):
            key, kind = self._text(), self._number("<I")
            if kind == _STRING and key.startswith("general."):
                texts[key] = self._text()
            elif kind == _UINT32 and key == "general.alignment":
                alignment = max(1, self._number("<I"))
            else:
                self._skip_value(kind)
        self._check_extent(tensors, alignment)
        return GgufSummary(texts=texts, tensors=tensors)

    def _check_extent(self, tensors: int, alignment: int) -> None:
        end = 0
        for _ in range(tensors):
            self._text()
            dimensions = [self._number("<Q") for _ in range(min(self._number("<I"), 16))]
            block, size = _BLOCKS.get(self._number("<I"), (1, 0))
            offset = self._number("<Q")
            end = max(end, offset + math.prod(dimensions) // block * size)
        whole = -(-self._at // alignment) * alignment + end
        if tensors and len(self._data) < whole:
            raise BrokenFile(_cut_short(len(self._data), whole))

    def _skip_value(self, kind: int) -> None:
        if kind == _STRING:
            self._text()
        elif kind == _ARRAY:
            inner, count = self._number("<I"), self._number("<Q")
            if inner in _SCALAR_BYTES:
                self._skip(_SCALAR_BYTES[inner] * count)
                return
            for _ in range(count):
                self._skip_value(inner)
        elif kind in _SCALAR_BYTES:
            self._skip(_SCALAR_BYTES[kind])
        else:
            raise BrokenFile(f"has a broken header (value type {kind})")

    def _number(self, form: str) -> int:
        value: int = struct.unpack_from(form, self._data, self._at)[0]
        self._at += struct.calcsize(form)
        return value

    def _text(self) -> str:
        length = self._number("<Q")
        begin = self._at
        self._skip(length)
        return str(self._data[begin : begin + min(length, 256)], "utf-8", "replace")

    def _skip(self, count: int) -> None:
        self._at += count
        if self._at > len(self._data):
            raise IndexError


def parse_json(path: Path) -> dict[str, Any] | None:
    """A small JSON object; None where there is no such file. Raises `BrokenFile` or OSError."""
    try:
        if path.stat().st_size > _MOST_HEADER_BYTES:
            raise BrokenFile("is too large")
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        raise BrokenFile("is no JSON, or cut short") from None
    if not isinstance(value, dict):
        raise BrokenFile("holds no object")
    return value
