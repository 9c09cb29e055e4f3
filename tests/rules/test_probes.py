"""Probes: routing tests as data, run on the table without any classifier."""

from __future__ import annotations

from pathlib import Path

import pytest

from language_folders import UPSTREAMS, codes, read_routes_text, write_folder
from turnout_rules.loading import load_rules
from turnout_rules.probes import Outcome, problem_of, run_probes

ROUTES = """\
routes:
- {name: code, match: [code], target: api/coder}
- {name: vision, when: {has: [image]}, priority: 5, target: api/eyes}
- {name: talk, examples: [hello, good day], target: api/talker}
- {name: rest, match: [.*], priority: -9, target: api/any}
"""


def run_on(tmp_path: Path, probes: str) -> list[Outcome]:
    rules = load_rules(write_folder(tmp_path, routes=ROUTES, upstreams=UPSTREAMS, probes=probes))
    return run_probes(rules.table, rules.settings.reading, rules.probes)


MET = [
    "{text: my code, route: code}",
    "{text: my code, route: code, target: api/coder, layer: rule}",
    "{text: hi, layer: semantic}",
    "{text: hi, route: talk, layer: semantic}",
    "{text: hi, model: turnout/code, route: code}",
    "{text: hi, headers: {X-Turnout-Route: code}, route: code}",
    "{body: {model: m, messages: [{role: user, content: code}]}, route: code}",
    """{body: '{"model": "m", "input": "code"}', path: /v1/responses, route: code}""",
    "{path: /v1/models, body: {}, route: pass}",
]


@pytest.mark.parametrize("probe", MET)
def test_a_probe_is_met(tmp_path: Path, probe: str) -> None:
    (outcome,) = run_on(tmp_path, f"probes:\n- {probe}\n")
    assert outcome.is_met, outcome


def test_a_failed_probe_says_what_was_expected_and_found_and_why(tmp_path: Path) -> None:
    (outcome,) = run_on(tmp_path, "probes:\n- {text: my code, route: talk, target: api/talker}\n")
    assert outcome.wrong == (("route", "talk", "code"), ("target", "api/talker", "api/coder"))
    problem = problem_of(outcome)
    assert (problem.line, problem.column, problem.code) == (2, 3, "probe-failed")
    assert "route is code, not talk" in problem.message and "my code" in problem.message


@pytest.mark.parametrize(
    ("probe", "code"),
    [
        ("{route: code}", "bad-probe"),
        ("{text: a, body: {}, route: code}", "bad-probe"),
        ("{text: a}", "bad-probe"),
        ("{text: a, route: coed}", "unknown-route"),
        ("{text: a, layer: rules}", "unknown-value"),
        ("{body: '{', route: code}", "bad-value"),
        ("{text: a, route: code, expect: b}", "unknown-key"),
        ("just text", "wrong-type"),
    ],
)
def test_a_wrong_probe_is_found(tmp_path: Path, probe: str, code: str) -> None:
    read = read_routes_text(tmp_path, f"{ROUTES}probes:\n- {probe}\n")
    assert code in codes(read)


def test_a_thousand_probes_take_less_than_a_second(tmp_path: Path) -> None:
    import time

    rows = "".join(f"- {{text: 'code number {n}', route: code}}\n" for n in range(1_000))
    rules = load_rules(
        write_folder(tmp_path, routes=ROUTES, upstreams=UPSTREAMS, probes=f"probes:\n{rows}")
    )
    started = time.process_time()
    outcomes = run_probes(rules.table, rules.settings.reading, rules.probes)
    assert time.process_time() - started < 1
    assert all(outcome.is_met for outcome in outcomes)
