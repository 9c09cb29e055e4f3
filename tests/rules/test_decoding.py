"""Content encodings, undone under a limit."""

from __future__ import annotations

import gzip
import zlib

import brotli
import pytest

from turnout_rules import decoding
from turnout_rules.decoding import decode_body
from turnout_rules.unreadable import Unreadable

zstd = decoding._zstd
BODY = b'{"model": "m", "messages": []}' * 20


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


ENCODED = {
    "": lambda data: data,
    "identity": lambda data: data,
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "GZip ": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
    "br": brotli.compress,
}


@pytest.mark.parametrize("encoding", ENCODED)
def test_a_body_is_decoded(encoding: str) -> None:
    assert decode_body(ENCODED[encoding](BODY), encoding, 10_000) == BODY


def test_deflate_without_a_header_is_decoded() -> None:
    assert decode_body(raw_deflate(BODY), "deflate", 10_000) == BODY


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_body_of_several_frames_is_decoded(encoding: str) -> None:
    encode = ENCODED[encoding]
    assert decode_body(encode(BODY) + encode(BODY), encoding, 10_000) == BODY + BODY


@pytest.mark.parametrize("encoding", [e for e in ENCODED if e not in ("", "identity")])
def test_a_bomb_is_refused_at_the_limit(encoding: str) -> None:
    bomb = ENCODED[encoding](b"\0" * 20_000_000)
    with pytest.raises(Unreadable, match="larger than"):
        decode_body(bomb, encoding, 100_000)


@pytest.mark.parametrize("encoding", [e for e in ENCODED if e not in ("", "identity")])
def test_a_body_that_is_cut_short_is_refused(encoding: str) -> None:
    with pytest.raises(Unreadable):
        decode_body(ENCODED[encoding](BODY)[:-6], encoding, 10_000)


@pytest.mark.parametrize("encoding", [e for e in ENCODED if e not in ("", "identity")])
def test_a_body_that_is_not_what_it_says_is_refused(encoding: str) -> None:
    with pytest.raises(Unreadable, match=r"content-encoding|cut short"):
        decode_body(BODY, encoding, 10_000)


def test_many_tiny_frames_do_not_stall() -> None:
    with pytest.raises(Unreadable, match="too many"):
        decode_body(gzip.compress(b"") * 50_000, "gzip", 10_000_000)
    with pytest.raises(Unreadable, match="too many"):
        decode_body(zstd.compress(b"") * 50_000, "zstd", 10_000_000)


@pytest.mark.parametrize("encoding", ["gzip, zstd", "compress", "base64", "gzip,gzip"])
def test_other_encodings_are_refused_with_a_reason(encoding: str) -> None:
    with pytest.raises(Unreadable, match="content-encoding"):
        decode_body(BODY, encoding, 10_000)


def test_a_body_over_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(Unreadable, match="larger than 100 bytes"):
        decode_body(b"x" * 101, "", 100)


def test_br_passes_where_no_bounded_decoder_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "_brotli_module", None)
    with pytest.raises(Unreadable, match="no decoder that can be bounded"):
        decode_body(brotli.compress(BODY), "br", 10_000)
