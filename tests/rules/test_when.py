"""`when:` conditions on the request itself: all keys must hold, lists are alternatives."""

from __future__ import annotations

from typing import Any

import pytest

from matching_kit import ask, route, table, when_route, winner
from turnout_rules.model import Span, When
from turnout_rules.request import Request

IMAGE = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "look"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
        ],
    }
]


@pytest.mark.parametrize(
    ("conditions", "fields", "holds"),
    [
        ({"endpoint": ("chat", "messages")}, {}, True),
        ({"endpoint": ("responses",)}, {}, False),
        ({"model": ("gpt-*",)}, {}, True),
        ({"model": ("GPT-4O",)}, {}, True),
        ({"model": ("claude-*", "o?")}, {}, False),
        ({"model": ("re:^gpt-[0-9]",)}, {}, True),
        ({"model": ("claude-opus-5[1m]",)}, {"model": "claude-opus-5[1m]"}, True),
        ({"model": ("claude-opus-5[1m]",)}, {"model": "claude-opus-51"}, False),
        ({"model": ("m[34]",)}, {"model": "m[34]"}, True),
        ({"model": ("m[34]",)}, {"model": "m4"}, True),
        ({"path": ("/v1/*",)}, {}, True),
        ({"path": ("*/completions",)}, {"path": "/v1/chat/completions?x=1"}, True),
        ({"path": ("/openai/*",)}, {}, False),
        ({"header": (("user-agent", ("curl/*",)),)}, {"headers": {"user-agent": "curl/8"}}, True),
        ({"header": (("user-agent", ("curl/*",)),)}, {}, False),
        (
            {"header": (("a", ("1",)), ("b", ("2",)))},
            {"headers": {"a": "1", "b": "3"}},
            False,
        ),
        ({"client": ("127.0.0.0/8",)}, {}, True),
        ({"client": ("10.0.0.0/8", "::1/128")}, {"client": "::1"}, True),
        ({"client": ("10.0.0.0/8",)}, {"client": "::ffff:10.1.2.3"}, True),
        ({"client": ("10.0.0.0/8",)}, {"client": ""}, False),
        ({"has": ("image",)}, {"messages": IMAGE}, True),
        ({"has": ("image",)}, {}, False),
        ({"lacks": ("image",)}, {"messages": IMAGE}, False),
        ({"has": ("stream",), "lacks": ("tools",)}, {"stream": True}, True),
        ({"input_tokens": Span(min=1_000)}, {"text": "word " * 2_000}, True),
        ({"input_tokens": Span(min=1_000)}, {}, False),
        ({"input_tokens": Span(max=1_000)}, {}, True),
        ({"task": ("summ*",)}, {"metadata": {"task": "summary"}}, True),
        ({"task": ("summary",)}, {}, False),
        ({"language": ("zh", "ja")}, {"text": "今天天气怎么样"}, True),
        ({"language": ("zh-CN",)}, {"text": "今天天气怎么样"}, True),
        ({"language": ("en",)}, {"text": "今天天气怎么样"}, False),
        ({"endpoint": ("chat",), "model": ("claude-*",)}, {}, False),
    ],
)
def test_conditions(conditions: dict[str, Any], fields: dict[str, Any], holds: bool) -> None:
    found = table(when_route("hit", **conditions))
    assert (winner(found, ask(**fields)) == "hit") is holds


def test_match_and_when_must_both_hold() -> None:
    found = table(route("both", "code", when=When(model=("gpt-*",))))
    assert winner(found, ask("code")) == "both"
    assert winner(found, ask("code", model="claude")) is None
    assert winner(found, ask("hello")) is None


def test_a_catch_all_with_when_is_a_rule() -> None:
    found = table(route("mini", ".*", when=When(model=("*-mini",))), route("rest", ".*"))
    assert found.decide(ask(model="gpt-4o-mini")).layer == "rule"
    assert found.decide(ask()).layer == "default"


def test_dear_facts_are_computed_only_for_routes_that_were_hit() -> None:
    class Watched(Request):
        @property
        def input_tokens(self) -> int:
            raise AssertionError("computed for nothing")

    sized = route("long", "novel", when=When(input_tokens=Span(min=10)))
    table(sized, route("rest", ".*")).decide(Watched.from_text("hello"))


def test_the_reason_names_the_conditions() -> None:
    made = when_route("long", input_tokens=Span(min=10), endpoint=("chat",), priority=20)
    request = ask("word " * 100)
    expected = f"endpoint chat, {request.input_tokens:,} input tokens ≥ 10 (priority 20)"
    assert table(made).decide(request).reason == expected
