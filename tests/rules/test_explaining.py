"""An explanation: every hit, the winner, and why each other route lost."""

from __future__ import annotations

from matching_kit import ask, route, table
from turnout_rules.decision import Hit
from turnout_rules.model import Match, When

TABLE = table(
    route("code", "code", "debug*", priority=10),
    route("translation", "翻译", priority=9),
    route("calm", match=Match(any=("code",), none=("urgent",)), priority=8),
    route("tiny", "code", target="text/small", priority=20),
    route("mini", "code", when=When(model=("*-mini",)), priority=30),
    route("rest", ".*"),
)


def test_hits_name_route_and_entry_as_written() -> None:
    hits = TABLE.explain(ask("debugging 翻译")).hits
    assert hits == (Hit("code", "debug*"), Hit("translation", "翻译"))


def test_each_loser_says_why() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    explanation = TABLE.explain(ask("urgent code 翻译", tools=[tool]))
    assert explanation.decision.route == "code"
    losers = {loser.route: loser.reason for loser in explanation.losers}
    assert losers == {
        "mini": "its `when` does not hold",
        "tiny": "text/small: no tools",
        "translation": "priority 9, the winner comes first",
        "calm": "`none: urgent` is in the text",
        "rest": "the catch-all comes last",
    }


def test_the_decision_is_the_tables_own() -> None:
    request = ask("please debug")
    assert TABLE.explain(request).decision == TABLE.decide(request)


def test_a_named_route_beats_what_the_text_hits() -> None:
    explanation = TABLE.explain(ask("code", model="turnout/translation"))
    assert explanation.decision.route == "translation"
    losers = {loser.route: loser.reason for loser in explanation.losers}
    assert losers["code"] == "the request names another route"


def test_it_reads_as_text() -> None:
    said = str(TABLE.explain(ask("debug")))
    assert said.startswith("code → api/code  [rule]\n")
    assert 'keyword "debug*"' in said
    assert str(TABLE.explain(ask("hi"))).startswith("rest → api/rest  [default]")
