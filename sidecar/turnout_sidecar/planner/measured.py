"""What an engine was seen to hold, by its model's digest: the plan of a model that is a guess.

A small JSON file in the data folder. Reading and writing block; a file that is broken or cannot be
written costs the memory of it, nothing else.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from pathlib import Path

import msgspec

log = logging.getLogger(__name__)
MIB, GIB = 1 << 20, 1 << 30
_DIGESTED_BYTES = 4 * MIB
"""Of each file: a GGUF header with its vocabulary; whole files would take minutes."""
_KEPT = 256
_CACHES = ("KV", "RS")
_PARTS = (*_CACHES, "model", "compute", "output")


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One start: bytes on the device, and the settings that they were seen with."""

    total_bytes: int
    cache_bytes: int = 0
    """Of these, what grows with requests; 0: it was not told apart."""
    context: int
    requests: int


class Measurements:
    """The file of them."""

    def __init__(self, path: Path) -> None:
        """Nothing is read yet."""
        self._path = path

    def of(self, digest: str) -> Measured | None:
        """What was seen of these files."""
        return self._all().get(digest)

    def keep(self, digest: str, seen: Measured) -> None:
        """Replace what is known of these files."""
        known = self._all()
        known.pop(digest, None)
        known = dict(list(known.items())[-_KEPT:]) | {digest: seen}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            part = self._path.with_suffix(".part")
            part.write_bytes(msgspec.json.encode(known))
            part.replace(self._path)
        except OSError as error:
            log.warning("%s cannot be written: %s", self._path, error.strerror)

    def _all(self) -> dict[str, Measured]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, Measured])
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return {}


def digest_of(files: Iterable[Path]) -> str:
    """Of the beginnings and sizes of `files`; raises OSError. Blocks."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(str(path.stat().st_size).encode())
        with path.open("rb") as file:
            digest.update(file.read(_DIGESTED_BYTES))
    return digest.hexdigest()


def told(lines: Iterable[str], *, is_on_card: bool) -> tuple[int, int]:
    """(all bytes, bytes of caches) that llama.cpp's start-up lines name on the fullest device.

    `llama_kv_cache:      CUDA0 KV buffer size =   512.00 MiB`; (0, 0) where it printed none.
    """
    totals: dict[str, list[int]] = {}
    for line in lines:
        before, _, after = line.partition(" buffer size =")
        words = before.split()[-2:]
        size = int(_number(after) * MIB)
        if len(words) < 2 or words[1] not in _PARTS or not size:
            continue
        is_host = words[0].startswith("CPU") or words[0].endswith("_Host")
        if is_host == is_on_card:
            continue
        device = "" if is_host else words[0].partition("_")[0]
        entry = totals.setdefault(device, [0, 0])
        entry[0] += size
        entry[1] += size if words[1] in _CACHES else 0
    whole, caches = max(totals.values(), default=[0, 0])
    return whole, caches


def told_by_vllm(lines: Iterable[str]) -> tuple[int, int]:
    """(bytes of its cache, tokens that it holds) that vLLM's start-up lines name; 0: not told."""
    size = tokens = 0
    for line in lines:
        _, _, after = line.partition("vailable KV cache memory: ")
        if number := _number(after):
            size = int(number * GIB)
        _, _, after = line.partition("KV cache size: ")
        if after.endswith("tokens") and (number := _number(after.replace(",", ""))):
            tokens = int(number)
    return size, tokens


def _number(text: str) -> float:
    """The number that `text` begins with; 0: none."""
    first = text.split()[:1]
    return float(first[0]) if first and first[0].replace(".", "", 1).isdecimal() else 0.0
