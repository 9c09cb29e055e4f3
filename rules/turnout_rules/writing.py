"""How scripts write words: which characters belong to a spaced word, and where a word has an edge.

Knows nothing of routes. The rule is the same for patterns and for texts, which is what makes a
keyword at the edge of another one comparable.
"""

from __future__ import annotations

import unicodedata

# Scripts that put no spaces between words (Han, kana, Hangul, Thai and their like): any place in
# them may be a word's edge. Blocks as ranges; what is missing here counts as spaced.
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x0F00, 0x0FFF),  # Tibetan
    (0x1000, 0x109F),  # Myanmar
    (0x1100, 0x11FF),  # Hangul Jamo
    (0x1780, 0x17FF),  # Khmer
    (0x1950, 0x19DF),  # Tai Le, New Tai Lue
    (0x1A20, 0x1AAF),  # Tai Tham
    (0x1B00, 0x1B7F),  # Balinese
    (0x2E80, 0x2FDF),  # CJK and Kangxi radicals
    (0x3005, 0x3007),  # ideographic iteration mark, zero
    (0x3021, 0x303C),  # Hangzhou numerals, kana and Hangul tone marks
    (0x3040, 0x31FF),  # kana, Bopomofo, Hangul compatibility, kana extensions
    (0x3400, 0x4DBF),  # Han extension A
    (0x4E00, 0x9FFF),  # Han
    (0xA000, 0xA4CF),  # Yi
    (0xA960, 0xA97F),  # Hangul Jamo extended A
    (0xA980, 0xA9DF),  # Javanese
    (0xA9E0, 0xA9FF),  # Myanmar extended B
    (0xAA60, 0xAADF),  # Myanmar extended A, Tai Viet
    (0xAC00, 0xD7FF),  # Hangul syllables, Jamo extended B
    (0xF900, 0xFAFF),  # Han compatibility
    (0xFF65, 0xFFDC),  # half-width kana and Hangul
    (0x1AFF0, 0x1B2FF),  # kana supplements, Nushu
    (0x20000, 0x3FFFF),  # Han extensions
)


def is_spaced_letter(char: str) -> bool:
    """Whether `char` is a letter, digit or mark of a script that spaces its words."""
    if char.isascii():
        return char.isalnum()
    if unicodedata.category(char)[0] not in "LNM":
        return False
    code = ord(char)
    return not any(first <= code <= last for first, last in _UNSPACED)


def is_mark(char: str) -> bool:
    """Whether `char` is a combining mark: it belongs to the letter before it."""
    return unicodedata.category(char)[0] == "M"


class _Spaced(dict[str, bool]):
    """`is_spaced_letter`, remembered; there are at most as many entries as characters."""

    def __missing__(self, char: str) -> bool:
        found = self[char] = is_spaced_letter(char)
        return found


SPACED = _Spaced()


def ends_in_word(text: str, end: int) -> bool:
    """Whether the last letter of `text[:end]` is a spaced one; marks count as their letter."""
    at = end - 1
    while at > 0 and not text[at].isascii() and is_mark(text[at]):
        at -= 1
    return at >= 0 and SPACED[text[at]]


def starts_in_word(text: str, start: int) -> bool:
    """Whether `text[start:]` begins with a spaced letter or a mark that continues one."""
    return start < len(text) and SPACED[text[start]]
