"""Verdicts of texts seen lately: the same text again costs a dictionary look-up.

Keyed by a digest of the normalised text and the state it was judged under, so no text is kept and
no verdict outlives its table.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b

from turnout_rules.decision import Verdict
from turnout_rules.normalise import normalise


class VerdictCache:
    """A least-recently-used map with at most `size` entries; 0 keeps nothing."""

    def __init__(self, size: int) -> None:
        """Empty."""
        self._size = size
        self._entries: OrderedDict[bytes, Verdict] = OrderedDict()
        self.hits = 0
        self.misses = 0

    def key(self, text: str, state: str) -> bytes:
        """The key of `text` under `state`."""
        plain = normalise(text).encode("utf-8", "surrogatepass")
        under = blake2b(state.encode("utf-8", "surrogatepass"), digest_size=32).digest()
        return blake2b(plain, digest_size=16, key=under).digest()

    def get(self, key: bytes) -> Verdict | None:
        """The verdict kept under `key`, freshened."""
        verdict = self._entries.get(key)
        if verdict is None:
            self.misses += 1
            return None
        self.hits += 1
        self._entries.move_to_end(key)
        return verdict

    def put(self, key: bytes, verdict: Verdict) -> None:
        """Keep `verdict`, dropping the one unused longest if there is no room."""
        if self._size <= 0:
            return
        self._entries[key] = verdict
        self._entries.move_to_end(key)
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)
