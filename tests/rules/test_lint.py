"""Lint: what works and surprises, or cannot work, found at load with its place."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from language_folders import codes, read_routes_text, spots

ROUTES = [
    # (what it is about, routes, "line code" of every finding)
    (
        "a catch-all that outranks",
        """\
        routes:
        - {name: all, match: [.*], priority: 99, target: api/m}
        - {name: code, match: [code], priority: 1, target: api/m}
        """,
        ["2 catch-all-outranks"],
    ),
    (
        "a catch-all that stands first among equals",
        """\
        routes:
        - {name: all, match: [.*], target: api/m}
        - {name: code, match: [code], target: api/m}
        """,
        ["2 catch-all-outranks"],
    ),
    (
        "a trailing catch-all",
        """\
        routes:
        - {name: all, match: [.*], priority: -1, target: api/m}
        - {name: code, match: [code], target: api/m}
        """,
        [],
    ),
    (
        "a conditional catch-all swallows nothing",
        """\
        routes:
        - {name: all, match: [.*], when: {has: [image]}, priority: 9, target: api/m}
        - {name: code, match: [code], target: api/m}
        """,
        [],
    ),
    (
        "brackets that are a name's, not a choice",
        """\
        routes:
        - {name: a, when: {model: "claude-opus-5[1m]"}, target: api/m}
        - {name: b, when: {model: "qwen[thinking]"}, target: api/m}
        - {name: c, when: {model: "gpt-x [beta]"}, target: api/m}
        - {name: d, when: {model: "m[0]"}, target: api/m}
        - {name: e, when: {header: {x-model: "m[0]*"}}, target: api/m}
        - {name: f, when: {model: "re:^claude-opus-5[1m]$"}, target: api/m}
        """,
        [f"{line} literal-brackets" for line in range(2, 8)],
    ),
    (
        "brackets that say what they are",
        """\
        routes:
        - {name: a, when: {model: "claude-opus-5[[]1m]"}, target: api/m}
        - {name: b, when: {model: ["gpt-[34]*", "m[0-9]", "m[!a]", "*:thinking"]}, target: api/m}
        - {name: c, when: {model: 're:^claude-opus-5\\[1m\\]$'}, target: api/m}
        - {name: d, when: {model: 're:^o[13]$'}, target: api/m}
        """,
        [],
    ),
    (
        "two routes of one name",
        """\
        routes:
        - {name: a, match: [code], target: api/m}
        - {name: a, match: [text], target: api/m}
        """,
        ["3 duplicate-route"],
    ),
    (
        "shadowed by the same words, whatever their case and width",
        """\
        routes:
        - {name: a, match: [code, 函数, text], priority: 5, target: api/m}
        - {name: b, match: [ＣＯＤＥ, "函数 "], target: api/m}
        """,
        ["3 shadowed-route"],
    ),
    (
        "shadowed by a word of a phrase",
        """\
        routes:
        - {name: a, match: [review], priority: 5, target: api/m}
        - {name: b, match: [code review], target: api/m}
        """,
        ["3 shadowed-route"],
    ),
    (
        "shadowed by two routes together",
        """\
        routes:
        - {name: a, match: [one1], priority: 5, target: api/m}
        - {name: b, match: [two2], priority: 4, target: api/m}
        - {name: c, match: [one1, two2], target: api/m}
        """,
        ["4 shadowed-route"],
    ),
    (
        "not shadowed: the earlier one has conditions",
        """\
        routes:
        - {name: a, match: [code], when: {has: [tools]}, priority: 5, target: api/m}
        - {name: b, match: {any: [code], none: [bug]}, priority: 4, target: api/m}
        - {name: c, match: [code], target: api/m}
        """,
        [],
    ),
    (
        "a keyword in two routes of one priority",
        """\
        routes:
        - {name: a, match: [code, text], target: api/m}
        - {name: b, match: [code, word], target: api/m}
        """,
        ["3 duplicate-keyword"],
    ),
    (
        "a keyword twice in one route, written in two ways",
        """\
        routes:
        - {name: a, match: [code, ＣＯＤＥ], target: api/m}
        """,
        ["2 duplicate-keyword"],
    ),
    (
        "keywords that look like patterns",
        r"""
        routes:
        - {name: a, match: ['\bcode\b', 'foo.*bar', '[abc]+x', 'a|b', 'regex:foo'], target: api/m}
        """,
        ["3 regex-like-keyword"] * 5,
    ),
    (
        "symbols that are no patterns",
        """\
        routes:
        - {name: a, match: [C++, C#, .NET, "what?", node.js, "$HOME", (sic), a/b], target: api/m}
        """,
        [],
    ),
    (
        "keywords that normalise to nothing",
        """\
        routes:
        - {name: a, match: ["*", " ", "\\u200b", code], target: api/m}
        """,
        ["2 empty-keyword", "2 empty-keyword", "2 empty-keyword"],
    ),
    (
        "one-letter keywords, but Chinese ones",
        """\
        routes:
        - {name: a, match: [c, 译], target: api/m}
        """,
        ["2 short-keyword"],
    ),
    (
        "patterns that RE2 has not, and one that matches everything",
        r"""
        routes:
        - {name: a, match: ['re:(', 're:(?=a)', 're:(a)\1', 're:x*'], target: api/m}
        """,
        ["3 bad-pattern", "3 bad-pattern", "3 bad-pattern", "3 matches-everything"],
    ),
    (
        "an upstream and a model that do not exist",
        """\
        routes:
        - {name: a, match: [code], target: apy/m}
        - {name: b, match: [text], target: local/smal, fallback: [local/big]}
        """,
        ["2 unknown-target", "3 unknown-target", "3 unknown-target"],
    ),
    (
        "a fallback to itself",
        """\
        routes:
        - {name: a, match: [code], target: api/m, fallback: [api/n, api/m, api/n]}
        """,
        ["2 duplicate-fallback", "2 fallback-to-itself"],
    ),
    (
        "captures without a pattern, and too few",
        """\
        routes:
        - {name: a, match: [code], target: "api/{1}"}
        - {name: b, when: {model: "re:^x-(.+)$"}, target: "api/{2}"}
        - {name: c, when: {model: "re:^y-(.+)$"}, target: "api/{1}"}
        """,
        ["2 unknown-capture", "3 unknown-capture"],
    ),
    (
        "conditions that contradict",
        """\
        routes:
        - {name: a, when: {has: [tools], lacks: [tools]}, target: api/m}
        - {name: b, match: {any: [code], none: [code]}, target: api/m}
        - {name: c, when: {model: ["re:a", b]}, target: api/m}
        """,
        ["2 impossible-when", "3 impossible-match", "4 mixed-model"],
    ),
    (
        "a route that no rule leads to",
        """\
        routes:
        - {name: a, target: api/m}
        - {name: b, examples: [hello there], target: api/m}
        """,
        ["2 never-by-rule", "3 no-default"],
    ),
    (
        "a route that only its description leads to",
        """\
        routes:
        - {name: a, description: the weather, target: api/m}
        """,
        ["2 no-default"],
    ),
]


@pytest.mark.parametrize(
    ("routes", "expected"), [r[1:] for r in ROUTES], ids=[r[0] for r in ROUTES]
)
def test_lint_finds(tmp_path: Path, routes: str, expected: list[str]) -> None:
    found = read_routes_text(tmp_path, routes).problems
    assert sorted(f"{p.line} {p.code}" for p in found) == sorted(expected)


def test_findings_point_at_the_value_that_is_meant(tmp_path: Path) -> None:
    text = "routes:\n- {name: a, match: [ok, 'a|b'], target: apy/m}\n"
    assert spots(read_routes_text(tmp_path, text)) == [
        "routes.yaml:2:25 regex-like-keyword",
        "routes.yaml:2:41 unknown-target",
    ]


def test_the_catch_all_names_what_it_swallows(tmp_path: Path) -> None:
    rows = "".join(f"- {{name: r{n}, match: [word{n}], target: api/m}}\n" for n in range(8))
    text = f"routes:\n- {{name: all, match: [.*], priority: 1, target: api/m}}\n{rows}"
    (problem,) = read_routes_text(tmp_path, text).problems
    assert "`r0`, `r1`, `r2`, `r3`, `r4` and 3 more" in problem.message
    assert problem.severity == "warning"


def test_an_unknown_model_gets_a_did_you_mean(tmp_path: Path) -> None:
    text = "routes:\n- {name: a, match: [code], target: local/smal}\n"
    (problem,) = read_routes_text(tmp_path, text).problems
    assert problem.remedy == "did you mean `small`?"


def test_ten_thousand_wrong_routes_are_linted_in_linear_time(tmp_path: Path) -> None:
    rows = "".join(
        f"- {{name: r, match: [same, w{n}, code w{n}], target: nowhere{n}/x}}\n"
        for n in range(10_000)
    )
    started = time.process_time()
    read = read_routes_text(tmp_path, f"routes:\n{rows}")
    assert time.process_time() - started < 6
    assert {"duplicate-route", "unknown-target", "duplicate-keyword"} <= set(codes(read))
