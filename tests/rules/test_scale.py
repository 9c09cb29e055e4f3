"""Deciding costs the text and its hits, not the number of rules; building stays quick."""

from __future__ import annotations

import sys
import time
from types import FrameType

import pytest

from matching_kit import ask, route, table, when_route, winner
from turnout_rules.agent_bodies import agent_shapes
from turnout_rules.benchmark import decide_once, make_bodies, make_routes, make_table, measure
from turnout_rules.model import Upstream
from turnout_rules.reading import Reader
from turnout_rules.settings import Reading
from turnout_rules.table import Table, build_table

pytestmark = pytest.mark.quiet


def calls(found: Table, body: bytes) -> tuple[int, str | None]:
    """How many calls a decision makes, Python's and C's, and which route wins."""
    request = Reader(Reading()).read(
        method="POST", path="/v1/chat/completions", headers={}, body=body
    )
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        decision = found.decide(request)
    finally:
        sys.setprofile(None)
    return count, decision.route


def test_rules_that_are_not_hit_cost_a_decision_nothing() -> None:
    base = make_routes(1_000)
    unrelated = [
        route(f"x{n}", f"qqzzx{n}w", rf"re:\bvvqq{n}\b", priority=5, target="api/m")
        for n in range(9_000)
    ]
    upstreams = {"api": Upstream(name="api", base_url="https://api.example.com/v1")}
    small, large = build_table(base, upstreams), build_table([*base, *unrelated], upstreams)
    for body in make_bodies(1, small):
        calls(small, body), calls(large, body)  # first calls fill caches of words
        assert calls(large, body) == calls(small, body)


def test_ten_thousand_routes_build_in_two_seconds() -> None:
    started = time.process_time()
    make_table(10_000)
    assert time.process_time() - started < 2.0


def test_ten_thousand_routes_on_model_names_are_indexed_too() -> None:
    routes = [when_route(f"r{n}", model=(f"model-{n}", f"family-{n}-*")) for n in range(10_000)]
    found = table(*routes)
    assert winner(found, ask(model="family-777-x")) == "r777"
    assert winner(found, ask(model="MODEL-4242")) == "r4242"
    started = time.perf_counter()
    for number in range(20):
        found.decide(ask(f"{number}", model=f"family-{number}-y"))
    assert time.perf_counter() - started < 1.0


def test_one_keyword_shared_by_ten_thousand_routes_goes_to_the_first() -> None:
    found = table(*(route(f"r{n}", "code", priority=n) for n in range(10_000)))
    assert winner(found, "code") == "r9999"


def test_the_benchmark_measures_a_path_that_rewrites() -> None:
    found = make_table(10)
    body = make_bodies(1, found)[0]
    assert 900 <= len(body) <= 2_000
    sent = decide_once(Reader(Reading()), found, body, {}, "/v1/chat/completions")
    assert sent != body
    assert b'"gpt-4o"' not in sent


def test_the_benchmark_reports_a_row_for_each_size() -> None:
    rows = list(measure(time.perf_counter_ns, routes=[10, 20], bodies_kb=[1, 15], seconds=0.01))
    assert [(row.routes, row.body_kb) for row in rows] == [(10, 1), (10, 15), (20, 1), (20, 15)]
    assert all(0 < row.p50_us <= row.p99_us for row in rows)


@pytest.mark.parametrize("shape", agent_shapes(), ids=lambda shape: shape.name)
def test_agent_shaped_bodies_have_the_sizes_agents_send(shape: object) -> None:
    from turnout_rules.agent_bodies import Shape

    assert isinstance(shape, Shape)
    expected = {"Claude Code": 300_000, "Codex zstd": 560_000, "Codex large": 3_500_000}
    size = len(shape.bodies[0])
    assert 0.8 * expected[shape.name] <= size <= 1.2 * expected[shape.name]
    sent = decide_once(Reader(Reading()), make_table(10), shape.bodies[0], {}, shape.path)
    assert len(sent) > 0.9 * size
