"""Deciding: which route wins, where it sends, and what stands in its way."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matching_kit import ask, embeddings, route, table, when_route, winner
from turnout_rules import patterns
from turnout_rules.decision import Verdict
from turnout_rules.model import Match, Place, Route, When
from turnout_rules.problems import RulesError
from turnout_rules.request import Request
from turnout_rules.table import Table, UnknownTarget

ARTICLE = (
    route("code_completion", "code", "函数", "bug", "debug", priority=10, target="local/tiny"),
    route("translation", "翻译", "translate", "英文", "日文", priority=9),
    route("fallback", ".*", target="local/tiny"),
)


# order and the catch-all


@pytest.mark.parametrize(
    ("text", "name", "layer"),
    [
        ("请把这段翻译成英文", "translation", "rule"),
        ("帮我debug这个函数", "code_completion", "rule"),
        ("写一份本周工作总结", "fallback", "default"),
        ("你好今天天气如何", "fallback", "default"),
        ("翻译 ", "translation", "rule"),
        ("translate this code", "code_completion", "rule"),
        ("", "fallback", "default"),
    ],
)
def test_the_articles_table(text: str, name: str, layer: str) -> None:
    decision = table(*ARTICLE).decide(ask(text))
    assert (decision.route, decision.layer) == (name, layer)


def test_equal_priority_goes_by_file_order() -> None:
    assert winner(table(route("first", "x1"), route("second", "x1")), "x1") == "first"


def test_a_catch_all_above_other_rules_swallows_them_as_a_rule() -> None:
    found = table(route("all", ".*", priority=5), route("code", "code"))
    decision = found.decide(ask("code"))
    assert (decision.route, decision.layer) == ("all", "rule")
    assert found.default is None


def test_a_catch_all_before_semantic_only_routes_is_the_default() -> None:
    found = table(route("all", ".*"), route("chat", examples=("hi",)))
    assert found.default is not None
    assert found.decide(ask("hi there")).wants_classifier


def test_without_any_match_a_request_passes() -> None:
    decision = table(route("code", "code")).decide(ask("hello"))
    assert (decision.route, decision.target, decision.layer) == (None, "pass", "pass")
    assert decision.reason == "no rule matched"


def test_an_empty_table_passes_everything() -> None:
    assert table().decide(ask("hello")).target == "pass"


def test_pass_and_block_are_targets() -> None:
    found = table(
        route("secret", "password", target="block", message="keep it"),
        route("mine", "private", target="pass"),
    )
    blocked = found.decide(ask("my password"))
    assert (blocked.target, blocked.message, blocked.via_sidecar) == ("block", "keep it", False)
    passed = found.decide(ask("private"))
    assert (passed.route, passed.target, passed.layer) == ("mine", "pass", "rule")


@pytest.mark.parametrize(
    ("text", "name"),
    [("red fish", "both"), ("red", None), ("red fish now", None), ("fish stew", None)],
)
def test_any_all_and_none_combine(text: str, name: str | None) -> None:
    match = Match(any=("red", "blue"), all=("fish",), none=("now",))
    assert winner(table(route("both", match=match)), text) == name


def test_none_alone_matches_everything_else() -> None:
    found = table(route("calm", match=Match(none=("urgent",))), route("rest", ".*"))
    assert winner(found, "hello") == "calm"
    assert winner(found, "urgent") == "rest"


def test_a_rule_can_look_at_the_system_prompt_and_the_tools() -> None:
    found = table(
        route("agent", match=Match(any=("reviewer",), on="system")),
        route("wide", match=Match(any=("beetle",), on="all")),
    )
    system = [{"role": "system", "content": "You are a reviewer."}]
    user = [{"role": "user", "content": "hello"}]
    assert winner(found, ask(messages=system + user)) == "agent"
    assert winner(found, ask("reviewer")) is None
    assert winner(found, ask("a beetle")) == "wide"


def test_other_texts_are_not_read_unless_a_rule_asks() -> None:
    class Human(Request):
        def text_on(self, part: Any) -> str:
            raise AssertionError("read for nothing")

    table(*ARTICLE).decide(Human.from_text("code"))


# reasons


@pytest.mark.parametrize(
    ("made", "text", "reason"),
    [
        (route("a", "翻译", priority=9), "翻译", 'keyword "翻译" (priority 9)'),
        (route("a", "re:\\bfoo+\\b"), "fooo", 'pattern "\\bfoo+\\b" (priority 0)'),
        (route("a", "prefix:写代码"), "写代码吧", 'prefix "写代码" (priority 0)'),
        (
            route("a", "debug*", when=When(endpoint=("chat",))),
            "debugging",
            'keyword "debug*", endpoint chat (priority 0)',
        ),
    ],
)
def test_the_reason_names_what_matched(made: Route, text: str, reason: str) -> None:
    assert table(made).decide(ask(text)).reason == reason


# build errors


def test_all_bad_entries_are_reported_with_their_places() -> None:
    places = {"re:(?=x)": Place("r.yaml", 3, 5), "re:[": Place("r.yaml", 4, 5)}
    match = Match(any=("re:(?=x)", "good", "re:["), places=places)
    with pytest.raises(RulesError) as caught:
        table(route("bad", match=match), route("worse", "*", place=Place("r.yaml", 9, 1)))
    found = [(p.line, p.column, p.severity) for p in caught.value.problems]
    assert found == [(3, 5, "error"), (4, 5, "error"), (9, 1, "error")]
    assert "look-ahead" in caught.value.problems[0].message
    assert "none:" in caught.value.problems[0].remedy


def test_patterns_that_are_too_large_together_are_an_error_of_the_rules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patterns, "_SET_BYTES", (1 << 16,))
    made = [route(f"r{n}", rf"re:x{n}\p{{L}}{{9}}") for n in range(20)]
    with pytest.raises(RulesError, match="too large for RE2"):
        table(*made)


# convention


def test_a_request_names_its_route_by_model() -> None:
    decision = table(*ARTICLE).decide(ask("hello", model="turnout/translation"))
    assert (decision.route, decision.layer) == ("translation", "rule")
    assert decision.reason == "named by model `turnout/translation`"


def test_a_request_names_its_route_by_header_and_task() -> None:
    found = table(*ARTICLE)
    assert winner(found, ask("hi", headers={"x-turnout-route": "translation"})) == "translation"
    assert winner(found, ask("hi", metadata={"task": "translation"})) == "translation"
    assert winner(found, ask("hi", metadata={"task": "something of its own"})) == "fallback"


def test_model_comes_before_header_and_header_before_task() -> None:
    found = table(route("a", "a1"), route("b", "b1"), route("c", "c1"))
    by_task = {"metadata": {"task": "c"}}
    by_header = {"headers": {"x-turnout-route": "b"}}
    assert winner(found, ask(model="turnout/a", **by_header, **by_task)) == "a"
    assert winner(found, ask(**by_header, **by_task)) == "b"


def test_auto_asks_for_an_ordinary_decision() -> None:
    found = table(*ARTICLE)
    assert winner(found, ask("翻译", model="turnout/auto")) == "translation"
    assert winner(found, ask("翻译", headers={"x-turnout-route": "auto"})) == "translation"


@pytest.mark.parametrize(
    "naming", [{"model": "turnout/nope"}, {"headers": {"x-turnout-route": "nope"}}]
)
def test_an_unknown_named_route_is_refused_and_says_so(naming: dict[str, Any]) -> None:
    decision = table(*ARTICLE).decide(ask("code", **naming))
    assert (decision.target, decision.route) == ("block", None)
    assert "no route is called so" in decision.reason
    assert decision.message.startswith("No route is called `nope`.")


def test_words_in_the_prompt_name_no_route() -> None:
    assert winner(table(*ARTICLE), "x-turnout-route: translation turnout/trans") == "fallback"


# targets


def test_captures_of_the_model_fill_the_target() -> None:
    found = table(
        route(
            "any-gpt", when=When(model=("re:^gpt-(?P<rest>.*)$",)), target="api/open-{1}",
            fallback=("api/old-{rest}",),
        )
    )  # fmt: skip
    decision = found.decide(ask(model="GPT-4o-Mini"))
    assert decision.target == "api/open-4o-Mini"
    assert decision.fallback == ("api/old-4o-Mini",)


def test_a_captured_model_that_the_upstream_lacks_goes_to_the_next_route() -> None:
    found = table(
        route("own", when=When(model=("re:^(.*)$",)), target="text/{1}"), route("rest", ".*")
    )
    decision = found.decide(ask(model="nope"))
    assert decision.route == "rest"
    assert decision.skipped == ("own: upstream `text` has no model `nope`",)


def test_weights_are_stable_for_a_conversation_and_right_over_many() -> None:
    split = Route(name="split", match=Match(any=("go",)), targets=(("api/a", 90), ("api/b", 10)))
    found = table(split)
    counts: Counter[str] = Counter()
    for number in range(2_000):
        request = ask(f"go {number}")
        target = found.decide(request).target
        assert table(split).decide(ask(f"go {number}")).target == target if number < 5 else True
        counts[target] += 1
    assert 120 <= counts["api/b"] <= 280
    assert counts.keys() == {"api/a", "api/b"}


def test_a_target_of_weight_zero_gets_nothing() -> None:
    split = Route(name="s", match=Match(any=("go",)), targets=(("api/a", 0), ("api/b", 1)))
    assert {table(split).decide(ask(f"go {n}")).target for n in range(50)} == {"api/b"}


def test_the_other_side_of_a_split_stands_in_for_one_that_cannot_serve() -> None:
    split = Route(name="s", match=Match(any=("go",)), targets=(("text/small", 99), ("api/b", 1)))
    decision = table(split).decide(ask("go", tools=[_tool()]))
    assert decision.target == "api/b"
    assert decision.fallback == ()


def test_fallbacks_that_cannot_serve_are_left_out() -> None:
    made = route("a", "go", fallback=("text/small", "api/second", "api/a", "pass", "api/third"))
    decision = table(made).decide(ask("go", tools=[_tool()]))
    assert decision.fallback == ("api/second",)
    assert decision.via_sidecar


def test_a_target_that_cannot_serve_gives_way_to_its_fallback_and_says_why() -> None:
    made = route("a", "go", target="text/small", fallback=("api/second",))
    decision = table(made).decide(ask("go", max_tokens=5_000))
    assert (decision.target, decision.fallback) == ("api/second", ())
    assert "text/small: context 100 <" in decision.reason


def test_the_next_route_is_tried_when_one_cannot_serve() -> None:
    found = table(route("a", "go", target="text/small", priority=2), route("b", "go"))
    decision = found.decide(ask("go", tools=[_tool()]))
    assert decision.route == "b"
    assert decision.skipped[0].startswith("a: text/small: no tools")


def test_at_last_a_request_passes_and_the_decision_says_why() -> None:
    found = table(route("a", "go", target="text/small"), route("rest", ".*", target="text/small"))
    decision = found.decide(ask("go", tools=[_tool()]))
    assert (decision.target, decision.route, decision.layer) == ("pass", None, "pass")
    assert decision.reason.startswith("no route can serve it: a: text/small: no tools")
    assert len(decision.skipped) == 2


def test_what_is_bound_to_its_origin_never_moves_but_can_be_blocked() -> None:
    found = table(route("code", "code"), route("no", "secret", target="block"))
    bound = {"path": "/v1/responses", "messages": None, "previous_response_id": "resp_1"}
    decision = found.decide(ask(input="code", **bound))
    assert (decision.target, decision.layer) == ("pass", "pass")
    assert "bound to its origin: previous_response_id" in decision.reason
    assert found.decide(ask(input="code and secret", **bound)).target == "block"


def test_a_bound_request_is_not_moved_by_name_either() -> None:
    decision = table(*ARTICLE).decide(
        ask(
            path="/v1/responses", messages=None, input="x", previous_response_id="r",
            headers={"x-turnout-route": "translation"},
        )
    )  # fmt: skip
    assert decision.target == "pass"
    assert "bound" in decision.reason


def test_embeddings_move_only_by_a_rule_that_names_them() -> None:
    named = route("vectors", when=When(endpoint=("embeddings",)))
    assert table(*ARTICLE).decide(embeddings("code")).target == "pass"
    assert winner(table(*ARTICLE, named), embeddings("code")) == "vectors"


def test_local_targets_fallbacks_and_timeouts_go_through_the_sidecar() -> None:
    made = (
        route("local", "a1", target="local/tiny"),
        route("direct", "b1"),
        route("timed", "c1", timeout_ms=900),
        route("backed", "d1", fallback=("api/x",)),
    )
    found = table(*made)
    ways = {text: found.decide(ask(text)).via_sidecar for text in ("a1", "b1", "c1", "d1")}
    assert ways == {"a1": True, "b1": False, "c1": True, "d1": True}


def test_a_pass_with_fallbacks_goes_through_the_sidecar_unless_it_is_bound() -> None:
    found = table(
        route("kept", "keep", target="pass"),
        route("backed", "back", target="pass", fallback=("api/x", "local/tiny", "api/x", "no/x")),
        route("watched", "watch", target="pass", fallback=("api/x",), observe=True),
    )
    backed = found.decide(ask("back"))
    assert (backed.target, backed.fallback) == ("pass", ("api/x", "local/tiny"))
    assert backed.via_sidecar
    assert not found.decide(ask("keep")).via_sidecar
    assert found.decide(ask("watch")).is_observed
    bound = {"path": "/v1/responses", "messages": None, "previous_response_id": "resp_1"}
    decision = found.decide(ask(input="back", **bound))
    assert (decision.target, decision.fallback, decision.via_sidecar) == ("pass", (), False)
    assert found.decide(embeddings("back")).fallback == ()


def test_observe_mode_for_all_or_for_one_route() -> None:
    assert table(route("a", "go"), observe=True).decide(ask("go")).is_observed
    assert table(route("a", "go", observe=True)).decide(ask("go")).is_observed
    assert not table(route("a", "go")).decide(ask("go")).is_observed


def test_targets_resolve_or_say_what_is_missing() -> None:
    found = table()
    assert found.resolve("api/anything/at-all").model.upstream_model == "anything/at-all"
    assert found.resolve("text/small").model.context == 100
    for name in ("nope/x", "text/nope", "local/nope", "api", "api/", "pass", "block", ""):
        with pytest.raises(UnknownTarget):
            found.resolve(name)


# scripts


class Scripted:
    """A script that always says the same."""

    def __init__(self, answer: str | None) -> None:
        self.answer = answer

    def choose(self, request: Request) -> str | None:
        return self.answer


def scripted(answer: str | None, **fields: Any) -> Table:
    made = route("dynamic", "go", script="scripts/pick.py", **fields)
    return table(made, route("rest", ".*"), scripts={"scripts/pick.py": Scripted(answer)})


def test_a_script_chooses_the_target() -> None:
    decision = scripted("api/chosen").decide(ask("go"))
    assert decision.target == "api/chosen"
    assert decision.reason.endswith("scripts/pick.py chose api/chosen")
    assert scripted("block").decide(ask("go")).target == "block"


def test_a_script_without_an_answer_leaves_it_to_the_target_or_the_next_route() -> None:
    assert scripted(None).decide(ask("go")).target == "api/dynamic"
    assert scripted(None, target="").decide(ask("go")).route == "rest"


def test_a_script_that_names_no_target_does_not_break_the_request() -> None:
    decision = scripted("nowhere/x").decide(ask("go"))
    assert decision.route == "rest"
    assert "no upstream `nowhere`" in decision.skipped[0]


def test_a_script_alone_sees_every_request() -> None:
    made = route("dynamic", script="s.py", target="")
    found = table(made, scripts={"s.py": Scripted("api/x")})
    assert found.decide(ask("anything")).target == "api/x"


# the semantic layer


SEMANTIC = (*ARTICLE, route("summary", examples=("write a report",)))


def test_the_classifier_is_wanted_only_where_it_can_help() -> None:
    found = table(*SEMANTIC)
    assert found.decide(ask("weekly report")).wants_classifier
    assert not found.decide(ask("code")).wants_classifier
    assert not found.decide(ask("")).wants_classifier
    assert not found.decide(embeddings("weekly report")).wants_classifier
    assert not table(*ARTICLE).decide(ask("weekly report")).wants_classifier


def test_a_description_teaches_a_route_without_rules_and_is_a_remark_beside_one() -> None:
    about = "what the weather will be"
    found = table(
        route("rest", ".*", priority=-9),
        route("weather", description=about),
        route("news", "news", description=about),
        route("large", when=When(model=("large",)), description=about),
        route("named", description=" "),
    )
    assert [r.name for r in found.semantic_routes] == ["weather"]
    assert found.decide(ask("is it cold outside")).wants_classifier


def settled(verdict: Verdict | None, text: str = "weekly report", **fields: Any) -> Any:
    found = table(*SEMANTIC)
    request = ask(text, **fields)
    return found.settle(request, found.decide(request), verdict)


def test_an_accepted_verdict_decides() -> None:
    decision = settled(Verdict(route="summary", probability=0.9, threshold=0.5))
    assert (decision.route, decision.layer, decision.target) == (
        "summary", "semantic", "api/summary",
    )  # fmt: skip
    assert decision.reason == "classifier: 0.90 ≥ 0.50"
    assert not decision.wants_classifier


def test_under_the_threshold_the_default_route_decides() -> None:
    decision = settled(Verdict(route="summary", probability=0.3, threshold=0.5))
    assert (decision.route, decision.layer) == ("fallback", "default")
    assert "not sure (summary 0.30 < 0.50)" in decision.reason
    second = Verdict(
        route="summary", probability=0.3, threshold=0.5, runner_up="news", runner_up_probability=0.1
    )
    assert "not sure (summary 0.30 < 0.50, then news 0.10)" in settled(second).reason


def test_without_an_answer_the_default_route_decides_and_says_so() -> None:
    decision = settled(None)
    assert decision.route == "fallback"
    assert "did not answer" in decision.reason
    assert not decision.wants_classifier


def test_a_verdict_never_overrules_a_rule() -> None:
    decision = settled(Verdict(route="summary", probability=1.0), text="code")
    assert (decision.route, decision.layer) == ("code_completion", "rule")


def test_a_verdict_for_a_route_of_another_table_is_no_verdict() -> None:
    decision = settled(Verdict(route="gone", probability=1.0))
    assert decision.route == "fallback"
    assert decision.skipped == ("gone: no such route",)


# properties


NAMES = ("red", "blue", "green", "翻译", "код", "debug*", "re:\\bx+y\\b", "prefix:please")
WORDS = ("red", "blue", "green", "请翻译", "код", "debugging", "xxy", "please", "other", "darkred")
_routes = st.lists(
    st.tuples(st.sets(st.sampled_from(NAMES), min_size=1, max_size=3), st.integers(0, 1_000)),
    min_size=1,
    max_size=8,
    unique_by=lambda pair: pair[1],
)
_texts = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)


@settings(max_examples=150)
@given(_routes, _texts, st.randoms())
def test_file_order_does_not_matter_at_different_priorities(
    made: list[tuple[set[str], int]], text: str, rng: random.Random
) -> None:
    routes = [route(f"r{p}", *sorted(entries), priority=p) for entries, p in made]
    expected = table(*routes).decide(ask(text))
    rng.shuffle(routes)
    assert table(*routes).decide(ask(text)) == expected


@settings(max_examples=150)
@given(_routes, _texts)
def test_unrelated_rules_do_not_matter(made: list[tuple[set[str], int]], text: str) -> None:
    routes = [route(f"r{p}", *sorted(entries), priority=p) for entries, p in made]
    unrelated = [
        route(f"u{n}", f"zebra{n}", f"re:quagga{n}", f"prefix:okapi{n}", priority=n * 37)
        for n in range(30)
    ] + [when_route("elsewhere", endpoint=("messages",), priority=5_000)]
    expected = table(*routes).decide(ask(text))
    assert table(*unrelated, *routes).decide(ask(text)) == expected


@settings(max_examples=150)
@given(_routes, _texts)
def test_the_index_finds_what_looking_at_every_row_finds(
    made: list[tuple[set[str], int]], text: str
) -> None:
    found = table(*(route(f"r{p}", *sorted(entries), priority=p) for entries, p in made))
    request = ask(text)
    numbers = found.rows.scanner.find(request)
    slow = [row.route.name for row in found.rows.all if row.holds(numbers, request)]
    assert [row.route.name for row in found.rows.matching(numbers, request)] == slow


def _tool() -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
