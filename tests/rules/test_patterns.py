"""`re:` patterns in RE2 syntax on normalised text, `prefix:` entries, and globs."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout_rules import patterns
from turnout_rules.normalise import normalise
from turnout_rules.patterns import (
    Patterns,
    Prefixes,
    compile_pattern,
    complaint,
    glob_pattern,
    normalise_pattern,
)


def matches(pattern: str, text: str) -> bool:
    found: set[int] = set()
    Patterns([(normalise_pattern(pattern), 0)]).find(normalise(text), found)
    return bool(found)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"\bstack ?trace\b", "a StackTrace here"),
        (r"\bSTACK TRACE\b", "stack\n trace"),
        (r"\bdebug\b", "帮我debug这个函数"),
        ("写.{0,4}函数", "请写一个函数"),
        ("ＡＢＣ", "abc"),
        ("（注）", "(注)"),
        ("Straße", "STRASSE"),
        ("İstanbul", "istanbul"),
        ("^[İı]stanbul$", "ISTANBUL"),
        ("(?:ışık)+", "IŞIK"),
        ("ß+x", "ssssx"),
        ("CAFE\u0301", "un café"),
        ("[Ａ-Ｃ]１", "b1"),
        ("[！？]", "really！"),
        ("^翻译", "  翻译这个"),
        ("谢谢$", "谢谢 \n"),
        (r"\p{Han}{3}", "函数好"),
        (r"\x{7ffb}译", "翻译"),
        ("a  b", "a b"),
        (r"\Qc++\E", "use C++"),
        ("(?P<Lang>python|go)", "in Python"),
        ("[[:digit:]]{4}", "year 2026"),
        (r"[\]）]", "a）"),
        ("", "anything"),
    ],
)
def test_a_pattern_matches(pattern: str, text: str) -> None:
    assert matches(pattern, text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [(r"\bcode\b", "decode"), ("^翻译", "请翻译"), ("（注）", "注"), (r"a\.b", "axb")],
)
def test_a_pattern_does_not_match(pattern: str, text: str) -> None:
    assert not matches(pattern, text)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(?=x)", "no look-ahead"),
        ("(?!x)", "no look-ahead"),
        ("(?<=x)y", "no look-behind"),
        ("(?<!x)y", "no look-behind"),
        (r"(a)\1", "no back-references"),
        ("(?>a)", "no atomic groups"),
        ("a++", "no possessive quantifiers"),
        (r"\u4e2d", r"\x{4E2D}"),
        ("a{2000}", "at most 1,000 times"),
        ("[", "missing ]"),
        ("(a", "missing )"),
        ("x**", "bad repetition"),
    ],
)
def test_a_pattern_that_cannot_be_used_says_what_is_lacking(pattern: str, words: str) -> None:
    assert words in complaint(pattern)
    with pytest.raises(ValueError):
        compile_pattern(pattern)


def test_a_good_pattern_has_no_complaint() -> None:
    assert complaint(r"\bfix(es|ed)?\b") == ""


def test_a_hostile_pattern_and_text_cost_nothing_special() -> None:
    hostile = Patterns([("(a+)+$", 0), ("(a|aa)+b", 1), ("(.*a){20}", 2)])
    started = time.perf_counter()
    hostile.find("a" * 4_000 + "!", set())
    assert time.perf_counter() - started < 1.0


def test_two_thousand_patterns_fit_in_one_set() -> None:
    found: set[int] = set()
    Patterns([(rf"\bword{n}(s|ed)? .*end{n}\b", n) for n in range(2_000)]).find(
        "word17s and then end17", found
    )
    assert found == {17}


@given(st.text(max_size=30))
def test_normalising_a_pattern_keeps_it_usable(pattern: str) -> None:
    try:
        compile_pattern(pattern)
    except ValueError:
        return
    compile_pattern(normalise_pattern(pattern))


@given(st.text(min_size=1, max_size=20))
def test_a_quoted_text_as_pattern_finds_itself(text: str) -> None:
    quoted = "".join("\\" + c if c.isascii() and not c.isalnum() else c for c in normalise(text))
    assert matches(quoted, text)


def test_prefixes_are_looked_up_by_length() -> None:
    prefixes = Prefixes([("写代码", 0), ("写", 1), ("translate", 2), ("写代码吧", 3)])
    found: set[int] = set()
    prefixes.find("写代码好吗", found)
    assert found == {0, 1}
    found.clear()
    prefixes.find("写", found)
    assert found == {1}


@pytest.mark.parametrize(
    ("glob", "value", "is_match"),
    [
        ("gpt-*", "GPT-4o", True),
        ("gpt-?o", "gpt-4o", True),
        ("gpt-[34]", "gpt-4", True),
        ("gpt-[!34]", "gpt-4", False),
        ("*/llama*", "meta/llama-3", True),
        ("a.b*", "axb", False),
        ("gpt-*", "my-gpt-4", False),
        ("[", "[", True),
        ("claude-opus-5[1m]", "claude-opus-5[1m]", True),
        ("claude-opus-5[1m]", "claude-opus-51", False),
        ("*[1m]", "Claude-Sonnet-5[1M]", True),
        ("*[1m]", "claude-opus-5m", False),
        ("claude-opus-5*", "claude-opus-5[1m]", True),
        ("qwen[thinking]", "qwen[thinking]", True),
        ("qwen[thinking]", "qwent", False),
        ("gpt-x [beta]", "gpt-x [beta]", True),
        ("m[0]", "m[0]", True),
        ("m[0]", "m0", False),
        ("m[[]0]", "m[0]", True),
        ("m[[]0]", "m0", False),
        ("m[0-9]", "m7", True),
        ("m[0-9]", "m[0-9]", True),
        ("m[0-9]x[2]", "m7x[2]", True),
        ("m[v-1]", "m[v-1]", True),
        ("m[!a-c]", "md", True),
        ("m[!a-c]", "mb", False),
        ("qwen[non-thinking]", "qwen[non-thinking]", True),
        ("m[]]", "m]", True),
        ("*:thinking", "anthropic/claude:thinking", True),
        ("claude-sonnet-5*", "claude-sonnet-5-20260901", True),
    ],
)
def test_globs(glob: str, value: str, is_match: bool) -> None:
    found: set[int] = set()
    Patterns([(glob_pattern(glob), 0)]).find(value, found)
    assert bool(found) is is_match


def test_one_huge_pattern_is_refused() -> None:
    assert "too large" in complaint(r"x\p{L}{900}")


def test_patterns_that_outgrow_the_first_memory_limit_get_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patterns, "_SET_BYTES", (1 << 16, 8 << 20))
    found: set[int] = set()
    Patterns([(rf"x{n}\p{{L}}{{6}}", n) for n in range(20)]).find("x3" + "é" * 6, found)
    assert found == {3}
