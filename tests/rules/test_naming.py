"""Names of clients in messages: the nearest route first, one short line, in bounded time."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matching_kit import ask, route, table
from turnout_rules.decision import BLOCK, PASS, Decision
from turnout_rules.naming import no_route_called, printable
from turnout_rules.refusals import carried_out, refusal_of
from turnout_rules.settings import Reading
from turnout_rules.turns import Turns

ARTICLE = (
    route("code_completion", "code", priority=10, target="local/tiny"),
    route("translation", "翻译", priority=9),
    route("fallback", ".*", target="local/tiny"),
)


def test_near_misses_of_a_named_route_come_first() -> None:
    decision = table(*ARTICLE).decide(ask(model="turnout/Translat"))
    assert decision.message == (
        "No route is called `Translat`; did you mean `translation`? "
        "Routes: `translation`, `code_completion`, `fallback`."
    )


def test_an_unknown_name_reaches_reason_and_message_on_one_short_line() -> None:
    evil = "x\nERROR all is lost\x1b[31m\u2028" + "y" * 10_000
    for naming in ({"model": f"turnout/{evil}"}, {"headers": {"x-turnout-route": evil}}):
        decision = table(*ARTICLE).decide(ask(**naming))
        assert decision.reason.isprintable() and decision.message.isprintable()
        assert len(decision.reason) < 200 and len(decision.message) < 400


def test_an_unknown_name_among_many_routes_is_refused_in_time() -> None:
    found = table(*(route(f"route-number-{n}", f"word{n}") for n in range(5_000)))
    started = time.perf_counter()
    message = found.decide(ask(model="turnout/" + "route-nubmer-" * 400)).message
    assert time.perf_counter() - started < 0.5
    assert len(message) < 1_000


@given(st.text(max_size=300), st.lists(st.text(min_size=1, max_size=20), unique=True, max_size=40))
def test_every_name_gives_one_line(name: str, known: list[str]) -> None:
    assert printable(no_route_called(name, [printable(k) for k in known])).isprintable()
    assert no_route_called(name, []).isprintable()


def test_an_exact_name_in_another_case_is_the_nearest() -> None:
    assert "did you mean `Code`" in no_route_called("CODE", ["chat", "Code"])


@pytest.mark.parametrize("model", ["turnout/auto", "turnout/translation"])
@pytest.mark.parametrize("target", [PASS, BLOCK])
def test_what_asks_turnout_is_never_passed_on(model: str, target: str) -> None:
    decision = Decision(route=None, target=target, layer="pass", reason="x\ny", message="no")
    refused = refusal_of(ask(model=model), decision)
    assert refused is not None and refused.status == 404
    assert refused.message.isprintable()


def test_what_asks_a_provider_may_be_passed_on() -> None:
    decision = Decision(route=None, target=PASS, layer="pass", reason="x")
    assert refusal_of(ask(model="gpt-4o"), decision) is None


def test_observing_does_not_hold_for_what_asks_turnout() -> None:
    seen = Decision(route="a", target="local/x", layer="rule", reason="x", is_observed=True)
    assert not carried_out(ask(model="turnout/a"), seen).is_observed
    assert carried_out(ask(model="gpt-4o"), seen).is_observed


def test_a_wrong_name_does_not_stick_to_the_turn() -> None:
    found = table(*ARTICLE)
    turns = Turns(found, Reading())
    wrong = ask("hello there", headers={"x-turnout-route": "nope"})
    turns.remember(turns.key(wrong), wrong, found.decide(wrong), 0.0)
    assert len(turns) == 0
