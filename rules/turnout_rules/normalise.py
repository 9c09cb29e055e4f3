"""One form for texts and patterns: NFKC, case folded, invisible characters out, spaces folded.

Both sides of every comparison go through here once, so width, case and stray spaces never decide a
route. Offsets do not map back to the original text, and nothing here tries to.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

# Characters that show nothing and split words: soft hyphen, joiners, direction marks, variation
# selectors, tags. Lone surrogates cannot be encoded, so no pattern could look at them either.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\ud800-\udfff\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
_find_invisible = _INVISIBLE.search
# What most texts need NFKC for. `replace` on an absent character is nearly free; one of them left
# over sends the whole text through NFKC's slow path.
_COMMON_WIDTHS = tuple(
    (c, unicodedata.normalize("NFKC", c)) for c in "，！（）：？；～　．／％＋－…"
)
_normal_form = unicodedata.normalize
_is_normal_form = unicodedata.is_normalized


def normalise(text: str) -> str:
    """The form in which texts and patterns are compared; applying it twice changes nothing."""
    if text.isascii():
        return " ".join(text.lower().split())
    if _find_invisible(text):
        text = _INVISIBLE.sub("", text)
    text = _nfkc(text)
    folded = text.casefold()
    if folded != text:
        folded = _normal_form("NFKC", folded)
    return " ".join(folded.split())


def _nfkc(text: str) -> str:
    """NFKC, without its slow path where only single characters have compatibility forms.

    Exact: NFKC depends on the full decomposition alone, and a character decomposes as its own NFKC
    form does.
    """
    if _is_normal_form("NFKC", text):
        return text
    for char, form in _COMMON_WIDTHS:
        text = text.replace(char, form)
    if _is_normal_form("NFKC", text):
        return text
    for char in set(text):
        if (form := _form_of(char)) != char:
            text = text.replace(char, form)
    return _normal_form("NFKC", text)


@cache
def _form_of(char: str) -> str:
    return _normal_form("NFKC", char)
