"""YAML with places: what is read, and how each broken file is explained."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout_rules.document import Document
from turnout_rules.problems import Problem
from turnout_rules.yaml_source import MAX_FILE_BYTES, parse


def problems_of(data: bytes | str) -> list[Problem]:
    problems: list[Problem] = []
    parse("f.yaml", data.encode() if isinstance(data, str) else data, problems)
    return problems


def test_values_keep_their_places_after_bom_crlf_and_wide_characters() -> None:
    problems: list[Problem] = []
    root = parse("f.yaml", "\ufeffa: 1\r\n翻译: [函数, code]\r\n".encode(), problems)
    assert root is not None and problems == []
    document = Document("f.yaml", problems)
    _, value = document.fields(root, "file")["翻译"]
    places = [document.place(item) for _, item in document.texts(value, "list")]
    assert [(p.line, p.column) for p in places] == [(2, 6), (2, 10)]


BROKEN = [
    # (text, line, column, part of the message, part of the remedy)
    ("routes:\n\t- name: a\n", 2, 1, "a tab stands", "indent with spaces"),
    ("a: [*foo]\n", 1, 5, "YAML alias", 'quote it: "*word"'),
    ("a: [*foo*, b]\n", 1, 9, "YAML alias", "quote it"),
    ('a: "re:\\d+"\n', 1, 8, "unknown escape", "single quotes"),
    ("a: [@x]\n", 1, 5, "cannot start", "quote it"),
    ("a: `x`\n", 1, 4, "cannot start", "quote it"),
    ("a: b: c\n", 1, 5, "second `key: value`", "indentation"),
    ("a: [b, c\nd: e\n", 2, 2, "not closed", "close it with ]"),
    ('a: "b\n', 2, 1, "inside a quoted text", "close the quote"),
    ("a: 1\n---\nb: 2\n", 2, 1, "second document", "a file of its own"),
    ("- name: a\n", 1, 1, "this one is a list", "put `routes:` above"),
    ("just text\n", 1, 1, "is a mapping", ""),
    ("[" * 100_000, 1, 1001, "nested too deeply", "handful"),
]


@pytest.mark.parametrize(("text", "line", "column", "message", "remedy"), BROKEN)
def test_broken_yaml_is_explained_at_its_place(
    text: str, line: int, column: int, message: str, remedy: str
) -> None:
    (problem,) = problems_of(text)
    assert (problem.line, problem.column, problem.severity) == (line, column, "error")
    assert message in problem.message
    assert remedy in problem.remedy


@pytest.mark.parametrize(
    ("data", "code", "line", "column"),
    [
        (b"", "empty-file", 1, 1),
        (b" \n\n", "empty-file", 1, 1),
        (b"# notes only\n", "empty-file", 1, 1),
        (b"a: 1\nb: \xff\n", "not-utf8", 2, 4),
        ("a: 1\n".encode("utf-16"), "not-utf8", 1, 1),
        (b"a: x\x00y\n", "control-character", 1, 5),
        (b"a" * (MAX_FILE_BYTES + 1), "file-too-large", 1, 1),
    ],
)
def test_bytes_that_are_no_rule_file(data: bytes, code: str, line: int, column: int) -> None:
    (problem,) = problems_of(data)
    assert (problem.code, problem.line, problem.column) == (code, line, column)


def test_a_file_of_comments_is_a_warning_and_an_empty_one_an_error() -> None:
    assert problems_of("# routes: []\n")[0].severity == "warning"
    assert problems_of("")[0].severity == "error"


def test_alias_bombs_are_refused_fast() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    started = time.perf_counter()
    (problem,) = problems_of("\n".join(lines))
    assert problem.code == "alias-bomb"
    assert time.perf_counter() - started < 1


def test_an_alias_to_itself_is_refused() -> None:
    (problem,) = problems_of("a: &a [x, *a]\n")
    assert problem.code == "alias-bomb"


def test_ordinary_anchors_are_fine() -> None:
    assert problems_of("a: &words [x, y]\nb: *words\nc: ['*x', d*]\n") == []


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=200), st.text(max_size=200).map(lambda t: t.encode("utf-8", "replace"))
    )
)
def test_no_bytes_raise(data: bytes) -> None:
    problems: list[Problem] = []
    root = parse("f.yaml", data, problems)
    assert root is not None or problems
