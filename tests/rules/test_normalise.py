"""Texts and patterns are compared in one form, whatever width, case and spaces they come in."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout_rules.normalise import normalise


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("翻译 ", "翻译"),
        ("\t 翻译\n", "翻译"),
        ("ＡＢＣ　ｄｅｆ", "abc def"),
        ("ｶﾞｷﾞ", "ガギ"),
        ("谢谢！（好）", "谢谢!(好)"),
        ("Straße", "strasse"),
        ("CAFE\u0301", "café"),
        ("ΣΊΣΥΦΟΣ", "σίσυφοσ"),
        ("ПРИВЕТ", "привет"),
        ("a\u00a0 b\r\n\tc", "a b c"),
        ("de\u200bbug", "debug"),
        ("de\u00adbug", "debug"),
        ("\ufeffdebug", "debug"),
        ("❤\ufe0f", "❤"),
        ("ﬁle ①", "file 1"),
        ("한글", "한글"),
        ("lone \ud800 surrogate", "lone surrogate"),
        ("İSTANBUL", "istanbul"),
        ("i\u0307stanbul", "istanbul"),
        ("ISTANBUL", "istanbul"),
        ("ıstanbul", "istanbul"),
        ("IŞIK", "işik"),
        ("ışık", "işik"),
        ("i\u0307\u0301", "í"),
        ("\u012f\u0307\u0301", "\u012f\u0301"),
        ("j\u0307\u0303", "j\u0303"),
        ("i\u0323\u0307\u0307", "ị"),
        ("ȧ ż", "ȧ ż"),
        ("STRAẞE", "strasse"),
        ("όσος", "όσοσ"),
        ("ΑΙ ᾳ ᾼ", "αι αι αι"),
        ("ՙԵՒ և", "ՙեւ եւ"),
        ("Ĳs ĳs", "ijs ijs"),
        ("Ǆ ǅ ǆ", "dž dž dž"),
        ("", ""),
        (" \u200b ", ""),
    ],
)
def test_forms(text: str, form: str) -> None:
    assert normalise(text) == form


@given(st.text())
def test_normalising_twice_changes_nothing(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


@given(st.text(alphabet=st.characters(min_codepoint=0x300, max_codepoint=0xFFFF)))
def test_normalising_twice_changes_nothing_beyond_latin(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


@given(st.text(st.sampled_from("aé，！（Ａ１ｶﾞ한\u1100\u1161\u0301中…ß ") | st.characters()))
def test_the_quick_ways_are_exact(text: str) -> None:
    if any(unicodedata.category(c) in ("Cf", "Cs") or c in "\u034f\ufe0e\ufe0f" for c in text):
        return
    plain = unicodedata.normalize("NFKC", text)
    plain = unicodedata.normalize("NFKC", plain.casefold())
    if set("ı\u0307\u0342") & set(plain):
        return
    assert normalise(text) == " ".join(plain.split())


@given(st.text(), st.text())
def test_surrounding_space_never_matters(text: str, space: str) -> None:
    blank = "".join(c for c in space if c.isspace())
    assert normalise(blank + text + blank) == normalise(text)


def test_every_letter_has_one_form_in_every_case() -> None:
    odd = []
    for letter in map(chr, range(0x110000)):
        forms = (letter.upper(), letter.lower(), letter.title(), letter.swapcase())
        odd += [letter for form in forms if normalise(form) != normalise(letter)]
    assert odd == []


@given(st.text(st.sampled_from("iIİıjJįĮɨЇі\u0307\u0301\u0323\u0345\u0342ᾼῌασΣς ")))
def test_normalising_twice_changes_nothing_about_dots_and_iotas(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)
