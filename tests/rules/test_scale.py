"""Deciding costs the text and its hits, not the number of rules; building stays quick."""

from __future__ import annotations

import gc
import time

import pytest

from matching_kit import ask, route, table, when_route, winner
from turnout_rules.agent_bodies import agent_shapes
from turnout_rules.benchmark import decide_once, make_bodies, make_table, measure
from turnout_rules.reading import Reader
from turnout_rules.settings import Reading
from turnout_rules.table import Table


def best_us(found: Table, rounds: int = 60) -> float:
    """The quickest of some passes, which a busy machine disturbs least."""
    requests = [ask(f"请看 number {n}, please, and tell me what it says") for n in range(8)]
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        for request in requests:
            found.decide(request)
        times.append(time.perf_counter() - started)
    return min(times) / len(requests) * 1e6


def test_ten_times_the_rules_cost_at_most_half_as_much_again() -> None:
    small, large = make_table(1_000), make_table(10_000)
    gc.collect()
    ratios = [best_us(large) / best_us(small) for _ in range(3)]
    assert min(ratios) <= 1.5


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
