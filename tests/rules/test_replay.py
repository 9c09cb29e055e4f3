"""Recorded requests, decided without being sent."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from rules.bodies.making import READER, RECORDED, chat, target
from turnout_rules.capabilities import obstacle
from turnout_rules.decision import Decision
from turnout_rules.model import Route, Target
from turnout_rules.replay import NOT_ROUTED, Replayed, changed_fields, replay, total
from turnout_rules.request import Request

LOCAL = target("http://127.0.0.1:8000/v1", "local-model")


class MovesAll:
    """The seam of a table, with one row: whatever can go to one target goes there."""

    def __init__(self, to: Target, **decision: Any) -> None:
        self.to = to
        self.more = decision

    def decide(self, request: Request) -> Decision:
        why = request.bound or obstacle(request, self.to)
        name = "pass" if why else self.more.get("target", self.to.name)
        facts = {"layer": "rule", "reason": why or "all", "wants_classifier": not why}
        return Decision(route="all", **{**facts, **self.more, "target": name})

    def settle(self, request: Request, decision: Decision, verdict: None) -> Decision:
        return msgspec.structs.replace(decision, wants_classifier=False, layer="default")

    def resolve(self, name: str) -> Target:
        return self.to

    def route(self, name: str) -> Route:
        return Route(name=name)


def run(lines: Iterable[bytes], table: MovesAll) -> list[Replayed]:
    return list(replay(lines, table, READER))  # type: ignore[arg-type]


def line(body: Any, uri: str = "https://api.openai.com/v1/chat/completions", **more: Any) -> bytes:
    return json.dumps({"uri": uri, "body": body, **more}).encode()


def test_every_recorded_request_is_moved_pinned_or_passed_for_a_reason() -> None:
    replayed = run(RECORDED.read_bytes().splitlines(), MovesAll(LOCAL))
    assert len(replayed) == 255
    totals = total(replayed)
    counts = {name: entry.outcomes for name, entry in totals.items()}
    assert counts == {
        "responses": {"moved": 51, "pinned": 40},
        "chat": {"moved": 72, "pinned": 6},
        "completions": {"moved": 3},
        "embeddings": {"moved": 2},
        "messages": {"moved": 19, "pinned": 14},
        "images": {"moved": 2},
        NOT_ROUTED: {"passed": 46},
    }
    for one in replayed:
        assert (one.why == "") == (one.outcome == "moved")
        if one.outcome == "moved":
            folded = (
                {"input", "+tools"} if "additional_tools" in " ".join(one.adjustments) else set()
            )
            assert set(one.changed) - {"-logit_bias"} == {"model"} | folded


def test_codexs_request_moves_to_an_engine_and_says_what_was_folded() -> None:
    group = {"type": "namespace", "name": "functions"}
    tool = {"type": "custom", "name": "exec"}
    declared = {"type": "additional_tools", "role": "developer"}
    words = {"type": "input_text", "text": "please translate good morning"}
    body = {
        "model": "gpt-6.2-sol",
        "stream": True,
        "input": [
            {**declared, "tools": [{**group, "tools": [tool]}]},
            {"type": "message", "role": "user", "content": [words]},
        ],
    }
    (one,) = run([line(body, "https://api.openai.com/v1/responses")], MovesAll(LOCAL))
    assert one.outcome == "moved"
    assert set(one.changed) == {"model", "input", "+tools"}
    assert one.adjustments == (
        "additional_tools moved from input to tools",
        "namespaces folded",
        "custom tools as functions",
    )


def test_a_target_that_cannot_serve_is_a_reason_to_pass() -> None:
    anthropic = target("https://api.anthropic.com/v1")
    body = {"model": "m", "input": "x"}
    (one,) = run([line(body, "https://api.openai.com/v1/responses")], MovesAll(anthropic))
    assert one.outcome == "passed"
    assert "no responses endpoint" in one.why


def test_bodies_may_be_text_or_objects_and_headers_any_case() -> None:
    lines = [
        line(json.dumps(chat("x"))),
        line(chat("x"), headers={"Content-Encoding": "zstd"}),
        b"",
    ]
    assert [one.outcome for one in run(lines, MovesAll(LOCAL))] == ["moved", "moved"]


def test_broken_lines_are_reported_and_do_not_end_the_run() -> None:
    lines = [b"{", b"[]", b'{"uri": 5}', b'{"uri":"http://[/x","body":""}', line(chat("x"))]
    outcomes = [one.outcome for one in run(lines, MovesAll(LOCAL))]
    assert outcomes == ["failed", "failed", "failed", "failed", "moved"]


def test_blocked_and_observed_are_shown() -> None:
    blocked = MovesAll(LOCAL, target="block", message="no", wants_classifier=False)
    assert run([line(chat("x"))], blocked)[0].outcome == "blocked"
    observed = MovesAll(LOCAL, is_observed=True, wants_classifier=False)
    (one,) = run([line(chat("x"))], observed)
    assert (one.outcome, one.why) == ("observed", "observed: up/local-model")


def test_the_diff_names_fields() -> None:
    before = b'{"a":1,"b":[1],"c":2}'
    after = b'{"a":1,"b":[2],"d":3}'
    assert changed_fields(before, after) == ("b", "+d", "-c")


def test_the_diff_takes_numbers_of_any_length() -> None:
    before = b'{"a":' + b"9" * 10_000 + b"}"
    assert changed_fields(before, before) == ()
