"""Keywords of all routes on one Aho-Corasick automaton, with the script-aware edge rule.

A keyword's edge that is a letter or digit of a spacing script must stand at a word's edge; a `*`
there opens it; edges in Han, kana, Hangul, Thai and symbol edges are always open. Costs one pass
over the text, however many keywords there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import ahocorasick

from turnout_rules.normalise import normalise
from turnout_rules.writing import ends_in_word, starts_in_word


class Keyword(NamedTuple):
    """A keyword ready to compare: its words, and which edges must stand at a word's edge."""

    words: str
    is_left_closed: bool
    is_right_closed: bool


def read_keyword(entry: str) -> Keyword:
    """The keyword an entry of `match` means; `words` is empty if nothing is left to look for."""
    text = entry.strip()
    opens_left = text.startswith("*")
    text = text.removeprefix("*")
    opens_right = text.endswith("*")
    words = normalise(text.removesuffix("*"))
    return Keyword(
        words,
        not opens_left and starts_in_word(words, 0),
        not opens_right and ends_in_word(words, len(words)),
    )


def stands_at_edges(keyword: Keyword, text: str, start: int, end: int) -> bool:
    """Whether the occurrence `text[start:end]` of `keyword` has word edges where it needs them."""
    if keyword.is_left_closed and start and ends_in_word(text, start):
        return False
    return not (keyword.is_right_closed and starts_in_word(text, end))


class Keywords:
    """The automaton. Give it (keyword, number) pairs; `find` tells the numbers that occur."""

    __slots__ = ("_automaton",)

    def __init__(self, keywords: Iterable[tuple[Keyword, int]]) -> None:
        """Build the automaton; keywords with the same words share one entry of it."""
        by_words: dict[str, list[tuple[int, bool, bool, int]]] = {}
        for keyword, number in keywords:
            variant = (
                len(keyword.words),
                keyword.is_left_closed,
                keyword.is_right_closed,
                number,
            )
            by_words.setdefault(keyword.words, []).append(variant)
        # None without keywords: an automaton that holds nothing cannot be asked.
        self._automaton: Any = None
        if by_words:
            self._automaton = ahocorasick.Automaton()
            for words, variants in by_words.items():
                self._automaton.add_word(words, tuple(variants))
            self._automaton.make_automaton()

    def find(self, text: str, found: set[int]) -> None:
        """Add the numbers of all keywords in `text` (normalised) to `found`."""
        if self._automaton is None:
            return
        for last, variants in self._automaton.iter(text):
            for length, is_left_closed, is_right_closed, number in variants:
                if number in found:
                    continue
                start = last + 1 - length
                if is_left_closed and start and ends_in_word(text, start):
                    continue
                if is_right_closed and starts_in_word(text, last + 1):
                    continue
                found.add(number)
