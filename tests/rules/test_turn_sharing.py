"""Which requests share a decision: those that no rule of the table can tell apart."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matching_kit import ask, route, table
from turnout_rules.capabilities import obstacle
from turnout_rules.decision import BLOCK, PASS, Decision, Verdict
from turnout_rules.decision_flow import decide
from turnout_rules.loading import Rules
from turnout_rules.model import Match, Place, Route, Span, When
from turnout_rules.problems import Problem
from turnout_rules.request import Request
from turnout_rules.scripts import Script, load_script
from turnout_rules.settings import Reading, Settings
from turnout_rules.table import Table
from turnout_rules.turns import Turns

PIXEL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}


class Flow:
    """The whole decision, with the memory of one table."""

    def __init__(self, rules: Table, reading: Reading | None = None) -> None:
        self._rules = Rules(
            table=rules, settings=Settings(), warnings=(), files=(), version=rules.version
        )
        self._turns = Turns(rules, reading or Reading())

    def decide(self, request: Request, *, fresh: bool = False) -> Decision:
        async def classify(_: Request) -> Verdict:
            return Verdict(route=None, reason="nobody there")

        turns = None if fresh else self._turns
        return asyncio.run(decide(self._rules, request, classify, turns=turns, now=1.0))


def when(name: str, target: str = "", **conditions: Any) -> Route:
    return route(name, target=target or f"api/{name}", when=When(**conditions), priority=5)


TEAMS = table(
    when("guests", BLOCK, header=(("x-team", ("guest",)),)),
    when("one", header=(("x-team", ("a",)),)),
    when("two", header=(("x-team", ("b",)),)),
    when("azure", path=("*/deployments/*",)),
    route("rest", ".*"),
)
AZURE = "/openai/deployments/gpt-4o/chat/completions?api-version=1"


def team(name: str | None, **fields: Any) -> Request:
    return ask("the same words", headers={"x-team": name} if name else {}, **fields)


@pytest.mark.parametrize("first", ["a", "b", "guest", None, "azure"])
def test_headers_and_paths_that_rules_name_tell_requests_of_one_turn_apart(
    first: str | None,
) -> None:
    requests = {
        "a": team("a"),
        "b": team("b"),
        "guest": team("guest"),
        None: team(None),
        "azure": ask("the same words", path=AZURE),
    }
    flow = Flow(TEAMS)
    flow.decide(requests[first])
    targets = {name: flow.decide(request).target for name, request in requests.items()}
    assert targets == {
        "a": "api/one",
        "b": "api/two",
        "guest": BLOCK,
        None: "api/rest",
        "azure": "api/azure",
    }


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("authorization", "Bearer another"),
        ("x-api-key", "another"),
        ("api-key", "another"),
        ("x-goog-api-key", "another"),
    ],
)
def test_another_credential_has_a_decision_of_its_own(header: str, value: str) -> None:
    flow = Flow(TEAMS)
    flow.decide(ask("hello", headers={"authorization": "Bearer one"}))
    assert flow.decide(ask("hello", headers={"authorization": "Bearer one"})).is_remembered
    assert not flow.decide(ask("hello", headers={header: value})).is_remembered


def test_headers_that_no_rule_names_do_not_part_a_turn() -> None:
    flow = Flow(TEAMS)
    flow.decide(ask("hello", headers={"x-request-id": "1", "user-agent": "a"}))
    again = ask("hello", headers={"x-request-id": "2", "user-agent": "b"})
    assert flow.decide(again).is_remembered


def grown(*parts: dict[str, Any], text: str = "hello", **fields: Any) -> Request:
    """A later round of a turn: a tool was called and has answered, `parts` among its answer."""
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    return ask(
        messages=[
            {"role": "user", "content": text},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {
                "role": "tool",
                "tool_call_id": "call_1",
                "content": [{"type": "text", "text": "SECRET " * 400}, *parts],
            },
        ],
        **fields,
    )


def test_a_refusal_is_never_remembered() -> None:
    flow = Flow(table(when("long", BLOCK, input_tokens=Span(min=500)), route("rest", ".*")))
    assert flow.decide(grown()).target == BLOCK
    assert flow.decide(ask("hello")).target == "api/rest"


@pytest.mark.parametrize(
    "guard",
    [
        when("images", BLOCK, has=("image",)),
        when("long", BLOCK, input_tokens=Span(min=500)),
        route("secrets", target=BLOCK, match=Match(any=("secret",), on="all"), priority=5),
        route(
            "script",
            target="",
            script="pick.py",
            when=When(has=("image",)),
            priority=5,
            targets=(("api/other", 1),),
        ),
    ],
    ids=lambda guard: guard.name,
)
def test_a_later_round_is_refused_for_what_it_brings(guard: Route, tmp_path: Path) -> None:
    scripts = {"pick.py": script(tmp_path, "return 'block'")}
    flow = Flow(table(guard, route("rest", ".*"), scripts=scripts))
    assert flow.decide(ask("hello", tools=[TOOL])).target == "api/rest"
    assert flow.decide(grown(PIXEL, tools=[TOOL])).target == BLOCK
    assert flow.decide(ask("hello", tools=[TOOL])).target == "api/rest"


def test_a_conversation_that_stays_is_refused_for_its_next_words() -> None:
    rules = table(
        route("forbidden", "bomb", target=BLOCK, priority=9),
        route("small", "hello", priority=5),
        route("rest", ".*"),
    )
    flow = Flow(rules, Reading(conversation=True))
    assert flow.decide(ask("hello")).target == "api/small"
    assert flow.decide(follow_up("go on")).target == "api/small"
    assert flow.decide(follow_up("build a bomb")).target == BLOCK
    assert flow.decide(follow_up("then go on")).target == "api/small"


def test_a_conversation_that_stays_is_judged_anew_in_another_language() -> None:
    rules = table(when("chinese", language=("zh",)), route("rest", ".*"))
    flow = Flow(rules, Reading(conversation=True))
    assert flow.decide(ask("hello")).target == "api/rest"
    assert flow.decide(follow_up("请告诉我今天的天气怎么样")).target == "api/chinese"


def follow_up(text: str) -> Request:
    return ask(
        messages=[
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "hello to you"},
            {"role": "user", "content": text},
        ]
    )


@pytest.mark.parametrize("value", ["auto", "turnout/auto", " auto "])
def test_asking_for_an_ordinary_decision_is_no_wish_of_its_own(value: str) -> None:
    flow = Flow(TEAMS)
    flow.decide(ask("hello"))
    assert flow.decide(ask("hello", headers={"x-turnout-route": value})).is_remembered


def test_a_named_route_neither_follows_nor_leads() -> None:
    flow = Flow(TEAMS)
    named = ask("hello", headers={"x-turnout-route": "one"})
    assert flow.decide(named).target == "api/one"
    assert flow.decide(ask("hello")).target == "api/rest"
    assert flow.decide(named).target == "api/one"


def test_what_is_bound_to_its_origin_leads_nobody() -> None:
    flow = Flow(table(route("all", "hello", priority=1), route("rest", ".*", target=PASS)))
    body = {"messages": [{"role": "user", "content": "hello"}]}
    bound = ask("hello", **body, container="c1")
    assert flow.decide(bound).target == PASS
    assert flow.decide(ask("hello")).target == "api/all"


def test_the_system_prompt_counts_where_a_rule_looks_at_it() -> None:
    rules = table(
        route("pirates", match=Match(any=("pirate",), on="system"), priority=5), route("rest", ".*")
    )
    flow = Flow(rules)
    long_head = "You are helpful. " * 100
    assert flow.decide(with_system(long_head + "Be kind.")).target == "api/rest"
    assert flow.decide(with_system(long_head + "Be kind.")).is_remembered
    assert flow.decide(with_system(long_head + "You are a pirate.")).target == "api/pirates"


def with_system(system: str) -> Request:
    return ask(messages=[{"role": "system", "content": system}, {"role": "user", "content": "hi"}])


def script(folder: Path, body: str) -> Script:
    (folder / "pick.py").write_text(f"def choose(request):\n    {body}\n")
    problems: list[Problem] = []
    found = load_script(folder, "pick.py", Place(), problems)
    assert found is not None, problems
    return found


@pytest.mark.parametrize(
    ("choose", "first", "other"),
    [
        ("return request.headers.get('x-team')", {}, {"headers": {"x-team": "api/b"}}),
        ("return dict(request.headers).get('x-team')", {}, {"headers": {"x-team": "api/b"}}),
        ("return 'api/b' if request.stream else 'api/a'", {}, {"stream": True}),
        ("return 'api/b' if 'tools' in request.needs else 'api/a'", {}, {"tools": [TOOL]}),
        ("return 'api/b' if request.output_tokens > 9 else 'api/a'", {}, {"max_tokens": 10}),
        ("return 'api/b' if 'zone' in request.path else 'api/a'", {}, {"path": AZURE + "&zone"}),
        (
            "return 'api/b' if 'pirate' in request.system else 'api/a'",
            {"messages": [{"role": "user", "content": "hello"}]},
            {
                "messages": [
                    {"role": "system", "content": "x" * 2_000 + "pirate"},
                    {"role": "user", "content": "hello"},
                ]
            },
        ),
    ],
)
def test_what_a_script_has_looked_at_tells_requests_apart(
    choose: str, first: dict[str, Any], other: dict[str, Any], tmp_path: Path
) -> None:
    if "path" in other:
        first = {**first, "path": AZURE}
    scripts = {"pick.py": script(tmp_path, choose)}
    flow = Flow(table(route("picked", target="api/a", script="pick.py"), scripts=scripts))
    assert flow.decide(ask("hello", **first)).target == "api/a"
    assert flow.decide(ask("hello", **first)).is_remembered
    assert flow.decide(ask("hello", **other)).target == "api/b"


def test_a_script_that_looks_at_the_size_keeps_its_turn(tmp_path: Path) -> None:
    choose = "return 'api/big' if request.input_tokens > 500 else 'api/small'"
    scripts = {"pick.py": script(tmp_path, choose)}
    flow = Flow(table(route("picked", target="api/a", script="pick.py"), scripts=scripts))
    assert flow.decide(ask("hello")).target == "api/small"
    assert flow.decide(grown()).target == "api/small"
    assert flow.decide(grown(text="another turn")).target == "api/big"


# -- every table, every pair -------------------------------------------------------------------

HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "x-team": st.sampled_from(["a", "b", "guest"]),
        "x-plan": st.sampled_from(["free", "paid"]),
        "authorization": st.sampled_from(["Bearer one", "Bearer two"]),
        "x-turnout-route": st.sampled_from(["auto", "r0", "r1"]),
    },
)
SYSTEMS = st.sampled_from(["", "Be kind. " * 200, "Be kind. " * 200 + "You are a pirate."])
PATHS = st.sampled_from(["/v1/chat/completions", AZURE, "/eu/v1/chat/completions"])
CLIENTS = st.sampled_from(["127.0.0.1", "10.0.0.7"])
MODELS = st.sampled_from(["gpt-4o", "claude-x", "turnout/auto", "turnout/r1"])
TEXTS = st.sampled_from(["fix the parser", "请把这段翻译成英文好吗", "what is this"])
TASKS = st.sampled_from(["", "title", "r0"])
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "tools": st.just([TOOL]),
        "stream": st.just(True),
        "response_format": st.just(SCHEMA),
        "reasoning_effort": st.just("high"),
    },
)
SEEN_NEEDS = st.sets(
    st.sampled_from(["tools", "stream", "json_schema", "reasoning"]), min_size=1, max_size=2
).map(tuple)
TARGETS = st.sampled_from(["api/one", "api/two", "text/plain", BLOCK, PASS])


LOOKS: dict[str, st.SearchStrategy[Any]] = {
    "system": SYSTEMS,
    "text": TEXTS,
    "task": TASKS,
    "model": MODELS,
    "headers": HEADERS,
    "path": PATHS,
    "client": CLIENTS,
    "fields": FIELDS,
}


@st.composite
def pairs(draw: st.DrawFn, changed: str) -> tuple[Request, Request]:
    """Two requests that differ in one thing, so that rules have to look to tell them apart."""
    looks = {name: draw(values) for name, values in LOOKS.items()}
    return as_request(looks), as_request({**looks, changed: draw(LOOKS[changed])})


def as_request(looks: dict[str, Any]) -> Request:
    messages = [{"role": "system", "content": looks["system"]}] if looks["system"] else []
    return ask(
        messages=[*messages, {"role": "user", "content": looks["text"]}],
        metadata={"task": looks["task"]} if looks["task"] else None,
        **{name: looks[name] for name in ("model", "headers", "path", "client")},
        **looks["fields"],
    )


CONDITIONS: dict[str, st.SearchStrategy[When | Match]] = {
    "system": st.sampled_from(
        [Match(any=("pirate",), on="system"), Match(any=("pirate", "kind"), on="all")]
    ),
    "text": st.sampled_from([Match(any=("parser", "翻译")), When(language=("zh",))]),
    "task": st.just(When(task=("title",))),
    "model": st.sampled_from([When(model=("gpt-*",)), When(model=("claude-x",))]),
    "headers": st.sampled_from(
        [When(header=(("x-team", ("a",)),)), When(header=(("x-plan", ("f*",)), ("x-team", ("*",))))]
    ),
    "path": st.sampled_from([When(path=("*/deployments/*",)), When(path=("/eu/*",))]),
    "client": st.sampled_from([When(client=("10.0.0.0/8",)), When(client=("127.0.0.1/32",))]),
    "fields": st.one_of(
        SEEN_NEEDS.map(lambda needs: When(has=needs)),
        SEEN_NEEDS.map(lambda needs: When(lacks=needs)),
        st.just(Match(any=("look",), on="tools")),
    ),
    "growth": st.sampled_from(
        [
            When(has=("image",)),
            When(lacks=("image",)),
            When(input_tokens=Span(min=500)),
            Match(any=("secret",), on="all"),
        ]
    ),
}


@st.composite
def tables(draw: st.DrawFn, about: str = "") -> Table:
    """Routes on this and that, among them one that looks at what `about` names."""
    looked_at = draw(st.lists(st.sampled_from(sorted(LOOKS)), max_size=3))
    routes = []
    for number, name in enumerate([about, *looked_at] if about else looked_at):
        condition = draw(CONDITIONS[name])
        kind = "when" if isinstance(condition, When) else "match"
        made = {kind: condition, "target": draw(TARGETS), "priority": draw(st.integers(0, 2))}
        routes.append(route(f"r{number}", **made))
    return table(*routes, route("rest", ".*", target=draw(TARGETS), priority=-1))


@pytest.mark.parametrize(
    ("changed", "keeps"),
    [
        *((name, False) for name in sorted(LOOKS)),
        # Over whole conversations the words are meant to change.
        *((name, True) for name in sorted(LOOKS) if name != "text"),
    ],
)
@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_no_remembered_decision_differs_from_a_fresh_one(
    changed: str, keeps: bool, data: st.DataObject
) -> None:
    first, second = data.draw(pairs(changed))
    rules = data.draw(tables(changed))
    flow = Flow(rules, Reading(conversation=keeps))
    flow.decide(first)
    followed, fresh = flow.decide(second), flow.decide(second, fresh=True)
    assert (followed.target, followed.route) == (fresh.target, fresh.route)


@settings(deadline=None, max_examples=200)
@given(rules=tables("growth"), text=TEXTS, headers=HEADERS, has_image=st.booleans(), data=st.data())
def test_a_growing_turn_stays_where_it_is_unless_it_is_refused_or_cannot_be_served(
    rules: Table, text: str, headers: dict[str, str], has_image: bool, data: st.DataObject
) -> None:
    fields: dict[str, Any] = {"headers": headers, "tools": [TOOL], **data.draw(FIELDS)}
    flow = Flow(rules)
    first = flow.decide(ask(text, **fields))
    later = grown(*([PIXEL] if has_image else []), text=text, **fields)
    fresh, followed = flow.decide(later, fresh=True), flow.decide(later)
    is_servable = first.target == PASS or (
        first.target != BLOCK and not obstacle(later, rules.resolve(first.target))
    )
    stays = is_servable and fresh.target != BLOCK and not rules.is_named(later)
    assert followed.target == (first.target if stays else fresh.target)
