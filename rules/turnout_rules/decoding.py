"""Undoes a body's `content-encoding` under a hard limit, so that a small bomb stays small.

Knows gzip, deflate (both kinds) and zstd, and br where the installed decoder can be bounded. Never
returns more than the limit, never holds much more than it in memory.
"""

from __future__ import annotations

import importlib
import sys
import zlib
from typing import Any, Protocol

from turnout_rules.unreadable import TooLarge, Unreadable

_zstd: Any = importlib.import_module(
    "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
)

# A body of thousands of tiny frames is no client's work; each costs a decoder and a copy.
_MAX_FRAMES = 64
# Encoders use windows of 8 MiB for small bodies too.
_MIN_WINDOW_LOG = 23
_MAX_WINDOW_LOG = 27


def decode_body(body: bytes, encoding: str, limit: int) -> bytes:
    """`body` without its `content-encoding`; `Unreadable` for what is broken or too large."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return _within(body, limit)
    if "," in name:
        raise Unreadable("more than one content-encoding")
    decode = _DECODERS.get(name)
    if decode is None:
        raise Unreadable(f"content-encoding {name[:20]!r} is not one that can be read")
    _within(body, limit)
    return _within(decode(body, limit), limit)


def _within(body: bytes, limit: int) -> bytes:
    if len(body) > limit:
        raise TooLarge(limit)
    return body


def _gzip(body: bytes, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    for _ in range(_MAX_FRAMES):
        part, body = _inflate(body, limit - size, 16 + zlib.MAX_WBITS)
        parts.append(part)
        size += len(part)
        if not body:
            return b"".join(parts)
    raise Unreadable("gzip body of too many members")


def _deflate(body: bytes, limit: int) -> bytes:
    try:
        decoded, rest = _inflate(body, limit, zlib.MAX_WBITS)
    except _BrokenStreamError:
        # Some clients send the bare stream without zlib's header.
        decoded, rest = _inflate(body, limit, -zlib.MAX_WBITS)
    if rest:
        raise Unreadable("deflate body with bytes after its end")
    return decoded


class _BrokenStreamError(Unreadable):
    """Not this kind of compressed stream."""


def _inflate(body: bytes, limit: int, window_bits: int) -> tuple[bytes, bytes]:
    decoder = zlib.decompressobj(window_bits)
    try:
        decoded = decoder.decompress(body, limit + 1)
    except zlib.error as error:
        raise _BrokenStreamError("body is not what its content-encoding says") from error
    _within(decoded, limit)
    if not decoder.eof:
        raise Unreadable("compressed body is cut short")
    return decoded, decoder.unused_data


def _zstandard(body: bytes, limit: int) -> bytes:
    window_log = max(_MIN_WINDOW_LOG, min(_MAX_WINDOW_LOG, limit.bit_length()))
    options = {_zstd.DecompressionParameter.window_log_max: window_log}
    parts: list[bytes] = []
    size = 0
    for _ in range(_MAX_FRAMES):
        decoder = _zstd.ZstdDecompressor(options=options)
        try:
            part: bytes = decoder.decompress(body, limit - size + 1)
        except _zstd.ZstdError as error:
            raise Unreadable("body is not what its content-encoding says") from error
        parts.append(part)
        size += len(part)
        if size > limit:
            raise TooLarge(limit)
        if not decoder.eof:
            raise Unreadable("compressed body is cut short")
        body = decoder.unused_data
        if not body:
            return b"".join(parts)
    raise Unreadable("zstd body of too many frames")


def _brotli(body: bytes, limit: int) -> bytes:
    if _brotli_module is None:
        raise Unreadable("content-encoding 'br': no decoder that can be bounded is installed")
    decoder = _brotli_module.Decompressor()
    parts: list[bytes] = []
    size = 0
    try:
        part: bytes = decoder.process(body, output_buffer_limit=limit + 1)
        while part:
            parts.append(part)
            size += len(part)
            if size > limit:
                raise TooLarge(limit)
            if decoder.is_finished() or decoder.can_accept_more_data():
                break
            part = decoder.process(b"", output_buffer_limit=limit + 1)
    except _brotli_module.error as error:
        raise Unreadable("body is not what its content-encoding says") from error
    if not decoder.is_finished():
        raise Unreadable("compressed body is cut short")
    return b"".join(parts)


def _bounded_brotli() -> Any:
    """The `brotli` module if it is there and can be told how much to put out, else None."""
    try:
        module: Any = importlib.import_module("brotli")
        module.Decompressor().process(b"", output_buffer_limit=1)
    except (ImportError, AttributeError, TypeError):
        return None
    return module


class _Decode(Protocol):
    def __call__(self, body: bytes, limit: int) -> bytes: ...


_brotli_module = _bounded_brotli()
_DECODERS: dict[str, _Decode] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "zstd": _zstandard,
    "br": _brotli,
}
