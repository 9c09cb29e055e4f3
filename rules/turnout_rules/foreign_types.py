"""One fast look over raw JSON: does any `"type"` hold a value other than the common ones?

Bodies of agents hold hundreds of kilobytes of ordinary parts. A linear automaton over the bytes
tells in microseconds that nothing needs a closer look; a false alarm only costs that look. In valid
JSON the bytes `"type"` with bare quotes are a key or a value, never the inside of a string.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import re2

_Trie = dict[str, "_Trie"]
_END = ""


def unusual_type(usual: Iterable[str], markers: Iterable[str] = ()) -> re2._Regexp[bytes]:
    """Matches bytes with a `"type"` other than `usual`, or with any of the `markers` (keys)."""
    trie: _Trie = {}
    for word in usual:
        node = trie
        for character in word:
            node = node.setdefault(character, {})
        node[_END] = {}
    pattern = rf'"type"\s*:\s*"{_all_but(trie)}'
    keys = [rf'"{re.escape(marker)}"' for marker in markers]
    return re2.compile("|".join([pattern, *keys]).encode())


def _all_but(node: _Trie) -> str:
    """A pattern for what leaves the trie: RE2 has no look-ahead, but a finite set has a complement.

    It ends at the first character that no usual value has in this place.
    """
    letters = [letter for letter in node if letter != _END]
    stop = '"' if _END in node else ""
    known = "".join(re.escape(letter) for letter in letters) + stop
    leaving = f"[^{known}]" if known else r"[\s\S]"
    onward = [re.escape(letter) + _all_but(node[letter]) for letter in letters]
    return "(?:" + "|".join([leaving, *onward]) + ")"
