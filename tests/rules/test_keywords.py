"""Keywords in a dozen scripts: where they occur, and where they are only part of a word."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout_rules.keywords import Keyword, Keywords, read_keyword, stands_at_edges
from turnout_rules.normalise import normalise


def occurs(entry: str, text: str) -> bool:
    found: set[int] = set()
    Keywords([(read_keyword(entry), 0)]).find(normalise(text), found)
    return bool(found)


HITS = [
    # Latin: word edges
    ("code", "write code please"),
    ("code", "Code!"),
    ("code", "code"),
    ("code", "code_review"),
    ("code", "my-code"),
    ("code", "CODE,"),
    ("code", "`code`"),
    ("board", "the board"),
    ("open source", "Open  Source tools"),
    # casing of other languages
    ("istanbul", "İSTANBUL nerede"),
    ("İstanbul", "istanbul nerede"),
    ("ISTANBUL", "ıstanbul"),
    ("ışık", "IŞIK"),
    ("ışık", "işik"),
    ("straße", "STRASSE"),
    ("λόγος", "ΛΌΓΟΣ"),
    ("í", "i\u0307\u0301"),
    ("gpt-4", "use gpt-4."),
    # an asterisk opens an edge
    ("debug*", "debugging"),
    ("debug*", "debug"),
    ("*board", "dashboard"),
    ("*ebug*", "debugger"),
    ("**kwargs", "what is **kwargs"),
    # beside scripts that put no spaces
    ("debug", "帮我debug这个函数"),
    ("python", "用python写函数"),
    ("AI", "AI模型"),
    ("ai模型", "这个AI模型好"),
    ("AI", "このAIは"),
    ("api", "나의API를"),
    ("ios", "แอปiOSนี้"),
    # symbols at the edge are open
    ("C++", "learn C++ now"),
    ("C++", "C++17"),
    ("C#", "in C#."),
    ("C#", "C#程序"),
    (".NET", "ASP.NET core"),
    (".NET", "用.NET写"),
    ("#todo", "a#todo b"),
    ("@bot", "hey@bot"),
    ("node.js", "Node.js app"),
    # accents, in either form
    ("café", "un café, merci"),
    ("café", "un CAFE\u0301"),
    ("naïve", "a NAÏVE idea"),
    ("straße", "STRASSE"),
    # Cyrillic, Greek, Armenian, Georgian
    ("привет", "Привет, мир"),
    ("код", "напиши код"),
    ("код*", "кодирование"),
    ("κώδικα", "γράψε ΚΏΔΙΚΑ"),
    ("բարև", "Բարև ձեզ"),
    ("გამარჯობა", "გამარჯობა!"),
    # Han, kana, Hangul, Thai, Lao, Khmer: any place
    ("翻译", "请翻译成英文"),
    ("翻译 ", "帮我翻译"),
    ("函数", "这个函数"),
    ("こんにちは", "やあこんにちは世界"),
    ("プログラム", "このﾌﾟﾛｸﾞﾗﾑを"),
    ("안녕", "안녕하세요"),
    ("안녕하세요", "네안녕하세요요"),
    ("แปล", "ช่วยแปลข้อความ"),
    ("ແປ", "ຊ່ວຍແປພາສາ"),
    ("កូដ", "សរសេរកូដនេះ"),
    # Arabic, Hebrew, Devanagari, Bengali, Tamil: word edges
    ("ترجمة", "أريد ترجمة النص"),
    ("תרגם", "תרגם את זה"),
    ("हिन्दी", "यह हिन्दी में है"),
    ("কোড", "একটি কোড লিখ"),
    ("நிரல்", "ஒரு நிரல் எழுது"),
    ("हिन्द*", "हिन्दी में"),
    # digits, emoji, full width
    ("2024", "in 2024, then"),
    ("4", "4 apples"),
    ("🚀", "ship it🚀now"),
    ("👨\u200d💻", "my 👨\u200d💻 life"),
    ("debug", "ｄｅｂｕｇ　this"),
    ("ＢＵＧ", "a bug"),
    ("(test)", "（ＴＥＳＴ）"),
    ("数据1", "数据1号"),
]

MISSES = [
    ("code", "decode"),
    ("code", "codes"),
    ("code", "code2"),
    ("code", "vscode"),
    ("board", "dashboard"),
    ("debug", "debugging"),
    ("debug*", "undebug"),
    ("*board", "boards"),
    ("gpt-4", "gpt-4o"),
    ("C++", "abc++"),
    ("C#", "abc#"),
    (".NET", ".networks"),
    ("cafe", "café"),
    ("cafe", "cafe\u0323\u0301"),
    ("code", "кодcode"),
    ("code", "éclaircode"),
    ("код", "кодирование"),
    ("код", "декод"),
    ("κώδικα", "κώδικας"),
    ("ترجم", "ترجمة"),
    ("תרג", "תרגם"),
    ("हिन्द", "हिन्दी"),
    ("नम", "नमस्ते"),
    ("কো", "কোড"),
    ("நிர", "நிரல்"),
    ("4", "42"),
    ("4", "gpt4"),
    ("202", "2024"),
    ("python", "用python3写"),
    ("ai模型", "openai模型"),
    ("翻译", "翻 译"),
    ("안녕", "안 녕"),
    ("a", "\u0430"),
]


@pytest.mark.parametrize(("entry", "text"), HITS)
def test_a_keyword_occurs(entry: str, text: str) -> None:
    assert occurs(entry, text)


@pytest.mark.parametrize(("entry", "text"), MISSES)
def test_a_keyword_inside_another_word_does_not_occur(entry: str, text: str) -> None:
    assert not occurs(entry, text)


def test_a_later_occurrence_counts_where_an_earlier_one_is_inside_a_word() -> None:
    assert occurs("code", "decode the code")


def test_nested_and_overlapping_keywords_are_all_found() -> None:
    entries = ["机器", "器学", "机器学习", "学习", "machine", "machine learning"]
    found: set[int] = set()
    Keywords([(read_keyword(e), n) for n, e in enumerate(entries)]).find(
        normalise("机器学习 is machine learning"), found
    )
    assert found == set(range(len(entries)))


def test_an_open_and_a_closed_keyword_of_the_same_words_are_two() -> None:
    found: set[int] = set()
    both = Keywords([(read_keyword("debug"), 0), (read_keyword("debug*"), 1)])
    both.find("debugging", found)
    assert found == {1}


def test_no_keywords_find_nothing() -> None:
    found: set[int] = set()
    Keywords([]).find("anything", found)
    assert not found


def naive(keyword: Keyword, text: str) -> bool:
    """The rule, written down as slowly as it reads."""
    starts = [at for at in range(len(text)) if text.startswith(keyword.words, at)]
    return any(stands_at_edges(keyword, text, at, at + len(keyword.words)) for at in starts)


_letters = st.sampled_from("abcé1_ .+#-中文あ한กाहिن\u0301\u0e33🚀A，*")
_texts = st.text(_letters, max_size=12)


@settings(max_examples=400)
@given(st.lists(_texts, max_size=12), st.text(_letters, max_size=60))
def test_the_automaton_equals_the_naive_search(entries: list[str], raw: str) -> None:
    keywords = [read_keyword(entry) for entry in entries]
    numbered = [(k, n) for n, k in enumerate(keywords) if k.words]
    text = normalise(raw)
    found: set[int] = set()
    Keywords(numbered).find(text, found)
    assert found == {n for keyword, n in numbered if naive(keyword, text)}
