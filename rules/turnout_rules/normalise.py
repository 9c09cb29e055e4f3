"""One form for texts and patterns: NFKC, case folded, invisible characters out, spaces folded.

Both sides of every comparison go through here once, so width, case and stray spaces never decide a
route: a text, its capitals and its small letters have one form, in every language's own casing. So
i, I, dotted İ and dotless ı are one letter (Turkish and Azerbaijani writers and programs casing by
other rules meet), a Lithuanian dot kept under an accent is none, ς is σ, ß is ss. Accents count:
é is not e, and Greek capitals without their tonos are other words. Offsets do not map back to the
original text, and nothing here tries to.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

# Characters that show nothing and split words: soft hyphen, joiners, direction marks, variation
# selectors of emoji, tags. Lone surrogates cannot be encoded, so no pattern could see them either.
# All but the first three are unprintable to Python, which is what makes the quick look possible.
_VS16, _VS15, _JOINER = "\ufe0f", "\ufe0e", "\u034f"
_INVISIBLE = re.compile(
    "[\ufe0e\ufe0f\u034f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"
    "\ud800-\udfff\ufff0-\ufffb\U000e0001-\U000e007f]"
)
# What most texts need NFKC for. To look for one is nearly free; one of them left over sends the
# whole text through NFKC's slow path.
_COMMON_WIDTHS = tuple(
    (c, unicodedata.normalize("NFKC", c)) for c in "，！（）：？；～　．／％＋－…"
)
_COMMON_SPACES = ("\n", "\t", "\r")
_DOT_ABOVE = "\u0307"
_CIRCUMFLEX = "\u0342"  # of Greek
# Small letters whose dot is part of them (Soft_Dotted of Unicode's PropList), in NFKC.
_DOTTED = "ijįɉɨʝϳіјᶖḭị"
_normal_form = unicodedata.normalize
_is_normal_form = unicodedata.is_normalized


def normalise(text: str) -> str:
    """The form in which texts and patterns are compared; applying it twice changes nothing."""
    if text.isascii():
        return _fold_spaces(text.lower())
    is_printable = text.isprintable()
    if not is_printable or _VS16 in text or _VS15 in text or _JOINER in text:
        text = _INVISIBLE.sub("", text)
    text = _nfkc(text)
    # One is left over by NFKC behind a capital with iota; folding would put that between the two.
    parts = _normal_form("NFD", text) if _CIRCUMFLEX in text else text
    folded = parts.casefold()
    if folded != text:
        text = _normal_form("NFKC", folded)
    if "ı" in text or _DOT_ABOVE in text:
        text = _one_i(text)
    if not is_printable:
        return _fold_spaces(text)
    # NFKC and folding make nothing unprintable of what is printable: its only spaces are plain.
    while "  " in text:
        text = text.replace("  ", " ")
    return text.strip()


def _one_i(text: str) -> str:
    """Dotless and dotted i as one letter, and no second dot on what has one."""
    text = text.replace("ı", "i")
    for letter in _DOTTED:
        while (doubled := letter + _DOT_ABOVE) in text:
            text = text.replace(doubled, letter)
    return _normal_form("NFKC", text)


def _fold_spaces(text: str) -> str:
    """What `" ".join(text.split())` does, without building the words where that is dearer."""
    if text.isascii():
        is_folded = text.isprintable() and "  " not in text
        return text.strip() if is_folded else " ".join(text.split())
    for space in _COMMON_SPACES:
        if space in text:
            text = text.replace(space, " ")
    if not text.isprintable():
        return " ".join(text.split())
    while "  " in text:
        text = text.replace("  ", " ")
    return text.strip()


def _nfkc(text: str) -> str:
    """NFKC, without its slow path where only single characters have compatibility forms.

    Exact: NFKC depends on the full decomposition alone, and a character decomposes as its own NFKC
    form does.
    """
    if _is_normal_form("NFKC", text):
        return text
    for char, form in _COMMON_WIDTHS:
        if char in text:
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
